//! What a connection has received and not yet handed on: the buffer, and what it charges to the shard's memory budget. A
//! frame's length is only a claim: the buffer grows with what has arrived, so 100 MiB are held only by who sent them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::frame::{self, FrameError, FrameState};
use shard::budget::{Budget, BudgetClass, Charge};
use shard::env::Env;

use crate::request::CloseReason;

/// An idle connection waits with a buffer of this size, bytes: ten thousand of them cost 40 MB.
const STEP_BYTES_MIN: usize = 4 << 10;

/// A busy connection receives up to this much at once, bytes: one large receive brings many requests (`glommio.md` §2.2).
const STEP_BYTES_MAX: usize = 512 << 10;

/// A frame up to this size may get its buffer at once, bytes, once a connection has sent one as large.
const TRUSTED_FRAME_BYTES_MAX: usize = 1 << 20;

/// From this size on a frame gets a buffer of exactly its size, bytes: nothing of it is copied when the buffer grows, and the cache that
/// keeps its batches keeps nothing else with them.
const LARGE_FRAME_BYTES: usize = 128 << 10;

/// How long a connection waits for memory in the middle of a frame before it is closed: what it holds others may need.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How room was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It was there, or the memory was.
    Now,
    /// The connection waited for memory and did not read.
    Waited,
}

