//! The families of our own, `penstock_*`: shards, mailboxes, cache, commits, memory, connections, the process. And those
//! of Kafka's that say how busy a node is, made from ours.

use std::sync::atomic::Ordering;
use std::time::Instant;

use shard::budget::{AccountImage, BudgetClass};
use shard::runtime::PulseImage;
use shard::runtime::histogram::HistogramImage;
use shard::runtime::mailbox::LaneGauge;

use super::exposition::{Exposition, Family, Kind, Labels, Number, QUANTILES, seconds};
use super::families::histogram_seconds;
use super::{Admin, Phase, loss_window, space_families};
use crate::cli::logging::dropped_lines;
use crate::observe::metrics::Snapshot;
use crate::observe::shard::ShardSnapshot;

/// Writes them all.
pub(super) fn write(text: &mut Exposition, admin: &Admin, shards: &[ShardSnapshot], requests: &Snapshot) {
    process_state(text, admin);
    connections(text, admin, requests);
    traffic(text, requests, shards);
    storage(text, requests, shards);
    super::io_families::write(text, shards);
    space_families::write(text, &admin.0.facts.settings.log_dirs, shards);
    loss_window::write(text, shards);
    memory(text, shards);
    if let Some(running) = admin.0.running.get() {
        let pulses = running.pulses.read();
        busyness(text, admin, &pulses);
        pulse_families(text, &pulses);
        stalls(text, &pulses);
        mailboxes(text, &running.gauges.read());
    }
}

fn process_state(text: &mut Exposition, admin: &Admin) {
    let facts = &admin.0.facts;
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.family("penstock_build_info", Kind::Gauge, "The version that runs.")
        .sample(&version, 1u64);
    // Kafka's numbers: 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.
    let state = match admin.phase() {
        Phase::Starting if facts.progress.journal_bytes().1 > 0 => 2u64,
        Phase::Starting => 1,
        Phase::Serving => 3,
        Phase::Stopping => 7,
    };
    let help = "1 starting, 2 recovering, 3 running, 7 stopping.";
    text.single("kafka_server_kafkaserver_brokerstate", Kind::Gauge, help, state);
    if let Some((_, took)) = admin.0.serving.get() {
        let help = "How long the start took, until clients were let in.";
        text.single("penstock_start_seconds", Kind::Gauge, help, took.as_secs_f64());
    }
    let (done, all) = facts.progress.journal_bytes();
    let help = "Bytes of the journals of the run before that were replayed.";
    text.single("penstock_recovery_journal_bytes_done", Kind::Gauge, help, done);
    let help = "Bytes of the journals of the run before.";
    text.single("penstock_recovery_journal_bytes", Kind::Gauge, help, all);
    let (done, all) = facts.progress.logs();
    let help = "Logs that the start opened, those included that could not be.";
    text.single("penstock_recovery_logs_done", Kind::Gauge, help, done);
    let help = "Logs that the start has to open, as far as the metadata is read.";
    text.single("penstock_recovery_logs", Kind::Gauge, help, all);
    let help = "Logs that the start has to open still (KIP-831).";
    let left = all.saturating_sub(done);
    text.single(
        "kafka_log_logmanager_remaininglogstorecover",
        Kind::Gauge,
        help,
        left,
    );
    let mut family = text.family(
        "penstock_host_degraded",
        Kind::Gauge,
        "1 for what the host does not allow.",
    );
    for finding in facts.host.troubles() {
        family.sample(&[("subject", finding.subject)], 1u64);
    }
    let help = "Log lines dropped because they came too fast.";
    text.single(
        "penstock_log_lines_dropped_total",
        Kind::Counter,
        help,
        dropped_lines(),
    );
}

fn connections(text: &mut Exposition, admin: &Admin, requests: &Snapshot) {
    let help = "Connections that reached a shard.";
    text.single(
        "penstock_connections_opened_total",
        Kind::Counter,
        help,
        requests.connections_opened,
    );
    let mut family = text.family(
        "penstock_connections_closed_total",
        Kind::Counter,
        "Connections ended, by reason.",
    );
    for (reason, count) in &requests.connections_closed {
        family.sample(&[("reason", reason)], *count);
    }
    let Some((acceptors, _)) = admin.0.serving.get() else {
        return;
    };
    let listeners = &admin.0.facts.settings.listeners;
    let counter = |of: fn(&shard::runtime::net::AcceptCounters) -> u64| {
        acceptors
            .iter()
            .zip(listeners)
            .map(move |(counters, listener)| (listener.name.as_str(), of(counters)))
    };
    let help = "Connections that were gone before they were accepted.";
    let mut family = text.family("penstock_accept_aborted_total", Kind::Counter, help);
    for (listener, count) in counter(|c| c.aborted.load(Ordering::Relaxed)) {
        family.sample(&[("listener", listener)], count);
    }
    let help = "Times no descriptor or memory was left for a connection.";
    let mut family = text.family("penstock_accept_exhausted_total", Kind::Counter, help);
    for (listener, count) in counter(|c| c.exhausted.load(Ordering::Relaxed)) {
        family.sample(&[("listener", listener)], count);
    }
}

