//! One seed from start to end: the broker runs, crashes and runs again while its clients go on, then a last run without faults
//! in which everything has to come to rest; after each crash several outcomes of it are looked at.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault, TracePhase};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;

use super::admin::Admin;
use super::canary::Canary;
use super::client::Surroundings;
use super::consumer::Consumer;
use super::examine;
use super::knobs::{ConsumerKnobs, End, Knobs};
use super::logging;
use super::net::SimNet;
use super::node::{IN_METADATA_DIR, Node, NodeInput, STOP_MAX, log_dirs, topic_name};
use super::oracle::{Floor, Oracle, Totals};
use super::producer::Producer;
use super::restless::Restless;
use super::trace::Trace;
use super::trimmer::Trimmer;
use super::tuner::Tuner;
use super::vandal::Vandal;

/// The broker serves within this time of its start.
const READY_MAX: Duration = Duration::from_secs(60);

/// How long a disk stays full, and how long the broker has to go on afterwards.
const FULL_FOR: Duration = Duration::from_secs(4);

/// Without faults, the workload is done within this time (J5).
const WORKLOAD_MAX: Duration = Duration::from_secs(600);

/// Without clients, nothing waits any more after this time.
const REST_MAX: Duration = Duration::from_secs(5);

/// A disk that is to fail has this long to do it.
const FAILURE_MAX: Duration = Duration::from_secs(2);

/// A broker has noticed that a write or a sync failed after this time.
const NOTICED_MAX: Duration = Duration::from_secs(5);

/// A broker whose storage has failed is gone after this time, at most.
const LAST_GASP: Duration = Duration::from_millis(20);

/// What a simulation came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first violation, if any.
    pub violation: Option<String>,
    /// The hash over all events.
    pub hash: u64,
    /// Events.
    pub events: u64,
    /// The last events.
    pub tail: Vec<String>,
    /// Records.
    pub totals: Totals,
    /// Crashes gone through, clean stops not counted.
    pub crashes: u64,
    /// Outcomes of crashes that were examined.
    pub outcomes: u64,
    /// Batches that were answered as duplicates.
    pub duplicates: u64,
    /// Runs of the broker that ended because its disk failed.
    pub failures: u64,
    /// Mutations of the disk in each run of the broker.
    pub mutations: Vec<u64>,
    /// Virtual time, seconds.
    pub seconds: f64,
}

/// How a simulation is carried out, beside its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A planted bug.
    pub canary: Option<Canary>,
    /// Keep the whole trace.
    pub verbose: bool,
}

/// Runs a simulation with these decisions.
#[must_use]
pub fn run(knobs: &Knobs, options: Options) -> Report {
    let executor = SimExecutor::new(knobs.seed);
    let clock = executor.handle();
    let trace = Rc::new(Trace::new(clock.clone(), options.verbose));
    let world = World::new(knobs, options, &executor, trace.clone());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        logging::into_trace(&trace, || executor.run_until(or(world.live(), trace.violated())))
    }));
    match ended {
        Ok(Some(())) => {}
        Ok(None) => trace.violation(format_args!(
            "nothing can go on: no task is ready and no timer is set"
        )),
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            trace.violation(format_args!("panic: {}", what.unwrap_or("?")));
        }
    }
    Report {
        violation: trace.first_violation(),
        hash: trace.hash(),
        events: trace.events(),
        tail: trace.tail(),
        totals: world.oracle.totals(),
        crashes: world.crashes.get(),
        outcomes: world.outcomes.get(),
        duplicates: world.duplicates.get(),
        failures: world.failures.get(),
        mutations: world.mutations.take(),
        seconds: clock.now().as_secs_f64(),
    }
}

struct World<'a> {
    knobs: &'a Knobs,
    canary: Option<Canary>,
    executor: &'a SimExecutor,
    trace: Rc<Trace>,
    oracle: Oracle,
    net: SimNet,
    around: Surroundings,
    crashes: Cell<u64>,
    outcomes: Cell<u64>,
    duplicates: Cell<u64>,
    failures: Cell<u64>,
    mutations: Cell<Vec<u64>>,
    /// Writes and syncs that the disk refused in this run of the broker.
    refused: Cell<u64>,
}

