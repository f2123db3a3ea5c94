//! The work on pieces of a log that takes processor time: noting keys, filtering batches. All of it is owned and `Send`, so
//! that it can be done beside the shard.

use bytes::Bytes;
use protocol::compression::CodecContexts;
use protocol::record::{BatchView, RecordStream};

use super::filter::{BatchOrder, DECOMPRESSED_BYTES_MAX, FilterError, FilterRules, Filtered, filter_batch};
use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::log::batch::{BatchHeader, marker};
use crate::segment::txn_index::AbortedTxn;
use crate::types::Offset;

/// What a pass works with. Memory: the map, the codecs' contexts, the transactions of the range.
pub(super) struct Worker {
    contexts: CodecContexts,
    pub(super) map: OffsetMap,
    pub(super) transactions: Transactions,
}

/// What is wrong with a batch, and where in the piece it begins.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) offset: Offset,
    pub(super) found: String,
}

/// What is left of a piece.
#[derive(Default)]
pub(super) struct Kept {
    /// Batches back to back, one an entry.
    pub(super) batches: Vec<Bytes>,
    /// Aborted transactions that ended here and left something.
    pub(super) aborted: Vec<AbortedTxn>,
    /// Batches that went or changed.
    pub(super) changed: u64,
}

impl Worker {
    pub(super) fn new(map: OffsetMap) -> Self {
        Self {
            contexts: CodecContexts::default(),
            map,
            transactions: Transactions::default(),
        }
    }

    /// Notes the keys of the records from `first_dirty` on. Returns the offset of the first record for which there was no room;
    /// all before it are noted.
    pub(super) fn note(&mut self, piece: &Bytes, first_dirty: Offset) -> Result<Option<Offset>, Fault> {
        let mut at = 0;
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            let (header, view) = checked(rest, at)?;
            at += view.bytes().len();
            if self.is_no_data(&header, &view) || header.last_offset() < first_dirty {
                continue;
            }
            let noted = self.note_records(&header, &view, first_dirty);
            let full = noted.map_err(|error| fault(&header, at - view.bytes().len(), &error))?;
            if full.is_some() {
                return Ok(full);
            }
        }
        Ok(None)
    }

    /// Filters the batches of a piece. `keep_empty` says for each in turn whether its header must stay (CP-6).
    pub(super) fn filter(
        &mut self,
        piece: &Bytes,
        keep_empty: &[bool],
        rules: &FilterRules,
    ) -> Result<Kept, Fault> {
        let mut kept = Kept::default();
        let mut at = 0;
        let mut number = 0;
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            let (header, view) = checked(rest, at)?;
            let may_go = if header.wire.attributes.is_control() {
                let fate = self.transactions.on_control(&header, marker(view.bytes()));
                kept.aborted.extend(fate.indexed);
                fate.is_spent
            } else {
                self.transactions.on_batch(&header)
            };
            let order = BatchOrder {
                may_go,
                keep_empty: keep_empty.get(number).copied().unwrap_or(true),
            };
            let left = filter_batch(&view, order, &self.map, rules, &mut self.contexts)
                .map_err(|error| fault(&header, at, &error))?;
            let size = view.bytes().len();
            match left {
                Filtered::Same => kept.batches.push(piece.slice(at..at + size)),
                Filtered::Changed(bytes) => {
                    kept.batches.push(bytes);
                    kept.changed += 1;
                }
                Filtered::Gone => kept.changed += 1,
            }
            at += size;
            number += 1;
        }
        Ok(kept)
    }

    /// Whether the batch has no records that count: markers, and what was aborted.
    fn is_no_data(&mut self, header: &BatchHeader, view: &BatchView<'_>) -> bool {
        if header.wire.attributes.is_control() {
            self.transactions.on_control(header, marker(view.bytes()));
            return true;
        }
        self.transactions.on_batch(header)
    }

    fn note_records(
        &mut self,
        header: &BatchHeader,
        view: &BatchView<'_>,
        first_dirty: Offset,
    ) -> Result<Option<Offset>, FilterError> {
        let mut records = RecordStream::new(view, &mut self.contexts.decompressor, DECOMPRESSED_BYTES_MAX)?;
        while let Some(record) = records.next_record()? {
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let Some(key) = record.key.filter(|_| offset >= first_dirty) else {
                continue;
            };
            if self.map.put(key, offset).is_err() {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }
}

/// The batch at the front of `rest`, which is `at` bytes into its piece, with its CRC checked.
fn checked(rest: &[u8], at: usize) -> Result<(BatchHeader, BatchView<'_>), Fault> {
    let not = |found: String| Fault {
        at,
        offset: Offset::NONE,
        found,
    };
    let header = BatchHeader::parse(rest).ok_or_else(|| not("no batch header".to_owned()))?;
    let view = BatchView::parse(rest, 0).map_err(|error| not(error.to_string()))?;
    match view.check_crc(0) {
        Ok(()) => Ok((header, view)),
        Err(error) => Err(fault(&header, at, &error)),
    }
}

fn fault(header: &BatchHeader, at: usize, error: &impl ToString) -> Fault {
    Fault {
        at,
        offset: header.base_offset,
        found: error.to_string(),
    }
}
