//! Measures the durable append path on a real disk: one shard's store, so many logs, batches of one size, a window of
//! unacknowledged batches per log, commits and background work on one glommio executor. Prints throughput, CPU and
//! commit figures. Usage: `append_path DIR LOGS BATCH_BYTES WINDOW SECONDS [COMMITTERS] [fsync|written]`.
#![allow(clippy::print_stdout)] // the figures are the output

#[path = "arguments/mod.rs"]
mod arguments;
#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use arguments::argument;
use bytes::Bytes;
use common::{PLAIN, batch};
use glommio::{LocalExecutorBuilder, Placement};
use storage::disk::direct::DirectDisk;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::recovery::recover_journals;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

struct Options {
    dir: PathBuf,
    logs: usize,
    batch_bytes: usize,
    window: i64,
    seconds: u64,
    committers: usize,
    durability: Durability,
}

struct Load {
    store: Rc<Store<DirectDisk>>,
    batch: Bytes,
    window: i64,
    /// Offsets appended and durable, by slot in `logs`.
    logs: Vec<LogRef>,
    appended: RefCell<Vec<i64>>,
    sent_at: RefCell<Vec<std::collections::VecDeque<Instant>>>,
    latencies_us: RefCell<Vec<u32>>,
    bytes: Cell<u64>,
    written_bytes: Cell<u64>,
    commits: Cell<u64>,
    syncs: Cell<u64>,
    is_over: Cell<bool>,
}

fn main() {
    let options = Options {
        dir: argument(1, PathBuf::from("/tmp/penstock-append-path")),
        logs: argument(2, 16),
        batch_bytes: argument(3, 64 << 10),
        window: argument(4, 4),
        seconds: argument(5, 5),
        committers: argument(6, 2),
        durability: match std::env::args().nth(7).as_deref() {
            Some("written") => Durability::Written,
            _ => Durability::Fsync,
        },
    };
    std::fs::create_dir_all(&options.dir).expect("the directory can be made");
    LocalExecutorBuilder::new(Placement::Fixed(0))
        .io_memory(64 << 20)
        .spawn(move || run(options))
        .expect("an executor")
        .join()
        .expect("the run");
}

async fn run(options: Options) {
    let disk = DirectDisk::open(&options.dir).await.expect("disk");
    recover_journals(&disk, &options.dir, |_, _| {})
        .await
        .expect("recovery");
    let store = Store::open(disk, &options.dir, 0, StoreOptions::default())
        .await
        .expect("store");
    let config = LogConfig {
        durability: options.durability,
        ..LogConfig::default()
    };
    let mut logs = Vec::new();
    let opening = Instant::now();
    for number in 0..options.logs {
        let mut topic = [7; 16];
        topic[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let id = LogId {
            topic: TopicId(topic),
            partition: 0,
        };
        logs.push(
            store
                .open_log(id, &format!("bench{number}"), config.clone(), 0)
                .await
                .expect("log"),
        );
    }
    println!("opened {} logs in {:?}", logs.len(), opening.elapsed());
    let ends = logs
        .iter()
        .map(|log| store.offsets(*log).expect("open").log_end.0)
        .collect();
    let load = Rc::new(Load {
        store: Rc::clone(&store),
        batch: batch(1, options.batch_bytes, 0, PLAIN, 0x5a),
        window: options.window,
        appended: RefCell::new(ends),
        sent_at: RefCell::new(vec![std::collections::VecDeque::new(); logs.len()]),
        latencies_us: RefCell::default(),
        logs,
        bytes: Cell::new(0),
        written_bytes: Cell::new(0),
        commits: Cell::new(0),
        syncs: Cell::new(0),
        is_over: Cell::new(false),
    });
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    for index in 0..load.logs.len() {
        for _ in 0..load.window {
            load.send(index);
        }
    }
    let mut tasks = Vec::new();
    for _ in 0..options.committers {
        let load = Rc::clone(&load);
        tasks.push(glommio::spawn_local(async move { load.commit_loop().await }));
    }
    let background = Rc::clone(&store);
    glommio::spawn_local(async move { while background.housekeeping().await.is_ok() {} }).detach();
    glommio::timer::sleep(Duration::from_secs(options.seconds)).await;
    load.is_over.set(true);
    for task in tasks {
        task.await;
    }
    load.report(wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let closing = Instant::now();
    store.close().await.expect("clean stop");
    println!("closed in {:?}", closing.elapsed());
}

impl Load {
    fn send(&self, index: usize) {
        let batch = AppendBatch::from_client(self.batch.clone(), LeaderEpoch(0));
        let appended = self.store.append(self.logs[index], batch, 0).expect("append");
        self.appended.borrow_mut()[index] = appended.last_offset.0 + 1;
        self.sent_at.borrow_mut()[index].push_back(Instant::now());
    }

    async fn commit_loop(&self) {
        while !self.is_over.get() {
            let outcome = self.store.commit().await.expect("commit");
            self.bytes.set(self.bytes.get() + outcome.bytes);
            self.written_bytes
                .set(self.written_bytes.get() + outcome.written_bytes);
            self.syncs.set(self.syncs.get() + u64::from(outcome.syncs));
            self.commits.set(self.commits.get() + 1);
            for (log, end) in outcome.moved {
                self.acknowledged(log, end);
            }
        }
    }

    fn acknowledged(&self, log: LogRef, end: Offset) {
        let index = self.logs.binary_search(&log).expect("one of ours");
        let now = Instant::now();
        let outstanding = self.appended.borrow()[index] - end.0;
        loop {
            let mut sent = self.sent_at.borrow_mut();
            if sent[index].len() as i64 <= outstanding {
                break;
            }
            if let Some(at) = sent[index].pop_front() {
                self.latencies_us
                    .borrow_mut()
                    .push(now.duration_since(at).as_micros() as u32);
            }
        }
        for _ in outstanding..self.window {
            self.send(index);
        }
    }

    fn report(&self, wall: f64, cpu: f64) {
        let mut latencies = self.latencies_us.borrow_mut();
        latencies.sort_unstable();
        let at = |share: f64| f64::from(latencies[((latencies.len() - 1) as f64 * share) as usize]) / 1000.0;
        let gb = self.bytes.get() as f64 / 1e9;
        println!(
            "{:.0} MB/s, {:.0} batches/s, {:.3} CPU s/GB, written {:.2}x, commits {:.0}/s, {:.1} syncs and {:.0} KiB a commit, \
             latency p50 {:.2} p99 {:.2} max {:.2} ms",
            gb * 1000.0 / wall,
            latencies.len() as f64 / wall,
            cpu / gb,
            self.written_bytes.get() as f64 / self.bytes.get() as f64,
            self.commits.get() as f64 / wall,
            self.syncs.get() as f64 / self.commits.get() as f64,
            self.bytes.get() as f64 / self.commits.get() as f64 / 1024.0,
            at(0.5),
            at(0.99),
            at(1.0),
        );
    }
}

#[allow(unsafe_code)] // getrusage fills a plain struct
fn cpu_seconds() -> f64 {
    // SAFETY: the struct is plain integers, all zero is valid, and the call writes only into it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
