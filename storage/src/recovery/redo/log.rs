//! The replay of one log: takes its frames, at once as far as that needs no disk, else when the log's turn comes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::damage;
use super::files::{Extent, extent_crc};
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::journal::FrameHeader;
use crate::journal::frame::{Frame, FrameKind, OpenPayload};
use crate::layout::SegmentFile as SegmentFileKind;
use crate::log::segment_path;
use crate::recovery::record::LogRecord;
use crate::types::{LogId, Offset};

/// One log of the journal.
pub(super) struct LogRedo {
    pub(super) id: LogId,
    pub(super) name: String,
    pub(super) dir: PathBuf,
    /// The segments below this one are whole, as the checkpoint says.
    settled: Option<Offset>,
    /// What waits for the disk, in order.
    pub(super) steps: Vec<Step>,
    /// Segment and position behind the last applied byte; `None` before the first data frame.
    pub(super) end: Option<(Offset, u32)>,
    pub(super) end_offset: Offset,
    /// Where the log starts in the end, if a frame moves that.
    pub(super) starts_at: Offset,
    /// The same, if such a frame was applied.
    log_start: Option<Offset>,
    /// Bytes to be written, ending at `end`.
    pub(super) collected: Vec<u8>,
    /// An extent that was not durable is torn: what follows does not count.
    is_cut: bool,
    /// A frame made the log shorter.
    is_truncated: bool,
    /// The log was not of class `fsync`: its segments may hold more than its frames.
    pub(super) is_loose: bool,
    /// The last segment that was not there although frames go on in its middle: it was deleted after them, so the log
    /// must start above it.
    pub(super) skipped: Option<Offset>,
    /// Segments that are shorter than what was durable, and what is wrong with them unless the log starts above. Then they were
    /// deleted, and a replay, this one or one before it that did not come to its end, made them again of the frames there are.
    pub(super) half_made: BTreeMap<Offset, Box<Damage>>,
    /// What was durable is not as its frames say. The log is left as it is; the others go on.
    pub(super) damage: Option<Box<Damage>>,
    /// No checkpoint knew the log.
    pub(super) wants_metadata: bool,
}

/// Something that waits for the disk.
pub(super) enum Step {
    Frame {
        header: FrameHeader,
        payload: Vec<u8>,
        durable: bool,
    },
    /// The frame that was here is damaged, which was durable.
    Damage(Damage),
}

impl LogRedo {
    /// The log that a frame names. `settled`: its segments below this one are whole and synced; `starts_at`: where it starts when
    /// all frames are applied.
    pub(super) fn new(opened: OpenPayload, root: &Path, settled: Option<Offset>, starts_at: Offset) -> Self {
        Self {
            id: opened.id,
            dir: root.join(&opened.directory),
            name: opened.directory,
            settled,
            steps: Vec::new(),
            end: None,
            end_offset: Offset::ZERO,
            starts_at,
            log_start: None,
            collected: Vec::new(),
            is_cut: false,
            is_truncated: false,
            is_loose: false,
            skipped: None,
            half_made: BTreeMap::new(),
            damage: None,
            wants_metadata: false,
        }
    }

    /// Takes a frame that is not the one that names the log; its step waits if it needs the disk, or another does before it.
    /// Returns by how many bytes more is held now.
    pub(super) fn take_frame(&mut self, frame: &Frame<'_>, durable: bool) -> Result<usize, StorageError> {
        let before = self.collected.len();
        if self.steps.is_empty() {
            let applied = self.apply(&frame.header, frame.payload);
            let is_applied = applied.map(|is_applied| u64::from(!is_applied));
            if self.unless_damaged(is_applied)? == 0 {
                return Ok(self.collected.len().saturating_sub(before));
            }
        }
        self.steps.push(Step::Frame {
            header: frame.header,
            payload: frame.payload.to_vec(),
            durable,
        });
        Ok(frame.payload.len() + size_of::<Step>())
    }

