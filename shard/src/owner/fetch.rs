//! Fetch on the owner: fencing, divergence, bounds, data from memory or a plan to read it from disk (FE-6…16).

use protocol::{ErrorCode, RecordBytes};
use storage::log::LogOffsets;
use storage::types::{LeaderEpoch, Offset};

use super::{Logs, Owner, OwnerOutput, Partition, Read};
use crate::message::{
    FetchAnswer, FetchEntry, FetchRead, Isolation, PartitionData, ReplyTo, ShardReply, Wait,
};

/// A fetch that waits for more data to be readable.
#[derive(Debug)]
pub(super) struct ParkedFetch {
    to: ReplyTo,
    read: FetchRead,
}

/// A fetch that needs the disk: the driver fills each piece in and hands the whole to [`Owner::cold_done`].
#[derive(Debug)]
pub struct ColdFetch<C> {
    /// The reads to carry out, in request order.
    pub pieces: Vec<ColdPiece<C>>,
    to: ReplyTo,
    read: FetchRead,
    answer: FetchAnswer,
    /// Logs that had been replaced when this was planned.
    relocations: u64,
}

/// One read of a [`ColdFetch`].
#[derive(Debug)]
pub struct ColdPiece<C> {
    /// What to read.
    pub plan: C,
    entry: usize,
}

impl<L: Logs> Owner<L> {
    pub(super) fn fetch(&mut self, to: ReplyTo, read: FetchRead) {
        if let Some(wait) = read.wait
            && let Some(needed_bytes) = self.still_needed(&read, wait)
        {
            let partitions = read.entries.iter().filter_map(|e| self.index_of(e.log)).collect();
            self.fetches
                .add(to, ParkedFetch { to, read }, partitions, needed_bytes);
            return;
        }
        self.fetch_now(to, read);
    }

    pub(super) fn resume(&mut self, parked: Vec<ParkedFetch>) {
        for ParkedFetch { to, read } in parked {
            self.fetch_now(to, read);
        }
    }

