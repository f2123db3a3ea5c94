//! One run of one case: what is asked of a broker and what it answers, written down so that two runs can be compared.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use protocol::message::{Message, Request};
use protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use protocol::messages::describe_topic_partitions::DescribeTopicPartitionsResponse;
use protocol::messages::fetch::{
    FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic, FetchResponse,
    FetchResponsePartitionData,
};
use protocol::messages::init_producer_id::InitProducerIdRequest;
use protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use protocol::{ErrorCode, RecordBytes, Str, Uuid};

use super::batch::{Rec, compressed};
use super::records::split_records;
use super::render::{Masks, RECORDS_BEFORE_MS};
use super::target::Target;
use super::wire::{Received, Wire, decode};
use crate::error::{Error, Result, failed};

/// How long a connection may stay open that has to be closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// What a created topic gets as time to be made, milliseconds.
const CREATE_TIMEOUT_MS: i32 = 30_000;
/// Version of the fetches that cases do not choose themselves: the last with topic names.
const FETCH_VERSION: i16 = 12;
/// Version of the produces that cases do not choose themselves: the last with topic names.
const PRODUCE_VERSION: i16 = 12;

/// A topic that a case has made.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Name, this run's ending included.
    pub name: Str,
    /// Id given by the broker.
    pub id: Uuid,
}

/// A case's conversation with a broker and its transcript.
pub struct Dialogue<'t> {
    target: &'t Target,
    wire: Option<Wire>,
    lines: Vec<String>,
    masks: Masks,
    prefix: String,
    ending: String,
    stamp_ms: i64,
}

impl<'t> Dialogue<'t> {
    /// A conversation for the case with this number; its topics are named after it.
    pub fn new(target: &'t Target, number: &str) -> Self {
        let now_ms = now_ms();
        let stamp_ms = now_ms - RECORDS_BEFORE_MS;
        // A run must not meet the topics of an earlier one on the same broker.
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let ending = format!("-{:x}x{run:03}", now_ms & 0xfff_ffff);
        Self {
            target,
            wire: None,
            lines: Vec::new(),
            masks: Masks::new(&ending, stamp_ms),
            prefix: number.to_lowercase(),
            ending,
            stamp_ms,
        }
    }

    /// The transcript, with what ended the case early.
    pub fn finish(mut self, outcome: Result<()>) -> String {
        if let Err(error) = outcome {
            self.note(&format!("! {error}"));
        }
        let mut text = self.lines.join("\n");
        text.push('\n');
        text
    }

