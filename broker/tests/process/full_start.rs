//! A real file system that is filled by nothing but producers, through many logs on two shards: after a stop as after a kill the
//! broker starts again on it, has what it acknowledged, and what makes space makes it serve producers again. It needs root for the
//! mount; without, each test says on standard error that it was skipped.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::messages::fetch::FetchResponse;
use protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use protocol::messages::produce::ProduceResponse;
use protocol::{ErrorCode, Str};

use crate::full_disk::{Mounted, delete_topic, produce_until_acknowledged};
use crate::groups::{commit, find_coordinator};
use crate::lifecycle::large;
use crate::stop::{create_topic, fetch_request, produce_request};
use crate::support::{Broker, Client, PATIENCE, Starting};

const TOPICS: [&str; 4] = ["a", "b", "c", "d"];

/// How long nothing may be accepted until the disk counts as full.
const REFUSED_FOR: Duration = Duration::from_millis(2500);

/// How a life on the full disk ends.
#[derive(Clone, Copy, Debug)]
struct End {
    signal: Signal,
    /// With the first refusal, while others are still filling; otherwise when nothing is accepted any more.
    at_once: bool,
}

const ENDS: [End; 4] = [
    End {
        signal: Signal::SIGTERM,
        at_once: false,
    },
    End {
        signal: Signal::SIGKILL,
        at_once: false,
    },
    End {
        signal: Signal::SIGKILL,
        at_once: true,
    },
    End {
        signal: Signal::SIGTERM,
        at_once: true,
    },
];

/// What clients know: how many batches of each partition are acknowledged, topic by topic.
struct Acknowledged {
    partitions: i32,
    counts: Vec<AtomicI64>,
}

impl Acknowledged {
    fn new(partitions: i32) -> Arc<Self> {
        let logs = TOPICS.len() * usize::try_from(partitions).unwrap();
        let counts = (0..logs).map(|_| AtomicI64::new(0)).collect();
        Arc::new(Self { partitions, counts })
    }

    fn place(&self, log: usize) -> (&'static str, i32) {
        let partitions = usize::try_from(self.partitions).unwrap();
        (TOPICS[log / partitions], i32::try_from(log % partitions).unwrap())
    }

    /// Everything acknowledged is there; the topic of `topic` is read from the start.
    fn check(&self, client: &mut Client) {
        let partitions = usize::try_from(self.partitions).unwrap();
        for (topic, counts) in TOPICS.iter().zip(self.counts.chunks(partitions)) {
            for ((number, end), count) in ends(client, topic, self.partitions).iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                assert!(
                    *end >= count,
                    "{topic}-{number}: {count} acknowledged, {end} there"
                );
                counts[usize::try_from(*number).unwrap()].store(*end, Ordering::Relaxed);
            }
            if counts[0].load(Ordering::Relaxed) > 0 {
                let read: FetchResponse = client.call(&fetch_request(topic, 1, 0), 11).unwrap();
                assert_eq!(read.responses[0].partitions[0].error_code, ErrorCode::NONE);
                let records = read.responses[0].partitions[0].records.as_ref();
                assert!(records.is_some_and(|records| records.len() > 100), "{topic}");
            }
        }
    }

    fn forget(&self, topic: usize) {
        let partitions = usize::try_from(self.partitions).unwrap();
        for count in &self.counts[topic * partitions..(topic + 1) * partitions] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// The ends of a topic's partitions.
fn ends(client: &mut Client, topic: &str, partitions: i32) -> Vec<(i32, i64)> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(topic.to_owned()),
            partitions: (0..partitions)
                .map(|partition_index| ListOffsetsPartition {
                    partition_index,
                    timestamp: -1,
                    ..Default::default()
                })
                .collect(),
        }],
        ..Default::default()
    };
    let response: ListOffsetsResponse = client.call(&request, 2).unwrap();
    let mut found: Vec<(i32, i64)> = response.topics[0]
        .partitions
        .iter()
        .map(|p| {
            assert_eq!(p.error_code, ErrorCode::NONE, "{topic}-{}", p.partition_index);
            (p.partition_index, p.offset)
        })
        .collect();
    found.sort_unstable();
    found
}

