//! The most recent batches of all logs of a shard, in memory: what tail fetches are answered from, and where write-behind
//! finds what is in the journal but not in a segment yet. One per shard, on the shard's core, no I/O.
//!
//! Batches below [`SMALL_BYTES_MAX`] are copied into slabs, so that a 100-byte slice does not pin a receive buffer; larger
//! ones are referenced. What is not written to a segment yet is never evicted; the rest goes in the order in which it was
//! written, oldest first.

mod log_batches;
mod slabs;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::types::Offset;
use log_batches::{Batch, LogBatches, Pieces};
use slabs::Slabs;
pub use slabs::{SLAB_BYTES, SLABS_FREE_MAX};

/// Batches of fewer bytes than this are copied, larger ones referenced.
pub const SMALL_BYTES_MAX: usize = 64 << 10;

/// Base offset, length and leader epoch: the part of a batch that the broker writes (PR-33).
pub const PREFIX_BYTES: usize = 16;

/// What an entry takes beside its bytes: itself, its place in line, and the spare room of both queues.
const ENTRY_BYTES: usize = 2 * (size_of::<Batch>() + size_of::<Token>());

/// A batch on its way into the cache.
#[derive(Debug, Clone)]
pub struct CacheInsert {
    /// The log end before this batch. The batch's base offset, but for a follower of a compacted log.
    pub previous_end: Offset,
    /// The batch's last offset.
    pub last_offset: Offset,
    /// The first 16 bytes of the batch as the broker has written them.
    pub prefix: [u8; PREFIX_BYTES],
    /// The rest of the batch, as received.
    pub body: Bytes,
    /// The buffer that `body` is a part of.
    pub backing: Backing,
}

/// A buffer that stays in memory as long as any batch in it is referenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing {
    /// Tells buffers apart, so that one with several batches in it is charged once.
    pub id: u64,
    /// Its whole size, bytes.
    pub capacity: usize,
}

/// An answer of [`BatchCache::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheRead {
    /// The offset is in the cache.
    Hit(CacheHit),
    /// The offset is not in the cache: it was evicted, or lies beyond what was inserted.
    Miss,
}

/// Whole batches in log order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheHit {
    /// The bytes: one piece for a small batch, prefix and body for a large one.
    pub pieces: Vec<Bytes>,
    /// The bytes of all pieces.
    pub bytes: usize,
    /// The offset after the last batch; the offset asked for when there is none.
    pub next_offset: Offset,
    /// Why it ends there.
    pub ended: ReadEnd,
}

/// Why a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// The next batch reaches to or over the upper bound.
    UpperBound,
    /// The next batch does not fit the bytes asked for.
    MaxBytes,
    /// The cache has no next batch: the log ends here, or a batch was never inserted.
    CacheEnd,
}

/// Counters since the start and the present fill; all for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Reads answered.
    pub hits: u64,
    /// Reads not answered.
    pub misses: u64,
    /// Bytes handed out by reads.
    pub hit_bytes: u64,
    /// Batches inserted.
    pub inserted: u64,
    /// Batches evicted to make room; not those of truncated or deleted logs.
    pub evicted: u64,
}

/// A place in the line of evictable batches; stale when the batch is gone already.
#[derive(Debug, Clone, Copy)]
struct Token {
    log: u32,
    sequence: u64,
}

/// The cache.
///
/// Commands: [`insert`](Self::insert) for each appended batch in log order, [`mark_written`](Self::mark_written) when a
/// segment has it, [`truncate`](Self::truncate) and [`invalidate`](Self::invalidate) when a log is cut or gone,
/// [`set_budget`](Self::set_budget). Query: [`read`](Self::read).
///
/// Memory: [`charged_bytes`](Self::charged_bytes), which counts whole slabs and whole receive buffers, stays within the
/// budget plus what is unwritten; only when a few unwritten batches are scattered over many slabs can it be more, so
/// whoever admits appends looks at it. Slices that readers still hold after an eviction are theirs to account for.
#[derive(Debug)]
pub struct BatchCache {
    logs: BTreeMap<u32, LogBatches>,
    /// Written batches, oldest first.
    line: VecDeque<Token>,
    stale_tokens: usize,
    slabs: Slabs,
    /// Receive buffers in use: references and size.
    backings: BTreeMap<u64, (u32, usize)>,
    backing_bytes: usize,
    entries: usize,
    pinned_bytes: usize,
    budget_bytes: usize,
    sequence_next: u64,
    stats: CacheStats,
}

