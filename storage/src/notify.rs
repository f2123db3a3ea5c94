//! Waiting inside one thread, without a runtime: a condition somebody else makes true, and several futures at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes whoever waits for a condition. The condition itself lives elsewhere, in a `Cell` or `RefCell` of the owner. For the
/// tasks of one thread: not `Send`.
///
/// Memory: 56 bytes, and a waker for each who waits. Whoever waits no longer, because the condition holds or because the future
/// was dropped, leaves nothing behind: a condition may never come true while it is waited for with every request.
#[derive(Debug, Default)]
pub struct Notify {
    /// In order of arrival, which is the order they are woken in.
    waiters: RefCell<BTreeMap<u64, Waker>>,
    tickets: Cell<u64>,
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
        for waiter in waiters.into_values() {
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
    pub fn until<T>(&self, condition: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
        Until {
            notify: self,
            condition,
            ticket: None,
        }
    }
}

/// One who waits.
struct Until<'a, C> {
    notify: &'a Notify,
    condition: C,
    /// Where its waker lies until it is woken.
    ticket: Option<u64>,
}

// The condition is called, never pinned.
impl<C> Unpin for Until<'_, C> {}

impl<T, C: FnMut() -> Option<T>> Future for Until<'_, C> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = (self.condition)() {
            return Poll::Ready(value);
        }
        let notify = self.notify;
        let ticket = *self
            .ticket
            .get_or_insert_with(|| notify.tickets.replace(notify.tickets.get() + 1));
        let waker = context.waker().clone();
        // Outside of the borrow: dropping a waker may drop the task it belongs to.
        let replaced = notify.waiters.borrow_mut().insert(ticket, waker);
        drop(replaced);
        Poll::Pending
    }
}

impl<C> Drop for Until<'_, C> {
    fn drop(&mut self) {
        // Outside of the borrow, as above.
        let waker = self
            .ticket
            .and_then(|ticket| self.notify.waiters.borrow_mut().remove(&ticket));
        drop(waker);
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

/// Runs futures side by side, at most `at_once` of them: the next begins when one has ended. Gives their results in order, or the
/// first error; then no more are begun, and those under way are driven to their ends, as in [`join_all`].
pub(crate) async fn try_join_bounded<T, E, F: Future<Output = Result<T, E>>>(
    futures: impl IntoIterator<Item = F>,
    at_once: usize,
) -> Result<Vec<T>, E> {
    let mut waiting = futures.into_iter().enumerate();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::with_capacity(at_once);
    let mut values: Vec<Option<T>> = Vec::new();
    let mut failed = None;
    poll_fn(|context| {
        loop {
            while running.len() < at_once && failed.is_none() {
                let Some((index, future)) = waiting.next() else {
                    break;
                };
                values.push(None);
                running.push((index, Box::pin(future)));
            }
            let before = running.len();
            running.retain_mut(|(index, future)| match future.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(value)) => {
                    values[*index] = Some(value);
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed.get_or_insert(error);
                    false
                }
            });
            match running.len() {
                0 if before == 0 => return Poll::Ready(()),
                left if left == before => return Poll::Pending,
                _ => {} // there is room for the next
            }
        }
    })
    .await;
    match failed {
        Some(error) => Err(error),
        None => Ok(values.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// Ends at the third poll, with an error if `number` is `bad`; counts those under way.
    async fn third_poll(number: usize, bad: usize, under_way: &Cell<usize>) -> Result<usize, usize> {
        under_way.set(under_way.get() + 1);
        let mut polls = 0;
        poll_fn(|_| {
            polls += 1;
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        under_way.set(under_way.get() - 1);
        if number == bad { Err(number) } else { Ok(number) }
    }

    /// Runs ten of them, four at once. Gives the result, how many were begun, and how many were under way at most.
    fn ten(bad: usize) -> (Result<Vec<usize>, usize>, usize, usize) {
        let (under_way, begun, most) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let futures = (0..10).map(|number| {
            begun.set(begun.get() + 1);
            third_poll(number, bad, &under_way)
        });
        let mut all = pin!(try_join_bounded(futures, 4));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            let polled = all.as_mut().poll(&mut cx);
            most.set(most.get().max(under_way.get()));
            if let Poll::Ready(result) = polled {
                assert_eq!(under_way.get(), 0, "none is dropped on its way");
                return (result, begun.get(), most.get());
            }
        }
        panic!("it does not end")
    }

    #[test]
    fn no_more_run_at_once_than_may_and_the_results_are_in_order() {
        let (result, begun, most) = ten(10);
        assert_eq!(result, Ok((0..10).collect()));
        assert_eq!((begun, most), (10, 4));
    }

    #[test]
    fn after_an_error_none_is_begun_and_those_under_way_go_on_to_their_ends() {
        let (result, begun, most) = ten(2);
        assert_eq!(result, Err(2));
        assert_eq!((begun, most), (4, 4));
    }

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

    #[test]
    fn whoever_waits_no_longer_leaves_nothing_behind() {
        let notify = Notify::new();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            let mut never = pin!(notify.until(|| None::<()>));
            assert!(never.as_mut().poll(&mut cx).is_pending());
            assert!(never.as_mut().poll(&mut cx).is_pending());
            assert_eq!(
                notify.waiters.borrow().len(),
                1,
                "one waker however often it is polled"
            );
        }
        assert!(notify.waiters.borrow().is_empty(), "dropped");
        let is_true = Cell::new(false);
        let mut wait = pin!(notify.until(|| is_true.get().then_some(())));
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        is_true.set(true);
        assert!(wait.as_mut().poll(&mut cx).is_ready());
    }
}
