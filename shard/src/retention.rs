//! Retention on one shard: a pass over the shard's own logs in each `log.retention.check.interval.ms`, the first
//! `log.initial.task.delay.ms` after the start, and whenever somebody asks for one; and the clock of files that wait for
//! their removal. What goes is decided by `storage::retention`; here is when it is looked for, and that nobody waits long for
//! it: a pass goes on in turns of [`LOGS_PER_TURN`] logs, and the core is the others' between them.
//!
//! A look at a log costs well under a microsecond (and a nanosecond for each segment where `retention.bytes` is set), so a pass
//! over 10,000 logs with nothing to remove takes some milliseconds of the core, 100 microseconds at a time. A log that loses
//! something costs a group commit and the renames of its files, on side threads.
//!
//! The metadata log is not among an owner's partitions, so no pass sees it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use storage::error::StorageError;
use storage::notify::{Notify, join_all};
use storage::types::Offset;

use crate::driver::OwnerDriver;
use crate::env::{Env, Instant, WallMs};
use crate::owner::{DirLog, Dirs, LogsIo};

/// Logs looked at before others get the core.
const LOGS_PER_TURN: usize = 128;

/// Logs whose files go at the same time: they share a group commit.
const LOGS_AT_ONCE: usize = 8;

/// Who may wait for the next pass; more are not heard.
const ASKERS_MAX: usize = 64;

/// When a removal that had no space is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// When logs are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionSchedule {
    /// `log.initial.task.delay.ms`.
    pub delay: Duration,
    /// `log.retention.check.interval.ms`.
    pub interval: Duration,
}

impl Default for RetentionSchedule {
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(30),
            interval: Duration::from_secs(300),
        }
    }
}

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPass {
    /// Logs looked at.
    pub logs: u64,
    /// Segments removed from them, also by DeleteRecords meanwhile.
    pub segments: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Logs of which something was to go and could not.
    pub failed: u64,
    /// How long it took.
    pub took: Duration,
    /// When it ended.
    pub ended: WallMs,
}

/// The passes of a shard so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStats {
    /// How many.
    pub passes: u64,
    /// Logs of which something was to go and could not, in all passes.
    pub failed: u64,
    /// The last.
    pub last: RetentionPass,
}

type Asker = Box<dyn FnOnce(RetentionPass)>;

/// Runs the passes of one shard. Cheap to clone.
pub struct Retention<E: Env, L: LogsIo, N: Send + 'static>(Rc<Inner<E, L, N>>);

struct Inner<E: Env, L: LogsIo, N: Send + 'static> {
    env: E,
    driver: OwnerDriver<E, L, N>,
    logs: Dirs<L>,
    schedule: RetentionSchedule,
    askers: RefCell<Vec<Asker>>,
    asked: Notify,
    stats: Cell<RetentionStats>,
}

impl<E: Env, L: LogsIo, N: Send + 'static> Retention<E, L, N> {
    /// For the partitions of `driver`, whose storage is `logs`.
    #[must_use]
    pub fn new(env: E, driver: OwnerDriver<E, L, N>, logs: Dirs<L>, schedule: RetentionSchedule) -> Self {
        Self(Rc::new(Inner {
            env,
            driver,
            logs,
            schedule,
            askers: RefCell::default(),
            asked: Notify::new(),
            stats: Cell::default(),
        }))
    }

    /// Asks for a pass now; `done` is told when one that began after this has ended. Dropped when too many wait.
    pub fn ask(&self, done: impl FnOnce(RetentionPass) + 'static) {
        let mut askers = self.0.askers.borrow_mut();
        if askers.len() < ASKERS_MAX {
            askers.push(Box::new(done));
            drop(askers);
            self.0.asked.notify();
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> RetentionStats {
        self.0.stats.get()
    }

    /// Runs passes for ever.
    pub async fn run(self) {
        let Inner { env, schedule, .. } = &*self.0;
        let mut next = env.now().after(schedule.delay);
        loop {
            let is_asked = || (!self.0.askers.borrow().is_empty()).then_some(());
            or(self.0.asked.until(is_asked), env.sleep(next.since(env.now()))).await;
            let askers = std::mem::take(&mut *self.0.askers.borrow_mut());
            let began = env.now();
            let pass = self.pass(began).await;
            self.note(pass);
            for done in askers {
                done(pass);
            }
            next = began.after(schedule.interval);
        }
    }

    async fn pass(&self, began: Instant) -> RetentionPass {
        let Inner {
            env, driver, logs, ..
        } = &*self.0;
        let before = removed(logs);
        let mut pass = RetentionPass::default();
        let mut slot = 0;
        env.yield_to_reactor().await;
        while let Some((next, some)) = driver.with_owner(|owner| owner.logs_from(slot, LOGS_PER_TURN)) {
            slot = next;
            pass.logs += some.len() as u64;
            let now = env.wall();
            let due: Vec<(DirLog<L::Log>, Offset)> = some
                .into_iter()
                .filter(|(log, mark)| logs.of(log).is_retention_due(log.log, *mark, now))
                .collect();
            for some in due.chunks(LOGS_AT_ONCE) {
                let retained = some
                    .iter()
                    .map(|(log, mark)| logs.of(log).retain(log.log, *mark, now));
                for error in join_all(retained).await.into_iter().filter_map(Result::err) {
                    pass.failed += u64::from(is_failure(&error));
                }
            }
            env.yield_to_reactor().await;
        }
        let after = removed(logs);
        pass.segments = after.0 - before.0;
        pass.bytes = after.1 - before.1;
        pass.took = env.now().since(began);
        pass.ended = env.wall();
        pass
    }

    fn note(&self, pass: RetentionPass) {
        let before = self.0.stats.get();
        self.0.stats.set(RetentionStats {
            passes: before.passes + 1,
            failed: before.failed + pass.failed,
            last: pass,
        });
        let RetentionPass {
            logs,
            segments,
            bytes,
            ..
        } = pass;
        if segments > 0 {
            tracing::info!(logs, segments, bytes, "retention has removed segments");
        }
    }
}

/// Segments and bytes removed in all directories since the start.
fn removed<L: LogsIo>(logs: &Dirs<L>) -> (u64, u64) {
    let totals = logs.iter().map(|(_, logs)| logs.stats().removals);
    totals.fold((0, 0), |(segments, bytes), some| {
        (segments + some.segments(), bytes + some.segment_bytes)
    })
}

/// Says what is wrong, unless it is that the log was deleted meanwhile.
fn is_failure(error: &StorageError) -> bool {
    match error {
        StorageError::NoSuchLog => return false,
        // The committer says so, too, and once.
        StorageError::Offline(_) => {}
        _ => tracing::warn!(%error, "retention could not remove what is too old or too much"),
    }
    true
}

impl<E: Env, L: LogsIo, N: Send + 'static> Clone for Retention<E, L, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Removes the files whose delay is over, until storage fails. Not in the background: a core that is never idle fills its disk.
pub(crate) async fn remove_in_time<E: Env, L: LogsIo>(env: E, logs: L) {
    loop {
        match logs.remove_due(env.now()).await {
            Ok(None) => logs.removals_moved().await,
            Ok(Some(at)) => or(logs.removals_moved(), env.sleep(at.since(env.now()))).await,
            // Some file systems need space to remove something; others may make some.
            Err(StorageError::NoSpace(_)) => env.sleep(AGAIN).await,
            Err(_) => break,
        }
    }
}
