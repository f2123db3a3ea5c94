"""The client of the import test: fills a broker with everything that has to survive, and prints all that a client can see.

    driver.py fill   BOOTSTRAP    topics of every codec, transactions, a compacted topic, deleted records, groups, configs
    driver.py read   BOOTSTRAP    a line for each topic, config, partition, record (both isolation levels), committed offset
    driver.py resume BOOTSTRAP    each group reads one record more of each partition: `group topic partition committed offset`
    driver.py add    BOOTSTRAP    one idempotent record more for each partition; `topic partition offset`
"""

import hashlib
import sys
import time

from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicCollection,
                             TopicPartition)
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType

LIMIT_S = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# The records' timestamps are years old: without a limit they stay.
SEGMENT = {"segment.bytes": "1048576", "retention.ms": "-1"}
TOPICS = {
    **{f"codec.{codec}": (3, SEGMENT) for codec in CODECS},
    "appended": (2, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000"}),
    "transactions": (2, {**SEGMENT, "retention.bytes": "1073741824"}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000",
                      "delete.retention.ms": "86400000"}),
    "shortened": (1, SEGMENT),
    "empty": (4, {}),
}
GROUPS = {f"readers-{n}": n for n in range(6)}


def main(command, bootstrap):
    {"fill": fill, "read": read, "resume": resume, "add": add}[command](bootstrap)


def fill(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(LIMIT_S)
    wait_for_leaders(bootstrap)
    for codec in CODECS:
        write(bootstrap, f"codec.{codec}", codec, 2500, 3)
    write(bootstrap, "appended", "none", 500, 2)
    write(bootstrap, "shortened", "lz4", 4000, 1)
    compacted(bootstrap)
    transactions(bootstrap)
    for future in admin.delete_records([TopicPartition("shortened", 0, 2345)]).values():
        future.result(LIMIT_S)
    change_configs(admin)
    for group, step in GROUPS.items():
        commit(bootstrap, group, step)
    wait_for_compaction(bootstrap)


def wait_for_leaders(bootstrap):
    consumer = reader(bootstrap, "read_uncommitted")
    for name, (count, _) in TOPICS.items():
        for partition in range(count):
            for attempt in range(100):
                try:
                    consumer.get_watermark_offsets(TopicPartition(name, partition), LIMIT_S)
                    break
                except KafkaException:
                    if attempt == 99:
                        raise
                    time.sleep(0.1)
    consumer.close()


def producer_of(bootstrap, **more):
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **{key.replace("_", "."): value for key, value in more.items()}})


def send(producer, failures, topic, partition, number, key=None, size=None):
    value = None if number % 50 == 49 else body(number, size or 100 + number % 700)
    while True:
        try:
            producer.produce(topic, partition=partition, key=key or f"key-{number % 97}".encode(), value=value,
                             headers=[("n", str(number).encode())] if number % 3 == 0 else [],
                             timestamp=1_700_000_000_000 + number * 10,
                             on_delivery=lambda error, _: failures.append(error) if error else None)
            return
        except BufferError:
            producer.poll(0.1)


def body(number, size):
    return (hashlib.sha256(str(number).encode()).hexdigest() * (size // 64 + 1))[:size].encode()


def finish(producer, failures):
    left = producer.flush(LIMIT_S)
    if left or failures:
        sys.exit(f"{left} records unsent, {len(failures)} refused: {failures[:1]}")


def write(bootstrap, topic, codec, count, partitions):
    producer, failures = producer_of(bootstrap, compression_type=codec, enable_idempotence=True), []
    for number in range(count):
        for partition in range(partitions):
            send(producer, failures, topic, partition, number)
        producer.poll(0)
    finish(producer, failures)


def compacted(bootstrap):
    """Few keys, written again and again, with pauses so that segments roll."""
    for turn in range(4):
        producer, failures = producer_of(bootstrap, enable_idempotence=True), []
        for number in range(400):
            send(producer, failures, "compacted", 0, 1000 * turn + number, key=f"k{number % 20}".encode())
        finish(producer, failures)
        time.sleep(1.2)


def wait_for_compaction(bootstrap):
    for _ in range(60):
        consumer = reader(bootstrap, "read_uncommitted")
        left = sum(1 for _ in records(consumer, "compacted", 0))
        consumer.close()
        if left < 1200:
            return
        time.sleep(1)
    sys.exit("the compacted topic is not compacted")


def transactions(bootstrap):
    """Committed and aborted in turn, two producers at once, plain records between; offsets in transactions too."""
    producers = [producer_of(bootstrap, transactional_id=f"tx-{n}", transaction_timeout_ms=60_000) for n in range(2)]
    plain, failures = producer_of(bootstrap), []
    for producer in producers:
        producer.init_transactions(LIMIT_S)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "in-transactions", "enable.auto.commit": False})
    for turn in range(40):
        for producer in producers:
            producer.begin_transaction()
        for number in range(25):
            for place, producer in enumerate(producers):
                send(producer, failures, "transactions", (number + place) % 2, 10_000 * turn + number, size=400)
        send(plain, failures, "transactions", turn % 2, turn)
        plain.flush(LIMIT_S)
        for place, producer in enumerate(producers):
            offsets = [TopicPartition("transactions", place, 10 * turn + 1)]
            producer.flush(LIMIT_S)  # else an abort throws away what was not sent yet
            producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), LIMIT_S)
            if (turn + place) % 3 == 0:
                producer.abort_transaction(LIMIT_S)
            else:
                producer.commit_transaction(LIMIT_S)
    group.close()
    finish(plain, failures)


