//! One producer as Kafka's clients are built: messages gather in a batch for each partition, a batch is ready when it is full or has
//! lingered, and a request takes one batch of each ready partition of a broker, with a bounded number of requests in flight.

use std::collections::VecDeque;

use broker::exit::{Failure, Status};
use bytes::Bytes;
use protocol::compression::{Codec, Compressor};
use protocol::record::sequence_after;
use protocol::{ErrorCode, Str};

use super::batch::{
    Dues, Message, OpenBatch, ProducerIdentity, RECORD_OVERHEAD_BYTES_MAX, ReadyBatch, Template,
};
use super::clock::Clock;
use super::keys::{Chooser, KeyTable};
use super::link::{Link, LinkError};
use super::plan::ProducerPlan;
use super::request::{self, Refused, ToProduce};
use super::stats::Stats;

/// How much a new figure of a codec's ratio counts against what was known.
const RATIO_WEIGHT: f64 = 0.2;

/// What the producers of a thread share.
pub(super) struct Kit<'a> {
    pub(super) plan: &'a ProducerPlan,
    pub(super) keys: &'a KeyTable,
    pub(super) values: &'a [Bytes],
    /// Batches made before the run; none when they are made from messages.
    pub(super) templates: &'a [Template],
    pub(super) names: &'a [Str],
    pub(super) clock: Clock,
    pub(super) is_stamped: bool,
    pub(super) compressor: &'a mut Compressor,
}

/// An open batch that will have lingered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Linger {
    pub(super) until: u64,
    pub(super) producer: usize,
    pub(super) slot: usize,
    pub(super) serial: u32,
}

/// A partition that a producer sends to.
#[derive(Debug)]
pub(super) struct Slot {
    topic: u32,
    partition: i32,
    link: usize,
    open: Option<OpenBatch>,
    ready: VecDeque<ReadyBatch>,
    /// The open batch has lingered.
    is_expired: bool,
    /// It is among its link's ready ones.
    is_queued: bool,
    sequence: i32,
    serial: u32,
    /// Bytes of the batch before, as a guess for the next.
    capacity: usize,
}

/// A request without an answer.
#[derive(Debug)]
struct Flight {
    correlation: i32,
    /// Its end in all that the link ever writes.
    end: u64,
    batches: Vec<(usize, ReadyBatch)>,
}

/// A producer's connection to a broker.
#[derive(Debug)]
pub(super) struct ProducerLink {
    pub(super) link: Link,
    flights: VecDeque<Flight>,
    ready: VecDeque<usize>,
}

/// A producer.
#[derive(Debug)]
pub(super) struct Producer {
    number: usize,
    identity: Option<ProducerIdentity>,
    topics: usize,
    partitions: usize,
    slots: Vec<Slot>,
    choosers: Vec<Chooser>,
    pub(super) links: Vec<ProducerLink>,
    /// Messages that are due and were not appended.
    pub(super) owed: u64,
    /// Messages appended since the pace changed.
    pub(super) number_in_pace: u64,
    /// Whether it is among those that have something to do.
    pub(super) is_busy: bool,
    unsent_bytes: usize,
    unsent: u64,
    in_flight: u64,
    turn: usize,
    in_flight_max: usize,
    correlation: i32,
    /// Compressed bytes to uncompressed ones.
    ratio: f64,
}

impl ReadyBatch {
    fn messages(&self) -> u64 {
        match &self.dues {
            Dues::Each(dues) => dues.len() as u64,
            Dues::Same(_, count) => *count,
        }
    }
}

impl Slot {
    pub(super) fn new(topic: u32, partition: i32, link: usize) -> Self {
        Self {
            topic,
            partition,
            link,
            open: None,
            ready: VecDeque::new(),
            is_expired: false,
            is_queued: false,
            sequence: 0,
            serial: 0,
            capacity: 0,
        }
    }
}

impl ProducerLink {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            flights: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }
}

