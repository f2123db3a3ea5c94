//! How long it takes to load a partition of `__consumer_offsets`: builds its log in memory, in the batches a coordinator writes,
//! and replays it as a shard does that takes the partition up, a read at a time. Reading from disk is not in it.
//!
//! `group_load [records] [rounds]`, 1,000,000 and 5 without arguments. Prints of each mixture the best and the worst round, and how
//! long the processor worked on the best one, which is the same on a host that others use.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use protocol::{Str, Uuid};
use shard::budget::{BUDGET_CLASSES, Budget, BudgetLimits, ClassLimits};
use shard::coordinator::group::{CommittedOffset, GroupCoordinator, GroupRecord, GroupSettings};
use shard::coordinator::replay::{GroupReplay, REPLAY_READ_BYTES};
use shard::env::WallMs;

const WALL: WallMs = WallMs(1_800_000_000_000);

/// What a log holds: groups that each commit all partitions of some topics, over and over.
struct Mixture {
    name: &'static str,
    groups: usize,
    topics: usize,
    partitions: usize,
    /// Partitions in one commit, which is a batch.
    per_commit: usize,
}

const MIXTURES: [Mixture; 4] = [
    // A compacted log: nothing comes twice.
    Mixture {
        name: "distinct offsets, 2,000 groups",
        groups: 2_000,
        topics: 5,
        partitions: 100,
        per_commit: 100,
    },
    Mixture {
        name: "one topic of one partition a group",
        groups: 1_000_000,
        topics: 1,
        partitions: 1,
        per_commit: 1,
    },
    // The tail of a busy log: the same offsets again and again.
    Mixture {
        name: "10,000 offsets committed 100 times",
        groups: 200,
        topics: 5,
        partitions: 10,
        per_commit: 10,
    },
    Mixture {
        name: "the same, one in each batch",
        groups: 200,
        topics: 5,
        partitions: 10,
        per_commit: 1,
    },
];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().unwrap());
    let records = arguments.next().unwrap_or(1_000_000);
    let rounds = arguments.next().unwrap_or(5).max(1);
    println!("{records} records, {rounds} rounds");
    for mixture in &MIXTURES {
        let reads = log(mixture, records);
        let bytes: usize = reads.iter().map(Bytes::len).sum();
        let took: Vec<Load> = (0..rounds).map(|_| load(&reads)).collect();
        let best = took.iter().min_by_key(|load| load.took).unwrap();
        let worst = took.iter().map(|load| load.took).max().unwrap();
        println!(
            "{:36} {:4} MiB of log  best {:5} ms ({:5} of a CPU)  worst {:5} ms  charged {:4} MiB",
            mixture.name,
            bytes >> 20,
            best.took.as_millis(),
            best.worked.as_millis(),
            worst.as_millis(),
            best.charged_bytes >> 20,
        );
    }
}

struct Load {
    took: Duration,
    worked: Duration,
    charged_bytes: u64,
}

/// How long this thread has run (`/proc/thread-self/schedstat`).
fn worked() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn load(reads: &[Bytes]) -> Load {
    let mut classes = [ClassLimits::default(); BUDGET_CLASSES];
    classes.fill(ClassLimits {
        reserved_bytes: 1 << 30,
        max_bytes: 1 << 30,
    });
    let budget = Budget::new(BudgetLimits {
        classes,
        shared_bytes: 0,
    });
    let (began, worked_before) = (Instant::now(), worked());
    let mut replay = GroupReplay::default();
    let mut coordinator = GroupCoordinator::new(GroupSettings::default(), budget.clone());
    for read in reads {
        replay.batches(read, &mut coordinator, WALL).unwrap();
    }
    coordinator.start(shard::env::Instant(0), WALL);
    Load {
        took: began.elapsed(),
        worked: worked() - worked_before,
        charged_bytes: budget.read().iter().map(|a| a.used_bytes).sum(),
    }
}

/// The log as reads of whole batches.
fn log(mixture: &Mixture, records: usize) -> Vec<Bytes> {
    let mut reads = Vec::new();
    let mut read = BytesMut::new();
    let mut written = 0;
    for round in 0.. {
        for batch in commits(mixture, round) {
            let batch = sealed(&batch, written);
            if read.len() + batch.len() > REPLAY_READ_BYTES && !read.is_empty() {
                reads.push(read.split().freeze());
            }
            read.extend_from_slice(&batch);
            written += mixture.per_commit;
            if written >= records {
                reads.push(read.freeze());
                return reads;
            }
        }
    }
    reads
}

/// The records of each commit of one round, in which every group commits every partition.
fn commits(mixture: &Mixture, round: usize) -> impl Iterator<Item = Vec<GroupRecord>> + '_ {
    let all = mixture.groups * mixture.topics * mixture.partitions;
    (0..all).step_by(mixture.per_commit).map(move |first| {
        (first..first + mixture.per_commit)
            .map(|n| record(mixture, n, round))
            .collect()
    })
}

fn record(mixture: &Mixture, n: usize, round: usize) -> GroupRecord {
    let partition = n % mixture.partitions;
    let topic = n / mixture.partitions % mixture.topics;
    let group = n / mixture.partitions / mixture.topics;
    // Every fourth client says something with its commits.
    let metadata = if group.is_multiple_of(4) {
        Str::from(format!("consumer-{group}@host-{}", group % 100))
    } else {
        Str::new()
    };
    GroupRecord::Offset {
        group: Str::from(format!("service-{group}-production")),
        topic: Str::from(format!("events.of.department-{}.{topic}", group % 50)),
        partition: i32::try_from(partition).unwrap(),
        offset: Some(CommittedOffset {
            offset: (round * 1_000 + n) as i64,
            leader_epoch: 3,
            metadata,
            committed_ms: WALL.0,
            expires_ms: None,
            topic_id: Uuid::from_u128((group % 50 * 10 + topic) as u128 + 1),
        }),
    }
}

fn sealed(records: &[GroupRecord], base: usize) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions {
        base_offset: base as i64,
        ..BatchOptions::default()
    });
    for record in records {
        let (key, value) = record.encode().unwrap();
        builder
            .append(&NewRecord {
                timestamp: WALL.0,
                key: Some(&key),
                value: value.as_deref(),
                headers: &[],
            })
            .unwrap();
    }
    builder.finish().unwrap().bytes
}