/// Why a run of the broker is over.
enum Ended {
    Crashed,
    Failed(String),
    Time,
    Done,
}

impl<'a> World<'a> {
    fn new(knobs: &'a Knobs, options: Options, executor: &'a SimExecutor, trace: Rc<Trace>) -> Self {
        let names = knobs.topics.iter().enumerate().flat_map(|(topic, count)| {
            (0..*count).map(move |index| format!("{}-{index}", topic_name(topic)))
        });
        let clock = executor.handle();
        let oracle = Oracle::new(trace.clone(), names);
        let net = SimNet::new(clock.clone(), knobs.net.clone(), knobs.seed);
        let topics = knobs.topics.clone();
        let around = Surroundings::new(clock, net.clone(), oracle.clone(), trace.clone(), topics);
        Self {
            knobs,
            canary: options.canary,
            executor,
            trace,
            oracle,
            net,
            around,
            crashes: Cell::new(0),
            outcomes: Cell::new(0),
            duplicates: Cell::new(0),
            failures: Cell::new(0),
            mutations: Cell::default(),
            refused: Cell::new(0),
        }
    }

    async fn live(&self) {
        self.trace.event(format_args!("{:?}", self.knobs));
        let clients = self.start_clients();
        let mut process = self.executor.new_process();
        let mut config = self.knobs.storage.disk.clone();
        config.lie_about_sync = self.canary == Some(Canary::LyingSync);
        let mut disk = SimDisk::new(&process, config);
        disk.record_trace();
        for (run, end) in (0u32..).zip(&self.knobs.ends) {
            disk = self.run_with_fault(run, *end, &process, disk).await;
            process = self.executor.new_process();
            disk = disk.for_process(&process);
            self.executor.handle().sleep(Duration::from_millis(5)).await;
        }
        self.run_to_rest(clients, &process, &disk).await;
    }

    /// The clients that go on through all runs. What is given back ends when the producers are done.
    fn start_clients(&self) -> Vec<storage::sim_executor::SimTask<()>> {
        let seed = self.knobs.seed;
        for (number, knobs) in self.knobs.consumers.iter().enumerate() {
            let consumer = Consumer::new(&self.around, knobs, &format!("consumer{number}"), seed);
            self.executor.spawn(consumer.run());
        }
        for _ in 0..self.knobs.vandals {
            self.executor.spawn(Vandal::new(&self.around, seed).run());
        }
        if self.knobs.admin {
            self.executor.spawn(Admin::new(&self.around, seed).run());
        }
        if self.knobs.trimmer {
            self.executor.spawn(Trimmer::new(&self.around, seed).run());
        }
        if self.knobs.tuner {
            let tuner = Tuner::new(&self.around, seed, self.knobs.classes);
            self.executor.spawn(tuner.run());
        }
        if let Some(every) = self.knobs.net.cut_every {
            self.executor.spawn(cut_now_and_then(
                self.around.clone(),
                self.net.clone(),
                every,
                seed,
            ));
        }
        let producer = |knobs| {
            self.executor
                .spawn(Producer::new(&self.around, knobs, seed).run())
        };
        self.knobs.producers.iter().map(producer).collect()
    }

    /// A run of the broker that ends as `end` says. Gives the disk as the next run finds it, for a process to be named.
    async fn run_with_fault(&self, run: u32, end: End, process: &SimHandle, disk: SimDisk) -> SimDisk {
        self.trace.event(format_args!(
            "run {run}: {} shards, then {end:?}",
            self.knobs.shards[run as usize]
        ));
        self.plan_fault(end, &disk);
        let node = self.start(run, process, &disk);
        let ended = or(self.serve(&node, run, end, &disk), async {
            disk.crashed().await;
            Ended::Crashed
        });
        let ended = or(ended, async { Ended::Failed(node.failed().await) });
        let ended = or(ended, self.probe(&disk)).await;
        if let Ended::Failed(reason) = &ended {
            self.check_failure(run, end, reason, &disk).await;
        }
        self.around.end_run();
        if let (Ended::Time, End::Stop(_)) = (&ended, end) {
            self.stop(&node, run).await;
        } else {
            self.crashes.set(self.crashes.get() + 1);
        }
        self.note(&node, &disk);
        self.look_at_outcomes(&disk);
        let killed = !end.loses_power() && !matches!(end, End::Stop(_));
        self.executor.kill(process);
        drop(node);
        self.check_disk(&disk);
        if killed {
            self.net.close();
        } else {
            self.net.cut_all();
        }
        disk.clear_faults();
        disk.configure(|config| config.capacity_bytes = SimDiskConfig::default().capacity_bytes);
        self.around.let_disk_fail(false);
        self.refused.set(0);
        let next = self.executor.handle();
        if killed {
            disk.restart_after_kill(&next)
        } else {
            disk.restart(&next)
        }
    }

