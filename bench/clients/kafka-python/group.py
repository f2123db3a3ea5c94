"""kafka-python in a group."""

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

import member

# Shorter polls on a busy host can leave it joining for ever, on Kafka too.
POLL_MS = 500


class KafkaPython(member.Member, ConsumerRebalanceListener):
    def __init__(self, options):
        self.topic, self.read = options.topic, {}
        assignor = CooperativeStickyAssignor if options.assignor == "cooperative-sticky" else RangePartitionAssignor
        self.consumer = KafkaConsumer(
            bootstrap_servers=options.bootstrap, group_id=options.group, group_instance_id=options.instance,
            partition_assignment_strategy=(assignor,), session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=options.heartbeat_ms, auto_offset_reset=options.reset, fetch_max_wait_ms=100,
            enable_auto_commit=options.commit == "auto", auto_commit_interval_ms=member.AUTO_COMMIT_MS)
        self.consumer.subscribe([options.topic], listener=self)

    def on_partitions_assigned(self, assigned):
        if assigned:
            member.assigned([p.partition for p in assigned], self.consumer.group_metadata().generation_id)

    def on_partitions_revoked(self, revoked):
        for p in revoked:
            self.read.pop(p, None)
        if revoked:
            member.revoked(p.partition for p in revoked)

    def on_partitions_lost(self, lost):
        self.on_partitions_revoked(lost)

    def poll(self, seconds):
        for partition, messages in self.consumer.poll(timeout_ms=POLL_MS).items():
            for m in messages:
                member.record(m.partition, m.offset, m.value)
                self.read[partition] = m.offset + 1

    def commit(self, note):
        self.consumer.commit({p: OffsetAndMetadata(offset, note, -1) for p, offset in self.read.items()})
        return True

    def seek(self, partition, offset):
        self.consumer.seek(TopicPartition(self.topic, partition), offset)

    def pause(self, partition):
        self.consumer.pause(TopicPartition(self.topic, partition))

    def resume(self, partition):
        self.consumer.resume(TopicPartition(self.topic, partition))

    def close(self):
        self.consumer.close()


member.run(kafka.__version__, KafkaPython)