def change_configs(admin):
    topic = ConfigResource(ResourceType.TOPIC, "codec.gzip", set_config={**SEGMENT, "retention.ms": "1234567890123", "min.insync.replicas": "1"})
    broker = ConfigResource(ResourceType.BROKER, "1", set_config={"log.cleaner.threads": "1"})
    for resource in (topic, broker):
        for future in admin.alter_configs([resource]).values():
            future.result(LIMIT_S)


def commit(bootstrap, group, step):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(f"codec.{codec}", partition, 100 * step + 10 * partition + place, metadata=f"{group} was here")
               for place, codec in enumerate(CODECS) for partition in range(3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def reader(bootstrap, isolation):
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "isolation.level": isolation,
                     "auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 50, "enable.partition.eof": True})


def records(consumer, topic, partition):
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), LIMIT_S)
    consumer.assign([TopicPartition(topic, partition, low)])
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(2000, 1.0):
            if not message.error():
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(message.error())
    sys.exit(f"{topic} {partition}: no end within {LIMIT_S} s")


def read(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.describe_cluster().result(LIMIT_S)
    print(f"cluster {cluster.cluster_id} controller {cluster.controller.id}")
    names = sorted(name for name in admin.list_topics(timeout=LIMIT_S).topics if name != "__share_group_state")
    described = admin.describe_topics(TopicCollection(names))
    for name in names:
        topic = described[name].result(LIMIT_S)
        print(f"topic {name} id {topic.topic_id} internal {topic.is_internal} partitions {len(topic.partitions)}")
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names] + [ConfigResource(ResourceType.BROKER, "1")]
    own = (ConfigSource.DYNAMIC_TOPIC_CONFIG.value, ConfigSource.DYNAMIC_BROKER_CONFIG.value,
           ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)
    for resource, future in admin.describe_configs(resources).items():
        for entry in sorted(future.result(LIMIT_S).values(), key=lambda entry: entry.name):
            if entry.source in own:
                print(f"config {resource.restype.name} {resource.name} {entry.name}={entry.value}")
    for name, (count, _) in TOPICS.items():
        for partition in range(count):
            for isolation in ("read_uncommitted", "read_committed"):
                consumer = reader(bootstrap, isolation)
                low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), LIMIT_S)
                print(f"{name} {partition} {isolation}: {low} to {high}")
                for message in records(consumer, name, partition):
                    kind, timestamp = message.timestamp()
                    print(name, partition, isolation, message.offset(), message.leader_epoch(), kind, timestamp, message.key(),
                          digest(message.value()), message.headers())
                at = consumer.offsets_for_times([TopicPartition(name, partition, 1_700_000_005_000)], LIMIT_S)[0]
                print(f"{name} {partition} {isolation} by time: {at.offset} {at.error}")
                consumer.close()
    for group in [*GROUPS, "in-transactions"]:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(LIMIT_S)
        for at in sorted(found.topic_partitions, key=lambda at: (at.topic, at.partition)):
            print(f"group {group} {at.topic} {at.partition}: {at.offset} {at.metadata} {at.error}")


def digest(value):
    return None if value is None else f"{len(value)} {hashlib.sha256(value).hexdigest()}"


def resume(bootstrap):
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error"})
        consumer.subscribe([f"codec.{codec}" for codec in CODECS])
        seen, deadline = {}, time.monotonic() + LIMIT_S
        while len(seen) < 3 * len(CODECS) and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                if message.error():
                    raise KafkaException(message.error())
                seen.setdefault((message.topic(), message.partition()), message.offset())
        committed = consumer.committed([TopicPartition(*place) for place in sorted(seen)], LIMIT_S)
        for at in committed:
            print(f"{group} {at.topic} {at.partition} {at.offset} {seen[at.topic, at.partition]}")
        consumer.close()


def add(bootstrap):
    producer, failures, found = producer_of(bootstrap, enable_idempotence=True, acks="all"), [], []

    def delivered(error, message):
        if error:
            failures.append(error)
        else:
            found.append((message.topic(), message.partition(), message.offset()))

    for name, (count, _) in TOPICS.items():
        for partition in range(count):
            producer.produce(name, partition=partition, key=b"k", value=b"one more", on_delivery=delivered)
    finish(producer, failures)
    for topic, partition, offset in sorted(found):
        print(topic, partition, offset)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
