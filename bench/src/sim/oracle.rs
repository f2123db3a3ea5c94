//! The shadow model: what clients were told, and what must therefore hold. Every answer of the broker goes through here. It
//! knows nothing of shards, journals or segments.
//!
//! | what | checked by |
//! |---|---|
//! | one record per (partition, offset) for ever (J1), one offset per record (J4) | [`Oracle::learn`] |
//! | nothing that was refused or never sent is read (J2) | [`Oracle::learn`] |
//! | an acknowledged record is durable and stays (J3, J5) | [`Oracle::check_log`], [`Oracle::check_mark`] |
//! | records of one producer keep their order, without gaps if it is idempotent (J7) | [`Oracle::check_log`] |
//! | the high watermark never goes back, not over restarts either | [`Oracle::check_mark`] |
//! | deleted records stay deleted, and nothing that nobody deleted is missing | [`Oracle::check_start`] |

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::record::{ReadRecord, RecordId};
use super::trace::Trace;

/// How a record's offset became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A produce was answered.
    Acknowledged,
    /// A consumer read it.
    Consumed,
}

/// A record that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    fate: Fate,
    /// Which of its producer's connections carried it first. Without idempotence only records of one connection are in order:
    /// what is still under way on an old one may be read after what came on the next.
    session: u32,
}

/// What the answers said about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No answer, or one that leaves it open.
    Open,
    /// Refused for good: it must never be read.
    Refused,
    /// At this offset.
    At(i64),
}

#[derive(Default)]
struct Partition {
    name: String,
    sent: BTreeMap<RecordId, Sent>,
    by_offset: BTreeMap<i64, RecordId>,
    /// One past the highest offset that is known to be durable.
    durable_end: i64,
    acknowledged: u64,
    /// The log begins here at least: a deletion up to it was answered.
    start_least: i64,
    /// The log begins here at most: no deletion beyond it was asked for.
    start_most: i64,
}

/// What an answer to a request sent from now on has to keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The least high watermark.
    pub mark: i64,
    /// The least log start.
    pub start: i64,
}

/// A whole log as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadLog {
    /// Its start.
    pub start: i64,
    /// Its records, in order.
    pub records: Vec<ReadRecord>,
}

/// A producer as the model sees it.
#[derive(Clone, Copy, Debug)]
struct Producer {
    idempotent: bool,
}

/// The model of one run. Shared by all clients.
#[derive(Clone)]
pub struct Oracle(Rc<Inner>);

struct Inner {
    trace: Rc<Trace>,
    partitions: RefCell<Vec<Partition>>,
    producers: RefCell<Vec<Producer>>,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records sent.
    pub sent: u64,
    /// Records whose produce was answered with success.
    pub acknowledged: u64,
    /// Records refused.
    pub refused: u64,
}

impl Oracle {
    /// A model of partitions with these names.
    #[must_use]
    pub fn new(trace: Rc<Trace>, names: impl IntoIterator<Item = String>) -> Self {
        let partition = |name| Partition {
            name,
            ..Partition::default()
        };
        Self(Rc::new(Inner {
            trace,
            partitions: RefCell::new(names.into_iter().map(partition).collect()),
            producers: RefCell::default(),
        }))
    }

    /// A new producer; its number.
    pub fn add_producer(&self, idempotent: bool) -> u32 {
        let mut producers = self.0.producers.borrow_mut();
        producers.push(Producer { idempotent });
        u32::try_from(producers.len() - 1).expect("few producers")
    }

    /// A record is about to be sent for the first time, on its producer's connection number `session`.
    pub fn sending(&self, id: RecordId, session: u32) {
        let fate = Fate::Open;
        let mut partitions = self.0.partitions.borrow_mut();
        let sent = &mut partitions[id.partition as usize].sent;
        let before = sent.insert(id, Sent { fate, session });
        assert!(before.is_none(), "a record of the model is new once: {id:?}");
    }