impl Producer {
    /// Producer `number` of all, `index` of its thread; `slots` are all partitions of its topics in order.
    pub(super) fn new(
        (number, index): (usize, usize),
        identity: Option<ProducerIdentity>,
        (partitions, in_flight_max): (u32, usize),
        slots: Vec<Slot>,
        links: Vec<ProducerLink>,
    ) -> Self {
        let topics = slots.len() / (partitions as usize).max(1);
        Self {
            number: index,
            identity,
            topics: topics.max(1),
            partitions: partitions as usize,
            slots,
            choosers: (0..topics.max(1))
                .map(|topic| Chooser::new(number + topic * 7919, partitions))
                .collect(),
            links,
            owed: 0,
            number_in_pace: 0,
            is_busy: false,
            unsent_bytes: 0,
            unsent: 0,
            in_flight: 0,
            turn: number,
            in_flight_max,
            correlation: 0,
            ratio: 1.0,
        }
    }

    /// Whether it holds as much as it may.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.unsent_bytes >= bytes_max
    }

    /// Messages that are due and in no request, and those in requests without an answer.
    pub(super) fn waiting(&self) -> (u64, u64) {
        (self.owed + self.unsent, self.in_flight)
    }

    /// Makes the next message, or batch made before, which was due then.
    pub(super) fn append(&mut self, due: u64, now: u64, kit: &mut Kit<'_>) -> Option<Linger> {
        self.turn = self.turn.wrapping_add(1);
        let topic = self.turn % self.topics;
        if !kit.templates.is_empty() {
            self.append_template(topic, due, kit);
            return None;
        }
        let value = kit.values.get(self.turn % kit.values.len().max(1))?;
        let chooser = self.choosers.get_mut(topic)?;
        let (key, partition) = kit.keys.choose(chooser, value.len() + kit.keys.key_bytes());
        let at = topic * self.partitions + partition as usize;
        let bytes = value.len() + key.map_or(0, Bytes::len);
        let slot = self.slots.get_mut(at)?;
        let room = (kit.plan.batch_bytes as f64 / self.ratio) as usize;
        let is_full = |open: &OpenBatch| open.size() + bytes + RECORD_OVERHEAD_BYTES_MAX > room;
        if slot.open.as_ref().is_some_and(is_full) {
            self.seal(at, kit);
            self.queue(at);
        }
        let timestamp = kit.clock.unix_ms(now);
        let slot = self.slots.get_mut(at)?;
        let mut linger = None;
        if slot.open.is_none() {
            slot.serial = slot.serial.wrapping_add(1);
            slot.open = Some(OpenBatch::new(slot.serial, slot.capacity, timestamp));
            linger = Some(Linger {
                until: due.saturating_add(super::clock::nanoseconds(kit.plan.linger)),
                producer: self.number,
                slot: at,
                serial: slot.serial,
            });
        }
        let open = slot.open.as_mut()?;
        let before = open.size();
        open.append(&Message {
            timestamp,
            key: key.map(|key| &key[..]),
            value,
            stamp: kit.is_stamped.then(|| kit.clock.stamp(due)),
            due,
        });
        self.unsent_bytes += open.size() - before;
        self.unsent += 1;
        linger
    }

    fn append_template(&mut self, topic: usize, due: u64, kit: &Kit<'_>) {
        let (Some(chooser), Some(template)) = (
            self.choosers.get_mut(topic),
            kit.templates.get(self.turn % kit.templates.len().max(1)),
        ) else {
            return;
        };
        let at = topic * self.partitions + kit.keys.next_partition(chooser) as usize;
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let producer = self.identity.map(|identity| (identity, slot.sequence));
        slot.sequence = sequence_after(slot.sequence, template.records());
        slot.ready
            .push_back(template.batch(due, kit.clock.stamp(due), producer));
        self.unsent_bytes += template.size();
        self.unsent += u64::from(template.records().unsigned_abs());
        self.queue(at);
    }

    /// The open batch of a partition is closed.
    fn seal(&mut self, at: usize, kit: &mut Kit<'_>) {
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let Some(open) = slot.open.take() else { return };
        slot.is_expired = false;
        let uncompressed = open.size();
        slot.capacity = uncompressed;
        let producer = self.identity.map(|identity| (identity, slot.sequence));
        let batch = open.seal((kit.plan.codec, kit.plan.level), producer, kit.compressor);
        if kit.plan.codec != Codec::None {
            let ratio = batch.bytes.len() as f64 / uncompressed as f64;
            self.ratio = (self.ratio + RATIO_WEIGHT * (ratio - self.ratio)).clamp(0.01, 1.0);
        }
        let count = i32::try_from(batch.messages()).unwrap_or(i32::MAX);
        slot.sequence = sequence_after(slot.sequence, count);
        self.unsent_bytes = self.unsent_bytes.saturating_sub(uncompressed) + batch.bytes.len();
        slot.ready.push_back(batch);
    }

    fn queue(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at)
            && !slot.is_queued
            && let Some(link) = self.links.get_mut(slot.link)
        {
            slot.is_queued = true;
            link.ready.push_back(at);
        }
    }

    /// A batch has lingered; one that is closed already is not meant.
    pub(super) fn expire(&mut self, linger: &Linger) {
        let Some(slot) = self.slots.get_mut(linger.slot) else {
            return;
        };
        if slot
            .open
            .as_ref()
            .is_some_and(|open| open.serial == linger.serial)
        {
            slot.is_expired = true;
            self.queue(linger.slot);
        }
    }

    /// Sends what is ready, as far as requests may be in flight. Whether a link began or ended to wait for its socket is for the
    /// caller to look at.
    pub(super) fn dispatch(&mut self, kit: &mut Kit<'_>, stats: &mut Stats) -> Result<(), LinkError> {
        for link in 0..self.links.len() {
            loop {
                let mut has_new = false;
                while let Some(to) = self.links.get(link)
                    && to.flights.len() < kit.plan.in_flight_max
                    && !to.ready.is_empty()
                {
                    self.request(link, kit, stats);
                    has_new = true;
                }
                if !has_new {
                    break;
                }
                // Without acknowledgements a request may be done now, and the next has its turn.
                self.flush(link, stats)?;
            }
        }
        Ok(())
    }

    /// Whether no link may have another request in flight.
    pub(super) fn is_saturated(&self) -> bool {
        self.links.iter().all(|to| to.flights.len() >= self.in_flight_max)
    }

    /// Whether a socket takes no more.
    pub(super) fn is_blocked(&self) -> bool {
        self.links.iter().any(|to| to.link.is_blocked())
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self, link: usize, stats: &mut Stats) -> Result<(), LinkError> {
        let Some(to) = self.links.get_mut(link) else {
            return Ok(());
        };
        to.link.flush()?;
        // Without acknowledgements a message is done when the socket took it.
        let written = to.link.written();
        while to
            .flights
            .front()
            .is_some_and(|flight| flight.correlation < 0 && flight.end <= written)
        {
            if let Some(flight) = to.flights.pop_front() {
                let now = stats.clock.now();
                self.in_flight -= acknowledge(flight.batches.iter().map(|(_, batch)| batch), now, stats);
                stats.current.counts.produces += 1;
            }
        }
        Ok(())
    }

    /// Makes one request of one batch of each ready partition.
    fn request(&mut self, link: usize, kit: &mut Kit<'_>, stats: &mut Stats) {
        let mut batches: Vec<(usize, ReadyBatch)> = Vec::new();
        let mut bytes = 0;
        let mut left = self.links.get(link).map_or(0, |to| to.ready.len());
        while left > 0 {
            left -= 1;
            let Some(at) = self.links.get(link).and_then(|to| to.ready.front().copied()) else {
                break;
            };
            if self
                .slots
                .get(at)
                .is_some_and(|slot| slot.ready.is_empty() && slot.is_expired)
            {
                self.seal(at, kit);
            }
            let (Some(slot), Some(to)) = (self.slots.get_mut(at), self.links.get_mut(link)) else {
                break;
            };
            let size = slot.ready.front().map_or(0, |batch| batch.bytes.len());
            if bytes > 0 && bytes + size > kit.plan.request_bytes_max {
                break;
            }
            to.ready.pop_front();
            slot.is_queued = false;
            if let Some(batch) = slot.ready.pop_front() {
                bytes += size;
                batches.push((at, batch));
            }
            if !slot.ready.is_empty() || slot.is_expired {
                slot.is_queued = true;
                to.ready.push_back(at);
            }
        }
        if batches.is_empty() {
            return;
        }
        if self.topics > 1 {
            batches.sort_by_key(|(at, _)| *at);
        }
        self.send(link, kit, batches, stats);
    }

    fn send(&mut self, link: usize, kit: &Kit<'_>, batches: Vec<(usize, ReadyBatch)>, stats: &mut Stats) {
        let slots = &self.slots;
        let parts: Vec<ToProduce> = batches
            .iter()
            .filter_map(|(at, batch)| {
                let slot = slots.get(*at)?;
                Some(ToProduce {
                    topic: slot.topic,
                    partition: slot.partition,
                    batch: batch.bytes.clone(),
                })
            })
            .collect();
        let messages: u64 = batches.iter().map(|(_, batch)| batch.messages()).sum();
        let bytes: usize = batches.iter().map(|(_, batch)| batch.bytes.len()).sum();
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
        self.unsent -= messages;
        self.in_flight += messages;
        stats.current.counts.sent += messages;
        self.correlation = self.correlation.wrapping_add(1) & i32::MAX;
        let pieces = request::produce(self.correlation, kit.plan.acks, kit.names, parts);
        let Some(to) = self.links.get_mut(link) else {
            return;
        };
        to.flights.push_back(Flight {
            correlation: if kit.plan.acks == 0 { -1 } else { self.correlation },
            end: to.link.queue(pieces),
            batches,
        });
    }

    /// Reads answers.
    pub(super) fn answers(
        &mut self,
        link: usize,
        names: &[Str],
        stats: &mut Stats,
    ) -> Result<(), ProducerError> {
        let Some(to) = self.links.get_mut(link) else {
            return Ok(());
        };
        to.link.fill()?;
        let mut refused = Vec::new();
        while let Some(answer) = to.link.frame()? {
            let Some(flight) = to.flights.pop_front() else {
                return Err(ProducerError::Senseless("an answer came to no request"));
            };
            if request::correlation(answer) != Some(flight.correlation) {
                return Err(ProducerError::Senseless(
                    "an answer has another correlation id than its request",
                ));
            }
            refused.clear();
            if request::produced(answer, &mut refused) != Some(flight.batches.len()) {
                return Err(ProducerError::Senseless(
                    "it does not name the partitions that were asked for",
                ));
            }
            stats.current.counts.produces += 1;
            let now = stats.clock.now();
            if refused.is_empty() {
                self.in_flight -= acknowledge(flight.batches.iter().map(|(_, batch)| batch), now, stats);
                continue;
            }
            for (at, batch) in &flight.batches {
                let slot = self.slots.get(*at);
                let is_meant = |one: &&Refused| {
                    slot.is_some_and(|slot| {
                        one.partition == slot.partition
                            && names
                                .get(slot.topic as usize)
                                .is_some_and(|name| name.as_str() == one.topic)
                    })
                };
                let Some(one) = refused.iter().find(is_meant) else {
                    self.in_flight -= acknowledge(std::iter::once(batch), now, stats);
                    continue;
                };
                if self.identity.is_some() {
                    return Err(ProducerError::Refused(one.clone()));
                }
                self.in_flight -= batch.messages();
                stats.current.counts.refused += batch.messages();
                *stats.current.errors.entry(one.code).or_default() += batch.messages();
            }
        }
        Ok(())
    }
}

