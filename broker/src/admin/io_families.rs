//! The families of the disk: what each class of I/O did and waited for, the time in syncs, and what the scrub found.

use storage::io_class::{IoClass, IoTotals};
use storage::scrub::ScrubStats;

use super::exposition::{Exposition, Kind};
use super::node_families::by_shard;
use crate::observe::shard::ShardSnapshot;

/// Writes them all.
pub(super) fn write(text: &mut Exposition, shards: &[ShardSnapshot]) {
    classes(text, shards);
    by_shard(
        text,
        "penstock_commit_sync_seconds_total",
        Kind::Counter,
        "Time in which a commit waited for a sync, or for a write that is durable when it ends.",
        shards,
        |s| seconds(s.storage.synced_ns),
    );
    scrub(text, shards);
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn classes(text: &mut Exposition, shards: &[ShardSnapshot]) {
    type Of = fn(&IoTotals) -> f64;
    let families: [(&str, Kind, &str, Of); 5] = [
        (
            "penstock_io_bytes_total",
            Kind::Counter,
            "Bytes read from and written to disk, by what for.",
            |io| io.bytes as f64,
        ),
        (
            "penstock_io_operations_total",
            Kind::Counter,
            "Reads and writes, by what for.",
            |io| io.operations as f64,
        ),
        (
            "penstock_io_waits_total",
            Kind::Counter,
            "Reads and writes that had to wait for others, or for their class's rate.",
            |io| io.waits as f64,
        ),
        (
            "penstock_io_wait_seconds_total",
            Kind::Counter,
            "How long they waited.",
            |io| seconds(io.wait_ns),
        ),
        (
            "penstock_io_waiting",
            Kind::Gauge,
            "Reads and writes that wait.",
            |io| io.waiting as f64,
        ),
    ];
    for (name, kind, help, of) in families {
        let mut family = text.family(name, kind, help);
        for shard in shards {
            let number = shard.shard.to_string();
            for (class, totals) in IoClass::ALL.iter().zip(&shard.storage.io) {
                family.sample(&[("shard", &number), ("class", class.name())], of(totals));
            }
        }
    }
}

fn scrub(text: &mut Exposition, shards: &[ShardSnapshot]) {
    type Of = fn(&ScrubStats) -> f64;
    let families: [(&str, Kind, &str, Of); 6] = [
        (
            "penstock_scrub_bytes_total",
            Kind::Counter,
            "Bytes of segments that the scrub has verified.",
            |scrub| scrub.bytes as f64,
        ),
        (
            "penstock_scrub_segments_total",
            Kind::Counter,
            "Segments that the scrub has verified.",
            |scrub| scrub.segments as f64,
        ),
        (
            "penstock_scrub_passes_total",
            Kind::Counter,
            "Passes of the scrub over all partitions of a shard.",
            |scrub| scrub.passes as f64,
        ),
        (
            "penstock_scrub_pass_end_timestamp_seconds",
            Kind::Gauge,
            "When the last of them ended, seconds since 1970; 0 before.",
            |scrub| scrub.pass_ended_ms as f64 / 1e3,
        ),
        (
            "penstock_scrub_findings_total",
            Kind::Counter,
            "Damaged places that the scrub has found since the start.",
            |scrub| scrub.findings_total as f64,
        ),
        (
            "penstock_scrub_damaged_places",
            Kind::Gauge,
            "Damaged places that are there, as far as the scrub knows; the log names them.",
            |scrub| scrub.findings as f64,
        ),
    ];
    for (name, kind, help, of) in families {
        by_shard(text, name, kind, help, shards, |s| of(&s.storage.scrub));
    }
}
