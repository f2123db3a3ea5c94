//! The families of moves between log directories.

use super::exposition::{Exposition, Kind};
use super::node_families::by_shard;
use crate::observe::shard::ShardSnapshot;

/// Writes them all.
pub(super) fn write(text: &mut Exposition, shards: &[ShardSnapshot]) {
    type Of = fn(&ShardSnapshot) -> f64;
    let families: [(&str, Kind, &str, Of); 4] = [
        (
            "penstock_log_moves_wanted",
            Kind::Gauge,
            "Partitions that are to go to another log directory and are not there yet.",
            |s| s.moves.wanted as f64,
        ),
        (
            "penstock_log_moves_total",
            Kind::Counter,
            "Partitions that went to another log directory.",
            |s| s.moves.moved as f64,
        ),
        (
            "penstock_log_moves_failed_total",
            Kind::Counter,
            "Partitions that could not be moved.",
            |s| s.moves.failed as f64,
        ),
        (
            "penstock_log_move_held_max_seconds",
            Kind::Gauge,
            "The longest time that requests have waited while a partition was handed over.",
            |s| s.moves.held_max.as_secs_f64(),
        ),
    ];
    for (name, kind, help, of) in families {
        by_shard(text, name, kind, help, shards, of);
    }
}
