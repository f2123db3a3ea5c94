//! Applies journal frames to segment files: per log in order, gap-free, to the positions the frames name. Bytes are
//! collected and written in long stretches; blocks at the edges are read first and kept where the journal says nothing.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use files::{Extent, extent_crc};

use super::record::{DamageRecord, LogRecord};
use super::rested::RestedLogs;
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::journal::frame::{Frame, FrameKind, OpenPayload};
use crate::journal::{FrameHeader, Incarnation};
use crate::layout::SegmentFile as SegmentFileKind;
use crate::log::segment_path;
use crate::types::{LogId, Offset};

/// Collected bytes of all logs above which they are written, bytes.
const COLLECTED_BYTES_MAX: usize = 64 << 20;

/// The replay of one log directory.
pub(crate) struct Redo<'a, D: Disk> {
    disk: &'a D,
    dir: &'a Path,
    logs: BTreeMap<(usize, Incarnation), LogRedo>,
    shard: usize,
    retired: BTreeSet<Incarnation>,
    /// The logs of retired incarnations.
    rested: RestedLogs,
    /// The segments that the checkpoint says are whole below: those of each log below this one.
    settled: BTreeMap<LogId, Offset>,
    collected_bytes: usize,
    written_bytes: u64,
}

/// One log of the journal.
struct LogRedo {
    id: LogId,
    name: String,
    dir: PathBuf,
    /// Segment and position behind the last applied byte; `None` before the first data frame.
    end: Option<(Offset, u32)>,
    end_offset: Offset,
    /// Where the log starts, if a frame moved that.
    log_start: Option<Offset>,
    /// Bytes to be written, ending at `end`.
    collected: Vec<u8>,
    /// An extent that was not durable is torn: what follows does not count.
    is_cut: bool,
    /// A frame made the log shorter.
    is_truncated: bool,
    /// The log was not of class `fsync`: its segments may hold more than its frames.
    is_loose: bool,
    /// The last segment that was not there although frames go on in its middle: it was deleted after them, so the log
    /// must start above it.
    skipped: Option<Offset>,
    /// Segments that are shorter than what was durable, and what is wrong with them unless the log starts above. Then they were
    /// deleted, and a replay, this one or one before it that did not come to its end, made them again of the frames there are.
    half_made: BTreeMap<Offset, Box<Damage>>,
    /// What was durable is not as its frames say. The log is left as it is; the others go on.
    damage: Option<Box<Damage>>,
}

