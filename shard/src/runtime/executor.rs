//! The executors of a node: one pinned thread with a glommio executor per shard, and [`RuntimeEnv`], what a shard's
//! drivers see of it. Settings and their reasons are in [`RuntimeOptions`].

use std::cell::Cell;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use glommio::{
    Latency, LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement, Shares, TaskQueueHandle,
};

use super::aside::Aside;
use super::fatal::{panic_message, stop_process};
use super::histogram::{Histogram, HistogramImage};
use super::pulse::{Meter, Place, Pulse, PulseImage, STALL_MIN, tracked};
use super::ticker::{Alarm, Ticker};
use crate::env::{Env, Instant, WallMs};
use crate::ids::ShardId;

/// The share of the background queue against 1000 of everything else (network, log and mailbox are one queue: a
/// message that activates another queue would wait two preemption intervals, trap D7).
const BACKGROUND_SHARES: usize = 100;

/// How long a turn lasts before [`Env::breathe`] ends it. A reactor turn costs about 15 us here (three rings), so this keeps
/// that below a tenth.
const TURN_MAX: Duration = Duration::from_micros(200);

/// Blocking operations (rename, unlink, truncate) of one shard at a time; their threads are not pinned.
const BLOCKING_THREADS: usize = 2;

/// How executors are built.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The CPU of each shard.
    pub cpus: Vec<usize>,
    /// Whether each shard stays on its CPU.
    pub pinned: bool,
    /// Bytes of the executor's arena for direct I/O, per shard. It is what all buffers in flight come from; when it is used up,
    /// each larger buffer costs page faults. It is locked three times over if `RLIMIT_MEMLOCK` allows, else just not registered.
    pub io_memory_bytes: usize,
    /// Entries of each submission queue.
    pub ring_depth: usize,
    /// The longest the run queue goes on without a look at I/O, timers and messages (trap D7: 100 ms by default). Shorter
    /// makes trap D1 more frequent.
    pub preempt_timer: Duration,
    /// How often the ticker looks at shards with work: the longest stall by trap D1.
    pub tick: Duration,
    /// How long to try again when the kernel reports no memory: locked memory of a process that just ended is given back late.
    pub start_patience: Duration,
}

impl RuntimeOptions {
    /// The settings measured in `docs/decisions` for shards on these CPUs.
    #[must_use]
    pub fn on(cpus: Vec<usize>) -> Self {
        Self {
            cpus,
            pinned: true,
            io_memory_bytes: 32 << 20,
            ring_depth: 2048,
            preempt_timer: Duration::from_millis(10),
            tick: Duration::from_millis(5),
            start_patience: Duration::from_secs(5),
        }
    }
}

/// An executor that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("shard {shard} on CPU {cpu} could not be started: {reason}")]
pub struct StartError {
    /// Which shard.
    pub shard: ShardId,
    /// On which CPU.
    pub cpu: usize,
    /// glommio's or the operating system's reason.
    pub reason: String,
}

/// The running executors of a node.
pub struct Runtime {
    threads: Vec<JoinHandle<()>>,
    pulses: PulseReader,
    /// Dropped after the threads have ended.
    ticker: Ticker,
}

