//! Mailboxes between the shards of a node: one inbox per shard (a flume channel with many senders), and for each (source,
//! destination) pair one batch per turn of the source. [`Outbox`] and [`Inbox`] live on their shard; [`MailboxGauges`] is
//! the node's view for metrics.
//!
//! **Order.** Messages of one source to one destination arrive in the order they were pushed, also from a shard to
//! itself: those take a local queue, without a wake-up of another thread, and come out of the same inbox.
//!
//! **Bound.** A lane (source, destination) holds at most `lane_requests_max` requests that the destination has not taken
//! yet: a source awaits [`Outbox::room`] before it pushes a request. Replies never wait, or two full shards would wait for each
//! other: there is one reply per request, so open requests ([`crate::replies::Replies`]) bound them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_lite::Stream;

use super::port::ShardPort;
use crate::env::Env;
use crate::ids::ShardId;

/// The bounds of all mailboxes of a node.
#[derive(Clone, Copy, Debug)]
pub struct MailboxLimits {
    /// Messages of one lane that wait for their destination before [`Outbox::room`] waits.
    pub lane_requests_max: usize,
    /// Messages after which a batch leaves before the turn's end, so that the other core can begin.
    pub batch_messages_max: usize,
    /// Messages from side threads that wait for one shard; one more is refused.
    pub port_messages_max: usize,
}

impl Default for MailboxLimits {
    fn default() -> Self {
        Self {
            lane_requests_max: 4096,
            batch_messages_max: 256,
            port_messages_max: 1024,
        }
    }
}

/// Where a batch comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A shard of this node.
    Shard(ShardId),
    /// A thread that is not a shard, through a [`ShardPort`].
    SideThread,
}

/// What one source sent in one turn, in order.
#[derive(Debug)]
pub struct Batch<M> {
    /// The sender.
    pub from: Source,
    /// At least one message.
    pub messages: Vec<M>,
}

/// One shard's mailbox before it is taken to its core: `Send`, unlike its two ends.
pub struct Mailbox<M> {
    shard: ShardId,
    node: Arc<Node<M>>,
    receiver: flume::Receiver<Batch<M>>,
}

/// Builds the mailboxes of a node of `shards` shards, in shard order, and their gauges.
#[must_use]
pub fn mailboxes<M: Send + 'static>(shards: u16, limits: MailboxLimits) -> (Vec<Mailbox<M>>, MailboxGauges) {
    let count = usize::from(shards);
    // Unbounded for flume: the lanes count messages, which a bound on batches cannot.
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| flume::unbounded()).unzip();
    let lanes = Arc::new(Lanes {
        shards: count,
        lanes: (0..count * (count + 1)).map(|_| Lane::default()).collect(),
    });
    let node = Arc::new(Node {
        senders,
        lanes: lanes.clone(),
        limits,
    });
    let boxes = (0..shards)
        .zip(receivers)
        .map(|(shard, receiver)| Mailbox {
            shard: ShardId(shard),
            node: node.clone(),
            receiver,
        })
        .collect();
    (boxes, MailboxGauges { lanes })
}

impl<M: Send + 'static> Mailbox<M> {
    /// Opens the mailbox on its shard: starts the task that sends each turn's batches.
    pub fn open(self, env: &impl Env) -> (Outbox<M>, Inbox<M>) {
        let local = Rc::new(Local {
            queue: RefCell::new(Vec::new()),
            waker: RefCell::new(None),
        });
        let outbox = Outbox(Rc::new(OutboxInner {
            shard: self.shard,
            batches: RefCell::new(self.node.senders.iter().map(|_| Vec::new()).collect()),
            dirty: RefCell::new(VecDeque::with_capacity(self.node.senders.len())),
            flusher: RefCell::new(None),
            local: local.clone(),
            node: self.node.clone(),
        }));
        env.spawn(flush_each_turn(outbox.clone()));
        let inbox = Inbox {
            shard: self.shard,
            remote: self.receiver.clone().into_stream(),
            receiver: self.receiver,
            waits: false,
            local,
            local_next: false,
            node: self.node,
        };
        (outbox, inbox)
    }

    /// A port into all shards of the node for threads that are none.
    #[must_use]
    pub fn port(&self) -> ShardPort<M> {
        ShardPort::new(self.node.clone())
    }
}

