//! A producer as real clients are: batches per partition, several requests in flight, and with idempotence every batch is sent
//! again, in order of sequence, until it is acknowledged. Without idempotence nothing is sent twice.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_lite::future::or;
use protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
};
use protocol::{ErrorCode, RecordBytes, Str, Uuid};
use storage::sim_rng::SimRng;

use super::client::{Closed, Connection, Surroundings};
use super::env::EPOCH_MS;
use super::knobs::{ProducerKnobs, number};
use super::node::topic_name;
use super::record::{RecordId, Sender, build};

/// Batches of one partition in flight: what the broker remembers of a producer (PR-41).
const WINDOW_BATCHES: usize = 5;

/// Bytes of values in one batch, at most: the smallest segment of a simulation holds it.
const BATCH_VALUES_MAX: u32 = 32 << 10;

/// A producer of a run, as a task.
pub struct Producer {
    around: Surroundings,
    knobs: ProducerKnobs,
    name: Rc<str>,
    number: u32,
    rng: SimRng,
    partitions: Vec<Partition>,
    producer_id: i64,
    session: u32,
    topic_ids: Vec<Uuid>,
}

/// What a producer has for one partition.
struct Partition {
    topic: usize,
    index: i32,
    /// Its number in the run.
    number: u32,
    next_number: u32,
    next_sequence: i32,
    /// Not yet acknowledged, in order.
    pending: VecDeque<Batch>,
}

struct Batch {
    ids: Vec<RecordId>,
    sequence: i32,
    bytes: Bytes,
    state: BatchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchState {
    Waiting,
    InFlight,
    Done,
}

/// A request in flight: for each partition in it, its place among the producer's and the batch's sequence.
type InFlight = Vec<(usize, i32)>;

enum Event {
    Answer,
    Pause,
}

impl Producer {
    /// A producer that has sent nothing yet.
    #[must_use]
    pub fn new(around: &Surroundings, knobs: &ProducerKnobs, seed: u64) -> Self {
        let number = around.oracle().add_producer(knobs.idempotent);
        let partition = |(topic, index): &(usize, i32)| Partition {
            topic: *topic,
            index: *index,
            number: around.partition_number(*topic, *index),
            next_number: 0,
            next_sequence: 0,
            pending: VecDeque::new(),
        };
        Self {
            around: around.clone(),
            name: Rc::from(format!("producer{number}")),
            number,
            rng: SimRng::new(seed ^ u64::from(number), "producer client"),
            partitions: knobs.partitions.iter().map(partition).collect(),
            producer_id: -1,
            session: 0,
            topic_ids: Vec::new(),
            knobs: knobs.clone(),
        }
    }

    /// Sends everything; ends when it is acknowledged (with acks=0: sent).
    pub async fn run(mut self) {
        while !self.is_done() {
            let (name, around) = (self.name.clone(), self.around.clone());
            let Some(mut connection) = around.connect(&name, &mut self.rng).await else {
                return;
            };
            self.session += 1;
            if self.knobs.acks == 0 {
                // A produce that fails is answered by closing (PR-9).
                connection.allow_close();
            }
            let ended = self.produce(&mut connection).await;
            drop(connection);
            if ended.is_err() {
                self.give_up_in_flight();
                around.back_off(&mut self.rng).await;
            }
        }
        self.around.trace().event(format_args!("{} is done", self.name));
    }

    fn is_done(&self) -> bool {
        let is_done = |p: &Partition| p.next_number == self.knobs.records && p.pending.is_empty();
        self.partitions.iter().all(is_done)
    }

    async fn produce(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        self.prepare(connection).await?;
        let mut in_flight: VecDeque<InFlight> = VecDeque::new();
        while !self.is_done() {
            let may_send = in_flight.len() < self.knobs.in_flight_max;
            let request = if may_send { self.choose() } else { Vec::new() };
            if request.is_empty() {
                if in_flight.is_empty() {
                    // Only batches that were refused for now: their turn comes again.
                    let around = self.around.clone();
                    around.back_off(&mut self.rng).await;
                    self.prepare(connection).await?;
                } else {
                    self.answer(connection, &mut in_flight).await?;
                }
                continue;
            }
            self.send(connection, &request).await?;
            if self.knobs.acks == 0 {
                self.forget(&request);
            } else {
                in_flight.push_back(request);
            }
            while connection.has_arrived() && !in_flight.is_empty() {
                self.answer(connection, &mut in_flight).await?;
            }
            if let Event::Answer = self.pause(connection, !in_flight.is_empty()).await {
                self.answer(connection, &mut in_flight).await?;
            }
        }
        if self.knobs.acks == 0 {
            // A request behind them is answered when the produces before it were handled.
            connection.topic_ids().await?;
        }
        Ok(())
    }