impl<'a, D: Disk> Redo<'a, D> {
    /// A replay onto what `records` say of the logs.
    pub(crate) fn new<'r>(disk: &'a D, dir: &'a Path, records: impl Iterator<Item = &'r LogRecord>) -> Self {
        let place = |record: &LogRecord| Some((record.id(), Offset(record.place.as_ref()?.segment)));
        Self {
            disk,
            dir,
            logs: BTreeMap::new(),
            shard: 0,
            retired: BTreeSet::new(),
            rested: RestedLogs::new(),
            settled: records.filter_map(place).collect(),
            collected_bytes: 0,
            written_bytes: 0,
        }
    }

    /// The frames that follow are another shard's: its incarnations are its own. Those in `retired` end in a frame that
    /// makes all of theirs void.
    pub(crate) fn begin_shard(&mut self, retired: impl Iterator<Item = Incarnation>) {
        self.shard += 1;
        self.retired = retired.collect();
    }

    /// Applies one frame. `durable`: its commit is known to have been durable, so whatever is wrong is damage.
    pub(crate) async fn apply(&mut self, frame: &Frame<'_>, durable: bool) -> Result<(), StorageError> {
        let header = &frame.header;
        let key = (self.shard, header.incarnation);
        if self.retired.contains(&header.incarnation) {
            return self.rest(key, frame);
        }
        if header.kind == FrameKind::Open {
            return self.open(key, frame.payload).await;
        }
        let Some(log) = self.logs.get_mut(&key) else {
            return Err(self.unnamed(header));
        };
        if log.is_cut {
            return Ok(());
        }
        log.is_loose |= header.is_loose;
        // Bytes of segments that were whole and synced when the checkpoint was written. Since then compaction may have put
        // others in their place.
        let is_data = matches!(header.kind, FrameKind::Append | FrameKind::Extent);
        if is_data
            && self
                .settled
                .get(&log.id)
                .is_some_and(|place| header.segment < *place)
        {
            return Ok(());
        }
        if header.kind == FrameKind::Truncate
            && let Some(place) = self.settled.get_mut(&log.id)
        {
            *place = header.segment.min(*place); // what was whole above is gone
        }
        let before = log.collected.len();
        let applied = log.apply(self.disk, frame, durable).await;
        self.written_bytes += log.unless_damaged(applied)?;
        self.collected_bytes = self.collected_bytes + log.collected.len() - before;
        if self.collected_bytes > COLLECTED_BYTES_MAX {
            self.write_all().await?;
        }
        Ok(())
    }

    /// A frame is damaged that was durable: its log is left as it is and stays closed, the others go on.
    ///
    /// # Errors
    /// It is not known whose frame it is.
    pub(crate) fn apply_damaged(&mut self, header: &FrameHeader, damage: Damage) -> Result<(), StorageError> {
        if self.retired.contains(&header.incarnation) {
            return Ok(()); // void, whatever it said
        }
        match self.logs.get_mut(&(self.shard, header.incarnation)) {
            // Each file names its logs again.
            Some(_) if header.kind == FrameKind::Open => Ok(()),
            Some(log) => log.unless_damaged(Err(damage.into())).map(|_| ()),
            None => Err(damage.into()),
        }
    }

    /// Writes what is collected, cuts every log to its end, and brings the records up to date. Returns the bytes written.
    pub(crate) async fn finish(
        &mut self,
        records: &mut BTreeMap<String, LogRecord>,
    ) -> Result<u64, StorageError> {
        self.write_all().await?;
        for log in self.logs.values_mut() {
            let is_new = records.get(&log.name).is_none_or(|record| record.id() != log.id);
            if is_new && log.end.is_some() {
                log.write_metadata(self.disk).await?;
            }
            let record = records
                .entry(log.name.clone())
                .or_insert_with(|| LogRecord::new(log.id, &log.name));
            if record.id() != log.id {
                *record = LogRecord::new(log.id, &log.name); // the topic was deleted and created anew
            }
            log.update(record);
            let checked = log.check_skipped(record).map(|()| 0);
            log.unless_damaged(checked)?;
            if let Some(damage) = &log.damage {
                record.damage = Some(DamageRecord::new(damage, self.dir));
            } else {
                log.remove_half_made(self.disk).await?;
                if !log.is_loose {
                    log.cut_files(self.disk).await?;
                }
            }
        }
        self.rested.keep_starts(records);
        Ok(self.written_bytes)
    }

    /// The logs that had data in the journal, and where they end.
    pub(crate) fn ends(&self) -> Vec<(LogId, String, Offset)> {
        let with_data = self.logs.values().filter(|log| log.end.is_some());
        with_data
            .map(|log| (log.id, log.name.clone(), log.end_offset))
            .collect()
    }

    /// A frame of a retired incarnation: the bytes are in the segments, but how the log ended and where it starts is not.
    fn rest(&mut self, key: (usize, Incarnation), frame: &Frame<'_>) -> Result<(), StorageError> {
        if frame.header.kind == FrameKind::Open {
            let opened = self.decode_name(frame.payload)?;
            self.rested.open(key, opened);
        }
        if self.rested.apply(key, &frame.header) {
            Ok(())
        } else {
            Err(self.unnamed(&frame.header))
        }
    }

    /// Whether a frame says that the log was deleted.
    pub(crate) fn has_deleted(&self, id: LogId) -> bool {
        self.rested.has_deleted(id)
    }

    fn decode_name(&self, payload: &[u8]) -> Result<OpenPayload, StorageError> {
        let invalid = |invalid| damage(self.dir, 0, format!("{invalid:?}"));
        OpenPayload::decode(payload).map_err(invalid)
    }

    /// A frame that names a log. Its directory may not have been durable when the journal already was.
    async fn open(&mut self, key: (usize, Incarnation), payload: &[u8]) -> Result<(), StorageError> {
        let opened = self.decode_name(payload)?;
        if self.logs.contains_key(&key) {
            return Ok(()); // each file names its logs again
        }
        let dir = self.dir.join(&opened.directory);
        self.logs.insert(
            key,
            LogRedo {
                id: opened.id,
                name: opened.directory,
                dir,
                end: None,
                end_offset: Offset::ZERO,
                log_start: None,
                collected: Vec::new(),
                is_cut: false,
                is_truncated: false,
                is_loose: false,
                skipped: None,
                half_made: BTreeMap::new(),
                damage: None,
            },
        );
        Ok(())
    }

    async fn write_all(&mut self) -> Result<(), StorageError> {
        for log in self.logs.values_mut() {
            let written = log.write(self.disk).await;
            self.written_bytes += log.unless_damaged(written)?;
        }
        self.collected_bytes = 0;
        Ok(())
    }

    fn unnamed(&self, header: &FrameHeader) -> StorageError {
        damage(
            self.dir,
            0,
            format!("a frame of {:?}, which no frame names", header.incarnation),
        )
    }
}