    /// Whether [`Self::go_on`] has anything to do.
    pub(super) fn has_work(&self) -> bool {
        !(self.steps.is_empty() && self.collected.is_empty())
    }

    /// Takes all steps that wait, and writes what is collected. Returns the bytes written.
    pub(super) async fn go_on<D: Disk>(&mut self, disk: &D) -> Result<u64, StorageError> {
        let mut written = 0;
        for step in std::mem::take(&mut self.steps) {
            let taken = self.take_step(disk, step).await;
            written += self.unless_damaged(taken)?;
        }
        let rest = self.write(disk).await;
        Ok(written + self.unless_damaged(rest)?)
    }

    async fn take_step<D: Disk>(&mut self, disk: &D, step: Step) -> Result<u64, StorageError> {
        match step {
            Step::Damage(damage) => Err(damage.into()),
            Step::Frame {
                header,
                payload,
                durable,
            } => match self.apply(&header, &payload)? {
                true => Ok(0),
                false => self.apply_on(disk, &header, &payload, durable).await,
            },
        }
    }

    /// Applies a frame if that needs no disk. Returns whether it did.
    fn apply(&mut self, header: &FrameHeader, payload: &[u8]) -> Result<bool, StorageError> {
        if self.is_cut {
            return Ok(true);
        }
        self.is_loose |= header.is_loose;
        // Bytes of segments that were whole and synced when the checkpoint was written. Since then compaction may have put
        // others in their place.
        let is_data = matches!(header.kind, FrameKind::Append | FrameKind::Extent);
        if is_data && self.settled.is_some_and(|place| header.segment < place) {
            return Ok(true);
        }
        match header.kind {
            FrameKind::Append => {
                if self.starts_anew(header)? && self.end.is_some() {
                    return Ok(false);
                }
                self.collect(header, payload);
                Ok(true)
            }
            FrameKind::Extent | FrameKind::Truncate => Ok(false),
            FrameKind::Start => {
                self.log_start = self.log_start.max(Some(header.base_offset));
                Ok(true)
            }
            FrameKind::Open | FrameKind::Epoch | FrameKind::Retire | FrameKind::Delete => Ok(true),
        }
    }

    /// Applies a frame that [`Self::apply`] left. Returns the bytes written.
    async fn apply_on<D: Disk>(
        &mut self,
        disk: &D,
        header: &FrameHeader,
        payload: &[u8],
        durable: bool,
    ) -> Result<u64, StorageError> {
        if header.kind == FrameKind::Extent {
            self.starts_anew(header)?;
        }
        let written = self.write(disk).await?;
        match header.kind {
            FrameKind::Extent => {
                self.leave_segment(disk, header.segment).await?;
                self.extent(disk, header, payload, durable).await?;
            }
            FrameKind::Truncate => {
                // What was whole above is gone.
                self.settled = self.settled.map(|place| header.segment.min(place));
                self.end = Some((header.segment, header.position));
                self.end_offset = header.base_offset;
                self.is_truncated = true;
                self.cut_files(disk).await?;
            }
            _ => {
                self.leave_segment(disk, header.segment).await?;
                self.collect(header, payload);
            }
        }
        Ok(written)
    }

    /// What is left to be done of a log whose record is up to date.
    pub(super) async fn settle<D: Disk>(&self, disk: &D) -> Result<(), StorageError> {
        if self.wants_metadata {
            self.write_metadata(disk).await?;
        }
        if self.damage.is_some() {
            return Ok(());
        }
        self.remove_half_made(disk).await?;
        if !self.is_loose {
            self.cut_files(disk).await?;
        }
        Ok(())
    }

    /// Takes damage to itself, so that other logs can go on; 0 then.
    pub(super) fn unless_damaged(&mut self, result: Result<u64, StorageError>) -> Result<u64, StorageError> {
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
    pub(super) fn update(&self, record: &mut LogRecord) {
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
    pub(super) fn check_skipped(&self, record: &LogRecord) -> Result<(), StorageError> {
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
