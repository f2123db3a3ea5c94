//! A single-threaded executor for simulations: virtual time, and the next task to run chosen by a seed, so that one
//! seed is one interleaving and a failing seed replays exactly. Dropping the executor, or killing one of its
//! processes, drops their tasks where they stand: that is the crash of a process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::sim_rng::SimRng;

/// Virtual time that one poll of a task takes, nanoseconds. Above zero, so that a task which only yields cannot stop
/// the clock.
pub const POLL_COST_NS: u64 = 100;

/// Polls one call to `block_on` or `run_*` may take before it is called a livelock.
pub const POLLS_MAX: u64 = 200_000_000;

/// The id of the future inside `block_on`, which is polled in place and not stored.
const MAIN: u64 = 0;

/// Owns the tasks and the clock of one simulation.
///
/// [`SimExecutor::handle`] gives what tasks use; a handle outliving the executor is inert (its sleeps never end, its
/// spawned tasks are dropped at once).
pub struct SimExecutor {
    handle: SimHandle,
}

/// A task's view of its executor: clock, timers, spawning, randomness. Cheap to clone. Tasks spawned through it belong
/// to its process and end with it.
#[derive(Clone)]
pub struct SimHandle {
    core: Rc<Core>,
    process: u32,
}

/// The result of a spawned task, as a future. Dropping it leaves the task running.
pub struct SimTask<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

struct Slot<T> {
    value: Option<T>,
    waiter: Option<Waker>,
}

struct Core {
    state: RefCell<State>,
    ready: Arc<Ready>,
}

struct State {
    now_ns: u64,
    tasks: BTreeMap<u64, Task>,
    task_id_next: u64,
    /// Wakers by (deadline, order of registration).
    timers: BTreeMap<(u64, u64), Waker>,
    timer_id_next: u64,
    processes_dead: BTreeSet<u32>,
    process_next: u32,
    schedule: SimRng,
    values: SimRng,
    closed: bool,
}

struct Task {
    process: u32,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Arc<TaskWaker>,
}

/// Tasks that were woken, in no order that matters: the schedule draws from it.
#[derive(Default)]
struct Ready {
    queue: Mutex<Vec<u64>>,
}

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

enum Step {
    Ran,
    Main,
    Stalled,
}

impl SimExecutor {
    /// An executor at virtual time zero whose schedule and randomness follow `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            now_ns: 0,
            tasks: BTreeMap::new(),
            task_id_next: MAIN + 1,
            timers: BTreeMap::new(),
            timer_id_next: 0,
            processes_dead: BTreeSet::new(),
            process_next: 1,
            schedule: SimRng::new(seed, "schedule"),
            values: SimRng::new(seed, "values"),
            closed: false,
        };
        let core = Rc::new(Core {
            state: RefCell::new(state),
            ready: Arc::default(),
        });
        Self {
            handle: SimHandle { core, process: 0 },
        }
    }

    /// The handle of the first process.
    #[must_use]
    pub fn handle(&self) -> SimHandle {
        self.handle.clone()
    }

    /// A handle of a further process, which can be killed alone.
    #[must_use]
    pub fn new_process(&self) -> SimHandle {
        let mut state = self.handle.core.state.borrow_mut();
        let process = state.process_next;
        state.process_next += 1;
        SimHandle {
            core: Rc::clone(&self.handle.core),
            process,
        }
    }

    /// Drops all tasks of the process that `handle` belongs to and makes its handles inert.
    pub fn kill(&self, handle: &SimHandle) {
        let process = handle.process;
        let dropped: Vec<Task> = {
            let mut state = self.handle.core.state.borrow_mut();
            state.processes_dead.insert(process);
            let ids: Vec<u64> = state
                .tasks
                .iter()
                .filter(|(_, task)| task.process == process)
                .map(|(id, _)| *id)
                .collect();
            ids.iter().filter_map(|id| state.tasks.remove(id)).collect()
        };
        drop(dropped); // outside the borrow: destructors may use the handle
    }

    /// Starts a task in the first process.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> SimTask<T> {
        self.handle.spawn(task)
    }

    /// Runs until `future` ends.
    ///
    /// # Panics
    /// When nothing can make progress any more.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.run_until(future).unwrap_or_else(|| {
            panic!(
                "the simulation stalled at {:?}: no task can run and no timer is set",
                self.now()
            )
        })
    }

    /// Runs until `future` ends, or gives `None` when nothing can make progress any more.
    pub fn run_until<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let waker = Arc::new(TaskWaker {
            id: MAIN,
            queued: AtomicBool::new(false),
            ready: Arc::clone(&self.handle.core.ready),
        });
        waker.wake_by_ref();
        for _ in 0..POLLS_MAX {
            match self.step() {
                Step::Ran => {}
                Step::Stalled => return None,
                Step::Main => {
                    waker.queued.store(false, Ordering::Relaxed);
                    let waker = Waker::from(Arc::clone(&waker));
                    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return Some(value);
                    }
                }
            }
        }
        panic!("livelock: {POLLS_MAX} polls without an end, at {:?}", self.now());
    }

    /// Runs until no task can run and no timer is set.
    pub fn run_until_stalled(&self) {
        let ended = self.run_until(std::future::pending::<()>());
        debug_assert!(ended.is_none());
    }

    /// Runs for `duration` of virtual time.
    pub fn run_for(&self, duration: Duration) {
        self.block_on(self.handle.sleep(duration));
    }

    /// Virtual time since the executor was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.handle.now()
    }

    /// Ends after `duration` of virtual time.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        self.handle.sleep(duration)
    }

    /// How many tasks have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.handle.core.state.borrow().tasks.len()
    }

    /// Polls one ready task, or moves the clock to the next timer when none is ready.
    fn step(&self) -> Step {
        let core = &self.handle.core;
        core.fire_timers();
        let Some(id) = core.pick_ready() else {
            return if core.advance_to_next_timer() {
                Step::Ran
            } else {
                Step::Stalled
            };
        };
        if id == MAIN {
            core.state.borrow_mut().now_ns += POLL_COST_NS;
            return Step::Main;
        }
        let task = core.state.borrow_mut().tasks.remove(&id);
        let Some(mut task) = task else {
            return Step::Ran; // woken after its end
        };
        task.waker.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&task.waker));
        let poll = task.future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = core.state.borrow_mut();
        state.now_ns += POLL_COST_NS;
        let alive = !state.processes_dead.contains(&task.process);
        if poll.is_pending() && alive {
            state.tasks.insert(id, task);
        } else {
            drop(state);
            drop(task); // outside the borrow: destructors may use the handle
        }
        Step::Ran
    }
}

