//! One simulated file: what its process sees, what is durable, and the mutations between the two, which a crash keeps,
//! loses, tears and reorders.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::super::{BLOCK_BYTES, align_up};
use crate::sim_rng::SimRng;

/// The unit a device writes whole: a torn write leaves each sector old or new.
pub const SECTOR_BYTES: usize = 512;

pub(super) type Block = Rc<[u8; BLOCK_BYTES]>;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file's bytes, sparse: a block that is not there is zeroes.
#[derive(Clone, Default)]
pub(super) struct Content {
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

/// A file with its two views and what lies between.
#[derive(Clone, Default)]
pub(super) struct FileData {
    visible: Content,
    durable: Content,
    pending: Vec<Mutation>,
    /// Blocks from 0 that `allocate` reserved, written or not.
    allocated_blocks: u64,
    /// Blocks this file is charged for.
    charged_blocks: u64,
}

/// A completed change that no sync has made durable.
#[derive(Clone)]
struct Mutation {
    sequence: u64,
    change: Change,
    /// A sync that covered it has failed: the kernel forgot it, no later sync writes it.
    forgotten: bool,
}

#[derive(Clone)]
enum Change {
    Write { block: u64, blocks: Vec<Block> },
    Size(u64),
}

/// How a crash treats the data of pending writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    /// Whole writes in order up to a torn one.
    Prefix(usize),
    /// Each write by its own coin, whole.
    Reordered,
    /// Each sector by its own coin.
    Shredded,
}

impl Content {
    fn block_bytes(&self, block: u64) -> Option<&[u8; BLOCK_BYTES]> {
        self.blocks.get(&block).map(|block| &**block)
    }

    /// The bytes from `position`, at most `len`, cut at the end of the file.
    fn read(&self, position: u64, len: usize) -> Vec<u8> {
        let end = self.size.min(position.saturating_add(len as u64));
        let mut out = Vec::with_capacity(to_usize(end.saturating_sub(position)));
        let mut at = position;
        while at < end {
            let offset = to_usize(at % BLOCK);
            let take = (BLOCK_BYTES - offset).min(to_usize(end - at));
            match self.block_bytes(at / BLOCK) {
                Some(bytes) => out.extend_from_slice(&bytes[offset..offset + take]),
                None => out.resize(out.len() + take, 0),
            }
            at += take as u64;
        }
        out
    }

    fn write(&mut self, block: u64, blocks: &[Block]) {
        for (index, bytes) in (block..).zip(blocks) {
            self.blocks.insert(index, Rc::clone(bytes));
        }
    }

    fn write_sector(&mut self, block: u64, sector: usize, from: &[u8; BLOCK_BYTES]) {
        let target = self
            .blocks
            .entry(block)
            .or_insert_with(|| Rc::new([0; BLOCK_BYTES]));
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        Rc::make_mut(target)[range.clone()].copy_from_slice(&from[range]);
    }

    fn set_size(&mut self, size: u64) {
        if size < self.size
            || self
                .blocks
                .last_key_value()
                .is_some_and(|(b, _)| b * BLOCK >= size)
        {
            drop(self.blocks.split_off(&size.div_ceil(BLOCK)));
            let tail = to_usize(size % BLOCK);
            if tail > 0
                && let Some(block) = self.blocks.get_mut(&(size / BLOCK))
            {
                Rc::make_mut(block)[tail..].fill(0); // what a later extension shows
            }
        }
        self.size = size;
    }
}

impl FileData {
    pub(super) fn size(&self) -> u64 {
        self.visible.size
    }

    pub(super) fn read(&self, position: u64, len: usize) -> Vec<u8> {
        self.visible.read(position, len)
    }

    pub(super) fn charged_blocks(&self) -> u64 {
        self.charged_blocks
    }

    /// How many of `blocks` fit when the disk has `free_blocks` left.
    pub(super) fn blocks_that_fit(&self, block: u64, blocks: usize, free_blocks: u64) -> usize {
        let mut free = free_blocks;
        for (count, index) in (block..).take(blocks).enumerate() {
            if !self.is_charged(index) {
                if free == 0 {
                    return count;
                }
                free -= 1;
            }
        }
        blocks
    }

    fn is_charged(&self, block: u64) -> bool {
        block < self.allocated_blocks || self.visible.blocks.contains_key(&block)
    }

    pub(super) fn write(&mut self, sequence: u64, block: u64, blocks: &[Block]) {
        if blocks.is_empty() {
            return;
        }
        let new = (block..)
            .take(blocks.len())
            .filter(|b| !self.is_charged(*b))
            .count();
        self.charged_blocks += new as u64;
        self.visible.write(block, blocks);
        let blocks = blocks.to_vec();
        let end = (block + blocks.len() as u64) * BLOCK;
        self.push(sequence, Change::Write { block, blocks });
        if end > self.visible.size {
            self.visible.size = end;
            self.push(sequence, Change::Size(end));
        }
    }

    /// Blocks that allocating up to `size` would charge more.
    pub(super) fn blocks_to_allocate(&self, size: u64) -> u64 {
        let target = size.div_ceil(BLOCK);
        if target <= self.allocated_blocks {
            return 0;
        }
        let written = self.visible.blocks.range(self.allocated_blocks..target).count();
        target - self.allocated_blocks - written as u64
    }

    pub(super) fn allocate(&mut self, sequence: u64, size: u64) {
        self.charged_blocks += self.blocks_to_allocate(size);
        self.allocated_blocks = self.allocated_blocks.max(size.div_ceil(BLOCK));
        if size > self.visible.size {
            self.visible.size = size;
            self.push(sequence, Change::Size(size));
        }
    }