impl BatchCache {
    /// An empty cache that keeps written batches within `budget_bytes`.
    #[must_use]
    pub const fn new(budget_bytes: usize) -> Self {
        Self {
            logs: BTreeMap::new(),
            line: VecDeque::new(),
            stale_tokens: 0,
            slabs: Slabs::new(),
            backings: BTreeMap::new(),
            backing_bytes: 0,
            entries: 0,
            pinned_bytes: 0,
            budget_bytes,
            sequence_next: 0,
            stats: CacheStats {
                hits: 0,
                misses: 0,
                hit_bytes: 0,
                inserted: 0,
                evicted: 0,
            },
        }
    }

    /// Takes in the next batch of a log. It is not evicted before [`Self::mark_written`] covers it. Returns its bytes as
    /// they are kept: all of a small batch, or the prefix and the rest.
    ///
    /// # Panics
    /// When the batch does not come after the log's last one: the caller has forgotten a [`Self::truncate`].
    pub fn insert(&mut self, log: u32, insert: CacheInsert) -> (Bytes, Bytes) {
        let batches = self.logs.entry(log).or_default();
        let in_order = batches.end().is_none_or(|end| insert.previous_end >= end);
        assert!(
            in_order && insert.last_offset >= insert.previous_end,
            "batches enter the cache in log order"
        );
        let size = PREFIX_BYTES + insert.body.len();
        let pieces = if size < SMALL_BYTES_MAX {
            let (slab, bytes) = self.slabs.copy(&[&insert.prefix, &insert.body]);
            Pieces::Small { slab, bytes }
        } else {
            let (slab, prefix) = self.slabs.copy(&[&insert.prefix]);
            let backing = insert.backing.id;
            self.backing_bytes += reference(&mut self.backings, insert.backing);
            Pieces::large(slab, prefix, insert.body, backing)
        };
        let (head, rest) = pieces.split();
        let kept = (head.clone(), rest.cloned().unwrap_or_default());
        batches.push(Batch {
            previous_end: insert.previous_end,
            last_offset: insert.last_offset,
            sequence: self.sequence_next,
            pieces,
        });
        self.sequence_next += 1;
        self.entries += 1;
        self.pinned_bytes += size;
        self.stats.inserted += 1;
        self.evict();
        kept
    }

    /// The log's segments now hold everything below `end`: those batches may be evicted from now on.
    pub fn mark_written(&mut self, log: u32, end: Offset) {
        let Some(batches) = self.logs.get_mut(&log) else {
            return;
        };
        while let Some(batch) = batches.write_next(end) {
            self.pinned_bytes -= batch.pieces.len();
            self.line.push_back(Token {
                log,
                sequence: batch.sequence,
            });
        }
        self.evict();
    }

    /// Whole batches from the one that holds `offset` on: those that end below `upper_bound`, at most `max_bytes`, but at
    /// least one if `at_least_one` is set (FE-2).
    pub fn read(
        &mut self,
        log: u32,
        offset: Offset,
        max_bytes: usize,
        upper_bound: Offset,
        at_least_one: bool,
    ) -> CacheRead {
        let found = self.logs.get(&log).and_then(|batches| batches.covering(offset));
        let Some(following) = found else {
            self.stats.misses += 1;
            return CacheRead::Miss;
        };
        let mut hit = CacheHit {
            pieces: Vec::new(),
            bytes: 0,
            next_offset: offset,
            ended: ReadEnd::CacheEnd,
        };
        let mut adjacent_to: Option<Offset> = None;
        for batch in following {
            let len = batch.pieces.len();
            if adjacent_to.is_some_and(|end| batch.previous_end != end) {
                break;
            }
            if batch.last_offset >= upper_bound {
                hit.ended = ReadEnd::UpperBound;
                break;
            }
            if hit.bytes.saturating_add(len) > max_bytes && !(at_least_one && hit.pieces.is_empty()) {
                hit.ended = ReadEnd::MaxBytes;
                break;
            }
            batch.pieces.push_to(&mut hit.pieces);
            hit.bytes += len;
            hit.next_offset = batch.last_offset.plus(1);
            adjacent_to = Some(hit.next_offset);
        }
        self.stats.hits += 1;
        self.stats.hit_bytes += hit.bytes as u64;
        CacheRead::Hit(hit)
    }

