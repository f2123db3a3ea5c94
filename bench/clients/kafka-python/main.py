"""kafka-python: every codec, every acks, read back with assigned partitions."""

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

import records

LIMIT_S = 60


def case(bootstrap, topic, codec, acks, sent):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, records.PARTITIONS, 1)])
        wait_for_leaders(bootstrap, topic)
        produce(bootstrap, topic, codec, acks, sent)
        read = consume(bootstrap, topic, len(sent))
        admin.delete_topics([topic])
        return read
    finally:
        admin.close()


def wait_for_leaders(bootstrap, topic):
    """A topic's leaders may start after its creation is answered; acks=0 would lose and acks=1 reorder what comes before."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        consumer.end_offsets([TopicPartition(topic, p) for p in range(records.PARTITIONS)])
    finally:
        consumer.close()


def produce(bootstrap, topic, codec, acks, sent):
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all" if acks == "all" else int(acks), linger_ms=5,
                             compression_type=None if codec == "none" else codec, batch_size=256 * 1024,
                             enable_idempotence=acks == "all")
    try:
        waiting = [producer.send(topic, key=r.key, value=r.value, headers=r.headers, partition=p, timestamp_ms=r.timestamp)
                   for p, r in sent]
        producer.flush(LIMIT_S)
        for answer in waiting:
            answer.get(LIMIT_S)
    finally:
        producer.close(LIMIT_S)


def consume(bootstrap, topic, count):
    partitions = [TopicPartition(topic, p) for p in range(records.PARTITIONS)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none",
                             check_crcs=True)
    try:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        read, got, idle = {p: [] for p in range(records.PARTITIONS)}, 0, 0
        while idle < (1 if got >= count else 10):
            batches = consumer.poll(timeout_ms=1000 if got < count else 200)
            idle = 0 if batches else idle + 1
            for partition, messages in batches.items():
                for m in messages:
                    read[partition.partition].append(records.Record(m.key, m.value, list(m.headers), m.timestamp, m.offset))
                    got += 1
        for partition, end in consumer.end_offsets(partitions).items():
            if end != len(read[partition.partition]):
                raise RuntimeError(f"{partition}: end offset {end}, read {len(read[partition.partition])}")
        return read
    finally:
        consumer.close()


records.run("kafka-python", kafka.__version__, records.CODECS, case, null_header=b"")
