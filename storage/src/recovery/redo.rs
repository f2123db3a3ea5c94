//! Applies journal frames to segment files: per log in order, gap-free, to the positions the frames name. What a frame needs of the
//! disk waits until much has come together; then several logs at a time are written, since each waits for the disk most of the
//! time.

mod files;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use log::{LogRedo, Step};

use super::record::{DamageRecord, LogRecord};
use super::rested::RestedLogs;
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::journal::frame::{Frame, FrameKind, OpenPayload};
use crate::journal::{FrameHeader, Incarnation};
use crate::notify::try_join_bounded;
use crate::types::{LogId, Offset};

/// Bytes of frames of all logs above which they are written, bytes.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Log directories that are written at a time.
const DIRECTORIES_AT_ONCE: usize = 32;

/// The replay of one log directory.
pub(crate) struct Redo<'a, D: Disk> {
    disk: &'a D,
    dir: &'a Path,
    logs: BTreeMap<(usize, Incarnation), LogRedo>,
    shard: usize,
    retired: BTreeSet<Incarnation>,
    /// Where the shard's frames say, in the end, that logs start.
    starts: BTreeMap<Incarnation, Offset>,
    /// The logs of retired incarnations.
    rested: RestedLogs,
    /// The segments that the checkpoint says are whole below: those of each log below this one.
    settled: BTreeMap<LogId, Offset>,
    held_bytes: usize,
    written_bytes: u64,
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
            starts: BTreeMap::new(),
            rested: RestedLogs::new(),
            settled: records.filter_map(place).collect(),
            held_bytes: 0,
            written_bytes: 0,
        }
    }

    /// The frames that follow are another shard's: its incarnations are its own. Those in `retired` end in a frame that
    /// makes all of theirs void; `starts` are those that a frame of theirs gives.
    pub(crate) fn begin_shard(
        &mut self,
        retired: impl Iterator<Item = Incarnation>,
        starts: impl Iterator<Item = (Incarnation, Offset)>,
    ) {
        self.shard += 1;
        self.retired = retired.collect();
        self.starts.clear();
        for (incarnation, start) in starts {
            let known = self.starts.entry(incarnation).or_insert(start);
            *known = start.max(*known);
        }
    }

    /// Applies one frame. `durable`: its commit is known to have been durable, so whatever is wrong is damage.
    pub(crate) async fn apply(&mut self, frame: &Frame<'_>, durable: bool) -> Result<(), StorageError> {
        let header = &frame.header;
        let key = (self.shard, header.incarnation);
        if self.retired.contains(&header.incarnation) {
            return self.rest(key, frame);
        }
        if header.kind == FrameKind::Open {
            return self.open(key, frame.payload);
        }
        let Some(log) = self.logs.get_mut(&key) else {
            return Err(self.unnamed(header));
        };
        self.held_bytes += log.take_frame(frame, durable)?;
        if self.held_bytes > HELD_BYTES_MAX {
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
            Some(log) => {
                log.steps.push(Step::Damage(damage));
                Ok(())
            }
            None => Err(damage.into()),
        }
    }

    /// Writes what is held, cuts every log to its end, and brings the records up to date. Returns the bytes written.
    pub(crate) async fn finish(
        &mut self,
        records: &mut BTreeMap<String, LogRecord>,
    ) -> Result<u64, StorageError> {
        self.write_all().await?;
        for log in self.logs.values_mut() {
            let is_new = records.get(&log.name).is_none_or(|record| record.id() != log.id);
            log.wants_metadata = is_new && log.end.is_some();
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
            }
        }
        self.rested.keep_starts(records);
        let disk = self.disk;
        let directories = by_directory(self.logs.values_mut());
        let settling = directories.into_values().map(async |logs| {
            for log in logs {
                log.settle(disk).await?;
            }
            Ok::<(), StorageError>(())
        });
        try_join_bounded(settling, DIRECTORIES_AT_ONCE).await?;
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
    fn open(&mut self, key: (usize, Incarnation), payload: &[u8]) -> Result<(), StorageError> {
        let opened = self.decode_name(payload)?;
        // Each file names its logs again.
        self.logs.entry(key).or_insert_with(|| {
            let settled = self.settled.get(&opened.id).copied();
            let starts_at = self.starts.get(&key.1).copied().unwrap_or(Offset::NONE);
            LogRedo::new(opened, self.dir, settled, starts_at)
        });
        Ok(())
    }

    /// Takes the steps that wait, of several directories at a time, and writes what they collected.
    async fn write_all(&mut self) -> Result<(), StorageError> {
        let disk = self.disk;
        let directories = by_directory(self.logs.values_mut().filter(|log| log.has_work()));
        let writing = directories.into_values().map(async |logs| {
            let mut written = 0;
            for log in logs {
                written += log.go_on(disk).await?;
            }
            Ok::<u64, StorageError>(written)
        });
        let written = try_join_bounded(writing, DIRECTORIES_AT_ONCE).await?;
        self.written_bytes += written.into_iter().sum::<u64>();
        self.held_bytes = 0;
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

/// The logs of each directory, in the order in which their journals name them: a directory may have been another log's before.
fn by_directory<'l>(logs: impl Iterator<Item = &'l mut LogRedo>) -> BTreeMap<String, Vec<&'l mut LogRedo>> {
    let mut directories: BTreeMap<String, Vec<&mut LogRedo>> = BTreeMap::new();
    for log in logs {
        directories.entry(log.name.clone()).or_default().push(log);
    }
    directories
}