    /// Arms the disk with the fault that ends the run.
    fn plan_fault(&self, end: End, disk: &SimDisk) {
        match end {
            End::PowerLoss { at_mutation } | End::Kill { at_mutation } => disk.crash_after(at_mutation),
            End::KillAfter(_) | End::Stop(_) => {}
            End::DiskFails(failure) => {
                // A broker goes on when another directory than that of the metadata log fails.
                let path = if self.knobs.log_dirs > 1 {
                    IN_METADATA_DIR
                } else {
                    ""
                };
                let fault = SimFault::error(failure.op, path, std::io::ErrorKind::Other);
                disk.add_fault(fault.after(failure.passed).times(failure.times));
            }
            End::DiskFills { .. } => {} // when it serves: a start needs space
        }
        self.around.let_disk_fail(end.fails_disk());
    }

    /// The disk fills, and after a while it empties again: the broker goes on by itself, and everything can be read back.
    async fn live_on_a_full_disk(&self, run: u32, bytes: u64, disk: &SimDisk) {
        let full = disk.used_bytes() + bytes;
        disk.configure(|config| config.capacity_bytes = full);
        self.around.fill_disk(true);
        self.executor.sleep(FULL_FOR).await;
        disk.configure(|config| config.capacity_bytes = SimDiskConfig::default().capacity_bytes);
        self.around.fill_disk(false);
        self.executor.sleep(FULL_FOR).await;
        self.check_everything(run).await;
    }

    /// The broker says that it cannot go on: only a disk that fails is a reason. Its clients go on for a moment.
    async fn check_failure(&self, run: u32, end: End, reason: &str, disk: &SimDisk) {
        if !matches!(end, End::DiskFails(_)) {
            return self
                .trace
                .violation(format_args!("run {run}: the broker fails: {reason}"));
        }
        self.failures.set(self.failures.get() + 1);
        self.trace
            .event(format_args!("run {run}: the broker ends: {reason}"));
        let mut rng = SimRng::new(self.knobs.seed ^ u64::from(run), "last gasp");
        let gasp = async {
            self.around.pause(&mut rng, LAST_GASP).await;
            Ended::Time
        };
        or(gasp, self.probe(disk)).await;
    }

    /// Waits until the disk has failed, and the broker with it, or for a while. A write or a sync that failed ends the
    /// broker: what it had not synced may be lost, and it cannot know what.
    async fn wait_for_failure(&self, run: u32, disk: &SimDisk) {
        for _ in 0..FAILURE_MAX.as_millis() / 20 {
            self.executor.sleep(Duration::from_millis(20)).await;
            self.drain(disk);
            if self.refused.get() > 0 {
                self.executor.sleep(NOTICED_MAX).await;
                self.trace.violation(format_args!(
                    "run {run}: the broker goes on after the disk has failed"
                ));
            }
        }
    }

    /// Looks at what a crash right after some of the acknowledgements would leave. Never ends.
    async fn probe(&self, disk: &SimDisk) -> Ended {
        let mut rng = SimRng::new(self.knobs.seed ^ self.crashes.get().rotate_left(20), "probes");
        loop {
            self.around.next_acknowledgement().await;
            if rng.chance(self.knobs.probe_ppm) {
                self.look_at_outcome(disk, rng.next_u64(), rng.coin());
            }
        }
    }