fn traffic(text: &mut Exposition, requests: &Snapshot, shards: &[ShardSnapshot]) {
    let help = "Bytes of request frames.";
    text.single(
        "penstock_request_bytes_total",
        Kind::Counter,
        help,
        requests.request_bytes,
    );
    let help = "Bytes of answers that the kernel has taken.";
    text.single(
        "penstock_response_bytes_total",
        Kind::Counter,
        help,
        requests.response_bytes,
    );
    let help = "Produced batches that had been appended before and were answered with the original's offset.";
    text.single(
        "penstock_produce_duplicates_total",
        Kind::Counter,
        help,
        requests.duplicates,
    );
    let help = "Batches appended.";
    let batches: u64 = shards.iter().map(|s| s.totals.batches_appended).sum();
    text.single("penstock_batches_appended_total", Kind::Counter, help, batches);
    by_shard(
        text,
        "penstock_open_requests",
        Kind::Gauge,
        "Requests to other shards without an answer yet.",
        shards,
        |s| s.open_requests as u64,
    );
}

/// One family of storage with a sample for each shard.
type StorageFamily = (&'static str, &'static str, fn(&ShardSnapshot) -> u64);

const STORAGE_COUNTERS: [StorageFamily; 11] = [
    ("penstock_commits_total", "Group commits.", |s| {
        s.storage.commits.count
    }),
    (
        "penstock_commit_bytes_total",
        "Bytes of batches made durable.",
        |s| s.storage.commits.bytes,
    ),
    (
        "penstock_commit_written_bytes_total",
        "Bytes written by commits, padding and framing included.",
        |s| s.storage.commits.written_bytes,
    ),
    ("penstock_commit_syncs_total", "Files synced by commits.", |s| {
        s.storage.commits.syncs
    }),
    (
        "penstock_batch_cache_hits_total",
        "Reads answered from the batch cache.",
        |s| s.storage.cache.hits,
    ),
    (
        "penstock_batch_cache_misses_total",
        "Reads that the batch cache could not answer.",
        |s| s.storage.cache.misses,
    ),
    (
        "penstock_batch_cache_hit_bytes_total",
        "Bytes read from the batch cache.",
        |s| s.storage.cache.hit_bytes,
    ),
    (
        "penstock_batch_cache_inserted_total",
        "Batches put into the cache.",
        |s| s.storage.cache.inserted,
    ),
    (
        "penstock_batch_cache_evicted_total",
        "Batches evicted to make room.",
        |s| s.storage.cache.evicted,
    ),
    (
        "penstock_bounded_syncs_total",
        "Files synced because penstock.durability.interval.* or flush.* said so.",
        |s| s.storage.forced_syncs,
    ),
    (
        "penstock_damaged_reads_total",
        "Reads from disk that met a damaged batch and were refused.",
        |s| s.storage.damaged_reads,
    ),
];

const STORAGE_GAUGES: [StorageFamily; 6] = [
    (
        "penstock_write_behind_backlog_bytes",
        "Bytes appended that are not in segments yet: what write-behind has before it.",
        |s| s.storage.unwritten_bytes as u64,
    ),
    (
        "penstock_staged_bytes",
        "Bytes appended that no commit has taken yet.",
        |s| s.storage.staged_bytes as u64,
    ),
    (
        "penstock_read_ahead_bytes",
        "Bytes read from disk ahead of sequential readers.",
        |s| s.storage.read_ahead_bytes as u64,
    ),
    (
        "penstock_open_segment_files",
        "Segment files that are open.",
        |s| s.storage.open_segment_files as u64,
    ),
    (
        "penstock_preallocated_bytes",
        "Allocated in segment files ahead of what is written.",
        |s| s.storage.ahead_bytes,
    ),
    (
        "penstock_damaged_places",
        "Different places in segments that readers have found damaged since the start.",
        |s| s.storage.damaged_places as u64,
    ),
];