impl Drop for SimExecutor {
    fn drop(&mut self) {
        let tasks = {
            let mut state = self.handle.core.state.borrow_mut();
            state.closed = true;
            std::mem::take(&mut state.tasks)
        };
        drop(tasks);
        let timers = std::mem::take(&mut self.handle.core.state.borrow_mut().timers);
        drop(timers);
    }
}

impl SimHandle {
    /// Virtual time since the executor was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Virtual time, nanoseconds since the executor was made.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core.state.borrow().now_ns
    }

    /// Whether the process of this handle still runs.
    #[must_use]
    pub fn alive(&self) -> bool {
        let state = self.core.state.borrow();
        !state.closed && !state.processes_dead.contains(&self.process)
    }

    /// Starts a task; it runs for the first time when the schedule picks it, never inside this call.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> SimTask<T> {
        let slot = Rc::new(RefCell::new(Slot {
            value: None,
            waiter: None,
        }));
        let result = Rc::clone(&slot);
        let future = Box::pin(async move {
            let value = task.await;
            let waiter = {
                let mut slot = result.borrow_mut();
                slot.value = Some(value);
                slot.waiter.take()
            };
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        });
        if self.alive() {
            self.core.insert(self.process, future);
        }
        SimTask { slot }
    }

    /// Ends after `duration` of virtual time; never ends once the process is dead.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Sleep {
            core: Rc::clone(&self.core),
            deadline_ns: self.now_ns().saturating_add(nanos),
            key: None,
        }
    }

    /// Lets other ready tasks run first.
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let mut yielded = false;
        poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// 64 random bits from the executor's seed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.core.state.borrow_mut().values.next_u64()
    }
}

impl Core {
    fn insert(&self, process: u32, future: Pin<Box<dyn Future<Output = ()>>>) {
        let mut state = self.state.borrow_mut();
        let id = state.task_id_next;
        state.task_id_next += 1;
        let waker = Arc::new(TaskWaker {
            id,
            queued: AtomicBool::new(false),
            ready: Arc::clone(&self.ready),
        });
        waker.wake_by_ref();
        state.tasks.insert(
            id,
            Task {
                process,
                future,
                waker,
            },
        );
    }

    fn pick_ready(&self) -> Option<u64> {
        let mut queue = self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_empty() {
            return None;
        }
        let index = self.state.borrow_mut().schedule.index(queue.len());
        Some(queue.swap_remove(index))
    }

    fn advance_to_next_timer(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(((deadline, _), _)) = state.timers.first_key_value() else {
            return false;
        };
        state.now_ns = state.now_ns.max(*deadline);
        true
    }

    fn fire_timers(&self) {
        loop {
            let due = {
                let mut state = self.state.borrow_mut();
                let now_ns = state.now_ns;
                match state.timers.first_entry() {
                    Some(entry) if entry.key().0 <= now_ns => Some(entry.remove()),
                    _ => None,
                }
            };
            let Some(waker) = due else { return };
            waker.wake();
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            let mut queue = self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push(self.id);
        }
    }
}

