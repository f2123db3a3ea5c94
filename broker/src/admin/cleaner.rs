//! The families of compaction: Kafka's gauges of its cleaner, and counters of ours.

use storage::compaction::CleanerStats;

use super::exposition::{Exposition, Kind};
use super::node_families::by_shard;
use crate::observe::shard::ShardSnapshot;

/// Writes them all. `now_ms`: milliseconds since 1970.
pub(super) fn write(text: &mut Exposition, shards: &[ShardSnapshot], now_ms: i64) {
    gauges(text, shards, now_ms);
    counters(text, shards);
}

fn gauges(text: &mut Exposition, shards: &[ShardSnapshot], now_ms: i64) {
    let all = || shards.iter().map(|shard| &shard.storage.cleaner);
    let most = |of: fn(&CleanerStats) -> u64| all().map(of).max().unwrap_or(0);
    let sum = |of: fn(&CleanerStats) -> u64| all().map(of).sum::<u64>();
    let last_look = all().map(|stats| stats.last_look_ms).filter(|at| *at > 0).min();
    let since_look = last_look.map_or(0, |at| now_ms.saturating_sub(at).max(0).unsigned_abs());
    for (name, help, value) in [
        (
            "logcleanermanager_max_dirty_percent",
            "The dirty share of the log that has most of it, percent.",
            most(|s| u64::from(s.dirty_ppm_max / 10_000)),
        ),
        (
            "logcleanermanager_time_since_last_run_ms",
            "How long ago a shard last looked for logs to compact, milliseconds; the longest.",
            since_look,
        ),
        (
            "logcleanermanager_uncleanable_partitions_count",
            "Partitions that compaction leaves alone until the next start, for damage it found.",
            sum(|s| s.uncleanable_logs as u64),
        ),
        (
            "logcleanermanager_uncleanable_bytes",
            "Bytes of such partitions.",
            sum(|s| s.uncleanable_bytes),
        ),
        (
            "logcleaner_max_buffer_utilization_percent",
            "How far the last passes filled their offset maps, percent; the most.",
            most(|s| u64::from(s.buffer_ppm / 10_000)),
        ),
        (
            "logcleaner_cleaner_recopy_percent",
            "What the last passes wrote of what they rewrote, percent; the most.",
            most(|s| u64::from(s.recopy_ppm / 10_000)),
        ),
        (
            "logcleaner_max_clean_time_secs",
            "How long the last passes took, seconds; the longest.",
            most(|s| s.pass_ms / 1000),
        ),
        (
            "logcleaner_max_compaction_delay_secs",
            "By how much a record waits longer for compaction than its topic allows, seconds; the longest.",
            most(|s| s.delay_ms_max.max(0).unsigned_abs() / 1000),
        ),
        (
            "logcleaner_deadthreadcount",
            "Shards whose compaction has ended.",
            shards.iter().filter(|s| s.storage.is_offline).count() as u64,
        ),
    ] {
        text.single(&format!("kafka_log_{name}"), Kind::Gauge, help, value);
    }
}

fn counters(text: &mut Exposition, shards: &[ShardSnapshot]) {
    type Family = (&'static str, &'static str, fn(&CleanerStats) -> u64);
    let counters: [Family; 5] = [
        ("passes", "Compactions of a partition.", |s| s.passes),
        ("read_bytes", "Bytes read by compaction.", |s| s.read_bytes),
        ("written_bytes", "Bytes written by compaction.", |s| {
            s.written_bytes
        }),
        (
            "batches_changed",
            "Batches that compaction removed or made smaller.",
            |s| s.batches_changed,
        ),
        ("segments_saved", "Segments that went by merging.", |s| {
            s.segments_saved
        }),
    ];
    for (name, help, of) in counters {
        let name = format!("penstock_compaction_{name}_total");
        by_shard(text, &name, Kind::Counter, help, shards, |shard| {
            of(&shard.storage.cleaner)
        });
    }
}
