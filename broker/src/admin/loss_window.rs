//! The families about what a power loss would take of what was acknowledged: of topics whose `penstock.durability` is not
//! `fsync`, by shard and class, with the bounds that it is held within.

use storage::sync_schedule::{LossWindow, LossWindows};

use super::exposition::{Exposition, Kind, Number};
use crate::observe::shard::ShardSnapshot;

/// A family with a sample for each shard and class.
type Of = fn(&LossWindow) -> Number;

const FAMILIES: [(&str, &str, Of); 8] = [
    (
        "penstock_unsynced_partitions",
        "Partitions with acknowledged records that no sync covers yet: a power loss would take them.",
        |w| w.logs.into(),
    ),
    ("penstock_unsynced_records", "Those records.", |w| {
        w.records.into()
    }),
    ("penstock_unsynced_bytes", "Their bytes.", |w| w.bytes.into()),
    (
        "penstock_unsynced_age_seconds",
        "How long ago the oldest of them was acknowledged.",
        |w| seconds(w.age_ms),
    ),
    (
        "penstock_unsynced_records_max",
        "Records at which these partitions are synced, summed up.",
        |w| bound(w.records_max, 1.0),
    ),
    (
        "penstock_unsynced_bytes_max",
        "Bytes at which these partitions are synced, summed up.",
        |w| bound(w.bytes_max, 1.0),
    ),
    (
        "penstock_unsynced_age_max_seconds",
        "Age at which the last of these partitions is synced.",
        |w| bound(w.ms_max, 1e3),
    ),
    (
        "penstock_sync_overdue_seconds",
        "By how much the age of the latest of these partitions is above its bound.",
        |w| seconds(w.overdue_ms),
    ),
];

/// The window of one class.
type OfClass = fn(&LossWindows) -> &LossWindow;

/// The classes with the names of `penstock.durability`.
const CLASSES: [(&str, OfClass); 3] = [
    ("fsync", |w| &w.fsync),
    ("interval", |w| &w.interval),
    ("written", |w| &w.written),
];

/// Writes them all.
pub(super) fn write(text: &mut Exposition, shards: &[ShardSnapshot]) {
    for (name, help, of) in FAMILIES {
        let mut family = text.family(name, Kind::Gauge, help);
        for shard in shards {
            let number = shard.shard.to_string();
            for (class, window) in CLASSES {
                let labels = [("shard", number.as_str()), ("durability", class)];
                family.sample(&labels, of(window(&shard.loss)));
            }
        }
    }
}

fn seconds(ms: u64) -> Number {
    Number::Float(ms as f64 / 1e3)
}

/// A bound in units of `unit`.
fn bound(value: u64, unit: f64) -> Number {
    if value == u64::MAX {
        Number::Float(f64::INFINITY)
    } else {
        Number::Float(value as f64 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_bound_is_infinite() {
        assert_eq!(bound(u64::MAX, 1e3), Number::Float(f64::INFINITY));
        assert_eq!(bound(200, 1e3), Number::Float(0.2));
        assert_eq!(seconds(1500), Number::Float(1.5));
    }
}