fn storage(text: &mut Exposition, requests: &Snapshot, shards: &[ShardSnapshot]) {
    for (name, help, of) in STORAGE_COUNTERS {
        by_shard(text, name, Kind::Counter, help, shards, of);
    }
    for (name, help, of) in STORAGE_GAUGES {
        by_shard(text, name, Kind::Gauge, help, shards, of);
    }
    let name = "penstock_commit_duration_seconds";
    let help = "Group commits, from the moment one had something to do until it was durable.";
    histogram_seconds(
        &mut text.family(name, Kind::Histogram, help),
        &[],
        &requests.commit_latency,
    );
    let help = "Log directories that are offline.";
    let offline = shards.iter().map(|s| s.offline_dirs).max().unwrap_or(0);
    text.single(
        "kafka_log_logmanager_offlinelogdirectorycount",
        Kind::Gauge,
        help,
        offline,
    );
}

/// The batch cache and the write buffers keep their own accounts in storage; the other classes are charged here.
fn memory(text: &mut Exposition, shards: &[ShardSnapshot]) {
    type Of = fn(&AccountImage) -> u64;
    let storage = |s: &ShardSnapshot, class| match class {
        BudgetClass::BatchCache => Some((s.storage.cache_bytes, s.storage.cache_bytes_max)),
        BudgetClass::WriteBuffers => Some((s.storage.unwritten_bytes, s.storage.staged_bytes_max)),
        _ => None,
    };
    let families: [(&str, Kind, &str, Of); 5] = [
        (
            "penstock_memory_used_bytes",
            Kind::Gauge,
            "Memory in use, by budget.",
            |a| a.used_bytes,
        ),
        (
            "penstock_memory_peak_bytes",
            Kind::Gauge,
            "The most memory ever in use, by budget.",
            |a| a.peak_bytes,
        ),
        (
            "penstock_memory_max_bytes",
            Kind::Gauge,
            "What a budget may use at most.",
            |a| a.max_bytes,
        ),
        (
            "penstock_memory_waiting",
            Kind::Gauge,
            "Charges that wait for memory.",
            |a| a.waiting as u64,
        ),
        (
            "penstock_memory_waits_total",
            Kind::Counter,
            "Charges that had to wait for memory.",
            |a| a.waits,
        ),
    ];
    for (position, (name, kind, help, of)) in families.into_iter().enumerate() {
        let mut family = text.family(name, kind, help);
        for shard in shards {
            let number = shard.shard.to_string();
            for account in &shard.memory {
                let value = match (storage(shard, account.class), position) {
                    (None, _) => of(account),
                    (Some((used, _)), 0) => used as u64,
                    (Some((_, most)), 2) => most as u64,
                    (Some(_), _) => continue,
                };
                family.sample(&[("shard", &number), ("budget", account.class.name())], value);
            }
        }
    }
}

/// Kafka's idle shares of its thread pools; a shard is both of them.
fn busyness(text: &mut Exposition, admin: &Admin, pulses: &[PulseImage]) {
    let busy_us = pulses.iter().map(|p| p.busy_us).sum();
    let idle = admin
        .0
        .usage
        .idle_share(Instant::now(), busy_us, pulses.len(), admin.0.facts.began);
    let help = "Idle share of the shards over the last minute, 0 to 1.";
    for name in [
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
    ] {
        text.single(name, Kind::Gauge, help, idle);
    }
}

fn pulse_families(text: &mut Exposition, pulses: &[PulseImage]) {
    let mut family = text.family(
        "penstock_shard_busy_seconds_total",
        Kind::Counter,
        "Time the shard's tasks ran.",
    );
    for pulse in pulses {
        family.sample(&[("shard", &pulse.shard.to_string())], seconds(pulse.busy_us));
    }
    let mut family = text.family("penstock_shard_polls_total", Kind::Counter, "Task polls.");
    for pulse in pulses {
        family.sample(&[("shard", &pulse.shard.to_string())], pulse.polls);
    }
    let mut family = text.family("penstock_shard_runnable", Kind::Gauge, "Tasks that wait to run.");
    for pulse in pulses {
        family.sample(&[("shard", &pulse.shard.to_string())], pulse.runnable);
    }
    type Of = fn(&PulseImage) -> &HistogramImage;
    let summaries: [(&str, &str, Of); 4] = [
        ("penstock_shard_poll_seconds", "Length of single polls.", |p| {
            &p.poll
        }),
        (
            "penstock_shard_turn_seconds",
            "Time from one reactor turn to the next while there was work.",
            |p| &p.turn,
        ),
        (
            "penstock_shard_lag_seconds",
            "How long a foreign wake took to be answered.",
            |p| &p.lag,
        ),
        (
            "penstock_shard_parked_seconds",
            "Time asleep although there was work.",
            |p| &p.parked,
        ),
    ];
    for (name, help, of) in summaries {
        let mut family = text.family(name, Kind::Summary, help);
        for pulse in pulses {
            summary_seconds(&mut family, &pulse.shard.to_string(), of(pulse));
        }
    }
}