impl Runtime {
    /// Starts one shard per input, each on its CPU of `options`, and runs `main` on it. Returns when all executors are up; a
    /// shard stops when its `main` ends. Tasks that are left then are not dropped (their destructors do not run): `main`
    /// awaits what must be finished.
    ///
    /// # Errors
    /// The first executor that could not be started within `start_patience`. The others are abandoned: the caller ends the process.
    ///
    /// # Panics
    /// When there are more inputs than CPUs.
    pub fn start<S, F, T>(options: &RuntimeOptions, inputs: Vec<S>, main: F) -> Result<Self, StartError>
    where
        S: Send + 'static,
        F: Fn(RuntimeEnv, S) -> T + Clone + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        assert!(inputs.len() <= options.cpus.len(), "every shard has a CPU");
        let epoch = std::time::Instant::now();
        let alarm = Arc::new(Alarm::default());
        let late = Arc::new(Histogram::default());
        let pulses: Vec<_> = (0..)
            .zip(&inputs)
            .map(|(shard, _)| Arc::new(Pulse::new(ShardId(shard), alarm.clone(), epoch)))
            .collect();
        let aside = Aside::start(inputs.len()).map_err(|e| StartError {
            shard: ShardId(0),
            cpu: 0,
            reason: format!("a thread beside it: {e}"),
        })?;
        let (started_tx, started_rx) = flume::bounded(inputs.len());
        let mut threads = Vec::with_capacity(inputs.len());
        for ((pulse, input), &cpu) in pulses.iter().zip(inputs).zip(&options.cpus) {
            let shard = pulse.shard;
            let (options, pulse, main, started) =
                (options.clone(), pulse.clone(), main.clone(), started_tx.clone());
            let aside = aside.clone();
            let thread = thread::Builder::new()
                .name(format!("shard-{shard}"))
                .spawn(move || {
                    let main = |meter| main(RuntimeEnv::new(meter, epoch, aside), input);
                    run_shard(&options, cpu, pulse, epoch, &started, main);
                })
                .map_err(|e| StartError {
                    shard,
                    cpu,
                    reason: e.to_string(),
                })?;
            threads.push(thread);
        }
        drop(started_tx);
        for _ in 0..threads.len() {
            started_rx
                .recv()
                .expect("a shard's thread reports before it ends")?;
        }
        let ticker =
            Ticker::start(alarm, pulses.clone(), options.tick, late.clone()).map_err(|e| StartError {
                shard: ShardId(0),
                cpu: 0,
                reason: format!("its ticker: {e}"),
            })?;
        Ok(Self {
            threads,
            pulses: PulseReader {
                pulses: pulses.into(),
                late,
            },
            ticker,
        })
    }

    /// The stall reports of all shards, for metrics.
    #[must_use]
    pub fn pulses(&self) -> PulseReader {
        self.pulses.clone()
    }

    /// Waits until every shard's `main` has ended.
    pub fn join(self) {
        for thread in self.threads {
            // A panic in a shard ends the process before its thread ends (trap D6).
            let _ = thread.join();
        }
        drop(self.ticker);
    }
}

/// Reads the stall report of each shard from any thread.
#[derive(Clone)]
pub struct PulseReader {
    pulses: Arc<[Arc<Pulse>]>,
    late: Arc<Histogram>,
}

impl PulseReader {
    /// One report per shard.
    #[must_use]
    pub fn read(&self) -> Vec<PulseImage> {
        self.pulses.iter().map(|pulse| pulse.read()).collect()
    }

    /// How late the ticker came round: what the host adds to the longest sleep on work.
    #[must_use]
    pub fn ticker_late(&self) -> HistogramImage {
        self.late.read()
    }

    /// The kernel's thread id of each shard, for `/proc/self/task`.
    #[must_use]
    pub fn thread_ids(&self) -> Vec<i32> {
        self.pulses
            .iter()
            .map(|pulse| pulse.thread_id.load(Ordering::Relaxed))
            .collect()
    }
}

/// The body of a shard's thread.
fn run_shard<T: Future<Output = ()> + 'static>(
    options: &RuntimeOptions,
    cpu: usize,
    pulse: Arc<Pulse>,
    epoch: std::time::Instant,
    started: &flume::Sender<Result<(), StartError>>,
    main: impl FnOnce(Rc<Meter>) -> T,
) {
    let shard = pulse.shard;
    pulse
        .thread_id
        .store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    let executor = match build(options, cpu) {
        Ok(executor) => executor,
        Err(reason) => {
            // The receiver only leaves early when another shard has failed as well.
            let _ = started.send(Err(StartError { shard, cpu, reason }));
            return;
        }
    };
    let _ = started.send(Ok(()));
    let place = Place::Section("executor");
    let ran = catch_unwind(AssertUnwindSafe(|| {
        executor.run(async {
            answer_kicks(&pulse, epoch);
            let meter = Rc::new(Meter::new(pulse.clone()));
            tracked(meter.clone(), main(meter)).await;
            // The ticker must not wake an executor that has ended.
            let slot = pulse.kick.waker.lock();
            slot.unwrap_or_else(std::sync::PoisonError::into_inner).take();
        });
    }));
    if let Err(panic) = ran {
        // Not from a task of ours, those are caught one by one: glommio itself gave up.
        stop_process(shard, place, &*panic);
    }
}

