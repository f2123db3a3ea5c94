//! What a case does beside the client under test, over a connection of its own: its topic, the records in it, and what its group has
//! committed. So the client's members are the only part that differs between two rows of the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use protocol::compression::Codec;
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic};
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use protocol::{ErrorCode, RecordBytes, Str};

use crate::conformance::batch::{Rec, compressed};
use crate::conformance::wire::Wire;
use crate::error::{Result, failed};

/// Partitions of every topic of the group cases.
pub(super) const PARTITIONS: i32 = 4;
/// How long a broker may take until a new topic takes records and a new group has a coordinator.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Between two sends of a [`Feed`].
const FEED_PAUSE: Duration = Duration::from_millis(25);
/// Versions that Kafka 4.3 and ours have, the last ones with topic names.
const PRODUCE_VERSION: i16 = 12;
const CREATE_VERSION: i16 = 5;
const FIND_VERSION: i16 = 3;
const COMMIT_VERSION: i16 = 6;
const FETCH_VERSION: i16 = 5;

/// A topic with [`PARTITIONS`] partitions whose record at offset `o` of partition `p` has the value `p:o`.
pub(super) struct GroupTopic {
    wire: Wire,
    name: Str,
    group: Str,
    /// The next offset of each partition.
    next: [i64; PARTITIONS as usize],
}