fn summary_seconds(family: &mut Family<'_>, shard: &str, image: &HistogramImage) {
    for (quantile, share) in QUANTILES {
        let labels = [("shard", shard), ("quantile", quantile)];
        family.sample(&labels, seconds(image.percentile_us(share * 100.0)));
    }
    family.sample(&[("shard", shard), ("quantile", "1")], seconds(image.max_us));
    family.part("_sum", &[("shard", shard)], seconds(image.sum_us));
    family.part("_count", &[("shard", shard)], image.count);
}

fn stalls(text: &mut Exposition, pulses: &[PulseImage]) {
    let samples = |family: &mut Family<'_>,
                   write: &dyn Fn(&mut Family<'_>, &Labels<'_>, &shard::runtime::Stall)| {
        for pulse in pulses {
            let shard = pulse.shard.to_string();
            for (place, stall) in &pulse.stalls {
                let place = place.to_string();
                write(family, &[("shard", &shard), ("place", &place)], stall);
            }
        }
    };
    let mut family = text.family(
        "penstock_shard_stalls_total",
        Kind::Counter,
        "Times one place held a core for 1 ms or more.",
    );
    samples(&mut family, &|family, labels, stall| {
        family.sample(labels, stall.count);
    });
    let mut family = text.family(
        "penstock_shard_stall_seconds_total",
        Kind::Counter,
        "How long it held it in all.",
    );
    samples(&mut family, &|family, labels, stall| {
        family.sample(labels, seconds(stall.total_us));
    });
    let mut family = text.family(
        "penstock_shard_stall_max_seconds",
        Kind::Gauge,
        "How long it held it at most.",
    );
    samples(&mut family, &|family, labels, stall| {
        family.sample(labels, seconds(stall.max_us));
    });
}

fn mailboxes(text: &mut Exposition, lanes: &[LaneGauge]) {
    let shards = || {
        let mut all: Vec<_> = lanes.iter().map(|lane| lane.to).collect();
        all.dedup();
        all
    };
    type Of = fn(&LaneGauge) -> u64;
    let families: [(&str, Kind, &str, Of); 4] = [
        (
            "penstock_mailbox_depth",
            Kind::Gauge,
            "Messages that wait for a shard.",
            |l| l.depth as u64,
        ),
        (
            "penstock_mailbox_depth_max",
            Kind::Gauge,
            "The most that ever waited, summed over senders.",
            |l| l.depth_max as u64,
        ),
        (
            "penstock_mailbox_messages_total",
            Kind::Counter,
            "Messages from other threads.",
            |l| l.messages,
        ),
        (
            "penstock_mailbox_batches_total",
            Kind::Counter,
            "Batches they came in.",
            |l| l.batches,
        ),
    ];
    for (name, kind, help, of) in families {
        let mut family = text.family(name, kind, help);
        for shard in shards() {
            let sum: u64 = lanes.iter().filter(|lane| lane.to == shard).map(of).sum();
            family.sample(&[("shard", &shard.to_string())], sum);
        }
    }
    let help = "Messages that wait for all shards.";
    let waiting: usize = lanes.iter().map(|lane| lane.depth).sum();
    text.single(
        "kafka_network_requestchannel_requestqueuesize",
        Kind::Gauge,
        help,
        waiting,
    );
}

pub(super) fn by_shard<V: Into<Number>>(
    text: &mut Exposition,
    name: &str,
    kind: Kind,
    help: &str,
    shards: &[ShardSnapshot],
    of: impl Fn(&ShardSnapshot) -> V,
) {
    let mut family = text.family(name, kind, help);
    for shard in shards {
        family.sample(&[("shard", &shard.shard.to_string())], of(shard));
    }
}
