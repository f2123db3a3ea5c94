//! The truth that a recovered directory is compared with: what was sent to each log, what of it was reported durable, and what
//! follows from it for producers, transactions and leader epochs. Written on its own, so that a mistake of the log engine is not
//! a mistake of the model as well.

use std::collections::BTreeMap;

use bytes::Bytes;
use storage::log::config::{Durability, LogConfig};
use storage::types::{LogId, Offset, TopicId};

use super::check::Found;

/// Whether a log is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is, or is being made.
    Open,
    /// Its deletion began: nobody opens it again.
    Deleted,
}

/// What a batch is to producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Plain,
    /// Records of a producer.
    Data {
        /// The producer.
        id: i64,
        /// Its epoch.
        epoch: i16,
        /// The sequence of the last record.
        last_sequence: i32,
        /// Whether they belong to a transaction.
        is_transactional: bool,
    },
    /// The end of a transaction.
    Marker {
        /// The producer.
        id: i64,
        /// Its epoch.
        epoch: i16,
        /// Whether it was aborted.
        is_abort: bool,
    },
}

/// A batch as it was sent and as it was answered.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its first offset.
    pub base: Offset,
    /// Its last offset.
    pub last: Offset,
    /// Its bytes behind the prefix.
    pub content: Bytes,
    /// The leader epoch it was sent in.
    pub leader_epoch: i32,
    /// See [`Role`].
    pub role: Role,
}

/// What a log knows of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerFacts {
    /// Its newest epoch.
    pub epoch: i16,
    /// The last sequence it wrote in it, −1 for none.
    pub last_sequence: i32,
    /// The first offset of its open transaction.
    pub transaction_start: Option<Offset>,
    /// The last offset it wrote.
    pub last_offset: Offset,
}

/// An aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// The producer.
    pub id: i64,
    /// Its first offset.
    pub first: Offset,
    /// The last offset of its records.
    pub last_data: Offset,
    /// The offset of its marker.
    pub marker: Offset,
}

/// One log.
#[derive(Clone, Debug)]
pub struct LogModel {
    /// Topic id and partition.
    pub id: LogId,
    /// The topic's name.
    pub topic: String,
    /// Whether it is there.
    pub presence: Presence,
    /// The settings it has now.
    pub config: LogConfig,
    /// Its records have keys, and it is or was compacted.
    pub is_keyed: bool,
    /// All batches from the first on, also those below the log start.
    pub batches: Vec<Sent>,
    /// The log start that was last asked for.
    pub start_asked: Offset,
    /// The log start that was last answered.
    pub start: Offset,
    /// Everything below was reported durable.
    pub durable: Offset,
    /// Everything below was reported durable while the log synced what it acknowledges: it survives a power loss.
    pub durable_power: Offset,
    /// The newest leader epoch ever sent.
    pub leader_epoch_max: i32,
    /// It was of a class without syncs at some time since it was made.
    pub was_loose: bool,
    /// It lost records that it had not synced, and began again empty: what it knows of producers is not known here.
    pub began_again: bool,
    /// The machine lost its power since the log was last looked at.
    pub lost_power: bool,
}

impl LogModel {
    /// A log that is about to be made.
    pub fn new(number: u32, topic: String, partition: i32, config: LogConfig) -> Self {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        id[15] = 1;
        Self {
            id: LogId {
                topic: TopicId(id),
                partition,
            },
            topic,
            presence: Presence::Open,
            was_loose: config.durability != Durability::Fsync,
            is_keyed: config.compaction.enabled,
            config,
            batches: Vec::new(),
            start_asked: Offset::ZERO,
            start: Offset::ZERO,
            durable: Offset::ZERO,
            durable_power: Offset::ZERO,
            leader_epoch_max: 0,
            began_again: false,
            lost_power: false,
        }
    }

    /// Its directory's name.
    pub fn directory(&self) -> String {
        format!("{}-{}", self.topic, self.id.partition)
    }

    /// One past the last offset sent.
    pub fn end(&self) -> Offset {
        self.batches
            .last()
            .map_or(Offset::ZERO, |batch| batch.last.plus(1))
    }

    /// How many of the batches lie wholly below the log start.
    pub fn deleted(&self, start: Offset) -> usize {
        self.batches.iter().take_while(|batch| batch.last < start).count()
    }