impl<T> Future for SimTask<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.slot.borrow_mut();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(value);
        }
        slot.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

struct Sleep {
    core: Rc<Core>,
    deadline_ns: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = Rc::clone(&self.core);
        let mut state = core.state.borrow_mut();
        if state.now_ns >= self.deadline_ns {
            if let Some(key) = self.key.take() {
                state.timers.remove(&key);
            }
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or((self.deadline_ns, state.timer_id_next));
        if self.key.is_none() {
            state.timer_id_next += 1;
            self.key = Some(key);
        }
        state.timers.insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.core.state.borrow_mut().timers.remove(&key);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The order in which five tasks with two steps each ran.
    fn interleaving(seed: u64) -> Vec<u32> {
        let executor = SimExecutor::new(seed);
        let order = Rc::new(RefCell::new(Vec::new()));
        for task in 0..5 {
            let (order, handle) = (Rc::clone(&order), executor.handle());
            executor.spawn(async move {
                order.borrow_mut().push(task);
                handle.yield_now().await;
                order.borrow_mut().push(task + 10);
            });
        }
        executor.run_until_stalled();
        order.take()
    }

    #[test]
    fn a_seed_is_an_interleaving_and_seeds_differ() {
        assert_eq!(interleaving(1), interleaving(1));
        let distinct: BTreeSet<Vec<u32>> = (0..20).map(interleaving).collect();
        assert!(distinct.len() > 10, "{} interleavings", distinct.len());
        for order in distinct {
            assert_eq!(order.len(), 10);
        }
    }

    #[test]
    fn virtual_time_moves_only_to_the_next_timer() {
        let executor = SimExecutor::new(3);
        let handle = executor.handle();
        let hour = Duration::from_secs(3600);
        let woke = executor.spawn(async move {
            handle.sleep(hour).await;
            handle.now()
        });
        let at = executor.block_on(woke);
        assert!(at >= hour && at < hour + Duration::from_millis(1), "{at:?}");
    }

    #[test]
    fn a_task_that_only_yields_does_not_stop_the_clock() {
        let executor = SimExecutor::new(4);
        let (handle, done) = (executor.handle(), Rc::new(Cell::new(false)));
        let flag = Rc::clone(&done);
        executor.spawn(async move {
            while !flag.get() {
                handle.yield_now().await;
            }
        });
        executor.run_for(Duration::from_millis(1));
        done.set(true);
        executor.run_until_stalled();
        assert_eq!(executor.tasks(), 0);
    }

    #[test]
    fn a_stall_is_told_and_not_waited_for() {
        let executor = SimExecutor::new(5);
        assert!(executor.run_until(std::future::pending::<()>()).is_none());
    }

    #[test]
    fn dropping_the_executor_drops_its_tasks_and_makes_handles_inert() {
        struct Flag(Rc<Cell<u32>>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let executor = SimExecutor::new(6);
        let (handle, drops) = (executor.handle(), Rc::new(Cell::new(0)));
        for _ in 0..3 {
            let (flag, handle) = (Flag(Rc::clone(&drops)), handle.clone());
            executor.spawn(async move {
                handle.sleep(Duration::from_secs(1)).await;
                drop(flag);
            });
        }
        executor.run_for(Duration::from_millis(1));
        drop(executor);
        assert_eq!(drops.get(), 3);
        assert!(!handle.alive());
        let flag = Flag(Rc::clone(&drops));
        handle.spawn(async move { drop(flag) });
        assert_eq!(
            drops.get(),
            4,
            "a task spawned on a dead executor is dropped at once"
        );
    }

    #[test]
    fn killing_one_process_leaves_the_others() {
        let executor = SimExecutor::new(7);
        let (victim, other) = (executor.new_process(), executor.new_process());
        let counts = Rc::new(RefCell::new([0, 0]));
        for (index, process) in [victim.clone(), other.clone()].into_iter().enumerate() {
            let (counts, clock) = (Rc::clone(&counts), process.clone());
            process.spawn(async move {
                loop {
                    clock.sleep(Duration::from_millis(1)).await;
                    counts.borrow_mut()[index] += 1;
                }
            });
        }
        executor.run_for(Duration::from_micros(5500));
        executor.kill(&victim);
        executor.run_for(Duration::from_millis(5));
        assert_eq!(counts.borrow()[0], 5);
        assert!(counts.borrow()[1] >= 9);
        assert!(!victim.alive() && other.alive());
    }

    #[test]
    fn the_result_of_a_task_reaches_whoever_awaits_it() {
        let executor = SimExecutor::new(8);
        let handle = executor.handle();
        let value = executor.block_on(async move {
            let first = handle.spawn(async { 20 });
            let second = handle.spawn(async { 22 });
            first.await + second.await
        });
        assert_eq!(value, 42);
    }
}
