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

/// A frame up to this size is believed and gets its buffer at once, bytes.
const TRUSTED_FRAME_BYTES: usize = 1 << 20;

/// How long a connection waits for memory in the middle of a frame before it is closed: what it holds others may need.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(10);

/// The receiving buffer of one connection.
pub(super) struct Intake {
    buffer: BytesMut,
    charges: Vec<Charge>,
    step: usize,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            charges: Vec::new(),
            step: STEP_BYTES_MIN,
        }
    }

    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Whether no frame has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
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
    ) -> Result<(), CloseReason> {
        let wanted = match frame::peek_frame(&self.buffer, frame_bytes_max) {
            Ok(FrameState::Partial { size, missing }) if size <= TRUSTED_FRAME_BYTES => {
                missing.max(self.step)
            }
            Ok(FrameState::Partial { missing, .. }) => {
                missing.min(self.buffer.len().max(TRUSTED_FRAME_BYTES))
            }
            _ => self.step,
        };
        if self.buffer.is_empty() {
            self.charges.clear();
            if self.buffer.capacity() > self.step * 2 {
                self.buffer = BytesMut::new();
            }
        }
        if self.buffer.capacity() - self.buffer.len() >= wanted.min(STEP_BYTES_MIN)
            && !self.charges.is_empty()
        {
            return Ok(());
        }
        let held: u64 = self.charges.iter().map(Charge::bytes).sum();
        let more = ((self.buffer.len() + wanted) as u64).saturating_sub(held);
        self.charge(env, budget, more).await?;
        self.buffer.reserve(wanted);
        Ok(())
    }

    async fn charge<E: Env>(&mut self, env: &E, budget: &Budget, more: u64) -> Result<(), CloseReason> {
        if more == 0 || self.charges.last_mut().is_some_and(|c| c.try_grow(more)) {
            return Ok(());
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
                Ok(())
            }
            Some(Err(error)) => Err(CloseReason::Protocol(error.to_string())),
            None => Err(CloseReason::Memory),
        }
    }
}