    /// Those of the batches that were found, in order.
    pub fn found<'m>(&'m self, found: &'m [Found]) -> impl Iterator<Item = &'m Sent> {
        let mut found = found.iter().peekable();
        self.batches.iter().filter(move |sent| {
            while found.next_if(|found| found.base < sent.base).is_some() {}
            found.peek().is_some_and(|found| found.base == sent.base)
        })
    }

    /// What must be there after the crash that was.
    pub fn must_end(&self) -> Offset {
        if self.lost_power {
            self.durable_power
        } else {
            self.durable
        }
    }

    /// What producers have written, by id.
    pub fn producers(&self) -> BTreeMap<i64, ProducerFacts> {
        let mut all: BTreeMap<i64, ProducerFacts> = BTreeMap::new();
        for batch in &self.batches {
            let (id, epoch) = match batch.role {
                Role::Plain => continue,
                Role::Data { id, epoch, .. } | Role::Marker { id, epoch, .. } => (id, epoch),
            };
            let facts = all.entry(id).or_insert(ProducerFacts {
                epoch,
                last_sequence: -1,
                transaction_start: None,
                last_offset: batch.last,
            });
            if epoch > facts.epoch {
                facts.epoch = epoch;
                facts.last_sequence = -1;
            }
            facts.last_offset = batch.last;
            match batch.role {
                Role::Data {
                    last_sequence,
                    is_transactional,
                    ..
                } => {
                    facts.last_sequence = last_sequence;
                    if is_transactional && facts.transaction_start.is_none() {
                        facts.transaction_start = Some(batch.base);
                    }
                }
                _ => facts.transaction_start = None,
            }
        }
        all
    }

    /// The transactions that were aborted, in the order of their markers.
    pub fn aborted(&self) -> Vec<Aborted> {
        let mut open: BTreeMap<i64, (Offset, Offset)> = BTreeMap::new();
        let mut all = Vec::new();
        for batch in &self.batches {
            match batch.role {
                Role::Data {
                    id,
                    is_transactional: true,
                    ..
                } => {
                    open.entry(id).or_insert((batch.base, batch.last)).1 = batch.last;
                }
                Role::Marker { id, is_abort, .. } => {
                    if let Some((first, last_data)) = open.remove(&id).filter(|_| is_abort) {
                        all.push(Aborted {
                            id,
                            first,
                            last_data,
                            marker: batch.base,
                        });
                    }
                }
                _ => {}
            }
        }
        all
    }
}

/// All logs ever made.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// In the order in which they were made; a name may come again under another id.
    pub logs: Vec<LogModel>,
}

impl Model {
    /// Indexes of the logs that are there.
    pub fn open(&self) -> Vec<usize> {
        let logs = self.logs.iter().enumerate();
        logs.filter(|(_, log)| log.presence == Presence::Open)
            .map(|(index, _)| index)
            .collect()
    }

    /// The machine lost its power.
    pub fn lose_power(&mut self) {
        for log in &mut self.logs {
            log.lost_power = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_and_aborted_transactions_follow_from_the_batches() {
        let mut log = LogModel::new(1, "t".to_owned(), 0, LogConfig::default());
        let mut send = |role| {
            let base = log.end();
            log.batches.push(Sent {
                base,
                last: base,
                content: Bytes::new(),
                leader_epoch: 0,
                role,
            });
        };
        let data = |epoch, last_sequence| Role::Data {
            id: 5,
            epoch,
            last_sequence,
            is_transactional: true,
        };
        let marker = |epoch, is_abort| Role::Marker {
            id: 5,
            epoch,
            is_abort,
        };
        for role in [
            data(0, 0),
            data(0, 1),
            marker(0, true),
            data(1, 0),
            marker(1, false),
            data(1, 1),
        ] {
            send(role);
        }
        let aborted = Aborted {
            id: 5,
            first: Offset(0),
            last_data: Offset(1),
            marker: Offset(2),
        };
        assert_eq!(log.aborted(), [aborted]);
        let facts = log.producers()[&5];
        assert_eq!((facts.epoch, facts.last_sequence), (1, 1));
        assert_eq!(facts.transaction_start, Some(Offset(5)));
    }
}