impl LogRedo {
    /// Applies a frame that is not the one that names the log. Returns the bytes written.
    async fn apply<D: Disk>(
        &mut self,
        disk: &D,
        frame: &Frame<'_>,
        durable: bool,
    ) -> Result<u64, StorageError> {
        let header = &frame.header;
        match header.kind {
            FrameKind::Append => {
                let written = if self.starts_anew(header)? {
                    let written = self.write(disk).await?;
                    self.leave_segment(disk, header.segment).await?;
                    written
                } else {
                    0
                };
                self.collect(header, frame.payload);
                Ok(written)
            }
            FrameKind::Extent => {
                self.starts_anew(header)?;
                let written = self.write(disk).await?;
                self.leave_segment(disk, header.segment).await?;
                self.extent(disk, header, frame.payload, durable).await?;
                Ok(written)
            }
            FrameKind::Truncate => {
                let written = self.write(disk).await?;
                self.end = Some((header.segment, header.position));
                self.end_offset = header.base_offset;
                self.is_truncated = true;
                self.cut_files(disk).await?;
                Ok(written)
            }
            FrameKind::Start => {
                self.log_start = self.log_start.max(Some(header.base_offset));
                Ok(0)
            }
            FrameKind::Open | FrameKind::Epoch | FrameKind::Retire | FrameKind::Delete => Ok(0),
        }
    }

    /// Takes damage to itself, so that other logs can go on; 0 then.
    fn unless_damaged(&mut self, result: Result<u64, StorageError>) -> Result<u64, StorageError> {
        match result {
            Err(StorageError::Damage(damage)) => {
                tracing::error!(log = self.name, %damage, "the journal cannot be applied");
                self.is_cut = true;
                self.collected.clear();
                self.damage.get_or_insert(damage);
                Ok(0)
            }
            result => result,
        }
    }

    /// What the frames say goes over what the checkpoint said, which is older. What was replayed is durable now.
    fn update(&self, record: &mut LogRecord) {
        record.directory.clone_from(&self.name);
        if let Some(start) = self.log_start {
            record.log_start = record.log_start.max(start.0);
        }
        if self.end.is_none() {
            return;
        }
        if record.durable_end == 0 && record.log_start == 0 {
            record.log_start = -1; // the log may be one of Kafka's, put there before it was opened
        }
        if self.is_truncated {
            record.durable_end = self.end_offset.0;
            record.place.take_if(|place| place.offset > self.end_offset.0);
            record.epochs.retain(|(_, start)| *start < self.end_offset.0);
        } else if !self.is_loose {
            // Of a loose log the bytes between its frames may be lost: its segments tell.
            record.durable_end = record.durable_end.max(self.end_offset.0);
        }
    }

