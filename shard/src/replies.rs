//! Reply slots of one shard: a request that leaves for another shard takes a token along, the answer comes back with
//! it. A slab without executor code: single-threaded, no allocation for a reply once the slab has grown, and a stale
//! token never reaches a newer request.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What names a pending reply; travels with the request and comes back with the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplyToken {
    index: u32,
    generation: u32,
}

/// The pending replies of one shard.
///
/// [`Replies::register`] hands out a token and a future, [`Replies::complete`] resolves it. Dropping the future gives the
/// request up: its late answer is returned to whoever completes it.
pub struct Replies<R> {
    slots: Rc<RefCell<Slots<R>>>,
}

/// Resolves to the reply of one request.
#[must_use = "a dropped reply gives the request up"]
pub struct Reply<R> {
    slots: Rc<RefCell<Slots<R>>>,
    token: ReplyToken,
}

struct Slots<R> {
    slots: Vec<Slot<R>>,
    free_head: Option<u32>,
    outstanding: usize,
    outstanding_max: usize,
}

struct Slot<R> {
    generation: u32,
    state: SlotState<R>,
}

enum SlotState<R> {
    Free { next: Option<u32> },
    Waiting(Option<Waker>),
    Ready(R),
}

impl<R> Replies<R> {
    /// Reply slots for at most `outstanding_max` requests at a time; memory grows only as they are used.
    #[must_use]
    pub fn new(outstanding_max: usize) -> Self {
        Self {
            slots: Rc::new(RefCell::new(Slots {
                slots: Vec::new(),
                free_head: None,
                outstanding: 0,
                outstanding_max: outstanding_max.min(u32::MAX as usize),
            })),
        }
    }

    /// A slot for one request: the token to send along and the future of the answer. `None` when `outstanding_max`
    /// requests are open; the caller then stops reading its client until one is answered.
    #[must_use]
    pub fn register(&self) -> Option<(ReplyToken, Reply<R>)> {
        let token = self.slots.borrow_mut().take()?;
        Some((
            token,
            Reply {
                slots: self.slots.clone(),
                token,
            },
        ))
    }

    /// Resolves the request of `token`.
    ///
    /// # Errors
    /// Gives `reply` back when nobody waits for it: the request was given up, or the token was used before.
    pub fn complete(&self, token: ReplyToken, reply: R) -> Result<(), R> {
        let waker = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(token) else {
                return Err(reply);
            };
            match &mut slot.state {
                SlotState::Waiting(waker) => {
                    let waker = waker.take();
                    slot.state = SlotState::Ready(reply);
                    waker
                }
                SlotState::Ready(_) | SlotState::Free { .. } => return Err(reply),
            }
        };
        // Outside of the borrow: a waker may run foreign code.
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Requests without an answer taken, for metrics.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.borrow().outstanding
    }
}

impl<R> Clone for Replies<R> {
    fn clone(&self) -> Self {
        Self {
            slots: self.slots.clone(),
        }
    }
}

impl<R> Future for Reply<R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots
            .get_mut(self.token)
            .expect("a reply is polled only until it has resolved, and its slot is its own until then");
        match &mut slot.state {
            SlotState::Waiting(waker) => {
                if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            SlotState::Ready(_) => {
                let reply = slots.release(self.token);
                Poll::Ready(reply.expect("the slot was ready a line ago"))
            }
            SlotState::Free { .. } => unreachable!("a slot with a live token is not free"),
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        // The released content is dropped outside of the borrow: its destructor may come back here.
        let unread = {
            let mut slots = self.slots.borrow_mut();
            if slots.get_mut(self.token).is_some() {
                slots.release(self.token)
            } else {
                None
            }
        };
        drop(unread);
    }
}

impl<R> Slots<R> {
    fn take(&mut self) -> Option<ReplyToken> {
        if self.outstanding >= self.outstanding_max {
            return None;
        }
        self.outstanding += 1;
        let index = match self.free_head {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).expect("outstanding_max fits in 32 bits");
                self.slots.push(Slot {
                    generation: 0,
                    state: SlotState::Free { next: None },
                });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        let SlotState::Free { next } = slot.state else {
            unreachable!("the free list holds free slots only");
        };
        self.free_head = next;
        slot.state = SlotState::Waiting(None);
        Some(ReplyToken {
            index,
            generation: slot.generation,
        })
    }

