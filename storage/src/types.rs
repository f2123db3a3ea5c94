//! The small types of a log: offsets, epochs, producer ids, log identity. Newtypes for what must not be mixed up
//! (STYLE.md); all are plain integers on disk and on the wire.

use std::fmt;

/// A record's position in its partition; dense but for gaps left by compaction and transaction markers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub i64);

/// The term of a partition's leader; grows by one at each election (KIP-101). −1 means unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

/// The identity of an idempotent producer, from controller-allocated blocks (KIP-98). −1 means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

/// A topic's id, a random version-4 UUID (KIP-516); the all-zero value means unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

/// One replica's log on this node: the topic's id and the partition index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogId {
    /// The topic the log belongs to.
    pub topic: TopicId,
    /// The partition index within the topic, from 0.
    pub partition: i32,
}

impl Offset {
    /// Before any record: Kafka's "no offset" on the wire.
    pub const NONE: Self = Self(-1);
    /// The first offset of a new log.
    pub const ZERO: Self = Self(0);

    /// This offset moved by `count` records.
    #[must_use]
    pub const fn plus(self, count: i64) -> Self {
        Self(self.0 + count)
    }
}

impl LeaderEpoch {
    /// No epoch known: Kafka's −1.
    pub const NONE: Self = Self(-1);
}

impl ProducerId {
    /// Not an idempotent producer: Kafka's −1.
    pub const NONE: Self = Self(-1);
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}
display_number!(Offset, LeaderEpoch, ProducerId);

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}-{}", self.topic, self.partition)
    }
}