/// Produces to every `of`-th log from `first` on, in batches of several sizes, until `is_over` or nothing is accepted for a while.
fn fill(
    broker: &Broker,
    acknowledged: &Arc<Acknowledged>,
    (first, of): (usize, usize),
    is_over: &Arc<AtomicBool>,
    is_refused: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    let mut client = Client::connect(broker.address);
    let (acknowledged, is_over, is_refused) = (acknowledged.clone(), is_over.clone(), is_refused.clone());
    std::thread::spawn(move || {
        let sizes = [700, 20_000, 400_000, 90_000, 3_000].map(large);
        let mut refused_since: Option<Instant> = None;
        let logs = acknowledged.counts.len();
        let began = Instant::now();
        for round in 0.. {
            let log = (first + round * of) % logs;
            let (topic, partition) = acknowledged.place(log);
            let bytes = sizes[(round / 7 + first) % sizes.len()].clone();
            let request = produce_request(topic, partition, bytes);
            let Ok(response) = client.call::<_, ProduceResponse>(&request, 7) else {
                return; // it was ended
            };
            match response.responses[0].partition_responses[0].error_code {
                ErrorCode::NONE => {
                    acknowledged.counts[log].fetch_add(1, Ordering::Relaxed);
                    refused_since = None;
                }
                code => {
                    assert_eq!(code, ErrorCode::KAFKA_STORAGE_ERROR);
                    is_refused.store(true, Ordering::Relaxed);
                    if refused_since.get_or_insert_with(Instant::now).elapsed() > REFUSED_FOR {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            assert!(began.elapsed() < 2 * PATIENCE, "the disk never filled");
        }
    })
}

/// Fills the disk and ends the broker in the way of `end`.
fn fill_and_end(broker: Broker, acknowledged: &Arc<Acknowledged>, end: End) -> Option<i32> {
    const CLIENTS: usize = 4;
    let (is_over, is_refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|first| fill(&broker, acknowledged, (first, CLIENTS), &is_over, &is_refused))
        .collect();
    if end.at_once {
        while !is_refused.load(Ordering::Relaxed) && !clients.iter().all(|c| c.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        broker.signal(end.signal);
        is_over.store(true, Ordering::Relaxed);
    }
    for client in clients {
        client.join().unwrap();
    }
    assert!(is_refused.load(Ordering::Relaxed), "the disk never filled");
    if !end.at_once {
        broker.signal(end.signal);
    }
    broker.end().0.code()
}

/// So many lives on one file system of `mib` MiB, each begun on a full disk but the first.
fn lives(mib: u64, partitions: i32, settings: &[&str], ends: impl IntoIterator<Item = End>) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(mounted) = Mounted::new("ext4", &data, mib) else {
        return;
    };
    let acknowledged = Acknowledged::new(partitions);
    let mut broker = Broker::start(dir.path(), settings);
    let mut client = Client::connect(broker.address);
    for topic in TOPICS {
        create_topic(&mut client, topic, partitions);
    }
    find_coordinator(&mut client, "g");
    commit(&mut client, "g", "a", &[(0, 1)]);
    for (number, end) in ends.into_iter().enumerate() {
        let stopped = fill_and_end(broker, &acknowledged, end);
        if end.signal == Signal::SIGTERM {
            assert_eq!(stopped, Some(0), "{number}: {}", stderr(dir.path()));
        }
        broker = Starting::new(dir.path(), settings).ready();
        client = Client::connect(broker.address);
        acknowledged.check(&mut client);
        find_coordinator(&mut client, "g");
        commit(&mut client, "g", "a", &[(0, 1)]);
        let topic = number % TOPICS.len();
        delete_topic(&mut client, TOPICS[topic]);
        acknowledged.forget(topic);
        create_topic(&mut client, TOPICS[topic], partitions);
        produce_until_acknowledged(&mut client, TOPICS[topic]);
        acknowledged.counts[topic * usize::try_from(partitions).unwrap()].store(1, Ordering::Relaxed);
    }
    drop(broker);
    drop(mounted);
}

fn stderr(dir: &Path) -> String {
    fs::read_to_string(dir.join("stderr")).unwrap()
}

#[test]
fn a_broker_whose_producers_filled_the_disk_starts_again_ten_times() {
    let settings = [
        "penstock.shards=2",
        "penstock.disk.reserve.bytes=4194304",
        "offsets.topic.num.partitions=4",
        "auto.create.topics.enable=false",
    ];
    lives(320, 5, &settings, ENDS.into_iter().cycle().take(10));
}

/// More than these: `PENSTOCK_FULL_TRIES=50 cargo test -p broker --test process -- --nocapture many_full_disks`.
#[test]
#[allow(clippy::print_stdout, reason = "its figures")]
fn many_full_disks() {
    let tries = std::env::var("PENSTOCK_FULL_TRIES").map_or(2, |text| text.parse().unwrap());
    let mut failed = 0;
    for number in 0..tries {
        let reserve = [
            Some(4u64 << 20),
            None,
            Some(8 << 20),
            Some(16 << 20),
            Some(32 << 20),
        ][number % 5];
        let partitions = [1, 3, 10, 25, 50][(number / 5 + number) % 5];
        let end = ENDS[(number / 2) % 4];
        let reserve_setting = reserve.map(|bytes| format!("penstock.disk.reserve.bytes={bytes}"));
        let mut settings = vec!["penstock.shards=2", "offsets.topic.num.partitions=4"];
        settings.extend(reserve_setting.as_deref());
        let outcome = std::panic::catch_unwind(|| lives(400, partitions, &settings, [end, end]));
        failed += usize::from(outcome.is_err());
        println!(
            "{number}: reserve {reserve:?}, {} logs, {end:?}: {}",
            4 * partitions,
            if outcome.is_err() { "FAILED" } else { "well" }
        );
    }
    println!("{failed} of {tries} failed");
    assert_eq!(failed, 0);
}