fn damage(path: &Path, position: u64, found: String) -> StorageError {
    Damage::of_file(path, position, "what the journal's rules demand", found).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::checkpoint::read_small;
    use crate::disk::sim::{SimDisk, SimDiskConfig, SimLatency};
    use crate::disk::{DiskFile, OpenMode};
    use crate::layout::SegmentFile;
    use crate::log::segment_path;
    use crate::sim_executor::SimExecutor;
    use crate::types::TopicId;

    /// A disk on which every operation takes a millisecond.
    fn slow_disk(executor: &SimExecutor) -> SimDisk {
        let ms = (Duration::from_millis(1), Duration::from_millis(1));
        let config = SimDiskConfig {
            latency: SimLatency {
                read: ms,
                write: ms,
                sync: ms,
                name: ms,
                slow_ppm: 0,
                slow_factor: 1,
            },
            ..SimDiskConfig::seeded(1)
        };
        SimDisk::new(&executor.handle(), config)
    }

    /// The frames of a log that rolls to segment 5, is cut there to 60 bytes, and goes on. `wrong`: the last one does not
    /// follow the cut.
    fn rolled_and_cut(redo_log: u64, wrong: bool) -> Vec<Frame<'static>> {
        let at = |segment: i64, frame: Frame<'static>| Frame {
            header: FrameHeader {
                segment: Offset(segment),
                incarnation: Incarnation(redo_log),
                ..frame.header
            },
            ..frame
        };
        vec![
            at(0, frame(FrameKind::Append, 0, 5, 0, &[1; 100])),
            at(5, frame(FrameKind::Append, 5, 8, 0, &[2; 100])),
            at(5, frame(FrameKind::Truncate, 7, 7, 60, &[])),
            at(
                5,
                frame(FrameKind::Append, 7, 9, if wrong { 61 } else { 60 }, &[3; 50]),
            ),
        ]
    }

    /// Replays the frames of so many logs, mixed; that of one may be `wrong`. Gives how long it took, which records tell of
    /// damage, and the content of each log's segments.
    fn replay_mixed(logs: u64, wrong: Option<u64>) -> (Duration, Vec<bool>, Vec<[Bytes; 2]>) {
        let executor = SimExecutor::new(1);
        let disk = slow_disk(&executor);
        executor.block_on(async {
            let root = Path::new("/data");
            disk.create_dir(root).await.unwrap();
            let mut redo = Redo::new(&disk, root, std::iter::empty());
            redo.begin_shard(std::iter::empty(), std::iter::empty());
            let name = |log: u64| format!("t-{log:03}");
            for log in 0..logs {
                let topic = TopicId([7; 16]);
                let partition = i32::try_from(log).unwrap();
                let open = OpenPayload {
                    id: LogId { topic, partition },
                    directory: name(log),
                };
                let open = open.encode();
                let mut named = frame(FrameKind::Open, 0, 0, 0, &open);
                named.header.incarnation = Incarnation(log);
                redo.apply(&named, true).await.unwrap();
            }
            let began = executor.now();
            for index in 0..4 {
                for log in 0..logs {
                    let frames = rolled_and_cut(log, wrong == Some(log));
                    redo.apply(&frames[index], true).await.unwrap();
                }
            }
            let mut records = BTreeMap::new();
            redo.finish(&mut records).await.unwrap();
            let took = executor.now() - began;
            let damaged = records.values().map(|record| record.damage.is_some()).collect();
            let mut contents = Vec::new();
            for log in 0..logs {
                let path = |base| segment_path(&root.join(name(log)), Offset(base), SegmentFile::Log);
                let content = async |base| read_small(&disk, &path(base), 10_000).await.unwrap();
                contents.push([content(0).await, content(5).await]);
            }
            (took, damaged, contents)
        })
    }

    #[test]
    fn many_logs_wait_for_the_disk_at_the_same_time_and_each_one_keeps_its_order() {
        let (one, _, expected) = replay_mixed(1, None);
        assert_eq!(expected[0][0], [1; 100][..]);
        assert_eq!(expected[0][1], [[2; 60].as_slice(), &[3; 50]].concat());
        let (many, damaged, contents) = replay_mixed(64, None);
        assert!(
            many < one * 4,
            "64 logs take {many:?} where one takes {one:?}: {DIRECTORIES_AT_ONCE} at a time"
        );
        assert!(!damaged.contains(&true));
        assert!(contents.iter().all(|content| *content == expected[0]));
    }

    #[test]
    fn damage_stays_with_its_log_when_many_are_replayed_at_the_same_time() {
        let (_, _, expected) = replay_mixed(1, None);
        let (_, damaged, contents) = replay_mixed(40, Some(17));
        for (log, (is_damaged, content)) in damaged.iter().zip(&contents).enumerate() {
            assert_eq!(*is_damaged, log == 17);
            assert_eq!(*content == expected[0], log != 17, "log {log}");
        }
    }

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
            let next = segment_path(dir, Offset(10), SegmentFile::Log);
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
            redo.begin_shard(std::iter::empty(), std::iter::empty());
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