    /// The last run: everything is done, read back, and comes to rest.
    async fn run_to_rest(
        &self,
        clients: Vec<storage::sim_executor::SimTask<()>>,
        process: &SimHandle,
        disk: &SimDisk,
    ) {
        let run = u32::try_from(self.knobs.ends.len()).expect("few runs");
        self.trace.event(format_args!(
            "run {run}: {} shards, to the end",
            self.knobs.shards[run as usize]
        ));
        let node = self.start(run, process, disk);
        let done = async {
            self.serve_until_ready(&node, run).await;
            self.check_everything(run).await;
            for client in clients {
                client.await;
            }
            self.check_everything(run).await;
            Ended::Done
        };
        let failed = async { Ended::Failed(node.failed().await) };
        let late = async {
            self.executor.sleep(WORKLOAD_MAX).await;
            Ended::Time
        };
        match or(or(or(done, failed), late), self.probe(disk)).await {
            Ended::Done => {}
            Ended::Failed(reason) => {
                return self
                    .trace
                    .violation(format_args!("run {run}: the broker fails: {reason}"));
            }
            _ => {
                let what =
                    format_args!("run {run}: clients are not done after {WORKLOAD_MAX:?} without faults");
                return self.trace.violation(what);
            }
        }
        self.around.finish();
        self.executor.sleep(REST_MAX).await;
        let links = self.net.describe();
        if let Some(leftovers) = node.leftovers() {
            self.trace
                .violation(format_args!("nobody is connected, and yet: {leftovers}; {links}"));
        } else if !links.is_empty() {
            self.trace
                .violation(format_args!("nobody is connected, and yet: {links}"));
        }
        self.around.end_run();
        self.stop(&node, run).await;
        self.note(&node, disk);
        self.look_at_outcomes(disk);
        self.check_disk(disk);
        self.check_dirs(disk);
    }

    /// With as many partitions as log directories, each of these has some.
    fn check_dirs(&self, disk: &SimDisk) {
        let partitions: i32 = self.knobs.topics.iter().sum();
        for (_, dir, _) in log_dirs(self.knobs).iter() {
            let is_log =
                |path: &PathBuf| path.starts_with(dir) && path.extension().is_some_and(|e| e == "log");
            if partitions > 1 && !disk.paths().iter().any(is_log) {
                self.trace
                    .violation(format_args!("{} has no partition", dir.display()));
            }
        }
    }

    fn start(&self, run: u32, process: &SimHandle, disk: &SimDisk) -> Node {
        Node::start(&NodeInput {
            process: process.clone(),
            disk: disk.clone(),
            net: self.net.clone(),
            knobs: self.knobs,
            run,
            canary: self.canary,
        })
    }

    async fn serve_until_ready(&self, node: &Node, run: u32) {
        let ready = async {
            node.ready().await;
            if let Err(reason) = node.create_topics(&self.knobs.topics).await
                && !self.around.disk_may_fail()
            {
                self.trace
                    .violation(format_args!("run {run}: topics cannot be created: {reason}"));
            }
        };
        let late = async {
            self.executor.sleep(READY_MAX).await;
            self.trace
                .violation(format_args!("run {run}: not ready after {READY_MAX:?}"));
        };
        or(ready, late).await;
        let offline = node.offline_partitions();
        if offline > 0 && !self.around.disk_may_fail() {
            self.trace
                .violation(format_args!("run {run}: {offline} partitions are offline"));
        }
        self.trace.event(format_args!("run {run}: ready"));
        self.around.begin_run(run);
        self.net.listen(node.shards());
    }

    async fn serve(&self, node: &Node, run: u32, end: End, disk: &SimDisk) -> Ended {
        self.serve_until_ready(node, run).await;
        match end {
            End::PowerLoss { .. } | End::Kill { .. } => {
                // The crash comes with the disk's work; with clients that have nothing more to do, it may not.
                self.check_everything(run).await;
                self.executor.sleep(Duration::from_secs(30)).await;
            }
            End::KillAfter(after) | End::Stop(after) => self.executor.sleep(after).await,
            End::DiskFails(_) => self.wait_for_failure(run, disk).await,
            End::DiskFills { bytes, .. } => self.live_on_a_full_disk(run, bytes, disk).await,
        }
        Ended::Time
    }