    pub(super) fn truncate(&mut self, sequence: u64, size: u64) {
        self.visible.set_size(size);
        self.allocated_blocks = self.allocated_blocks.min(size.div_ceil(BLOCK));
        let beyond = self.visible.blocks.range(self.allocated_blocks..).count();
        self.charged_blocks = self.allocated_blocks + beyond as u64;
        self.push(sequence, Change::Size(size));
    }

    /// Changes the file under its users: damage that no operation caused.
    pub(super) fn flip(&mut self, position: u64, mask: u8) -> bool {
        if position >= self.visible.size {
            return false;
        }
        for content in [&mut self.visible, &mut self.durable] {
            let block = content
                .blocks
                .entry(position / BLOCK)
                .or_insert_with(|| Rc::new([0; BLOCK_BYTES]));
            Rc::make_mut(block)[to_usize(position % BLOCK)] ^= mask;
        }
        for mutation in &mut self.pending {
            let Change::Write { block, blocks } = &mut mutation.change else {
                continue;
            };
            let index = (position / BLOCK).checked_sub(*block).map(to_usize);
            if let Some(bytes) = index.and_then(|index| blocks.get_mut(index)) {
                Rc::make_mut(bytes)[to_usize(position % BLOCK)] ^= mask;
            }
        }
        true
    }

    fn push(&mut self, sequence: u64, change: Change) {
        self.pending.push(Mutation {
            sequence,
            change,
            forgotten: false,
        });
    }

    /// Makes durable what completed up to `sequence`.
    pub(super) fn sync(&mut self, sequence: u64) {
        let pending = std::mem::take(&mut self.pending);
        for mutation in pending {
            if mutation.sequence > sequence {
                self.pending.push(mutation);
                continue;
            }
            match &mutation.change {
                Change::Write { .. } if mutation.forgotten => {}
                Change::Write { block, blocks } => self.durable.write(*block, blocks),
                Change::Size(size) => self.durable.set_size(*size),
            }
        }
    }

    /// A sync that failed: some of what it covered is forgotten for good, although it still reads back.
    pub(super) fn sync_failed(&mut self, sequence: u64, rng: &mut SimRng) {
        for mutation in &mut self.pending {
            if mutation.sequence <= sequence && rng.coin() {
                mutation.forgotten = true;
            }
        }
    }

    /// What a power loss leaves.
    pub(super) fn crash(&mut self, rng: &mut SimRng, garbage_tails: bool) {
        let pending = std::mem::take(&mut self.pending);
        let sizes = pending
            .iter()
            .filter(|m| matches!(m.change, Change::Size(_)))
            .count();
        let writes = pending.len() - sizes;
        let fate = match rng.below(6) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2 => Fate::Prefix(rng.index(writes + 1)),
            3 => Fate::Reordered,
            _ => Fate::Shredded,
        };
        // The size is the file system's journalled metadata: a prefix of its changes, whatever became of the data.
        let sizes_kept = match rng.below(3) {
            0 => 0,
            1 => sizes,
            _ => rng.index(sizes + 1),
        };
        let garbage_tails = garbage_tails && rng.coin();
        let synced: BTreeSet<u64> = self.durable.blocks.keys().copied().collect();
        let (mut write, mut size) = (0, 0);
        for mutation in pending {
            match mutation.change {
                Change::Write { block, blocks } => {
                    let whole = match fate {
                        Fate::Lost => Some(false),
                        Fate::Kept => Some(true),
                        Fate::Prefix(cut) if write == cut => None,
                        Fate::Prefix(cut) => Some(write < cut),
                        Fate::Reordered => Some(rng.coin()),
                        Fate::Shredded => None,
                    };
                    for (index, bytes) in (block..).zip(&blocks) {
                        let garbage = garbage_tails && !synced.contains(&index);
                        self.durable.tear(index, bytes, whole, garbage, rng);
                    }
                    write += 1;
                }
                Change::Size(to) => {
                    if size < sizes_kept {
                        self.durable.set_size(to);
                    }
                    size += 1;
                }
            }
        }
        let size = self.durable.size;
        self.durable.set_size(size); // data beyond the end that survived is not the file's
        self.visible = self.durable.clone();
        self.recharge();
    }

    /// After a power loss the blocks up to the file's end count as allocated.
    fn recharge(&mut self) {
        self.allocated_blocks = self.visible.size.div_ceil(BLOCK);
        self.charged_blocks = self.allocated_blocks;
    }
}

impl Content {
    /// Lets each sector of a block be new or old (`whole`: all of one kind), or garbage where nothing was ever synced.
    fn tear(
        &mut self,
        block: u64,
        bytes: &[u8; BLOCK_BYTES],
        whole: Option<bool>,
        garbage: bool,
        rng: &mut SimRng,
    ) {
        for sector in 0..BLOCK_BYTES / SECTOR_BYTES {
            if whole.unwrap_or_else(|| rng.coin()) {
                self.write_sector(block, sector, bytes);
            } else if garbage && rng.below(4) == 0 {
                let mut noise = [0; BLOCK_BYTES];
                rng.fill(&mut noise);
                self.write_sector(block, sector, &noise);
            }
        }
    }
}

/// Splits an aligned buffer into blocks.
pub(super) fn to_blocks(bytes: &[u8]) -> Vec<Block> {
    debug_assert_eq!(align_up(bytes.len() as u64), bytes.len() as u64);
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    blocks.iter().map(|block| Rc::new(*block)).collect()
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("lengths in memory fit usize")
}
