"""aiokafka: every codec, every acks, read back with assigned partitions."""

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import records

LIMIT_S = 60


def case(bootstrap, topic, codec, acks, sent):
    return asyncio.run(asyncio.wait_for(round_trip(bootstrap, topic, codec, acks, sent), LIMIT_S * 2))


async def round_trip(bootstrap, topic, codec, acks, sent):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, records.PARTITIONS, 1)])
        if any(error[1] for error in answer.topic_errors):
            raise RuntimeError(f"create: {answer.topic_errors}")
        await wait_for_leaders(bootstrap, topic)
        await produce(bootstrap, topic, codec, acks, sent)
        read = await consume(bootstrap, topic, len(sent))
        await admin.delete_topics([topic])
        return read
    finally:
        await admin.close()


async def wait_for_leaders(bootstrap, topic):
    """A topic's leaders may start after its creation is answered; acks=0 would lose and acks=1 reorder what comes before."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        await consumer.end_offsets([TopicPartition(topic, p) for p in range(records.PARTITIONS)])
    finally:
        await consumer.stop()


async def produce(bootstrap, topic, codec, acks, sent):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all" if acks == "all" else int(acks), linger_ms=5,
                                compression_type=None if codec == "none" else codec, max_batch_size=256 * 1024,
                                max_request_size=1_000_000)
    await producer.start()
    try:
        waiting = []
        for partition, record in sent:
            waiting.append(await producer.send(topic, key=record.key, value=record.value, headers=record.headers,
                                               partition=partition, timestamp_ms=record.timestamp))
        await producer.flush()
        for answer in await asyncio.gather(*waiting):
            if answer is not None and answer.topic != topic:
                raise RuntimeError(f"answered {answer}")
    finally:
        await producer.stop()


async def consume(bootstrap, topic, count):
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none",
                                check_crcs=True)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, p) for p in range(records.PARTITIONS)]
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        read, got, idle = {p: [] for p in range(records.PARTITIONS)}, 0, 0
        while idle < (1 if got >= count else 10):
            batches = await consumer.getmany(timeout_ms=1000 if got < count else 200)
            idle = 0 if batches else idle + 1
            for partition, messages in batches.items():
                for m in messages:
                    read[partition.partition].append(records.Record(m.key, m.value, list(m.headers), m.timestamp, m.offset))
                    got += 1
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            if end != len(read[partition.partition]):
                raise RuntimeError(f"{partition}: end offset {end}, read {len(read[partition.partition])}")
        return read
    finally:
        await consumer.stop()


records.run("aiokafka", aiokafka.__version__, records.CODECS, case)