    /// Topic ids and a producer id, as far as they are needed.
    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        loop {
            if let Some(ids) = connection.topic_ids().await? {
                self.topic_ids = ids;
                break;
            }
            let around = self.around.clone();
            around.back_off(&mut self.rng).await;
        }
        while self.knobs.idempotent && self.producer_id < 0 {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: 60_000,
                producer_id: -1,
                producer_epoch: -1,
                ..Default::default()
            };
            let version = number(&mut self.rng, 0, 5);
            let answer: InitProducerIdResponse = connection.call(&request, version).await?;
            if answer.error_code == ErrorCode::NONE {
                self.around.check_producer_id(answer.producer_id);
                self.producer_id = answer.producer_id;
            } else {
                let around = self.around.clone();
                around.back_off(&mut self.rng).await;
            }
        }
        Ok(())
    }

    async fn pause(&mut self, connection: &Connection, may_be_answered: bool) -> Event {
        if self.knobs.pause.is_zero() {
            return Event::Pause;
        }
        let nap = Duration::from_nanos(self.rng.between(1, self.knobs.pause.as_nanos() as u64));
        let sleep = async {
            self.around.clock().sleep(nap).await;
            Event::Pause
        };
        if !may_be_answered {
            return sleep.await;
        }
        or(sleep, async {
            connection.arrived().await;
            Event::Answer
        })
        .await
    }

    /// The batches of the next request: the first of each partition that may go.
    fn choose(&mut self) -> InFlight {
        let mut request = Vec::new();
        let count = self.partitions.len();
        let start = self.rng.index(count);
        for place in (0..count).map(|i| (start + i) % count) {
            if request.len() == self.knobs.request_batches_max {
                break;
            }
            self.refill(place);
            if let Some(sequence) = self.partitions[place].next_to_send() {
                request.push((place, sequence));
            }
        }
        for (place, sequence) in &request {
            self.partitions[*place].set(*sequence, BatchState::InFlight);
        }
        request
    }

    /// Makes a new batch when none waits and the window has room.
    fn refill(&mut self, place: usize) {
        let left = self.knobs.records - self.partitions[place].next_number;
        let window = if self.knobs.idempotent {
            WINDOW_BATCHES
        } else {
            usize::MAX
        };
        let partition = &self.partitions[place];
        let waits = partition.pending.iter().any(|b| b.state == BatchState::Waiting);
        if left == 0 || waits || partition.pending.len() >= window {
            return;
        }
        let count = number::<u32>(&mut self.rng, 1, u64::from(self.knobs.batch_records_max)).min(left);
        let mut ids = Vec::new();
        let mut bytes = 0;
        for next in (partition.next_number..).take(count as usize) {
            let value_bytes = number(&mut self.rng, 1, u64::from(self.knobs.value_bytes_max));
            bytes += value_bytes;
            if bytes > BATCH_VALUES_MAX && !ids.is_empty() {
                break;
            }
            ids.push(RecordId {
                producer: self.number,
                partition: partition.number,
                number: next,
                value_bytes,
            });
        }
        let count = u32::try_from(ids.len()).expect("a batch is small");
        let sequence = partition.next_sequence;
        let sender = if self.knobs.idempotent {
            Sender {
                producer_id: self.producer_id,
                epoch: 0,
                base_sequence: sequence,
            }
        } else {
            Sender::NOBODY
        };
        let timestamp = EPOCH_MS + i64::try_from(self.around.clock().now().as_millis()).unwrap_or(0);
        let codec = if self.knobs.version < 7 && self.knobs.codec == 4 {
            0
        } else {
            self.knobs.codec
        };
        let bytes = build(&ids, sender, timestamp, codec, &mut self.around.codecs());
        for id in &ids {
            self.around.oracle().sending(*id, self.session);
        }
        let partition = &mut self.partitions[place];
        partition.next_number += count;
        partition.next_sequence += i32::try_from(count).expect("a batch is small");
        partition.pending.push_back(Batch {
            ids,
            sequence,
            bytes,
            state: BatchState::Waiting,
        });
    }

    async fn send(&mut self, connection: &mut Connection, request: &InFlight) -> Result<(), Closed> {
        let mut topic_data: Vec<TopicProduceData> = Vec::new();
        for (place, sequence) in request {
            let partition = &self.partitions[*place];
            let batch = partition.batch(*sequence).expect("a batch in flight is pending");
            let name = topic_name(partition.topic);
            let data = PartitionProduceData {
                index: partition.index,
                records: Some(RecordBytes::from(batch.bytes.clone())),
            };
            match topic_data.iter_mut().find(|t| t.name.as_str() == name) {
                Some(topic) => topic.partition_data.push(data),
                None => topic_data.push(TopicProduceData {
                    name: Str::from(name),
                    topic_id: self.topic_ids[partition.topic],
                    partition_data: vec![data],
                }),
            }
        }
        let acks = self.knobs.acks;
        self.around
            .trace()
            .event(format_args!("{} sends {request:?}", self.name));
        let request = ProduceRequest {
            transactional_id: None,
            acks,
            timeout_ms: self.knobs.timeout_ms,
            topic_data,
        };
        connection.send(&request, self.knobs.version, acks != 0).await
    }

    async fn answer(
        &mut self,
        connection: &mut Connection,
        in_flight: &mut VecDeque<InFlight>,
    ) -> Result<(), Closed> {
        let response: ProduceResponse = connection.receive().await?;
        let request = in_flight.pop_front().expect("one request for each answer");
        for (place, sequence) in request {
            let partition = &self.partitions[place];
            let (topic, index) = (partition.topic, partition.index);
            let found = response
                .responses
                .iter()
                .filter(|t| t.name.as_str() == topic_name(topic) || t.topic_id == self.topic_ids[topic])
                .flat_map(|t| &t.partition_responses)
                .find(|p| p.index == index);
            match found {
                Some(result) => self.settle(place, sequence, result),
                None => {
                    let what = format_args!("{}: no answer for topic {topic}-{index}", self.name);
                    self.around.trace().violation(what);
                }
            }
        }
        Ok(())
    }

    /// One partition's part of an answer.
    fn settle(&mut self, place: usize, sequence: i32, result: &PartitionProduceResponse) {
        let (name, idempotent) = (self.name.clone(), self.knobs.idempotent);
        let trace = self.around.trace().clone();
        let code = result.error_code;
        trace.event(format_args!(
            "{name} {place}:{sequence} {code:?} at {}",
            result.base_offset
        ));
        let partition = &mut self.partitions[place];
        let is_first = partition.pending.front().is_some_and(|b| b.sequence == sequence);
        match code {
            ErrorCode::NONE => {
                let batch = partition.batch(sequence).expect("answered once");
                self.around.oracle().acknowledged(&batch.ids, result.base_offset);
                partition.set(sequence, BatchState::Done);
                self.around.note_acknowledgement();
            }
            // What is behind a batch that was refused for now; nothing when all before it are there.
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER if idempotent && !is_first => {
                partition.set(sequence, BatchState::Waiting);
            }
            ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::NOT_ENOUGH_REPLICAS
            | ErrorCode::KAFKA_STORAGE_ERROR => {
                let state = if idempotent {
                    BatchState::Waiting
                } else {
                    BatchState::Done
                };
                partition.set(sequence, state);
            }
            other => {
                let message = &result.error_message;
                trace.violation(format_args!(
                    "{name} {place}:{sequence} was answered with {other:?} {message:?}"
                ));
                partition.set(sequence, BatchState::Done);
            }
        }
    }

    /// Acks=0: what was sent is done.
    fn forget(&mut self, request: &InFlight) {
        for (place, sequence) in request {
            self.partitions[*place].set(*sequence, BatchState::Done);
        }
    }

    /// The connection is gone: what was under way is sent again, or never.
    fn give_up_in_flight(&mut self) {
        let state = if self.knobs.idempotent {
            BatchState::Waiting
        } else {
            BatchState::Done
        };
        for partition in &mut self.partitions {
            let open: Vec<i32> = partition
                .pending
                .iter()
                .filter(|b| b.state == BatchState::InFlight)
                .map(|b| b.sequence)
                .collect();
            for sequence in open {
                partition.set(sequence, state);
            }
        }
    }
}

impl Partition {
    fn batch(&self, sequence: i32) -> Option<&Batch> {
        self.pending.iter().find(|b| b.sequence == sequence)
    }

    fn set(&mut self, sequence: i32, state: BatchState) {
        if let Some(batch) = self.pending.iter_mut().find(|b| b.sequence == sequence) {
            batch.state = state;
        }
        while self.pending.front().is_some_and(|b| b.state == BatchState::Done) {
            self.pending.pop_front();
        }
    }

    /// The first batch that waits, unless a later one is under way: they must not pass each other.
    fn next_to_send(&self) -> Option<i32> {
        let waiting = self.pending.iter().position(|b| b.state == BatchState::Waiting)?;
        let is_passed = self
            .pending
            .iter()
            .skip(waiting)
            .any(|b| b.state == BatchState::InFlight);
        (!is_passed).then(|| self.pending[waiting].sequence)
    }
}
