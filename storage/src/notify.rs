//! Waiting inside one thread, without a runtime: a condition somebody else makes true, and several futures at once.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes whoever waits for a condition. The condition itself lives elsewhere, in a `Cell` or `RefCell` of the owner.
///
/// At most a few tasks wait on one of these (the drivers of a store); the list is as long as there are waiters.
#[derive(Default)]
pub(crate) struct Notify {
    waiters: RefCell<Vec<Waker>>,
    count: Cell<u64>,
}

impl Notify {
    /// Wakes all waiters; they look at their conditions again.
    pub(crate) fn notify(&self) {
        self.count.set(self.count.get() + 1);
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Ends with the next [`Self::notify`].
    pub(crate) fn next(&self) -> impl Future<Output = ()> {
        let count = self.count.get();
        self.wait_for(move || (self.count.get() != count).then_some(()))
    }

    /// Ends with the first `Some` of `condition`, which is looked at now and after each [`Self::notify`].
    pub(crate) fn wait_for<T>(&self, mut condition: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
        poll_fn(move |context| {
            if let Some(value) = condition() {
                return Poll::Ready(value);
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                waiters.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// Runs futures side by side and gives their results in order. All are driven to their ends, also when one fails: an I/O
/// that was started is never dropped (glommio trap D4).
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut entries: Vec<Entry<F>> = futures.into_iter().map(|f| Entry::Running(Box::pin(f))).collect();
    poll_fn(|context| poll_entries(&mut entries, context)).await;
    entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Done(value) => Some(value),
            Entry::Running(_) => None,
        })
        .collect()
}

enum Entry<F: Future> {
    Running(Pin<Box<F>>),
    Done(F::Output),
}

fn poll_entries<F: Future>(entries: &mut [Entry<F>], context: &mut Context<'_>) -> Poll<()> {
    let mut pending = false;
    for entry in entries {
        if let Entry::Running(future) = entry {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *entry = Entry::Done(value),
                Poll::Pending => pending = true,
            }
        }
    }
    if pending { Poll::Pending } else { Poll::Ready(()) }
}