    /// The log now ends at `end`: batches that reach to or over it are forgotten, written or not.
    pub fn truncate(&mut self, log: u32, end: Offset) {
        while let Some((batch, written)) = self.logs.get_mut(&log).and_then(|batches| batches.pop_from(end)) {
            self.forget(batch, written);
        }
        self.drop_if_empty(log);
        self.drop_stale_tokens();
        // What was unwritten may have shared its slab with written batches that now count on their own.
        self.evict();
    }

    /// What lies wholly below `end` was rewritten on disk: batches there that are written are forgotten.
    pub fn forget_before(&mut self, log: u32, end: Offset) {
        while let Some(batch) = self
            .logs
            .get_mut(&log)
            .and_then(|batches| batches.pop_before(end))
        {
            self.forget(batch, true);
        }
        self.drop_if_empty(log);
        self.drop_stale_tokens();
    }

    /// The log is gone, or will never be read here again: all its batches are forgotten, written or not.
    pub fn invalidate(&mut self, log: u32) {
        self.truncate(log, Offset(i64::MIN));
    }

    /// Another budget for written batches, bytes.
    pub fn set_budget(&mut self, budget_bytes: usize) {
        self.budget_bytes = budget_bytes;
        self.evict();
    }

    /// All memory of the cache, bytes: whole slabs, whole receive buffers, entries.
    #[must_use]
    pub const fn charged_bytes(&self) -> usize {
        self.slabs.charged_bytes() + self.backing_bytes + self.entries * ENTRY_BYTES
    }

    /// The bytes of batches that no segment holds yet.
    #[must_use]
    pub const fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// The number of batches.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is no batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> CacheStats {
        self.stats
    }

    fn evict(&mut self) {
        while self.charged_bytes().saturating_sub(self.pinned_bytes) > self.budget_bytes {
            let Some(token) = self.line.pop_front() else {
                return;
            };
            let batches = self.logs.get_mut(&token.log);
            let Some(batch) = batches.and_then(|batches| batches.pop_oldest(token.sequence)) else {
                self.stale_tokens -= 1;
                continue;
            };
            self.release(batch);
            self.stats.evicted += 1;
            self.drop_if_empty(token.log);
        }
    }

    fn forget(&mut self, batch: Batch, written: bool) {
        if written {
            self.stale_tokens += 1;
        } else {
            self.pinned_bytes -= batch.pieces.len();
        }
        self.release(batch);
    }

    fn release(&mut self, batch: Batch) {
        let (slab, backing) = (batch.pieces.slab(), batch.pieces.backing());
        // First its slice, else its slab could not be used again.
        drop(batch);
        self.entries -= 1;
        self.slabs.release(slab);
        if let Some(id) = backing {
            self.backing_bytes -= dereference(&mut self.backings, id);
        }
    }

    fn drop_if_empty(&mut self, log: u32) {
        if self.logs.get(&log).is_some_and(LogBatches::is_empty) {
            self.logs.remove(&log);
        }
    }

    /// Truncation leaves its batches' tokens in the line; when they are the greater part they are swept out.
    fn drop_stale_tokens(&mut self) {
        if self.stale_tokens * 2 > self.line.len() {
            let logs = &self.logs;
            self.line.retain(|token| {
                logs.get(&token.log)
                    .is_some_and(|batches| batches.has(token.sequence))
            });
            self.line.shrink_to(self.line.len() * 2);
            self.stale_tokens = 0;
        }
    }
}

/// Returns what is to be charged: the buffer, with its first batch.
fn reference(backings: &mut BTreeMap<u64, (u32, usize)>, backing: Backing) -> usize {
    let (references, capacity) = backings.entry(backing.id).or_insert((0, backing.capacity));
    *references += 1;
    if *references == 1 { *capacity } else { 0 }
}

/// Returns what is to be uncharged: the buffer, with its last batch.
fn dereference(backings: &mut BTreeMap<u64, (u32, usize)>, id: u64) -> usize {
    let Some((references, capacity)) = backings.get_mut(&id) else {
        return 0;
    };
    *references -= 1;
    if *references > 0 {
        return 0;
    }
    let freed = *capacity;
    backings.remove(&id);
    freed
}

#[cfg(test)]
mod tests;
