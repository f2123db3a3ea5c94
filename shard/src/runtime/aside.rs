//! Threads beside the shards, for work that would hold a core for milliseconds and touches no shard's state: walking and
//! recompressing large batches. One for each shard, shared by all, not pinned, and less urgent than the shards: on a busy
//! host a shard that wakes takes the core back at once.
#![allow(unsafe_code)] // one system call that nix has no function for

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Jobs that wait for a thread; whoever brings another waits until one is taken. A connection has one at most.
const JOBS_MAX: usize = 1024;

/// The threads' nice value: about a third of a shard's share of a core that both want.
const NICE: i32 = 5;

type Job = Box<dyn FnOnce() + Send>;

/// The way to the threads, which end when all clones are gone.
#[derive(Clone)]
pub(super) struct Aside {
    jobs: flume::Sender<Job>,
}

impl Aside {
    /// Starts the threads. Not from a shard's thread: they would be pinned like it.
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = flume::bounded::<Job>(JOBS_MAX);
        for number in 0..threads {
            let queue = queue.clone();
            thread::Builder::new()
                .name(format!("aside-{number}"))
                .spawn(move || {
                    step_back();
                    for job in queue {
                        job();
                    }
                })?;
        }
        Ok(Self { jobs })
    }

    /// Runs `work` on one of the threads. A panic in it goes on in the task that waits, whose end is the process's
    /// (trap D6).
    pub(super) async fn run<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = flume::bounded(1);
        let job = Box::new(move || {
            // Nobody waits any more only when the executor has ended.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
        });
        assert!(
            self.jobs.send_async(job).await.is_ok(),
            "the threads live as long as a way to them"
        );
        let done = result.recv_async().await.expect("a job sends what came of it");
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Makes the calling thread less urgent. Without it the work is done all the same.
fn step_back() {
    // SAFETY: no pointers. On Linux a `who` of 0 is the calling thread, not its process.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}
