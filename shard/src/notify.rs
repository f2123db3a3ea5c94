//! Waking tasks of one shard when shared state has changed. No executor code: a list of wakers. A task names the
//! condition it waits for and is asked again after each [`Notify::notify`].

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes the tasks that wait for a change of some state of their shard. Not `Send`.
#[derive(Debug, Default)]
pub struct Notify {
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Nobody waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The state has changed: everybody who waits looks again.
    pub fn notify(&self) {
        // Outside of the borrow: a waker may run foreign code.
        let wakers = std::mem::take(&mut *self.waiting.borrow_mut());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits until `ready` gives a value; it is asked at once and after each notification. It must not hold borrows of
    /// the state it looks at beyond the call.
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| {
            if let Some(value) = ready() {
                return Poll::Ready(value);
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn a_waiter_is_asked_again_after_each_notification() {
        let notify = Notify::new();
        let value = Cell::new(0);
        let mut wait = pin!(notify.until(|| (value.get() == 2).then_some("two")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        value.set(1);
        notify.notify();
        assert!(notify.waiting.borrow().is_empty());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!(notify.waiting.borrow().len(), 1);
        value.set(2);
        notify.notify();
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready("two"));
    }
}
