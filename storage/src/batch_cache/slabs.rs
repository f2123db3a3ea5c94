//! Memory for many small batches: slabs filled one after the other, each handed out in slices, reclaimed when its last
//! batch is gone and no reader holds a slice any more.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::SMALL_BYTES_MAX;

/// The size of a slab.
pub const SLAB_BYTES: usize = 256 << 10;

/// Slabs kept for the next batches instead of being freed; not charged.
pub const SLABS_FREE_MAX: usize = 4;

const _: () = assert!(
    SMALL_BYTES_MAX <= SLAB_BYTES,
    "a small batch fits into an empty slab"
);

/// Which slab a slice is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlabId(u64);

#[derive(Debug)]
pub(super) struct Slabs {
    /// The slabs from number `first_id` on; the last one is being filled.
    slabs: VecDeque<Slab>,
    first_id: u64,
    free: Vec<BytesMut>,
    /// Slabs that hold memory.
    allocated: usize,
}

#[derive(Debug)]
struct Slab {
    /// Batches in it.
    live: u32,
    /// What is left of it to fill; kept when full, to reclaim the whole. `None` once it is given back.
    rest: Option<BytesMut>,
}

impl Slabs {
    pub(super) const fn new() -> Self {
        Self {
            slabs: VecDeque::new(),
            first_id: 0,
            free: Vec::new(),
            allocated: 0,
        }
    }

    pub(super) const fn charged_bytes(&self) -> usize {
        self.allocated * SLAB_BYTES
    }

    /// Copies the parts, together at most a slab, into one slice, which counts as a batch of that slab.
    pub(super) fn copy(&mut self, parts: &[&[u8]]) -> (SlabId, Bytes) {
        let len = parts.iter().map(|part| part.len()).sum();
        if !self.has_room(len) {
            self.open();
        }
        let id = SlabId(self.first_id + self.slabs.len() as u64 - 1);
        let slab = self.slabs.back_mut().expect("a slab was opened");
        let rest = slab
            .rest
            .as_mut()
            .expect("the slab being filled is not given back");
        for part in parts {
            rest.extend_from_slice(part);
        }
        slab.live += 1;
        (id, rest.split().freeze())
    }

    /// One batch of that slab is gone.
    pub(super) fn release(&mut self, id: SlabId) {
        let Some(place) =
            id.0.checked_sub(self.first_id)
                .and_then(|place| usize::try_from(place).ok())
        else {
            return;
        };
        let filling = place + 1 == self.slabs.len();
        let Some(slab) = self.slabs.get_mut(place) else {
            return;
        };
        slab.live -= 1;
        if slab.live == 0 && !filling {
            self.give_back(place);
        }
    }

    fn has_room(&self, len: usize) -> bool {
        let rest = self.slabs.back().and_then(|slab| slab.rest.as_ref());
        rest.is_some_and(|rest| rest.capacity() - rest.len() >= len)
    }

    fn open(&mut self) {
        let full = self.slabs.len().checked_sub(1);
        let rest = self
            .free
            .pop()
            .unwrap_or_else(|| BytesMut::with_capacity(SLAB_BYTES));
        self.slabs.push_back(Slab {
            live: 0,
            rest: Some(rest),
        });
        self.allocated += 1;
        if let Some(place) = full
            && self.slabs[place].live == 0
        {
            self.give_back(place);
        }
    }

    fn give_back(&mut self, place: usize) {
        let Some(mut rest) = self.slabs[place].rest.take() else {
            return;
        };
        self.allocated -= 1;
        // Fails while a reader holds a slice; the memory is freed with the last one then.
        if self.free.len() < SLABS_FREE_MAX && rest.try_reclaim(SLAB_BYTES) {
            self.free.push(rest);
        }
        while self.slabs.front().is_some_and(|slab| slab.rest.is_none()) {
            self.slabs.pop_front();
            self.first_id += 1;
        }
    }
}

#[cfg(test)]
impl Slabs {
    pub(super) const fn free_slabs(&self) -> usize {
        self.free.len()
    }
}
