//! Waiting inside one thread, without a runtime: a condition somebody else makes true, and several futures at once.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes whoever waits for a condition. The condition itself lives elsewhere, in a `Cell` or `RefCell` of the owner. For the
/// tasks of one thread: not `Send`.
///
/// Memory: 40 bytes, and a waker for each who waits.
#[derive(Debug, Default)]
pub struct Notify {
    waiters: RefCell<Vec<Waker>>,
    count: Cell<u64>,
}

impl Notify {
    /// Nobody waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes all waiters; they look at their conditions again.
    pub fn notify(&self) {
        self.count.set(self.count.get() + 1);
        // Outside of the borrow: a waker may run foreign code.
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Ends with the next [`Self::notify`].
    pub(crate) fn next(&self) -> impl Future<Output = ()> {
        let count = self.count.get();
        self.until(move || (self.count.get() != count).then_some(()))
    }

    /// Ends with the first `Some` of `condition`, which is looked at now and after each [`Self::notify`]. It must not hold
    /// borrows of the state it looks at beyond the call.
    pub fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
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
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn a_waiter_is_asked_again_after_each_notification() {
        let notify = Notify::new();
        let value = Cell::new(0);
        let mut wait = pin!(notify.until(|| (value.get() == 2).then_some("two")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        value.set(1);
        notify.notify();
        assert!(notify.waiters.borrow().is_empty());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!(notify.waiters.borrow().len(), 1);
        value.set(2);
        notify.notify();
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready("two"));
    }
}
