"""The librdkafka side of the kill test: makes topics, produces counting records while the broker dies, and reads topics back.

    driver.py create  BOOTSTRAP TOPIC PARTITIONS
    driver.py produce BOOTSTRAP TOPIC PARTITIONS ACKS RATE     until SIGTERM; a line for each delivery, see `produce`
    driver.py read    BOOTSTRAP TOPIC PARTITIONS               a line for each record: partition, offset, value
"""

import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT_S = 60
TICK_S = 0.002
# Records that wait for an answer; beyond it the producer pauses, as an application with a bounded buffer would.
WAITING_MAX = 50_000


def create(bootstrap, topic, partitions):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, int(partitions), 1)]).values():
        future.result(LIMIT_S)


def produce(bootstrap, topic, partitions, acks, rate):
    """Values count up from 0, value v goes to partition v % partitions.

    Prints `A value partition offset` for an acknowledged record, `F value reason` for a failed one, and after SIGUSR1
    `W count` with the number of records sent or queued and not answered yet.
    """
    idempotent = acks == "all"
    config = {"bootstrap.servers": bootstrap, "acks": acks, "enable.idempotence": idempotent, "linger.ms": 2,
              "queue.buffering.max.messages": WAITING_MAX * 2, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500,
              "message.timeout.ms": 120_000, "log_level": 2}
    if not idempotent:
        # Without idempotence a retry may write a record twice; a lost answer is then a failed record, never a repeated one.
        config["retries"] = 0
    producer = Producer(config)
    out, stop, ask = sys.stdout, [], []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    signal.signal(signal.SIGUSR1, lambda *_: ask.append(True))

    def delivered(error, message):
        value = message.value().decode()
        if error is None:
            out.write(f"A {value} {message.partition()} {message.offset()}\n")
        else:
            out.write(f"F {value} {error.name()}\n")

    value, started = 0, time.monotonic()
    while not stop:
        due = int((time.monotonic() - started) * int(rate))
        while value < due and len(producer) < WAITING_MAX:
            producer.produce(topic, value=str(value).encode(), partition=value % int(partitions), on_delivery=delivered)
            value += 1
        if value < due:
            # What was not sent while the broker was away is not made up for.
            started = time.monotonic() - value / int(rate)
        if ask:
            ask.clear()
            out.write(f"W {len(producer)}\n")
        producer.poll(TICK_S)
        out.flush()
    left = producer.flush(LIMIT_S)
    out.flush()
    if left:
        sys.exit(f"{left} records without an answer after {LIMIT_S} s")


def read(bootstrap, topic, partitions):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
                         "auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 50})
    ends = {}
    for p in range(int(partitions)):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), LIMIT_S)
        if low != 0:
            sys.exit(f"partition {p} starts at {low}")
        ends[p] = high
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    wanted, got, idle = sum(ends.values()), 0, 0
    while got < wanted and idle < 20:
        messages = consumer.consume(min(5000, wanted - got), 1.0)
        idle = 0 if messages else idle + 1
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            sys.stdout.write(f"{message.partition()} {message.offset()} {message.value().decode()}\n")
            got += 1
    if got < wanted:
        sys.exit(f"the end offsets promise {wanted} records, {got} were read")


if __name__ == "__main__":
    {"create": create, "produce": produce, "read": read}[sys.argv[1]](*sys.argv[2:])
