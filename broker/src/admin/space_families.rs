//! The metric families of the free space of each log directory: how much there is, when it will be gone, and whether
//! producers are refused.

use std::path::PathBuf;

use super::exposition::{Exposition, Kind, Number};
use crate::observe::shard::ShardSnapshot;
use shard::ids::LogDir;
use storage::space::SpaceStats;

/// One family with a sample for the log directory, none when it has no value.
type Family = (
    &'static str,
    Kind,
    &'static str,
    fn(&SpaceStats) -> Option<Number>,
);

const FAMILIES: [Family; 8] = [
    (
        "penstock_log_dir_total_bytes",
        Kind::Gauge,
        "Size of the file system of the log directory.",
        |s| Some(s.total_bytes.into()),
    ),
    (
        "penstock_log_dir_usable_bytes",
        Kind::Gauge,
        "Free for segments: what the file system has free and what is allocated ahead, less what waits to be written.",
        |s| Some(s.usable_bytes.into()),
    ),
    (
        "penstock_log_dir_reserve_bytes",
        Kind::Gauge,
        "Producers are refused while less than this and what a start needs is usable (penstock.disk.reserve.bytes).",
        |s| Some(s.reserve_bytes.into()),
    ),
    (
        "penstock_log_dir_needed_bytes",
        Kind::Gauge,
        "What the next stop and start of the broker need, kept back beside the reserve.",
        |s| Some(s.needed_bytes.into()),
    ),
    (
        "penstock_log_dir_fill_bytes_per_second",
        Kind::Gauge,
        "How fast the usable space goes, an average of about a minute; 0 when it does not.",
        |s| Some(s.fill_bytes_per_second.into()),
    ),
    (
        "penstock_log_dir_seconds_to_full",
        Kind::Gauge,
        "When the reserve is reached if it goes on like this; no sample when the directory does not fill.",
        |s| s.seconds_to_full().map(Into::into),
    ),
    (
        "penstock_log_dir_full",
        Kind::Gauge,
        "1 while producers are refused for lack of space.",
        |s| Some(s.refuses_writes.into()),
    ),
    (
        "penstock_log_dir_refused_batches_total",
        Kind::Counter,
        "Batches of producers refused for lack of space.",
        |s| Some(s.refused.into()),
    ),
];

/// Writes the families.
pub(super) fn write(text: &mut Exposition, log_dirs: &[PathBuf], shards: &[ShardSnapshot]) {
    let of_dir = |number| {
        let known = shards.iter().flat_map(|s| &s.spaces);
        merged(
            known
                .filter(|(dir, _)| *dir == LogDir(number))
                .map(|(_, space)| *space),
        )
    };
    let spaces: Vec<_> = (0..)
        .zip(log_dirs)
        .filter_map(|(number, dir)| Some((dir.display().to_string(), of_dir(number)?)))
        .collect();
    for (name, kind, help, of) in FAMILIES {
        let mut family = text.family(name, kind, help);
        for (dir, space) in &spaces {
            if let Some(value) = of(space) {
                family.sample(&[("log_dir", dir)], value);
            }
        }
    }
}

/// The directory as its shards see it together: each knows what it has allocated and what waits, all see the same disk.
fn merged(shards: impl Iterator<Item = SpaceStats>) -> Option<SpaceStats> {
    shards.reduce(|a, b| SpaceStats {
        usable_bytes: a.usable_bytes.min(b.usable_bytes),
        refuses_writes: a.refuses_writes || b.refuses_writes,
        is_stalled: a.is_stalled || b.is_stalled,
        refused: a.refused + b.refused,
        fill_bytes_per_second: a.fill_bytes_per_second.max(b.fill_bytes_per_second),
        ..a
    })
}