    async fn stop(&self, node: &Node, run: u32) {
        self.net.close();
        let stopped = async {
            node.stop().await;
            true
        };
        let late = async {
            self.executor.sleep(STOP_MAX).await;
            false
        };
        let failed = async {
            let reason = node.failed().await;
            self.trace
                .violation(format_args!("run {run}: the stop fails: {reason}"));
            true
        };
        if !or(or(stopped, failed), late).await {
            self.trace
                .violation(format_args!("run {run}: not stopped after {STOP_MAX:?}"));
        }
        self.trace.event(format_args!("run {run}: stopped"));
    }

    /// Reads all partitions back through the broker and holds them against the model.
    async fn check_everything(&self, run: u32) {
        let partitions = self.oracle.partitions();
        let reader = ConsumerKnobs {
            version: 12,
            session: false,
            wait_ms: 0,
            bytes_min: 0,
            bytes_max: 1 << 20,
            partition_bytes_max: 256 << 10,
            isolation: 0,
            pause: Duration::ZERO,
        };
        let floors: Vec<Floor> = (0..partitions).map(|p| self.oracle.floor(p)).collect();
        let consumer = Consumer::new(&self.around, &reader, "reader", self.knobs.seed);
        let Some(logs) = consumer.read_all(&floors).await else {
            return self
                .trace
                .violation(format_args!("run {run}: the log cannot be read back"));
        };
        for ((number, log), floor) in (0..).zip(&logs).zip(floors) {
            self.oracle
                .check_log(number, log, floor, &format!("run {run}, read back"));
        }
        self.trace.event(format_args!("run {run}: read back"));
    }

    /// Several outcomes of a crash at this moment, by power loss and by kill.
    fn look_at_outcomes(&self, disk: &SimDisk) {
        let mut rng = SimRng::new(self.knobs.seed ^ self.crashes.get().rotate_left(40), "outcomes");
        for number in 0..self.knobs.storage.outcomes {
            self.look_at_outcome(disk, rng.next_u64(), number % 2 == 1);
        }
    }

    fn look_at_outcome(&self, disk: &SimDisk, seed: u64, killed: bool) {
        // Other classes than `fsync` survive a kill, but no power loss.
        let killed = killed || self.knobs.classes;
        self.outcomes.set(self.outcomes.get() + 1);
        self.drain(disk);
        let kind = if killed { "kill" } else { "power loss" };
        let whence = format!("outcome {seed:#x} of a {kind} here");
        match examine::outcome(disk, seed, killed, self.knobs, &self.around.known_topic_ids()) {
            Ok(logs) => {
                for (number, log) in (0..).zip(&logs) {
                    let floor = self.oracle.floor(number);
                    self.oracle.check_log(number, log, floor, &whence);
                }
            }
            Err(what) => self.trace.violation(format_args!("{whence}: {what}")),
        }
    }

    fn check_disk(&self, disk: &SimDisk) {
        let abandoned = disk.abandoned_operations();
        if abandoned > 0 {
            self.trace
                .violation(format_args!("{abandoned} disk operations were abandoned"));
        }
    }

    fn note(&self, node: &Node, disk: &SimDisk) {
        self.duplicates.set(self.duplicates.get() + node.duplicates());
        let mut mutations = self.mutations.take();
        mutations.push(disk.mutations());
        self.mutations.set(mutations);
        self.drain(disk);
    }

    /// Takes the disk's operations into the trace.
    fn drain(&self, disk: &SimDisk) {
        for operation in disk.take_trace() {
            self.trace.mix(format!("{operation:?}").as_bytes());
            let is_vital = matches!(
                operation.op,
                DiskOp::Write | DiskOp::Sync | DiskOp::SyncFilesystem | DiskOp::SyncDir
            );
            if is_vital && operation.phase == TracePhase::Failed {
                self.refused.set(self.refused.get() + 1);
            }
        }
    }
}

async fn cut_now_and_then(around: Surroundings, net: SimNet, every: Duration, seed: u64) {
    let mut rng = SimRng::new(seed, "cuts");
    while !around.is_over() {
        around.pause(&mut rng, every * 2).await;
        if net.cut_one() {
            around.trace().event(format_args!("a connection is cut"));
        }
    }
}