/// The sending end of a shard's mailbox: cheap to clone, not `Send`.
pub struct Outbox<M>(Rc<OutboxInner<M>>);

struct OutboxInner<M> {
    shard: ShardId,
    /// One growing batch per destination.
    batches: RefCell<Vec<Vec<M>>>,
    /// Destinations with a batch, in the order of their first message.
    dirty: RefCell<VecDeque<ShardId>>,
    flusher: RefCell<Option<Waker>>,
    local: Rc<Local<M>>,
    node: Arc<Node<M>>,
}

impl<M: Send + 'static> Outbox<M> {
    /// Adds a message to this turn's batch for `to`; never waits. Requests first await [`Outbox::room`]; replies do not.
    ///
    /// # Panics
    /// When `to` is not a shard of this node: routing is ours, not a client's.
    pub fn push(&self, to: ShardId, message: M) {
        let inner = &*self.0;
        let lane = inner.node.lanes.lane(Source::Shard(inner.shard), to);
        lane.entered();
        if to == inner.shard {
            inner.local.push(message);
            return;
        }
        let length = {
            let mut batches = inner.batches.borrow_mut();
            let batch = &mut batches[usize::from(to.0)];
            batch.push(message);
            batch.len()
        };
        if length >= inner.node.limits.batch_messages_max {
            self.flush_to(to);
        } else if length == 1 {
            inner.dirty.borrow_mut().push_back(to);
            if let Some(flusher) = inner.flusher.borrow().as_ref() {
                flusher.wake_by_ref();
            }
        }
    }

    /// Waits until the lane to `to` has room for one more request. Room is not reserved: tasks of this shard that were let
    /// through together may exceed the bound by their number. The task that reads the inbox must not wait here: it makes the
    /// room of others, and its own.
    pub async fn room(&self, to: ShardId) {
        let inner = &*self.0;
        let lane = inner.node.lanes.lane(Source::Shard(inner.shard), to);
        let max = inner.node.limits.lane_requests_max;
        if lane.depth() < max {
            return;
        }
        // The destination cannot take what still waits for the end of this turn.
        self.flush();
        poll_fn(|cx| lane.poll_room(cx, max)).await;
    }

    /// Sends what has been pushed so far. Happens by itself at the end of each turn, after the tasks that were runnable when
    /// the first message was pushed.
    pub fn flush(&self) {
        loop {
            let next = self.0.dirty.borrow_mut().pop_front();
            let Some(to) = next else { return };
            self.flush_to(to);
        }
    }

    /// The shard this outbox belongs to.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.0.shard
    }

    /// How many shards the node has.
    #[must_use]
    pub fn shards(&self) -> u16 {
        u16::try_from(self.0.node.senders.len()).expect("built from a u16")
    }

    fn flush_to(&self, to: ShardId) {
        let messages = std::mem::take(&mut self.0.batches.borrow_mut()[usize::from(to.0)]);
        if !messages.is_empty() {
            self.0.node.send(Source::Shard(self.0.shard), to, messages);
        }
    }
}

impl<M> Clone for Outbox<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Sends the batches of each turn: the first push wakes this task, the run queue is first in first out, so it runs after
/// everything that was runnable then, and what those tasks push travels along.
async fn flush_each_turn<M: Send + 'static>(outbox: Outbox<M>) {
    loop {
        poll_fn(|cx| {
            if !outbox.0.dirty.borrow().is_empty() {
                return Poll::Ready(());
            }
            let mut flusher = outbox.0.flusher.borrow_mut();
            if !flusher.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *flusher = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
        outbox.flush();
    }
}

/// The receiving end of a shard's mailbox. One task reads it.
pub struct Inbox<M: Send + 'static> {
    shard: ShardId,
    remote: flume::r#async::RecvStream<'static, Batch<M>>,
    receiver: flume::Receiver<Batch<M>>,
    /// Whether `remote` has registered for the next message.
    waits: bool,
    local: Rc<Local<M>>,
    /// Which of the two queues is looked at first: they take turns, so that neither starves.
    local_next: bool,
    node: Arc<Node<M>>,
}

