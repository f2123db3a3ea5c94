"""librdkafka through its Python binding: every codec, every acks, read back with assigned partitions."""

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import records

LIMIT_S = 60


def case(bootstrap, topic, codec, acks, sent):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, records.PARTITIONS, 1)]).values():
        future.result(LIMIT_S)
    wait_for_leaders(bootstrap, topic)
    produce(bootstrap, topic, codec, acks, sent)
    read = consume(bootstrap, topic, len(sent))
    for future in admin.delete_topics([topic]).values():
        future.result(LIMIT_S)
    return read


def wait_for_leaders(bootstrap, topic):
    """A topic's leaders may start after its creation is answered; acks=0 would lose and acks=1 reorder what comes before."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
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


def produce(bootstrap, topic, codec, acks, sent):
    errors = []

    def delivered(error, _message):
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": acks, "linger.ms": 5})
    for partition, record in sent:
        arguments = dict(partition=partition, key=record.key, value=record.value, headers=record.headers,
                         timestamp=record.timestamp, on_delivery=delivered)
        while True:
            try:
                producer.produce(topic, **arguments)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(LIMIT_S)
    if left or errors:
        raise RuntimeError(f"{left} records unsent, {len(errors)} refused: {errors[:1]}")


def consume(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
                         "auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(records.PARTITIONS)])
    read, got, idle = {p: [] for p in range(records.PARTITIONS)}, 0, 0
    # A last empty poll shows that nothing comes after the expected records.
    while idle < (1 if got >= count else 10):
        messages = consumer.consume(min(2000, count - got), 1.0) if got < count else consumer.consume(1, 0.2)
        idle = 0 if messages else idle + 1
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            read[message.partition()].append(records.Record(
                message.key(), message.value(), message.headers() or [], message.timestamp()[1], message.offset()))
            got += 1
    for p in range(records.PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), LIMIT_S)
        if (low, high) != (0, len(read[p])):
            raise RuntimeError(f"partition {p}: watermarks {low} and {high}, read {len(read[p])} records")
    consumer.close()
    return read


records.run("librdkafka", confluent_kafka.libversion()[0], records.CODECS, case)
