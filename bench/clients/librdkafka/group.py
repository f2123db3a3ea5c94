"""librdkafka in a group, through its Python binding."""

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, TopicPartition

import member


class Librdkafka(member.Member):
    def __init__(self, options):
        self.topic, self.read = options.topic, {}
        self.incremental = options.assignor == "cooperative-sticky"
        config = {
            "bootstrap.servers": options.bootstrap, "group.id": options.group, "group.protocol": "classic",
            "partition.assignment.strategy": options.assignor, "session.timeout.ms": options.session_ms,
            "heartbeat.interval.ms": options.heartbeat_ms, "fetch.wait.max.ms": 100,
            "auto.offset.reset": {"none": "error"}.get(options.reset, options.reset),
            "enable.auto.commit": options.commit == "auto", "auto.commit.interval.ms": member.AUTO_COMMIT_MS,
            # Stored once they are told: a commit in between would be of a record that a killed member never told.
            "enable.auto.offset.store": False,
        }
        if options.instance:
            config["group.instance.id"] = options.instance
        self.auto = options.commit == "auto"
        self.consumer = Consumer(config)
        self.consumer.subscribe([options.topic], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_revoke)

    def on_assign(self, consumer, partitions):
        member.assigned(p.partition for p in partitions)

    def on_revoke(self, consumer, partitions):
        for p in partitions:
            self.read.pop(p.partition, None)
        member.revoked(p.partition for p in partitions)

    def poll(self, seconds):
        for message in self.consumer.consume(500, seconds):
            if message.error():
                raise KafkaException(message.error())
            member.record(message.partition(), message.offset(), message.value())
            self.read[message.partition()] = message.offset() + 1
            if self.auto:
                self.consumer.store_offsets(message)

    def commit(self, note):
        offsets = [TopicPartition(self.topic, p, offset, note) for p, offset in self.read.items()]
        for answer in self.consumer.commit(offsets=offsets, asynchronous=False):
            if answer.error:
                raise KafkaException(answer.error)
        return True

    def seek(self, partition, offset):
        self.consumer.seek(TopicPartition(self.topic, partition, offset))

    def pause(self, partition):
        self.consumer.pause([TopicPartition(self.topic, partition)])

    def resume(self, partition):
        self.consumer.resume([TopicPartition(self.topic, partition)])

    def close(self):
        self.consumer.close()


member.run(confluent_kafka.libversion()[0], Librdkafka)