impl<M: Send + 'static> Inbox<M> {
    /// The next batch. Never yields to the reactor by itself while batches are there.
    pub async fn recv(&mut self) -> Batch<M> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next batch if one is there.
    pub fn try_recv(&mut self) -> Option<Batch<M>> {
        if self.waits {
            // Taking a message past a future that waits for one loses wake-ups: flume 0.12 looks at its queue and then
            // registers again, and a message sent in between wakes nobody. A new future has nothing registered.
            self.remote = self.receiver.clone().into_stream();
            self.waits = false;
        }
        self.local_next = !self.local_next;
        if self.local_next {
            self.local_batch().or_else(|| self.receiver.try_recv().ok())
        } else {
            self.receiver.try_recv().ok().or_else(|| self.local_batch())
        }
        .map(|batch| self.taken(batch))
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Batch<M>> {
        self.local_next = !self.local_next;
        if self.local_next
            && let Some(batch) = self.local_batch()
        {
            return Poll::Ready(self.taken(batch));
        }
        // This shard's own `Node` holds a sender, so the channel cannot end while it is read.
        if let Poll::Ready(Some(batch)) = Pin::new(&mut self.remote).poll_next(cx) {
            self.waits = false;
            return Poll::Ready(self.taken(batch));
        }
        self.waits = true;
        if let Some(batch) = self.local_batch() {
            return Poll::Ready(self.taken(batch));
        }
        let mut waker = self.local.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Gives the lane of `batch` its room back.
    fn taken(&self, batch: Batch<M>) -> Batch<M> {
        let lane = self.node.lanes.lane(batch.from, self.shard);
        lane.left(batch.messages.len(), self.node.limits.lane_requests_max);
        batch
    }

    fn local_batch(&self) -> Option<Batch<M>> {
        let messages = std::mem::take(&mut *self.local.queue.borrow_mut());
        (!messages.is_empty()).then_some(Batch {
            from: Source::Shard(self.shard),
            messages,
        })
    }
}

impl<M: Send + 'static> Drop for Inbox<M> {
    fn drop(&mut self) {
        // The shard stops. What still waits is dropped, and nobody must wait for room here for ever.
        for _ in self.receiver.drain() {}
        for lane in self.node.lanes.towards(self.shard) {
            lane.close();
        }
    }
}

/// What a shard sends to itself.
struct Local<M> {
    queue: RefCell<Vec<M>>,
    waker: RefCell<Option<Waker>>,
}

impl<M> Local<M> {
    fn push(&self, message: M) {
        self.queue.borrow_mut().push(message);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// What all mailboxes of a node share.
pub(super) struct Node<M> {
    pub(super) senders: Vec<flume::Sender<Batch<M>>>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) limits: MailboxLimits,
}

impl<M> Node<M> {
    pub(super) fn send(&self, from: Source, to: ShardId, messages: Vec<M>) {
        let count = messages.len();
        let lane = self.lanes.lane(from, to);
        lane.batches.fetch_add(1, Ordering::Relaxed);
        lane.messages.fetch_add(count as u64, Ordering::Relaxed);
        if self.senders[usize::from(to.0)]
            .send(Batch { from, messages })
            .is_err()
        {
            // The destination has stopped: only while the process ends.
            lane.left(count, usize::MAX);
        }
    }
}

/// The lanes of a node: for each destination one per shard and one for all side threads together.
pub(super) struct Lanes {
    shards: usize,
    lanes: Vec<Lane>,
}

impl Lanes {
    pub(super) fn lane(&self, from: Source, to: ShardId) -> &Lane {
        assert!(
            usize::from(to.0) < self.shards,
            "shard {to} is not one of the {} of this node",
            self.shards
        );
        let from = match from {
            Source::Shard(shard) => usize::from(shard.0),
            Source::SideThread => self.shards,
        };
        &self.lanes[usize::from(to.0) * (self.shards + 1) + from]
    }