/// The messages of acknowledged batches are counted; how many they are.
fn acknowledge<'a>(batches: impl Iterator<Item = &'a ReadyBatch>, now: u64, stats: &mut Stats) -> u64 {
    let mut messages = 0;
    for batch in batches {
        messages += batch.messages();
        stats.current.counts.acknowledged_bytes += batch.bytes.len() as u64;
        match &batch.dues {
            Dues::Each(dues) => {
                for due in dues {
                    stats.record_produce(*due, now, 1);
                }
            }
            Dues::Same(due, count) => stats.record_produce(*due, now, *count),
        }
    }
    stats.current.counts.acknowledged += messages;
    messages
}

/// Why a producer cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProducerError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("an answer to a produce makes no sense: {0}")]
    Senseless(&'static str),
    #[error(
        "the broker refused a batch for {}-{} with {}, and an idempotent producer cannot go on without it; look at the broker's log, or run with --idempotent false to count refused messages",
        .0.topic, .0.partition, ErrorCode(.0.code)
    )]
    Refused(Refused),
}

impl ProducerError {
    /// The end of the run.
    pub(super) fn failure(&self, broker: &str) -> Failure {
        let status = match self {
            Self::Link(_) => Status::Unavailable,
            Self::Senseless(_) => Status::Protocol,
            Self::Refused(_) => Status::Data,
        };
        Failure::new(status, format!("producing to {broker}: {self}"))
    }
}