    /// A segment that frames name is missing only because records below the log's start were deleted.
    fn check_skipped(&self, record: &LogRecord) -> Result<(), StorageError> {
        let is_needed = |segment: &Offset| record.log_start <= segment.0;
        if let Some((_, damage)) = self.half_made.iter().find(|(segment, _)| is_needed(segment)) {
            return Err(damage.as_ref().clone().into());
        }
        match self.skipped {
            Some(segment) if is_needed(&segment) => Err(Damage {
                path: segment_path(&self.dir, segment, SegmentFileKind::Log),
                position: 0,
                first_offset: segment,
                end_offset: self.end_offset,
                expected: format!("the segment, since the log starts at {}", record.log_start),
                found: "no file".to_owned(),
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Whether the frame goes to another segment than the one before it. In the same segment it must follow directly.
    fn starts_anew(&self, header: &FrameHeader) -> Result<bool, StorageError> {
        let Some((segment, position)) = self.end else {
            return Ok(true);
        };
        if header.segment > segment {
            return Ok(true);
        }
        let reached = match header.kind {
            FrameKind::Extent => header.position <= position,
            _ => header.position + header.auxiliary == position,
        };
        // A log that also wrote without frames may have a gap here, which its segment fills; also where it is of class
        // `fsync` again, since what it wrote without frames was synced before that class counts.
        if self.is_loose && !reached && header.segment == segment && header.base_offset >= self.end_offset {
            return Ok(true);
        }
        if header.segment < segment || !reached || header.base_offset < self.end_offset {
            let expected = format!(
                "a frame at byte {position} of segment {segment}, offset {}",
                self.end_offset
            );
            let mut found = Damage {
                path: segment_path(&self.dir, header.segment, SegmentFileKind::Log),
                position: u64::from(header.position),
                first_offset: header.base_offset,
                end_offset: header.end_offset,
                expected,
                found: format!(
                    "{:?} at byte {} of segment {}",
                    header.kind, header.position, header.segment
                ),
            };
            found.found.push_str(&format!(", offset {}", header.base_offset));
            return Err(found.into());
        }
        Ok(false)
    }

    fn collect(&mut self, header: &FrameHeader, payload: &[u8]) {
        // The lead-in is needed only where nothing is collected before it.
        let skip = if self.collected.is_empty() {
            0
        } else {
            header.auxiliary as usize
        };
        self.collected
            .extend_from_slice(payload.get(skip..).unwrap_or_default());
        self.end = Some((header.segment, header.position + header.payload_bytes));
        self.end_offset = header.end_offset;
    }

    async fn extent<D: Disk>(
        &mut self,
        disk: &D,
        header: &FrameHeader,
        payload: &[u8],
        durable: bool,
    ) -> Result<(), StorageError> {
        let Some((crc, tail)) = payload.split_first_chunk::<4>() else {
            return Err(damage(
                &self.dir,
                0,
                "an extent frame without its checksum".to_owned(),
            ));
        };
        let expected = u32::from_le_bytes(*crc);
        let path = segment_path(&self.dir, header.segment, SegmentFileKind::Log);
        let place = (header.position, header.auxiliary);
        let extent = extent_crc(disk, &path, place, expected, durable).await?;
        if !durable && extent != Extent::Crc(expected) {
            self.is_cut = true;
            return Ok(());
        }
        let damaged = |found: String| Damage {
            path,
            position: u64::from(header.position),
            first_offset: header.base_offset,
            end_offset: header.end_offset,
            expected: format!("{} bytes with CRC {expected:08x}", header.auxiliary),
            found,
        };
        match extent {
            Extent::Crc(crc) if crc == expected => {}
            Extent::Crc(crc) => return Err(damaged(format!("CRC {crc:08x}")).into()),
            Extent::NoFile => self.skipped = self.skipped.max(Some(header.segment)),
            Extent::Short => {
                let damage = Box::new(damaged("a shorter file".to_owned()));
                self.half_made.entry(header.segment).or_insert(damage);
                self.skipped = self.skipped.max(Some(header.segment));
            }
        }
        self.collected.extend_from_slice(tail);
        self.end = Some((
            header.segment,
            header.position + header.auxiliary + tail.len() as u32,
        ));
        self.end_offset = header.end_offset;
        Ok(())
    }
}

fn damage(path: &Path, position: u64, found: String) -> StorageError {
    Damage::of_file(path, position, "what the journal's rules demand", found).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{SimDisk, SimDiskConfig};
    use crate::disk::{DiskFile, OpenMode};
    use crate::sim_executor::SimExecutor;
    use crate::types::TopicId;

    fn frame(kind: FrameKind, base: i64, end: i64, position: u32, payload: &[u8]) -> Frame<'_> {
        let header = FrameHeader {
            kind,
            is_loose: false,
            auxiliary: 0,
            incarnation: Incarnation(1),
            base_offset: Offset(base),
            end_offset: Offset(end),
            segment: Offset::ZERO,
            position,
            payload_bytes: payload.len() as u32,
        };
        Frame { header, payload }
    }

    /// Replays frames of segment 0 that go on at byte 8,192, and then perhaps that the log starts at `start`, where that
    /// segment was deleted and the next one was begun. Gives the names in the log's directory.
    fn after_deletion(start: Option<i64>) -> Result<Vec<String>, StorageError> {
        let executor = SimExecutor::new(1);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
        executor.block_on(async {
            let (root, dir) = (Path::new("/data"), Path::new("/data/t-0"));
            disk.create_dir(root).await?;
            disk.create_dir(dir).await?;
            let next = segment_path(dir, Offset(10), SegmentFileKind::Log);
            disk.open(&next, OpenMode::CreateNew).await?.close().await?;
            let id = LogId {
                topic: TopicId([7; 16]),
                partition: 0,
            };
            let open = OpenPayload {
                id,
                directory: "t-0".to_owned(),
            };
            let open = open.encode();
            let mut redo = Redo::new(&disk, root, std::iter::empty());
            redo.begin_shard(std::iter::empty());
            redo.apply(&frame(FrameKind::Open, 0, 0, 0, &open), true).await?;
            redo.apply(&frame(FrameKind::Append, 5, 10, 8192, &[1; 100]), true)
                .await?;
            if let Some(start) = start {
                redo.apply(&frame(FrameKind::Start, start, start, 0, &[]), true)
                    .await?;
            }
            let mut records = BTreeMap::new();
            redo.finish(&mut records).await?;
            if let Some(damage) = records.get("t-0").and_then(|record| record.damage.as_ref()) {
                return Err(damage.report(dir).into());
            }
            let names = disk.list(dir).await?;
            Ok(names.into_iter().map(|entry| entry.name).collect())
        })
    }

    #[test]
    fn a_deleted_segment_is_not_made_again_and_the_one_begun_after_it_stays() {
        assert_eq!(
            after_deletion(Some(10)).unwrap(),
            ["00000000000000000010.log", "partition.metadata"]
        );
    }

    #[test]
    fn a_segment_that_is_missing_without_a_deletion_is_damage() {
        for start in [None, Some(0)] {
            assert!(matches!(after_deletion(start), Err(StorageError::Damage(_))));
        }
    }
}
