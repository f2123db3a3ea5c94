"""The client of the takeover test: fills a topic of Apache Kafka, and prints all that a client can see of a topic of any broker.

    driver.py create BOOTSTRAP TOPIC
    driver.py fill   BOOTSTRAP TOPIC RECORDS    that many for each codec, idempotent, with keys and headers
    driver.py read   BOOTSTRAP TOPIC            a line for each record, each partition's offsets, and offsets by time
    driver.py add    BOOTSTRAP TOPIC            one record more for each partition; a line `partition offset` for each
"""

import hashlib
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import records

LIMIT_S = 60
# Of each partition, every so many records one is looked up by its timestamp, and by the millisecond after it.
LOOK_UP_EVERY = 97


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, records.PARTITIONS, 1)]).values():
        future.result(LIMIT_S)
    # Apache Kafka answers before the leaders are up.
    consumer = reader(bootstrap)
    for p in range(records.PARTITIONS):
        for attempt in range(50):
            try:
                consumer.get_watermark_offsets(TopicPartition(topic, p), LIMIT_S)
                break
            except KafkaException:
                if attempt == 49:
                    raise
                time.sleep(0.1)
    consumer.close()


def reader(bootstrap):
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
                     "auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 50})


def send(producer, topic, partition, record, on_delivery):
    while True:
        try:
            producer.produce(topic, partition=partition, key=record.key, value=record.value, headers=record.headers,
                             timestamp=record.timestamp, on_delivery=on_delivery)
            return
        except BufferError:
            producer.poll(0.1)


def fill(bootstrap, topic, count):
    errors = []
    for codec in records.CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
        for partition, record in records.records(int(count), None):
            send(producer, topic, partition, record, lambda error, _: errors.append(error) if error else None)
            producer.poll(0)
        left = producer.flush(LIMIT_S)
        if left or errors:
            sys.exit(f"{codec}: {left} records unsent, {len(errors)} refused: {errors[:1]}")


def read(bootstrap, topic):
    consumer = reader(bootstrap)
    for p in range(records.PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), LIMIT_S)
        print(f"partition {p}: {low} to {high}")
        consumer.assign([TopicPartition(topic, p, low)])
        at, idle, times = low, 0, []
        while at < high and idle < 20:
            messages = consumer.consume(min(2000, high - at), 1.0)
            idle = 0 if messages else idle + 1
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                kind, timestamp = message.timestamp()
                at = message.offset() + 1
                print(p, message.offset(), message.leader_epoch(), kind, timestamp, message.key(), digest(message.value()), message.headers())
                if message.offset() % LOOK_UP_EVERY == 0:
                    times += [timestamp, timestamp + 1]
        if at < high:
            sys.exit(f"partition {p}: read up to {at}, the end is {high}")
        for timestamp in times + [0, times[-1] + 1_000_000_000]:
            found = consumer.offsets_for_times([TopicPartition(topic, p, timestamp)], LIMIT_S)[0]
            print(f"partition {p} at {timestamp}: {found.offset} {found.error}")
    consumer.close()


def digest(value):
    return None if value is None else f"{len(value)} {hashlib.sha256(value).hexdigest()}"


def add(bootstrap, topic):
    failures = []

    def delivered(error, message):
        if error:
            failures.append(error)
        else:
            print(message.partition(), message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    now = int(time.time() * 1000)
    for p in range(records.PARTITIONS):
        send(producer, topic, p, records.Record(b"k", b"one more", [], now), delivered)
    left = producer.flush(LIMIT_S)
    if left or failures:
        sys.exit(f"{left} records unsent, refused: {failures}")


if __name__ == "__main__":
    {"create": create, "fill": fill, "read": read, "add": add}[sys.argv[1]](*sys.argv[2:])