/// The receiving buffer of one connection.
pub(super) struct Intake {
    buffer: BytesMut,
    charges: Vec<Charge>,
    step: usize,
    /// Frames up to this size get their buffer at once, bytes: as large as one that was sent whole.
    trusted: usize,
    /// The last frame was large, so the next one probably is: its head is read first, and then the rest into a buffer of its own.
    expects_large: bool,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            charges: Vec::new(),
            step: STEP_BYTES_MIN,
            trusted: 0,
            expects_large: false,
        }
    }

    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Whether no frame has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// What has arrived of a frame that has begun, with its length.
    pub(super) fn received_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Bytes of a frame that has begun.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The next whole frame, with the charge for its bytes.
    pub(super) fn take_frame(
        &mut self,
        frame_bytes_max: usize,
    ) -> Result<Option<(Bytes, Vec<Charge>)>, FrameError> {
        let Some(frame) = frame::split_frame(&mut self.buffer, frame_bytes_max)? else {
            return Ok(None);
        };
        self.trusted = self.trusted.max(frame.len().min(TRUSTED_FRAME_BYTES_MAX));
        self.expects_large = frame.len() >= LARGE_FRAME_BYTES;
        let mut left = frame.len() as u64;
        let mut charges = Vec::new();
        while left > 0
            && let Some(charge) = self.charges.last_mut()
        {
            let part = charge.split(left);
            left -= part.bytes().min(left);
            charges.push(part);
            if charge.bytes() == 0 {
                self.charges.pop();
            }
        }
        Ok(Some((frame, charges)))
    }

    /// A read brought `bytes`: the next one asks for more if it was filled, for less if it was mostly empty.
    pub(super) fn received(&mut self, bytes: usize) {
        if self.expects_large {
            return; // what was asked for says nothing about how busy the connection is
        }
        if bytes >= self.step {
            self.step = (self.step * 4).min(STEP_BYTES_MAX);
        } else if bytes < self.step / 8 {
            self.step = (self.step / 2).max(STEP_BYTES_MIN);
        }
    }

    /// Makes room for the next read, charged to the budget.
    pub(super) async fn make_room<E: Env>(
        &mut self,
        env: &E,
        budget: &Budget,
        frame_bytes_max: usize,
    ) -> Result<Room, CloseReason> {
        if self.buffer.is_empty() && budget.is_pressed(BudgetClass::Requests) {
            self.step = STEP_BYTES_MIN;
        }
        let mut is_exact = false;
        let wanted = match frame::peek_frame(&self.buffer, frame_bytes_max) {
            Ok(FrameState::Partial { size, missing }) if size <= self.trusted => {
                is_exact = size >= LARGE_FRAME_BYTES;
                if is_exact { missing } else { missing.max(self.step) }
            }
            // Doubling: each byte is copied once on average, and what is held is twice what was sent.
            Ok(FrameState::Partial { missing, .. }) => missing.min(self.buffer.len().max(self.step)),
            _ if self.expects_large => STEP_BYTES_MIN,
            _ => self.step,
        };
        if self.buffer.is_empty() {
            self.charges.clear();
            // Whatever is left of the last frame's buffer: to grow, it would take back all of it.
            if self.expects_large || self.buffer.capacity() > wanted * 2 {
                self.buffer = BytesMut::new();
            }
        }
        let enough = if is_exact {
            wanted
        } else {
            wanted.min(STEP_BYTES_MIN)
        };
        if self.buffer.capacity() - self.buffer.len() >= enough && !self.charges.is_empty() {
            return Ok(Room::Now);
        }
        let held: u64 = self.charges.iter().map(Charge::bytes).sum();
        let more = ((self.buffer.len() + wanted) as u64).saturating_sub(held);
        let room = self.charge(env, budget, more).await?;
        if is_exact {
            let mut own = BytesMut::with_capacity(self.buffer.len() + wanted);
            own.extend_from_slice(&self.buffer);
            self.buffer = own;
        } else {
            self.buffer.reserve(wanted);
        }
        Ok(room)
    }

    async fn charge<E: Env>(&mut self, env: &E, budget: &Budget, more: u64) -> Result<Room, CloseReason> {
        let is_large = |c: &&mut Charge| c.class() == BudgetClass::Requests;
        if more == 0
            || self
                .charges
                .last_mut()
                .filter(is_large)
                .is_some_and(|c| c.try_grow(more))
        {
            return Ok(Room::Now);
        }
        let small = (more <= STEP_BYTES_MIN as u64).then_some(BudgetClass::SmallRequests);
        for class in small.into_iter().chain([BudgetClass::Requests]) {
            if let Some(charge) = budget.try_charge(class, more) {
                self.charges.push(charge);
                return Ok(Room::Now);
            }
        }
        let is_idle = self.buffer.is_empty();
        let charged = futures_lite::future::or(
            async { Some(budget.charge(BudgetClass::Requests, more).await) },
            async {
                if is_idle {
                    // Nothing is held: the connection may wait as long as it takes.
                    std::future::pending::<()>().await;
                }
                env.sleep(MEMORY_WAIT_MAX).await;
                None
            },
        );
        match charged.await {
            Some(Ok(charge)) => {
                self.charges.push(charge);
                Ok(Room::Waited)
            }
            Some(Err(error)) => Err(CloseReason::Protocol(error.to_string())),
            None => Err(CloseReason::Memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use shard::budget::{BUDGET_CLASSES, BudgetLimits, ClassLimits};
    use shard::env::{Instant, WallMs};

    /// Timers never end here.
    #[derive(Clone)]
    struct NoTime;
    impl Env for NoTime {
        fn now(&self) -> Instant {
            Instant::default()
        }
        fn wall(&self) -> WallMs {
            WallMs::default()
        }
        fn spawn(&self, _task: impl Future<Output = ()> + 'static) {}
        fn sleep(&self, _duration: Duration) -> impl Future<Output = ()> {
            std::future::pending()
        }
        fn yield_to_reactor(&self) -> impl Future<Output = ()> {
            std::future::ready(())
        }
        fn random(&self) -> u64 {
            0
        }
    }

    const MAX: usize = 100 << 20;

    fn budget() -> Budget {
        let mut classes = [ClassLimits::default(); BUDGET_CLASSES];
        classes[BudgetClass::Requests as usize].max_bytes = 64 << 20;
        classes[BudgetClass::SmallRequests as usize].max_bytes = 1 << 20;
        Budget::new(BudgetLimits {
            classes,
            shared_bytes: 65 << 20,
        })
    }

    fn charged(budget: &Budget) -> u64 {
        budget.read().iter().map(|a| a.used_bytes).sum()
    }

    fn make_room(intake: &mut Intake, budget: &Budget) -> Option<Room> {
        let room = pin!(intake.make_room(&NoTime, budget, MAX));
        match room.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room.expect("no reason to close")),
            Poll::Pending => None,
        }
    }

    /// Receives `bytes` as a socket would; returns how often the buffer was made larger.
    fn receive(intake: &mut Intake, budget: &Budget, mut bytes: &[u8]) -> usize {
        let mut grown = 0;
        while !bytes.is_empty() {
            let before = intake.buffer.capacity();
            assert!(make_room(intake, budget).is_some());
            grown += usize::from(intake.buffer.capacity() != before);
            let part = bytes.len().min(intake.buffer.capacity() - intake.buffer.len());
            intake.buffer.extend_from_slice(&bytes[..part]);
            intake.received(part);
            bytes = &bytes[part..];
        }
        grown
    }

    fn frame(size: usize) -> Vec<u8> {
        let mut frame = u32::try_from(size).expect("small").to_be_bytes().to_vec();
        frame.resize(size + 4, 7);
        frame
    }

    #[test]
    fn a_claim_of_fifty_megabytes_costs_what_was_sent() {
        let budget = budget();
        let mut crowd = Vec::new();
        for _ in 0..200 {
            let mut intake = Intake::new();
            receive(&mut intake, &budget, &frame(50_000_000)[..14]);
            assert!(make_room(&mut intake, &budget).is_some());
            crowd.push(intake);
        }
        assert!(
            charged(&budget) <= 200 * 2 * STEP_BYTES_MIN as u64,
            "{}",
            charged(&budget)
        );
        let mut honest = Intake::new();
        receive(&mut honest, &budget, &frame(900_000));
        assert!(honest.take_frame(MAX).expect("whole").is_some());
    }

    #[test]
    fn a_large_frame_grows_by_doubling_and_the_next_one_is_believed() {
        let budget = budget();
        let mut intake = Intake::new();
        let grown = receive(&mut intake, &budget, &frame(20 << 20));
        assert!(grown <= 14, "{grown} times");
        assert!(charged(&budget) <= 41 << 20);
        let (whole, charges) = intake.take_frame(MAX).expect("whole").expect("whole");
        assert_eq!(whole.len(), 20 << 20);
        drop((whole, charges));
        let mut intake = Intake::new();
        receive(&mut intake, &budget, &frame(900_000));
        drop(intake.take_frame(MAX).expect("whole"));
        let grown = receive(&mut intake, &budget, &frame(900_000));
        assert!(grown <= 2, "a buffer for what is announced, at once: {grown}");
    }

    #[test]
    fn a_large_frame_that_is_expected_has_a_buffer_to_itself() {
        let budget = budget();
        let mut intake = Intake::new();
        let frame = frame(900_000);
        receive(&mut intake, &budget, &frame);
        drop(intake.take_frame(MAX).expect("whole"));
        for _ in 0..3 {
            let mut bytes = &frame[..];
            let mut capacities = Vec::new();
            while !bytes.is_empty() {
                assert!(make_room(&mut intake, &budget).is_some());
                capacities.push(intake.buffer.capacity());
                let part = bytes.len().min(intake.buffer.capacity() - intake.buffer.len());
                intake.buffer.extend_from_slice(&bytes[..part]);
                intake.received(part);
                bytes = &bytes[part..];
            }
            assert_eq!(capacities, [STEP_BYTES_MIN, frame.len()]);
            assert!(charged(&budget) <= frame.len() as u64);
            drop(intake.take_frame(MAX).expect("whole").expect("whole"));
            assert_eq!(intake.buffer.capacity(), 0, "nothing is held until the next one");
        }
        receive(&mut intake, &budget, &self::frame(100));
        drop(intake.take_frame(MAX).expect("whole").expect("whole"));
        assert!(make_room(&mut intake, &budget).is_some());
        assert!(
            intake.buffer.capacity() >= intake.step,
            "small ones come many at a time"
        );
    }

    #[test]
    fn who_asks_little_does_not_wait_behind_large_requests() {
        let budget = budget();
        let all = budget.try_charge(BudgetClass::Requests, 64 << 20).expect("free");
        let mut large = Intake::new();
        receive(&mut large, &budget, &frame(1 << 20)[..STEP_BYTES_MIN]);
        assert_eq!(make_room(&mut large, &budget), None, "it waits");
        let mut small = Intake::new();
        receive(&mut small, &budget, &frame(100));
        assert!(small.take_frame(MAX).expect("whole").is_some());
        drop(all);
        assert!(make_room(&mut large, &budget).is_some());
    }
}