    fn get_mut(&mut self, token: ReplyToken) -> Option<&mut Slot<R>> {
        self.slots
            .get_mut(token.index as usize)
            .filter(|slot| slot.generation == token.generation)
            .filter(|slot| !matches!(slot.state, SlotState::Free { .. }))
    }

    /// Frees the slot of a live token and returns the reply nobody took, if there is one.
    fn release(&mut self, token: ReplyToken) -> Option<R> {
        let next = self.free_head;
        let slot = self.get_mut(token)?;
        // Wraps after 2^32 uses of one slot; a token that old cannot be alive, its request was answered long ago.
        slot.generation = slot.generation.wrapping_add(1);
        let state = std::mem::replace(&mut slot.state, SlotState::Free { next });
        self.free_head = Some(token.index);
        self.outstanding -= 1;
        match state {
            SlotState::Ready(reply) => Some(reply),
            SlotState::Waiting(_) | SlotState::Free { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll_once<R>(reply: &mut Reply<R>, count: &Arc<Count>) -> Poll<R> {
        let waker = Waker::from(count.clone());
        Pin::new(reply).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_reply_resolves_its_own_request_whatever_the_order() {
        let replies = Replies::new(8);
        let wakes = Arc::new(Count(AtomicUsize::new(0)));
        let (t1, mut r1) = replies.register().unwrap();
        let (t2, mut r2) = replies.register().unwrap();
        assert!(poll_once(&mut r1, &wakes).is_pending());
        assert!(poll_once(&mut r2, &wakes).is_pending());
        replies.complete(t2, "two").unwrap();
        assert_eq!(
            wakes.0.load(Ordering::Relaxed),
            1,
            "only the completed request is woken"
        );
        assert!(poll_once(&mut r1, &wakes).is_pending());
        assert_eq!(poll_once(&mut r2, &wakes), Poll::Ready("two"));
        replies.complete(t1, "one").unwrap();
        assert_eq!(poll_once(&mut r1, &wakes), Poll::Ready("one"));
        assert_eq!(replies.outstanding(), 0);
    }

    #[test]
    fn a_stale_token_never_reaches_the_next_user_of_the_slot() {
        let replies = Replies::new(1);
        let wakes = Arc::new(Count(AtomicUsize::new(0)));
        let (old, given_up) = replies.register().unwrap();
        drop(given_up);
        let (new, mut reply) = replies.register().unwrap();
        assert_eq!(old.index, new.index, "the slot is reused");
        assert_eq!(replies.complete(old, 1), Err(1));
        assert!(poll_once(&mut reply, &wakes).is_pending());
        assert_eq!(replies.complete(new, 2), Ok(()));
        assert_eq!(replies.complete(new, 3), Err(3), "a second answer is refused");
        assert_eq!(poll_once(&mut reply, &wakes), Poll::Ready(2));
        assert_eq!(replies.complete(new, 4), Err(4));
    }

    #[test]
    fn the_number_of_open_requests_is_bounded() {
        let replies: Replies<()> = Replies::new(3);
        let open: Vec<_> = (0..3).map(|_| replies.register().unwrap()).collect();
        assert!(replies.register().is_none());
        drop(open);
        assert_eq!(replies.outstanding(), 0);
        assert!(replies.register().is_some());
    }

    #[test]
    fn a_reply_that_is_ready_but_not_taken_is_dropped_with_the_future() {
        let replies = Replies::new(1);
        let content = Rc::new(());
        let (token, reply) = replies.register().unwrap();
        replies.complete(token, content.clone()).unwrap();
        assert_eq!(Rc::strong_count(&content), 2);
        drop(reply);
        assert_eq!(Rc::strong_count(&content), 1);
        assert_eq!(replies.outstanding(), 0);
    }

    #[test]
    fn slots_are_reused_so_that_the_slab_stays_as_small_as_the_peak() {
        let replies = Replies::new(1000);
        for round in 0..10_000_u32 {
            let (token, reply) = replies.register().unwrap();
            replies.complete(token, round).unwrap();
            drop(reply);
        }
        assert_eq!(replies.slots.borrow().slots.len(), 1);
    }
}
