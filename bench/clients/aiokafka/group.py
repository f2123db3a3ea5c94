"""aiokafka in a group: its loop turns while a method of the member waits for something."""

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

import member


class Aiokafka(member.Member, ConsumerRebalanceListener):
    def __init__(self, options):
        if options.assignor != "range":
            member.absent("aiokafka has no cooperative assignor")
        self.options, self.read = options, {}
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.start())

    async def start(self):
        options = self.options
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap, group_id=options.group, group_instance_id=options.instance,
            partition_assignment_strategy=(RangePartitionAssignor,), session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=options.heartbeat_ms, auto_offset_reset=options.reset, fetch_max_wait_ms=100,
            enable_auto_commit=options.commit == "auto", auto_commit_interval_ms=member.AUTO_COMMIT_MS)
        self.consumer.subscribe([options.topic], listener=self)
        await self.consumer.start()

    def on_partitions_assigned(self, assigned):
        if assigned:
            # Public only as a part of the coordinator.
            member.assigned([p.partition for p in assigned], self.consumer._coordinator.generation)

    def on_partitions_revoked(self, revoked):
        for p in revoked:
            self.read.pop(p, None)
        if revoked:
            member.revoked(p.partition for p in revoked)

    def poll(self, seconds):
        batches = self.loop.run_until_complete(self.consumer.getmany(timeout_ms=int(seconds * 1000)))
        for partition, messages in batches.items():
            for m in messages:
                member.record(m.partition, m.offset, m.value)
                self.read[partition] = m.offset + 1

    def commit(self, note):
        self.loop.run_until_complete(self.consumer.commit({p: (offset, note) for p, offset in self.read.items()}))
        return True

    def partition(self, number):
        return TopicPartition(self.options.topic, number)

    def seek(self, partition, offset):
        self.in_loop(self.consumer.seek, self.partition(partition), offset)

    def pause(self, partition):
        self.in_loop(self.consumer.pause, self.partition(partition))

    def resume(self, partition):
        self.in_loop(self.consumer.resume, self.partition(partition))

    def in_loop(self, method, *arguments):
        async def call():
            method(*arguments)

        self.loop.run_until_complete(call())

    def close(self):
        # Told first: as soon as the group knows, another member may tell that it has them.
        self.on_partitions_revoked(self.consumer.assignment())
        self.loop.run_until_complete(self.consumer.stop())


member.run(aiokafka.__version__, Aiokafka)