    fn towards(&self, to: ShardId) -> impl Iterator<Item = &Lane> {
        let width = self.shards + 1;
        self.lanes[usize::from(to.0) * width..].iter().take(width)
    }
}

/// The counters of one (source, destination) pair.
#[derive(Default)]
pub(super) struct Lane {
    /// Messages pushed and not yet taken by the destination.
    depth: AtomicUsize,
    depth_max: AtomicUsize,
    batches: AtomicU64,
    messages: AtomicU64,
    /// Whether `wakers` may hold somebody; saves the lock otherwise.
    waiting: AtomicBool,
    closed: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Lane {
    pub(super) fn depth(&self) -> usize {
        self.depth.load(Ordering::SeqCst)
    }

    pub(super) fn entered(&self) -> usize {
        let depth = self.depth.fetch_add(1, Ordering::SeqCst) + 1;
        if depth > self.depth_max.load(Ordering::Relaxed) {
            self.depth_max.fetch_max(depth, Ordering::Relaxed);
        }
        depth
    }

    /// Takes back an [`Lane::entered`] whose message was not sent.
    pub(super) fn refused(&self) {
        self.depth.fetch_sub(1, Ordering::SeqCst);
    }

    fn left(&self, count: usize, max: usize) {
        let depth = self.depth.fetch_sub(count, Ordering::SeqCst) - count;
        // Half empty before anybody is woken: a waiter then sends a batch, not one message.
        if depth <= max / 2 && self.waiting.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    fn wake_all(&self) {
        let wakers = {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.store(false, Ordering::SeqCst);
            std::mem::take(&mut *wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Ready below `max`. Registers first and looks again after: the destination looks at `waiting` after it has
    /// lowered `depth`, so one of the two sees the other.
    fn poll_room(&self, cx: &Context<'_>, max: usize) -> Poll<()> {
        if self.depth() < max || self.closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            self.waiting.store(true, Ordering::SeqCst);
        }
        if self.depth() < max || self.closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// The depth of every lane, readable from any thread.
#[derive(Clone)]
pub struct MailboxGauges {
    lanes: Arc<Lanes>,
}

/// The counters of one lane at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneGauge {
    /// The sender.
    pub from: Source,
    /// The receiver.
    pub to: ShardId,
    /// Messages that wait now.
    pub depth: usize,
    /// The most that ever waited at once.
    pub depth_max: usize,
    /// Batches sent between threads since the start (a shard's own queue has none).
    pub batches: u64,
    /// Messages in those batches.
    pub messages: u64,
}

impl MailboxGauges {
    /// Every lane, by destination.
    #[must_use]
    pub fn read(&self) -> Vec<LaneGauge> {
        let shards = u16::try_from(self.lanes.shards).expect("built from a u16");
        let sources = || {
            (0..shards)
                .map(|s| Source::Shard(ShardId(s)))
                .chain([Source::SideThread])
        };
        (0..shards)
            .map(ShardId)
            .flat_map(|to| sources().map(move |from| (from, to)))
            .map(|(from, to)| {
                let lane = self.lanes.lane(from, to);
                LaneGauge {
                    from,
                    to,
                    depth: lane.depth(),
                    depth_max: lane.depth_max.load(Ordering::Relaxed),
                    batches: lane.batches.load(Ordering::Relaxed),
                    messages: lane.messages.load(Ordering::Relaxed),
                }
            })
            .collect()
    }

    /// Messages that wait for `shard`, from everywhere.
    #[must_use]
    pub fn depth(&self, shard: ShardId) -> usize {
        self.lanes.towards(shard).map(Lane::depth).sum()
    }
}