/// Builds the executor on this thread and pins it, trying again while the kernel has no memory for its rings.
fn build(options: &RuntimeOptions, cpu: usize) -> Result<LocalExecutor, String> {
    let give_up = std::time::Instant::now() + options.start_patience;
    let placement = if options.pinned {
        Placement::Fixed(cpu)
    } else {
        Placement::Unbound
    };
    loop {
        let built = catch_unwind(AssertUnwindSafe(|| {
            LocalExecutorBuilder::new(placement.clone())
                .io_memory(options.io_memory_bytes)
                .ring_depth(options.ring_depth)
                .preempt_timer(options.preempt_timer)
                .blocking_thread_pool_placement(PoolPlacement::Unbound(BLOCKING_THREADS))
                .make()
        }));
        let (reason, passing) = match built {
            Ok(Ok(executor)) => return Ok(executor),
            Ok(Err(e)) => {
                let out_of_memory = matches!(&e, glommio::GlommioError::IoError(io) if is_out_of_memory(io));
                (e.to_string(), out_of_memory)
            }
            // glommio panics when its probe of io_uring fails; under a tight memory limit that passes, too.
            Err(panic) => (
                format!("io_uring is not usable: {}", panic_message(&*panic)),
                true,
            ),
        };
        if !passing || std::time::Instant::now() >= give_up {
            return Err(reason);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn is_out_of_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

/// The task that answers the ticker. It is not [`tracked`]: its waker must queue a foreign wake each time it is used, and
/// its polls are no work. Never ends (trap D4 is about cancelling; this one lives as long as the executor).
fn answer_kicks(pulse: &Arc<Pulse>, epoch: std::time::Instant) {
    let pulse = pulse.clone();
    glommio::spawn_local(std::future::poll_fn(move |cx| {
        let kick = &pulse.kick;
        kick.answered
            .store(kick.sent.load(Ordering::Acquire), Ordering::Release);
        let sent_at = kick.sent_at.swap(0, Ordering::AcqRel);
        if sent_at != 0 {
            let lag = epoch.elapsed().saturating_sub(Duration::from_nanos(sent_at));
            pulse.lag_us.record(lag);
        }
        let mut slot = kick
            .waker
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some(cx.waker().clone());
        }
        Poll::<()>::Pending
    }))
    .detach();
}

/// The [`Env`] of a shard that runs on glommio.
#[derive(Clone)]
pub struct RuntimeEnv(Rc<EnvInner>);

struct EnvInner {
    meter: Rc<Meter>,
    aside: Aside,
    background: TaskQueueHandle,
    epoch: std::time::Instant,
    random: Cell<u64>,
}

impl RuntimeEnv {
    fn new(meter: Rc<Meter>, epoch: std::time::Instant, aside: Aside) -> Self {
        let background = glommio::executor().create_task_queue(
            Shares::Static(BACKGROUND_SHARES),
            Latency::NotImportant,
            "background",
        );
        // The standard library's hasher keys are random per process and thread.
        let seed = std::hash::RandomState::new().build_hasher().finish();
        Self(Rc::new(EnvInner {
            meter,
            aside,
            background,
            epoch,
            random: Cell::new(seed),
        }))
    }

    /// The shard this is.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.0.meter.pulse.shard
    }

    /// This shard's stall report.
    #[must_use]
    pub fn pulse(&self) -> PulseImage {
        self.0.meter.pulse.read()
    }

    /// Runs `work` on a thread of the blocking pool. Such a pool thread dies of a panic and leaves the caller waiting
    /// for ever (trap D5): it is caught there and goes on in the task that waits.
    pub async fn blocking<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let done = glommio::executor()
            .spawn_blocking(move || catch_unwind(AssertUnwindSafe(work)))
            .await;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    #[track_caller]
    fn spawn_into(&self, queue: TaskQueueHandle, task: impl Future<Output = ()> + 'static) {
        let spawned = Location::caller();
        glommio::spawn_local_into(tracked(self.0.meter.clone(), task), queue)
            .unwrap_or_else(|e| panic!("the queue of {spawned} exists as long as the executor: {e}"))
            .detach();
    }
}

impl Env for RuntimeEnv {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.0.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> WallMs {
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        WallMs(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }

    #[track_caller]
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn_into(TaskQueueHandle::default(), task);
    }

    #[track_caller]
    fn spawn_background(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn_into(self.0.background, task);
    }

    async fn sleep(&self, duration: Duration) {
        glommio::timer::sleep(duration.max(Duration::from_micros(1))).await;
    }

    /// Only a timer takes the task out of the run queue until the reactor has looked; glommio's own `yield_now` goes on
    /// without (trap D7).
    async fn yield_to_reactor(&self) {
        glommio::timer::sleep(Duration::from_micros(1)).await;
    }

    async fn breathe(&self) {
        if self.0.meter.turn_length() >= TURN_MAX {
            self.yield_to_reactor().await;
        }
    }

    async fn aside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        self.0.aside.run(work).await
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let state = self.0.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn section<R>(&self, name: &'static str, work: impl FnOnce() -> R) -> R {
        let began = std::time::Instant::now();
        let done = work();
        let took = began.elapsed();
        if took >= STALL_MIN {
            self.0.meter.pulse.stalled(Place::Section(name), took);
        }
        done
    }
}
