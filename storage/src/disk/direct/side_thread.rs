//! A thread beside a shard for disk calls that may block for long (`syncfs`). It exists because glommio's own blocking
//! pool also serves truncations: behind a slow `syncfs` those would wait. A panic in a job is an error of that job.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Jobs that may wait for the thread.
const JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The thread, started by the first job and ended by dropping this.
#[derive(Default)]
pub(super) struct SideThread {
    jobs: Option<SyncSender<Job>>,
}

struct Slot<T> {
    result: Option<io::Result<T>>,
    waiter: Option<Waker>,
}

/// The result of a job, when it is there.
pub(super) struct SideResult<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

impl SideThread {
    /// Queues `job`; its result comes as the future. The job runs also when the future is dropped.
    pub(super) fn run<T: Send + 'static>(
        &mut self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<SideResult<T>> {
        let slot = Arc::new(Mutex::new(Slot {
            result: None,
            waiter: None,
        }));
        let theirs = Arc::clone(&slot);
        let job: Job = Box::new(move || {
            let result = caught(job);
            let mut slot = theirs.lock().unwrap_or_else(PoisonError::into_inner);
            slot.result = Some(result);
            if let Some(waiter) = slot.waiter.take() {
                waiter.wake();
            }
        });
        self.sender()?.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::other(format!("{JOBS_MAX} disk calls already wait")),
            TrySendError::Disconnected(_) => io::Error::other("the side thread of the disk has ended"),
        })?;
        Ok(SideResult { slot })
    }

    fn sender(&mut self) -> io::Result<&SyncSender<Job>> {
        if self.jobs.is_none() {
            let (sender, receiver) = sync_channel::<Job>(JOBS_MAX);
            thread::Builder::new().name("disk-side".into()).spawn(move || {
                for job in receiver {
                    job();
                }
            })?;
            self.jobs = Some(sender);
        }
        self.jobs
            .as_ref()
            .ok_or_else(|| io::Error::other("no side thread"))
    }
}

impl<T> Future for SideResult<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = slot.result.take() {
            return Poll::Ready(result);
        }
        slot.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Runs `job` and makes a panic an error: on glommio's blocking pool an escaping panic kills the only thread, its
/// caller then waits for ever and the next job brings the executor down (glommio trap D5).
pub(super) fn caught<T>(job: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(io::Error::other(format!(
            "a blocking disk call panicked: {message}"
        )))
    })
}