    /// A produce was refused in a way that says it was not appended.
    pub fn refused(&self, id: RecordId) {
        let mut partitions = self.0.partitions.borrow_mut();
        let partition = &mut partitions[id.partition as usize];
        match partition.sent.get_mut(&id) {
            Some(sent) if matches!(sent.fate, Fate::Open | Fate::Refused) => sent.fate = Fate::Refused,
            other => {
                let what = format!("{id:?} was refused after it was {other:?}");
                self.violation(partition, format_args!("{what}"));
            }
        }
    }

    /// The records from `base` on were acknowledged.
    pub fn acknowledged(&self, ids: &[RecordId], base: i64) {
        for (offset, id) in (base..).zip(ids) {
            self.learn(ReadRecord { offset, id: *id }, Source::Acknowledged);
        }
        if let Some(last) = ids.last() {
            let mut partitions = self.0.partitions.borrow_mut();
            let partition = &mut partitions[last.partition as usize];
            partition.acknowledged += ids.len() as u64;
            let end = base + ids.len() as i64;
            partition.durable_end = partition.durable_end.max(end);
        }
    }

    /// A record has this offset, said an answer.
    pub fn learn(&self, record: ReadRecord, source: Source) {
        let ReadRecord { offset, id } = record;
        let mut partitions = self.0.partitions.borrow_mut();
        let Some(partition) = partitions.get_mut(id.partition as usize) else {
            return self
                .0
                .trace
                .violation(format_args!("{id:?} is of no partition of this run"));
        };
        if let Some(wrong) = partition.contradicts(record) {
            self.violation(partition, format_args!("{wrong} ({source:?})"));
        }
        if let Some(sent) = partition.sent.get_mut(&id) {
            sent.fate = Fate::At(offset);
        }
        if let Some(before) = partition.by_offset.insert(offset, id)
            && before != id
        {
            self.violation(
                partition,
                format_args!("offset {offset} is {before:?} and {id:?} ({source:?})"),
            );
        }
        if source == Source::Consumed {
            partition.durable_end = partition.durable_end.max(offset + 1);
        }
    }

    /// What any answer to a request sent from now on has to keep to.
    #[must_use]
    pub fn floor(&self, partition: u32) -> Floor {
        let partition = &self.0.partitions.borrow()[partition as usize];
        Floor {
            mark: partition.durable_end,
            start: partition.start_least,
        }
    }

    /// A deletion of all records below `offset` is about to be asked for; `None` is up to the high watermark.
    pub fn deleting(&self, partition: u32, offset: Option<i64>) {
        let mut partitions = self.0.partitions.borrow_mut();
        let most = &mut partitions[partition as usize].start_most;
        *most = (*most).max(offset.unwrap_or(i64::MAX));
    }

    /// A deletion was answered: the log starts at `start` for ever, or above. No other one is open.
    pub fn deleted(&self, partition: u32, start: i64) {
        let mut partitions = self.0.partitions.borrow_mut();
        let partition = &mut partitions[partition as usize];
        partition.start_least = partition.start_least.max(start);
        partition.start_most = partition.start_least;
        partition.durable_end = partition.durable_end.max(start);
    }

    /// Whether records from `offset` on may have been deleted.
    #[must_use]
    pub fn may_be_deleted(&self, partition: u32, offset: i64) -> bool {
        offset < self.0.partitions.borrow()[partition as usize].start_most
    }

    /// An answer had this log start; its request was sent when the floor was `floor`.
    pub fn check_start(&self, partition: u32, start: i64, floor: Floor, whence: &str) {
        let partition = &self.0.partitions.borrow()[partition as usize];
        if !(floor.start..=partition.start_most).contains(&start) {
            let (least, most) = (floor.start, partition.start_most);
            let what = format_args!("{whence}: the log starts at {start}, not at {least} to {most}");
            self.violation(partition, what);
        }
    }