    /// The disk was read: `pieces` are the batches of each piece, or what to answer where the read failed.
    pub fn cold_done(&mut self, mut fetch: ColdFetch<L::Cold>, pieces: Vec<Result<RecordBytes, ErrorCode>>) {
        assert_eq!(
            fetch.pieces.len(),
            pieces.len(),
            "each piece is read or has failed"
        );
        // A log that has gone to another directory meanwhile is read there.
        let may_have_moved = self.relocations != fetch.relocations || self.holds > 0;
        let is_gone =
            |piece: &Result<RecordBytes, ErrorCode>| matches!(piece, Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        if may_have_moved && pieces.iter().any(is_gone) {
            return self.fetch_now(fetch.to, fetch.read);
        }
        for (piece, records) in fetch.pieces.iter().zip(pieces) {
            let entry = &fetch.read.entries[piece.entry];
            let data = &mut fetch.answer.partitions[piece.entry];
            match records {
                Ok(records) => self.fill(entry, fetch.read.bytes_max, data, records, fetch.read.isolation),
                Err(error) => {
                    *data = PartitionData::failed(error);
                    if matches!(error, ErrorCode::KAFKA_STORAGE_ERROR | ErrorCode::CORRUPT_MESSAGE) {
                        self.count(entry.log, |c| c.reads_failed += 1);
                    }
                }
            }
        }
        self.reply(fetch.to, ShardReply::Fetch(fetch.answer));
    }

    /// How many bytes are missing for a wait; `None` when it is over, also because a partition is not here any more.
    fn still_needed(&self, read: &FetchRead, wait: Wait) -> Option<u64> {
        if read.entries.iter().any(|e| self.index_of(e.log).is_none()) {
            return None;
        }
        let grown = self.mark(read).saturating_sub(wait.seen);
        wait.needed_bytes
            .checked_sub(grown)
            .filter(|missing| *missing > 0)
    }

    fn mark(&self, read: &FetchRead) -> u64 {
        let readable = |e: &FetchEntry| {
            self.index_of(e.log)
                .map_or(0, |i| self.partitions[i].readable_bytes)
        };
        read.entries.iter().map(readable).sum()
    }

    fn fetch_now(&mut self, to: ReplyTo, read: FetchRead) {
        let Some(read) = self.keep_fetch_back(to, read) else {
            return;
        };
        let mark = self.mark(&read);
        let mut left = read.bytes_max;
        // A wait that may bring nothing only tells that it is over.
        let mut is_first = read.wait.is_none() || read.bytes_max > 0;
        let mut partitions = Vec::with_capacity(read.entries.len());
        let mut pieces = Vec::new();
        for (number, entry) in read.entries.iter().enumerate() {
            self.count(entry.log, |c| c.reads += 1);
            let (mut data, found) = self.read_entry(entry, read.isolation, left, is_first);
            match found {
                Read::Cached(records) => {
                    is_first &= records.is_empty();
                    left = left.saturating_sub(records.len());
                    self.fill(entry, read.bytes_max, &mut data, records, read.isolation);
                }
                Read::Cold { plan, bytes_max } => {
                    is_first = false;
                    left = left.saturating_sub(bytes_max);
                    pieces.push(ColdPiece { plan, entry: number });
                }
                Read::Offline => data = PartitionData::failed(ErrorCode::KAFKA_STORAGE_ERROR),
            }
            partitions.push(data);
        }
        let answer = FetchAnswer { partitions, mark };
        if pieces.is_empty() {
            self.reply(to, ShardReply::Fetch(answer));
        } else {
            self.outputs.push_back(OwnerOutput::ReadCold(ColdFetch {
                pieces,
                to,
                read,
                answer,
                relocations: self.relocations,
            }));
        }
    }

    fn read_entry(
        &self,
        entry: &FetchEntry,
        isolation: Isolation,
        left: usize,
        is_first: bool,
    ) -> (PartitionData, Read<L::Cold>) {
        let nothing = || Read::Cached(RecordBytes::default());
        let Some(index) = self.index_of(entry.log) else {
            return (PartitionData::failed(self.refusal(entry.log)), nothing());
        };
        let partition = &self.partitions[index];
        if self.logs.is_offline(partition.log) {
            return (PartitionData::default(), Read::Offline);
        }
        if let Some(error) = fenced(entry.current_leader_epoch, partition.leader_epoch) {
            let mut data = PartitionData::failed(error);
            if error == ErrorCode::FENCED_LEADER_EPOCH {
                data.current_leader = Some((partition.leader, partition.leader_epoch));
            }
            return (data, nothing());
        }
        let ends = self.logs.ends(partition.log);
        let mut data = bounds(partition, &ends);
        if entry.last_fetched_epoch.0 >= 0 {
            let (epoch, end) = self.logs.epoch_end(partition.log, entry.last_fetched_epoch);
            if epoch == LeaderEpoch::NONE || end == Offset::NONE {
                return (PartitionData::failed(ErrorCode::OFFSET_OUT_OF_RANGE), nothing());
            }
            if epoch < entry.last_fetched_epoch || end < entry.offset {
                data.diverging = Some((epoch, end));
                return (data, nothing());
            }
        }
        if entry.offset < ends.log_start || entry.offset > ends.log_end {
            return (PartitionData::failed(ErrorCode::OFFSET_OUT_OF_RANGE), nothing());
        }
        if let Isolation::ReadCommitted = isolation {
            data.aborted = Some(Vec::new());
        }
        let upper = upper_bound(partition, &ends, isolation);
        let bytes_max = entry.bytes_max.min(left);
        if entry.offset >= upper || (bytes_max == 0 && !is_first) {
            return (data, nothing());
        }
        (
            data,
            self.logs
                .read(partition.log, entry.offset, upper, bytes_max, is_first),
        )
    }

    fn fill(
        &mut self,
        entry: &FetchEntry,
        request_bytes_max: usize,
        data: &mut PartitionData,
        records: RecordBytes,
        isolation: Isolation,
    ) {
        if !records.is_empty() && !matches!(isolation, Isolation::Replica(_)) {
            let bytes = records.len() as u64;
            self.count(entry.log, |c| c.bytes_read += bytes);
        }
        data.is_oversized = records.len() > entry.bytes_max.min(request_bytes_max);
        if isolation == Isolation::ReadCommitted
            && !records.is_empty()
            && let Some(index) = self.index_of(entry.log)
        {
            let upper = Offset(data.last_stable_offset);
            data.aborted = Some(self.logs.aborted(self.partitions[index].log, entry.offset, upper));
        }
        data.records = records;
    }
}

impl PartitionData {
    /// An answer without data.
    #[must_use]
    pub fn failed(error: ErrorCode) -> Self {
        Self {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            ..Self::default()
        }
    }
}

/// FE-13: the error for a reader whose leader epoch is not ours; −1 is not checked.
pub(super) fn fenced(theirs: LeaderEpoch, ours: LeaderEpoch) -> Option<ErrorCode> {
    match theirs.cmp(&ours) {
        // As in Kafka any negative epoch is none.
        _ if theirs.0 < 0 => None,
        std::cmp::Ordering::Less => Some(ErrorCode::FENCED_LEADER_EPOCH),
        std::cmp::Ordering::Greater => Some(ErrorCode::UNKNOWN_LEADER_EPOCH),
        std::cmp::Ordering::Equal => None,
    }
}

fn bounds<H>(partition: &Partition<H>, ends: &LogOffsets) -> PartitionData {
    PartitionData {
        high_watermark: partition.watermark.high_watermark().0,
        last_stable_offset: partition.last_stable_offset(ends).0,
        log_start_offset: ends.log_start.0,
        ..PartitionData::default()
    }
}

/// FE-8.
pub(super) fn upper_bound<H>(partition: &Partition<H>, ends: &LogOffsets, isolation: Isolation) -> Offset {
    match isolation {
        Isolation::ReadUncommitted => partition.watermark.high_watermark(),
        Isolation::ReadCommitted => partition.last_stable_offset(ends),
        Isolation::Replica(_) => ends.log_end,
    }
}
