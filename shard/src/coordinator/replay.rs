//! Reads the batches of an internal topic's log into a coordinator. What a transaction wrote counts when its marker says so,
//! and never if it was aborted or is still open.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::DecodeError;
use protocol::compression::Decompressor;
use protocol::record::{
    BatchFault, BatchView, Batches, ControlFault, ControlRecord, DECOMPRESSED_BYTES_MAX_DEFAULT, ReadError,
    RecordStream,
};

use super::group::GroupCoordinator;
use crate::env::WallMs;

/// Bytes of a log read at once while it is replayed: the shard does nothing else for as long as these take, a millisecond with
/// small records (3.5 ns a byte, `examples/group_load.rs`). A larger batch comes whole.
pub const REPLAY_READ_BYTES: usize = 256 << 10;

/// Why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {fault}")]
pub struct ReplayError {
    /// The record, or the first one of the batch.
    pub offset: i64,
    /// What is wrong with it.
    pub fault: ReplayFault,
}

/// See [`ReplayError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayFault {
    /// Not a batch.
    #[error(transparent)]
    Batch(#[from] BatchFault),
    /// Records that cannot be read.
    #[error(transparent)]
    Records(#[from] ReadError),
    /// Not a control record.
    #[error(transparent)]
    Control(#[from] ControlFault),
    /// Not what its version says.
    #[error(transparent)]
    Content(#[from] DecodeError),
    /// A record without a key.
    #[error("a record without a key")]
    NoKey,
}

type KeyAndValue = (Bytes, Option<Bytes>);

/// See the module. Open transactions are held in memory, as long as their records are.
#[derive(Default)]
pub struct GroupReplay {
    decompressor: Decompressor,
    open: BTreeMap<i64, Vec<KeyAndValue>>,
}

impl GroupReplay {
    /// Replays whole batches; returns the offset after the last one, or `None` if there is none.
    ///
    /// # Errors
    /// At the first record that cannot be read. What came before it is replayed.
    pub fn batches(
        &mut self,
        bytes: &Bytes,
        into: &mut GroupCoordinator,
        wall: WallMs,
    ) -> Result<Option<i64>, ReplayError> {
        let mut next = None;
        for batch in Batches::new(bytes, 0).checked() {
            let at = |fault: ReplayFault| ReplayError {
                offset: next.unwrap_or(-1),
                fault,
            };
            let (_, batch) = batch.map_err(|fault| at(fault.into()))?;
            self.batch(bytes, &batch, into, wall)?;
            let header = batch.header();
            next = Some(header.base_offset + i64::from(header.last_offset_delta) + 1);
        }
        Ok(next)
    }

    fn batch(
        &mut self,
        read: &Bytes,
        batch: &BatchView<'_>,
        into: &mut GroupCoordinator,
        wall: WallMs,
    ) -> Result<(), ReplayError> {
        let header = batch.header();
        let base = header.base_offset;
        let at = |offset: i64, fault: ReplayFault| ReplayError { offset, fault };
        let mut stream = RecordStream::new(batch, &mut self.decompressor, DECOMPRESSED_BYTES_MAX_DEFAULT)
            .map_err(|error| at(base, error.into()))?;
        loop {
            let record = match stream.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                Err(error) => return Err(at(base, error.into())),
            };
            let offset = base + i64::from(record.offset_delta);
            if header.attributes.is_control() {
                let control = ControlRecord::parse(&record).map_err(|fault| at(offset, fault.into()))?;
                let ended = self.open.remove(&header.producer_id).unwrap_or_default();
                if matches!(control, ControlRecord::TransactionEnd(end) if end.committed) {
                    for (key, value) in ended {
                        into.replay(&key, value.as_ref(), wall)
                            .map_err(|error| at(offset, error.into()))?;
                    }
                }
                continue;
            }
            let key = record.key.ok_or_else(|| at(offset, ReplayFault::NoKey))?;
            if header.attributes.is_transactional() {
                let value = record.value.map(Bytes::copy_from_slice);
                self.open
                    .entry(header.producer_id)
                    .or_default()
                    .push((Bytes::copy_from_slice(key), value));
            } else {
                let value = record.value.map(|value| part_of(read, value));
                into.replay(&part_of(read, key), value.as_ref(), wall)
                    .map_err(|error| at(offset, error.into()))?;
            }
        }
    }
}

/// `part` as bytes of `whole` where it lies in it; a copy if it was decompressed. What the coordinator keeps it copies itself.
fn part_of(whole: &Bytes, part: &[u8]) -> Bytes {
    if whole.as_ptr_range().contains(&part.as_ptr()) {
        whole.slice_ref(part)
    } else {
        Bytes::copy_from_slice(part)
    }
}