    /// The broker that is talked to.
    pub fn target(&self) -> &'t Target {
        self.target
    }

    /// The time that this run's records are stamped with at first, milliseconds since 1970.
    pub fn stamp_ms(&self) -> i64 {
        self.stamp_ms
    }

    /// A topic name of this case and run.
    pub fn name(&self, short: &str) -> Str {
        Str::from(format!("{}-{short}{}", self.prefix, self.ending))
    }

    /// A time in milliseconds as transcripts show it.
    pub fn time(&self, ms: i64) -> String {
        self.masks.time(ms)
    }

    /// Writes a line of the case's own.
    pub fn note(&mut self, text: &str) {
        let text = self.masks.text(text);
        self.lines.push(text);
    }

    /// Writes a value as answers are written.
    pub fn show(&mut self, label: &str, value: &impl std::fmt::Debug) {
        let text = self.masks.show(value);
        self.note(&format!("{label}: {text}"));
    }

    /// Records with these values, one millisecond apart.
    pub fn records(&self, values: &[&str]) -> Vec<Rec> {
        let stamped = values.iter().zip(self.stamp_ms..);
        stamped.map(|(value, stamp)| Rec::of(stamp, value)).collect()
    }

    /// An uncompressed batch with these values.
    pub fn batch(&self, values: &[&str]) -> Bytes {
        compressed(protocol::compression::Codec::None, &self.records(values))
    }

    /// The connection, a new one if the last was closed.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn wire(&mut self) -> Result<&mut Wire> {
        if self.wire.is_none() {
            self.wire = Some(Wire::connect(self.target.address())?);
        }
        Ok(self.wire.as_mut().expect("connected above"))
    }

    /// A second connection.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn connect(&self) -> Result<Wire> {
        Wire::connect(self.target.address())
    }

    /// Forgets the connection: the next request opens another.
    pub fn hang_up(&mut self) {
        self.wire = None;
    }

    /// Asks and writes down question and answer.
    ///
    /// # Errors
    /// There was no answer, or it cannot be read.
    pub fn ask<R: Request>(&mut self, label: &str, version: i16, request: &R) -> Result<R::Response>
    where
        R::Response: 'static,
    {
        self.note(&format!("> {} v{version}: {label}", R::KEY));
        let answer = self.quiet(version, request)?;
        self.answered(&answer);
        Ok(answer)
    }

    /// Asks and writes down the answer and whether it came at once or after `wait_ms`.
    ///
    /// # Errors
    /// There was no answer, or it cannot be read.
    pub fn ask_timed<R: Request>(
        &mut self,
        label: &str,
        version: i16,
        request: &R,
        wait_ms: u64,
    ) -> Result<R::Response>
    where
        R::Response: 'static,
    {
        let asked = Instant::now();
        let answer = self.ask(label, version, request)?;
        self.took(asked, wait_ms);
        Ok(answer)
    }

    /// Writes whether something that began then took the wait, or less than half of it.
    pub fn took(&mut self, began: Instant, wait_ms: u64) {
        let ms = began.elapsed().as_millis() as u64;
        let text = if ms + 20 >= wait_ms {
            "  after the wait"
        } else if ms < wait_ms / 2 {
            "  at once"
        } else {
            "  before the end of the wait"
        };
        self.note(text);
    }

    /// Writes down an answer.
    pub fn answered<M: Message + 'static>(&mut self, answer: &M) {
        let mut lines = Vec::new();
        let text = match (answer as &dyn Any).downcast_ref::<FetchResponse>() {
            Some(fetched) => {
                let (bare, batches) = split_records(fetched, &mut self.masks);
                lines = batches;
                self.masks.show_sorted(&bare)
            }
            // Pages of a listing are in order; elsewhere Kafka's order is that of a hash map.
            None if (answer as &dyn Any).is::<DescribeTopicPartitionsResponse>() => self.masks.show(answer),
            None => self.masks.show_sorted(answer),
        };
        self.note(&format!("< {text}"));
        lines.iter().for_each(|line| self.note(line));
    }

    /// Asks without writing anything down.
    ///
    /// # Errors
    /// There was no answer, or it cannot be read.
    pub fn quiet<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let wire = self.wire()?;
        let answer = wire
            .send(version, request)
            .and_then(|id| wire.receive::<R>(version, id));
        if answer.is_err() {
            self.hang_up();
        }
        answer
    }

    /// Sends a request that gets no answer.
    ///
    /// # Errors
    /// The connection failed.
    pub fn tell<R: Request>(&mut self, label: &str, version: i16, request: &R) -> Result<()> {
        self.note(&format!("> {} v{version}: {label}", R::KEY));
        self.wire()?.send(version, request).map(|_| ())
    }

    /// Sends a frame made by hand and writes down what comes, read as an answer to `R` in `version` for `correlation_id`.
    ///
    /// # Errors
    /// An answer cannot be read.
    pub fn raw<R: Request>(
        &mut self,
        label: &str,
        frame: &[u8],
        version: i16,
        correlation_id: i32,
    ) -> Result<()>
    where
        R::Response: 'static,
    {
        self.note(&format!("> {label}"));
        self.wire()?.send_bytes(frame)?;
        match self.wire()?.frame(CLOSE_LIMIT)? {
            Received::Frame(frame) => {
                let answer = decode::<R>(frame, version, correlation_id)?;
                self.answered(&answer);
            }
            Received::Closed => self.closed(),
            Received::Silence => self.note("< nothing"),
        }
        Ok(())
    }

    /// Writes down whether the connection is closed within five seconds.
    ///
    /// # Errors
    /// The connection failed in another way.
    pub fn expect_closed(&mut self) -> Result<()> {
        match self.wire()?.frame(CLOSE_LIMIT)? {
            Received::Frame(frame) => self.note(&format!("< {} bytes", frame.len())),
            Received::Closed => self.closed(),
            Received::Silence => self.note("< nothing, and it stays open"),
        }
        Ok(())
    }

    fn closed(&mut self) {
        self.note("< closed");
        self.hang_up();
    }

    /// Makes a topic, quietly.
    ///
    /// # Errors
    /// It was refused.
    pub fn topic(&mut self, short: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<Topic> {
        let name = self.name(short);
        let configs = configs.iter().map(|&(name, value)| CreatableTopicConfig {
            name: Str::from(name.to_owned()),
            value: Some(Str::from(value.to_owned())),
        });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.clone(),
                num_partitions: partitions,
                replication_factor: 1,
                configs: configs.collect(),
                ..Default::default()
            }],
            timeout_ms: CREATE_TIMEOUT_MS,
            validate_only: false,
        };
        let answer = self.quiet(7, &request)?;
        let made = answer.topics.first();
        match made {
            Some(made) if made.error_code == ErrorCode::NONE => {
                let topic = Topic {
                    name,
                    id: made.topic_id,
                };
                // Ids are numbered as topics are made, not as answers happen to list them.
                self.masks.id("topic", &topic.id.to_string());
                self.wait_for(&topic, partitions)?;
                Ok(topic)
            }
            _ => failed(format!("topic {short} was not made: {answer:?}")),
        }
    }

    /// Numbers a member id: members are numbered as they come, not as answers happen to list them.
    pub fn knows_member(&mut self, id: &str) {
        self.masks.id("member", id);
    }

    /// Waits until partitions are served: Kafka answers CreateTopics a little earlier.
    fn wait_for(&mut self, topic: &Topic, partitions: i32) -> Result<()> {
        for _ in 0..200 {
            let request = fetch_of((0..partitions).map(|partition| (topic, partition, 0)), 0);
            let answer = self.quiet(FETCH_VERSION, &request)?;
            let mut parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
            if parts.all(|part| part.error_code == ErrorCode::NONE) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        failed("a created topic is not served after four seconds")
    }

    /// Produces a batch with acks=all and writes the partition's answer down.
    ///
    /// # Errors
    /// There was no answer, or it cannot be read.
    pub fn produce(
        &mut self,
        label: &str,
        topic: &Topic,
        partition: i32,
        records: impl Into<Option<Bytes>>,
    ) -> Result<PartitionProduceResponse> {
        let answer = self.produce_quietly(topic, partition, records)?;
        self.show(&format!("produce {label}"), &answer);
        Ok(answer)
    }

    /// Produces a batch with acks=all.
    ///
    /// # Errors
    /// There was no answer, or it cannot be read.
    pub fn produce_quietly(
        &mut self,
        topic: &Topic,
        partition: i32,
        records: impl Into<Option<Bytes>>,
    ) -> Result<PartitionProduceResponse> {
        let request = produce_of(topic, partition, records.into(), -1);
        let answer = self.quiet(PRODUCE_VERSION, &request)?;
        let mut parts = answer.responses.into_iter().flat_map(|t| t.partition_responses);
        parts
            .next()
            .ok_or_else(|| Error::Failed("a produce answer without a partition".into()))
    }

    /// Produces a batch that has to be taken, and returns its base offset.
    ///
    /// # Errors
    /// It was refused.
    pub fn written(&mut self, topic: &Topic, partition: i32, records: Bytes) -> Result<i64> {
        let answer = self.produce_quietly(topic, partition, records)?;
        if answer.error_code == ErrorCode::NONE {
            Ok(answer.base_offset)
        } else {
            failed(format!("a batch was refused: {answer:?}"))
        }
    }

    /// Fetches from one partition without waiting and writes down its answer and records.
    ///
    /// # Errors
    /// There was no answer, or it cannot be read.
    pub fn fetch(
        &mut self,
        label: &str,
        topic: &Topic,
        partition: i32,
        offset: i64,
    ) -> Result<FetchResponsePartitionData> {
        let answer = self.quiet(FETCH_VERSION, &fetch_of([(topic, partition, offset)], 0))?;
        let (bare, lines) = split_records(&answer, &mut self.masks);
        let part = |answer: FetchResponse| {
            let mut parts = answer.responses.into_iter().flat_map(|topic| topic.partitions);
            parts
                .next()
                .ok_or_else(|| Error::Failed("a fetch answer without the partition".into()))
        };
        let shown = part(bare)?;
        self.show(&format!("fetch {label}"), &shown);
        lines.iter().for_each(|line| self.note(line));
        part(answer)
    }

    /// A new producer id, quietly.
    ///
    /// # Errors
    /// None was given.
    pub fn producer_id(&mut self) -> Result<i64> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        // Kafka answers with a retriable error until its first block of ids has come from the controller.
        for _ in 0..100 {
            let answer = self.quiet(4, &request)?;
            if answer.error_code == ErrorCode::NONE {
                return Ok(answer.producer_id);
            }
            if !answer.error_code.is_retriable() {
                return failed(format!("no producer id: {answer:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        failed("no producer id after five seconds")
    }
}

/// A produce request for one partition.
pub(super) fn produce_of(topic: &Topic, partition: i32, records: Option<Bytes>, acks: i16) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![produce_part(topic, partition, records)],
        ..Default::default()
    }
}

/// One topic with one partition of a produce request.
pub(super) fn produce_part(topic: &Topic, partition: i32, records: Option<Bytes>) -> TopicProduceData {
    TopicProduceData {
        name: topic.name.clone(),
        topic_id: topic.id,
        partition_data: vec![PartitionProduceData {
            index: partition,
            records: records.map(RecordBytes::from),
        }],
    }
}

/// A fetch outside of sessions: (topic, partition, offset), one topic entry for each.
pub(super) fn fetch_of<'a>(
    parts: impl IntoIterator<Item = (&'a Topic, i32, i64)>,
    max_wait_ms: i32,
) -> FetchRequest {
    let topics = parts
        .into_iter()
        .map(|(topic, partition, offset)| FetchRequestFetchTopic {
            topic: topic.name.clone(),
            topic_id: topic.id,
            partitions: vec![fetch_part(partition, offset)],
        });
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 50 << 20,
        topics: topics.collect(),
        ..Default::default()
    }
}

/// A DeleteRecords request of one topic: (partition, offset to delete to).
pub(super) fn delete_of(topic: &Topic, parts: &[(i32, i64)]) -> DeleteRecordsRequest {
    DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.name.clone(),
            partitions: parts
                .iter()
                .map(|&(partition_index, offset)| DeleteRecordsPartition {
                    partition_index,
                    offset,
                })
                .collect(),
        }],
        timeout_ms: 10_000,
    }
}

/// One partition of a fetch request.
pub(super) fn fetch_part(partition: i32, fetch_offset: i64) -> FetchRequestFetchPartition {
    FetchRequestFetchPartition {
        partition,
        current_leader_epoch: -1,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    }
}

/// The present, milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(0))
}