impl GroupTopic {
    /// Creates the topic, and waits until the group has a coordinator.
    pub(super) fn create(bootstrap: &str, name: &str, group: &str) -> Result<Self> {
        let mut topic = Self {
            wire: Wire::connect(bootstrap)?,
            name: Str::from(name.to_owned()),
            group: Str::from(group.to_owned()),
            next: [0; PARTITIONS as usize],
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.name.clone(),
                num_partitions: PARTITIONS,
                replication_factor: 1,
                ..Default::default()
            }],
            timeout_ms: 15_000,
            validate_only: false,
        };
        let id = topic.wire.send(CREATE_VERSION, &request)?;
        let answer = topic.wire.receive::<CreateTopicsRequest>(CREATE_VERSION, id)?;
        if answer.topics.iter().any(|one| one.error_code != ErrorCode::NONE) {
            return failed(format!("create {name}: {answer:?}"));
        }
        let (wire, group) = (&mut topic.wire, &topic.group);
        patiently("find the coordinator", || {
            let request = FindCoordinatorRequest {
                key: group.clone(),
                ..Default::default()
            };
            let id = wire.send(FIND_VERSION, &request)?;
            let answer = wire.receive::<FindCoordinatorRequest>(FIND_VERSION, id)?;
            Ok(vec![answer.error_code])
        })?;
        Ok(topic)
    }

    /// How many records each partition has.
    pub(super) fn ends(&self) -> [i64; PARTITIONS as usize] {
        self.next
    }

    /// Appends so many records to each partition, acknowledged by all.
    pub(super) fn send(&mut self, each: i64) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
        let part = |(index, next): (i32, i64)| {
            let records: Vec<_> = (next..next + each)
                .map(|offset| Rec::of(now, format!("{index}:{offset}")))
                .collect();
            PartitionProduceData {
                index,
                records: Some(RecordBytes::from(compressed(Codec::None, &records))),
            }
        };
        let expected = self.next;
        let mut left: Vec<_> = (0..PARTITIONS).zip(expected).collect();
        let (wire, name) = (&mut self.wire, &self.name);
        // The leaders of a new topic may come up one after the other: what they refused is sent again.
        patiently("produce", || {
            let request = ProduceRequest {
                acks: -1,
                timeout_ms: 10_000,
                topic_data: vec![TopicProduceData {
                    name: name.clone(),
                    partition_data: left.iter().copied().map(part).collect(),
                    ..Default::default()
                }],
                ..Default::default()
            };
            let id = wire.send(PRODUCE_VERSION, &request)?;
            let answer = wire.receive::<ProduceRequest>(PRODUCE_VERSION, id)?;
            let parts = answer
                .responses
                .into_iter()
                .flat_map(|topic| topic.partition_responses);
            let mut codes = Vec::new();
            for part in parts {
                let taken = part.error_code == ErrorCode::NONE;
                if taken && !left.contains(&(part.index, part.base_offset)) {
                    return failed(format!("produce: {part:?}, expected {left:?}"));
                }
                left.retain(|&(index, _)| !taken || index != part.index);
                codes.push(part.error_code);
            }
            Ok(codes)
        })?;
        for next in &mut self.next {
            *next += each;
        }
        Ok(())
    }

    /// Commits an offset for all partitions of a group without members.
    pub(super) fn commit(&mut self, group: &str, offset: i64) -> Result<()> {
        let partitions = (0..PARTITIONS).map(|partition_index| OffsetCommitRequestPartition {
            partition_index,
            committed_offset: offset,
            ..Default::default()
        });
        let request = OffsetCommitRequest {
            group_id: Str::from(group.to_owned()),
            generation_id_or_member_epoch: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: self.name.clone(),
                partitions: partitions.collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let wire = &mut self.wire;
        patiently("commit", || {
            let id = wire.send(COMMIT_VERSION, &request)?;
            let answer = wire.receive::<OffsetCommitRequest>(COMMIT_VERSION, id)?;
            let parts = answer.topics.into_iter().flat_map(|topic| topic.partitions);
            Ok(parts.map(|part| part.error_code).collect())
        })
    }

    /// What the group has committed for each partition (−1 for nothing), with the metadata.
    pub(super) fn committed(&mut self) -> Result<Vec<(i64, String)>> {
        let request = OffsetFetchRequest {
            group_id: self.group.clone(),
            topics: Some(vec![OffsetFetchRequestTopic {
                name: self.name.clone(),
                partition_indexes: (0..PARTITIONS).collect(),
            }]),
            ..Default::default()
        };
        let wire = &mut self.wire;
        let mut committed = Vec::new();
        patiently("fetch the committed offsets", || {
            let id = wire.send(FETCH_VERSION, &request)?;
            let answer = wire.receive::<OffsetFetchRequest>(FETCH_VERSION, id)?;
            let mut parts: Vec<_> = answer
                .topics
                .into_iter()
                .flat_map(|topic| topic.partitions)
                .collect();
            parts.sort_by_key(|part| part.partition_index);
            let mut codes = vec![answer.error_code];
            codes.extend(parts.iter().map(|part| part.error_code));
            let one = |metadata: Option<Str>| metadata.map_or_else(String::new, |text| text.to_string());
            committed = parts
                .into_iter()
                .map(|part| (part.committed_offset, one(part.metadata)))
                .collect();
            Ok(codes)
        })?;
        Ok(committed)
    }

    /// Goes on sending, a record to each partition every [`FEED_PAUSE`], until [`Feed::stop`].
    pub(super) fn feed(mut self) -> Feed {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                self.send(1)?;
                std::thread::sleep(FEED_PAUSE);
            }
            Ok(self)
        });
        Feed {
            stop,
            thread: Some(thread),
        }
    }
}

/// A topic that is being produced to, until this is stopped or dropped.
pub(super) struct Feed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<GroupTopic>>>,
}

impl Feed {
    /// The topic as it is after the last record.
    pub(super) fn stop(mut self) -> Result<GroupTopic> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only this takes it");
        thread.join().expect("the feed does not panic")
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Repeats a request while one of its error codes is one that passes.
fn patiently(doing: &str, mut ask: impl FnMut() -> Result<Vec<ErrorCode>>) -> Result<()> {
    let started = Instant::now();
    loop {
        let codes = ask()?;
        let bad: Vec<_> = codes.iter().filter(|&&code| code != ErrorCode::NONE).collect();
        if bad.is_empty() {
            return Ok(());
        }
        if bad.iter().any(|code| !code.is_retriable()) || started.elapsed() > READY_TIMEOUT {
            return failed(format!("{doing}: {bad:?}"));
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}