    /// An answer had this high watermark; its request was sent when the floor was `floor`.
    pub fn check_mark(&self, partition: u32, mark: i64, floor: i64) {
        let mut partitions = self.0.partitions.borrow_mut();
        let partition = &mut partitions[partition as usize];
        if mark < floor {
            self.violation(
                partition,
                format_args!("the high watermark is {mark}, it was {floor} before"),
            );
        }
        partition.durable_end = partition.durable_end.max(mark);
    }

    /// A whole log, from its start to its end, as it was read when `floor` held: everything that clients know and nobody
    /// deleted is there, in place, and nothing else.
    pub fn check_log(&self, index: u32, log: &ReadLog, floor: Floor, whence: &str) {
        self.check_start(index, log.start, floor, whence);
        let (records, floor) = (&log.records, floor.mark);
        let partitions = self.0.partitions.borrow();
        let partition = &partitions[index as usize];
        let wrong = |what: std::fmt::Arguments<'_>| {
            self.violation(partition, format_args!("{whence}: {what}"));
        };
        let end = records.last().map_or(log.start, |record| record.offset + 1);
        if end < floor {
            wrong(format_args!("the log ends at {end}, but {floor} was durable"));
        }
        for (expected, record) in (log.start..).zip(records) {
            if record.offset != expected {
                return wrong(format_args!("offset {} follows {}", record.offset, expected - 1));
            }
            let known = partition.by_offset.get(&record.offset);
            if let Some(known) = known.filter(|known| **known != record.id) {
                wrong(format_args!(
                    "offset {expected} is {:?}, it was {known:?}",
                    record.id
                ));
            }
            if let Some(contradiction) = partition.contradicts(*record) {
                wrong(format_args!("{contradiction}"));
            }
        }
        if let Some((offset, id)) = partition.by_offset.range(end..floor.max(end)).next() {
            wrong(format_args!("{id:?} at {offset} is gone"));
        }
        self.check_order(partition, log, whence);
    }

    fn check_order(&self, partition: &Partition, log: &ReadLog, whence: &str) {
        let producers = self.0.producers.borrow();
        // The last number of each producer, for others than idempotent ones of each of its connections.
        let mut last: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for ReadRecord { offset, id } in &log.records {
            let idempotent = producers.get(id.producer as usize).is_some_and(|p| p.idempotent);
            let session = partition.sent.get(id).map_or(0, |sent| sent.session);
            let before = last.insert((id.producer, if idempotent { 0 } else { session }), id.number);
            let is_next = match before {
                // What was before it may have been deleted.
                None => id.number == 0 || !idempotent || log.start > 0,
                Some(before) if idempotent => id.number == before + 1,
                Some(before) => id.number > before,
            };
            if !is_next || !seen.insert(id) {
                let what = format_args!("{whence}: {id:?} at {offset} follows number {before:?}");
                return self.violation(partition, what);
            }
        }
    }

    /// Sums over all partitions.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for partition in &*self.0.partitions.borrow() {
            totals.sent += partition.sent.len() as u64;
            totals.acknowledged += partition.acknowledged;
            totals.refused += partition
                .sent
                .values()
                .filter(|s| s.fate == Fate::Refused)
                .count() as u64;
        }
        totals
    }

    /// The partitions of the run.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.0.partitions.borrow().len()).expect("few partitions")
    }

    fn violation(&self, partition: &Partition, what: std::fmt::Arguments<'_>) {
        self.0.trace.violation(format_args!("{}: {what}", partition.name));
    }
}

impl Partition {
    /// What speaks against this record being where it is.
    fn contradicts(&self, ReadRecord { offset, id }: ReadRecord) -> Option<String> {
        match self.sent.get(&id).map(|sent| sent.fate) {
            None => Some(format!("{id:?} at {offset} was never sent")),
            Some(Fate::Refused) => Some(format!("{id:?} at {offset} had been refused")),
            Some(Fate::At(before)) if before != offset => {
                Some(format!("{id:?} is at {offset} and at {before}"))
            }
            Some(Fate::Open | Fate::At(_)) => None,
        }
    }
}
