//! The leader epochs of one log: for each epoch that wrote something, the offset it started at. Answers
//! OffsetForLeaderEpoch and finds where two logs diverge (KIP-101, KIP-279). Pure memory, one per replica.
//!
//! File format of `leader-epoch-checkpoint` (Kafka's; `kafka-surface.md` §5.2), text:
//!
//! ```text
//! 0                      version
//! 2                      number of entries
//! 0 0                    epoch, start offset
//! 3 417
//! ```

use std::fmt::Write as _;

use crate::types::{LeaderEpoch, Offset};

/// An epoch and the first offset written in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch, never negative.
    pub epoch: LeaderEpoch,
    /// The first offset of that epoch, never negative.
    pub start_offset: Offset,
}

/// The answer to OffsetForLeaderEpoch; (−1, −1) means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest known epoch at or below the one asked for.
    pub epoch: LeaderEpoch,
    /// The offset after the last one of that epoch.
    pub end_offset: Offset,
}

/// Why a checkpoint file was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EpochFileError {
    /// Not UTF-8, or a line is not made of the expected numbers.
    #[error("line {line} is malformed")]
    Malformed {
        /// The line's number, from 1.
        line: usize,
    },
    /// The first line is not a version we know.
    #[error("version {0} is unknown, known is 0")]
    Version(i32),
    /// The file has fewer or more entries than its second line says.
    #[error("{found} entries where {expected} are announced")]
    Count {
        /// From the second line.
        expected: usize,
        /// Lines that follow it.
        found: usize,
    },
}

/// The epochs of one log, epochs and start offsets both strictly increasing. Memory: 16 bytes an entry; entries are as
/// many as elections that were followed by a write, within the log's retention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// No epoch known.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Reads a checkpoint file. Entries that contradict later ones are dropped as [`Self::assign`] does.
    ///
    /// # Errors
    /// [`EpochFileError`]; the epochs are then rebuilt from the batches' headers.
    pub fn decode(file: &[u8]) -> Result<Self, EpochFileError> {
        let text = std::str::from_utf8(file).map_err(|_| EpochFileError::Malformed { line: 1 })?;
        let mut lines = text.lines();
        let version = number(lines.next(), 1)?;
        if version != 0 {
            return Err(EpochFileError::Version(version));
        }
        let expected: usize = number(lines.next(), 2)?;
        let mut epochs = Self::new();
        let mut found = 0;
        for line in lines {
            found += 1;
            epochs
                .assign_line(line)
                .ok_or(EpochFileError::Malformed { line: found + 2 })?;
        }
        if found == expected {
            Ok(epochs)
        } else {
            Err(EpochFileError::Count { expected, found })
        }
    }

    /// The checkpoint file.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{} {}", entry.epoch, entry.start_offset);
        }
        text
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The latest epoch with its start offset.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The oldest epoch with its start offset.
    #[must_use]
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// Records that `epoch` starts at `start_offset`. Called when a leader takes over (with the log end) and for each
    /// appended batch (with its base offset). Returns whether anything changed, so that the checkpoint is written.
    ///
    /// Entries that contradict the new one go: later or equal epochs, and equal or later start offsets. So elections that
    /// nobody wrote after leave one entry, the last (KAFKA-10706). A known epoch keeps its start unless the new one is
    /// lower. Negative numbers change nothing: batches of old formats carry epoch −1.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if epoch.0 < 0 || start_offset.0 < 0 {
            return false;
        }
        let new = EpochEntry { epoch, start_offset };
        if self
            .latest()
            .is_some_and(|last| last.epoch == epoch && last.start_offset <= start_offset)
        {
            return false;
        }
        let kept = self
            .entries
            .iter()
            .rposition(|old| old.epoch < epoch && old.start_offset < start_offset)
            .map_or(0, |last| last + 1);
        self.entries.truncate(kept);
        self.entries.push(new);
        true
    }

    /// Where `requested` ends (LE-1 to LE-3): the latest epoch ends at `log_end`; a known older one where the next begins;
    /// an unknown one below the latest is answered with the largest known epoch below it; one before all known ones with
    /// itself and the start of the first; one above all known, or −1, with (−1, −1).
    #[must_use]
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> EpochEnd {
        const UNKNOWN: EpochEnd = EpochEnd {
            epoch: LeaderEpoch::NONE,
            end_offset: Offset::NONE,
        };
        if requested.0 < 0 {
            return UNKNOWN;
        }
        if self.latest().is_some_and(|last| last.epoch == requested) {
            return EpochEnd {
                epoch: requested,
                end_offset: log_end,
            };
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= requested);
        let Some(next) = self.entries.get(higher) else {
            return UNKNOWN;
        };
        let floor = higher.checked_sub(1).and_then(|slot| self.entries.get(slot));
        EpochEnd {
            epoch: floor.map_or(requested, |entry| entry.epoch),
            end_offset: next.start_offset,
        }
    }

    /// The epoch in which the record at `offset` was written; `None` before the first known one.
    #[must_use]
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let slot = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset)
            .checked_sub(1)?;
        self.entries.get(slot).map(|entry| entry.epoch)
    }

    /// The log now ends at `end_offset`: epochs that start at or above it go. Returns whether anything changed.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// The log now starts at `start_offset`: epochs that ended before it go, the one it lies in starts there. Returns
    /// whether anything changed.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let through = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(containing) = through.checked_sub(1) else {
            return false;
        };
        self.entries.drain(..containing);
        match self.entries.first_mut() {
            Some(first) if containing > 0 || first.start_offset != start_offset => {
                first.start_offset = start_offset;
                true
            }
            _ => false,
        }
    }

    /// A batch at `[base_offset, last_offset]` was found that carries `epoch`: the batches are the truth, so entries that
    /// contradict it go, and nothing else does. Returns whether anything changed.
    ///
    /// Unlike [`Self::assign`] this keeps what is known about later offsets, and an epoch's start that lies before the
    /// batch (compaction may have removed its first records).
    pub fn observe(&mut self, epoch: LeaderEpoch, base_offset: Offset, last_offset: Offset) -> bool {
        if epoch.0 < 0 || base_offset.0 < 0 || last_offset < base_offset {
            return false;
        }
        let slot = self
            .entries
            .partition_point(|entry| entry.start_offset <= base_offset);
        let agrees = slot
            .checked_sub(1)
            .and_then(|floor| self.entries.get(floor))
            .is_some_and(|floor| floor.epoch == epoch);
        let next_agrees = self
            .entries
            .get(slot)
            .is_none_or(|next| next.start_offset > last_offset && next.epoch > epoch);
        if agrees && next_agrees {
            return false;
        }
        self.entries.retain(|entry| {
            if entry.start_offset < base_offset {
                entry.epoch <= epoch
            } else if entry.start_offset == base_offset {
                entry.epoch == epoch
            } else {
                entry.start_offset > last_offset && entry.epoch > epoch
            }
        });
        let slot = self.entries.partition_point(|entry| entry.epoch < epoch);
        if self.entries.get(slot).is_none_or(|entry| entry.epoch != epoch) {
            let start_offset = base_offset;
            self.entries.insert(slot, EpochEntry { epoch, start_offset });
        }
        true
    }

    /// Adds what `later` knows of the offsets from `from` on, which is behind everything known here. Entries that
    /// contradict the known ones are left out.
    pub fn extend_from(&mut self, later: &Self, from: Offset) {
        let follows = |last: EpochEntry, entry: &EpochEntry| {
            entry.epoch > last.epoch && entry.start_offset > last.start_offset
        };
        for entry in &later.entries {
            let is_news = self.latest().is_none_or(|last| follows(last, entry));
            if is_news && entry.start_offset >= from {
                self.entries.push(*entry);
            }
        }
    }

    /// The epochs of the records below `end`.
    #[must_use]
    pub fn below(&self, end: Offset) -> Self {
        let mut below = self.clone();
        below.truncate_from_end(end);
        below
    }

    /// Forgets all epochs.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn assign_line(&mut self, line: &str) -> Option<()> {
        let (epoch, start_offset) = line.split_once(' ')?;
        let (epoch, start_offset): (i32, i64) = (epoch.parse().ok()?, start_offset.parse().ok()?);
        if epoch < 0 || start_offset < 0 {
            return None;
        }
        self.assign(LeaderEpoch(epoch), Offset(start_offset));
        Some(())
    }
}

fn number<N: std::str::FromStr>(line: Option<&str>, at: usize) -> Result<N, EpochFileError> {
    line.and_then(|text| text.parse().ok())
        .ok_or(EpochFileError::Malformed { line: at })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::new();
        for (epoch, start) in entries {
            epochs.assign(LeaderEpoch(*epoch), Offset(*start));
        }
        epochs
    }

    fn list(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
        epochs
            .entries()
            .iter()
            .map(|entry| (entry.epoch.0, entry.start_offset.0))
            .collect()
    }

    fn end(epochs: &LeaderEpochs, requested: i32, log_end: i64) -> (i32, i64) {
        let end = epochs.end_offset_for(LeaderEpoch(requested), Offset(log_end));
        (end.epoch.0, end.end_offset.0)
    }

    #[test]
    fn le_1_to_3_end_offsets() {
        let epochs = epochs(&[(2, 10), (4, 20), (7, 35)]);
        assert_eq!(end(&epochs, 7, 50), (7, 50));
        assert_eq!(end(&epochs, 4, 50), (4, 35));
        assert_eq!(end(&epochs, 6, 50), (4, 35));
        assert_eq!(end(&epochs, 3, 50), (2, 20));
        assert_eq!(end(&epochs, 1, 50), (1, 10));
        assert_eq!(end(&epochs, 8, 50), (-1, -1));
        assert_eq!(end(&epochs, -1, 50), (-1, -1));
        assert_eq!(end(&LeaderEpochs::new(), 0, 50), (-1, -1));
    }

    #[test]
    fn br_040_elections_without_data_leave_only_the_last_epoch() {
        let mut epochs = epochs(&[(1, 0)]);
        assert!(epochs.assign(LeaderEpoch(2), Offset(10)));
        assert!(epochs.assign(LeaderEpoch(3), Offset(10)));
        assert!(epochs.assign(LeaderEpoch(4), Offset(10)));
        assert_eq!(list(&epochs), [(1, 0), (4, 10)]);
        assert_eq!(end(&epochs, 2, 10), (1, 10));
        assert_eq!(end(&epochs, 3, 10), (1, 10));
        assert_eq!(end(&epochs, 4, 10), (4, 10));
        // A follower that had epoch 2 at 10 learns that its leader wrote epoch 5 from 8 on.
        assert!(epochs.assign(LeaderEpoch(5), Offset(8)));
        assert_eq!(list(&epochs), [(1, 0), (5, 8)]);
    }

    #[test]
    fn assigning_keeps_epochs_and_offsets_increasing() {
        let mut epochs = epochs(&[(1, 0), (3, 30), (5, 50)]);
        assert!(
            !epochs.assign(LeaderEpoch(5), Offset(60)),
            "a known epoch keeps its start"
        );
        assert!(!epochs.assign(LeaderEpoch(-1), Offset(70)));
        assert!(!epochs.assign(LeaderEpoch(6), Offset(-1)));
        assert!(
            epochs.assign(LeaderEpoch(5), Offset(40)),
            "unless the new one is lower"
        );
        assert_eq!(list(&epochs), [(1, 0), (3, 30), (5, 40)]);
        assert!(
            epochs.assign(LeaderEpoch(2), Offset(60)),
            "a lower epoch removes the later ones"
        );
        assert_eq!(list(&epochs), [(1, 0), (2, 60)]);
        assert!(epochs.assign(LeaderEpoch(3), Offset(0)));
        assert_eq!(list(&epochs), [(3, 0)]);
    }

    #[test]
    fn truncation_at_both_ends() {
        let whole = epochs(&[(1, 0), (3, 30), (5, 50)]);
        let from_end = |offset| {
            let mut epochs = whole.clone();
            let changed = epochs.truncate_from_end(Offset(offset));
            (changed, list(&epochs))
        };
        assert_eq!(from_end(51), (false, list(&whole)));
        assert_eq!(from_end(50), (true, vec![(1, 0), (3, 30)]));
        assert_eq!(from_end(0), (true, vec![]));
        let from_start = |offset| {
            let mut epochs = whole.clone();
            let changed = epochs.truncate_from_start(Offset(offset));
            (changed, list(&epochs))
        };
        assert_eq!(from_start(0), (false, list(&whole)));
        assert_eq!(from_start(29), (true, vec![(1, 29), (3, 30), (5, 50)]));
        assert_eq!(from_start(30), (true, vec![(3, 30), (5, 50)]));
        assert_eq!(
            from_start(999),
            (true, vec![(5, 999)]),
            "the current epoch survives all its data"
        );
    }

    #[test]
    fn batches_overrule_what_was_noted_and_leave_the_rest() {
        let found = |noted: &[(i32, i64)], batches: &[(i32, i64, i64)]| {
            let mut epochs = epochs(noted);
            let mut changed = false;
            for (epoch, base, last) in batches {
                changed |= epochs.observe(LeaderEpoch(*epoch), Offset(*base), Offset(*last));
            }
            (changed, list(&epochs))
        };
        let noted = [(1, 0), (3, 30), (5, 50)];
        // What is right stays, also an epoch whose first records were compacted away, and all that lies behind.
        assert_eq!(found(&noted, &[(1, 0, 9), (3, 35, 36)]), (false, noted.to_vec()));
        // An epoch whose batches were lost, and others were written there since: of a newer epoch, of an older one.
        assert_eq!(
            found(&[(0, 0), (1, 30)], &[(2, 20, 40)]),
            (true, vec![(0, 0), (2, 20)])
        );
        assert_eq!(
            found(&[(0, 0), (1, 30)], &[(2, 30, 31)]),
            (true, vec![(0, 0), (2, 30)])
        );
        assert_eq!(found(&[(0, 0), (1, 20)], &[(0, 24, 24)]), (true, vec![(0, 0)]));
        assert_eq!(found(&[(0, 0), (1, 20)], &[(0, 19, 24)]), (true, vec![(0, 0)]));
        assert_eq!(found(&[(1, 20)], &[(0, 20, 24)]), (true, vec![(0, 20)]));
        // Nothing was noted yet, or too little, or the start too late.
        assert_eq!(
            found(&[], &[(2, 7, 8), (2, 9, 9), (4, 10, 10)]),
            (true, vec![(2, 7), (4, 10)])
        );
        assert_eq!(
            found(&noted, &[(2, 10, 19)]),
            (true, vec![(1, 0), (2, 10), (3, 30), (5, 50)])
        );
        assert_eq!(
            found(&noted, &[(3, 25, 26)]),
            (true, vec![(1, 0), (3, 25), (5, 50)])
        );
        assert_eq!(found(&noted, &[(-1, 3, 4)]), (false, noted.to_vec()));
    }

    #[test]
    fn a_second_list_adds_what_is_later() {
        let joined = |known: &[(i32, i64)], later: &[(i32, i64)], from| {
            let mut known = epochs(known);
            known.extend_from(&epochs(later), Offset(from));
            list(&known)
        };
        assert_eq!(joined(&[(0, 0)], &[(0, 0), (1, 30)], 30), [(0, 0), (1, 30)]);
        assert_eq!(
            joined(&[(0, 0)], &[(0, 0), (1, 30), (2, 50)], 40),
            [(0, 0), (2, 50)]
        );
        assert_eq!(
            joined(&[(0, 0), (2, 20)], &[(0, 0), (1, 30)], 0),
            [(0, 0), (2, 20)]
        );
        assert_eq!(joined(&[], &[(0, 5), (1, 30)], 0), [(0, 5), (1, 30)]);
    }

    #[test]
    fn checkpoint_files() {
        let whole = epochs(&[(0, 0), (2, 26), (4, 52)]);
        assert_eq!(whole.encode(), "0\n3\n0 0\n2 26\n4 52\n");
        assert_eq!(LeaderEpochs::decode(whole.encode().as_bytes()), Ok(whole));
        assert_eq!(LeaderEpochs::decode(b"0\n0\n"), Ok(LeaderEpochs::new()));
        for (file, error) in [
            (&b""[..], EpochFileError::Malformed { line: 1 }),
            (b"\xff\n0\n", EpochFileError::Malformed { line: 1 }),
            (b"1\n0\n", EpochFileError::Version(1)),
            (b"0\n-1\n", EpochFileError::Malformed { line: 2 }),
            (
                b"0\n2\n0 0\n",
                EpochFileError::Count {
                    expected: 2,
                    found: 1,
                },
            ),
            (
                b"0\n1\n0 0\n1 5\n",
                EpochFileError::Count {
                    expected: 1,
                    found: 2,
                },
            ),
            (b"0\n1\n0 x\n", EpochFileError::Malformed { line: 3 }),
            (b"0\n1\n0 -5\n", EpochFileError::Malformed { line: 3 }),
            (
                b"0\n2\n0 0\n99999999999 1\n",
                EpochFileError::Malformed { line: 4 },
            ),
        ] {
            assert_eq!(
                LeaderEpochs::decode(file),
                Err(error),
                "{:?}",
                String::from_utf8_lossy(file)
            );
        }
    }

    proptest! {
        /// The model is the log itself: the epoch of each offset. Elections may be followed by no write at all.
        #[test]
        fn answers_are_those_of_the_log(steps in proptest::collection::vec((0u8..6, 0i64..12), 1..60)) {
            let mut epochs = LeaderEpochs::new();
            let (mut log, mut log_start, mut current): (Vec<i32>, i64, i32) = (Vec::new(), 0, 0);
            epochs.assign(LeaderEpoch(0), Offset(0));
            for (what, amount) in steps {
                let log_end = log.len() as i64;
                match what {
                    0 | 1 => {
                        current += 1 + amount as i32 % 3;
                        epochs.assign(LeaderEpoch(current), Offset(log_end));
                    }
                    2 => {
                        // A leader is elected after each truncation.
                        let end = (log_end - amount).max(log_start);
                        log.truncate(end as usize);
                        epochs.truncate_from_end(Offset(end));
                        current += 1;
                        epochs.assign(LeaderEpoch(current), Offset(end));
                    }
                    3 => {
                        log_start = (log_start + amount).min(log_end);
                        epochs.truncate_from_start(Offset(log_start));
                    }
                    _ => {
                        epochs.assign(LeaderEpoch(current), Offset(log_end));
                        log.extend((0..amount).map(|_| current));
                    }
                }
                let log_end = log.len() as i64;
                let increasing = |pair: &[EpochEntry]| {
                    pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
                };
                prop_assert!(epochs.entries().windows(2).all(increasing));
                for (offset, epoch) in log.iter().enumerate().skip(log_start as usize) {
                    prop_assert_eq!(epochs.epoch_for(Offset(offset as i64)), Some(LeaderEpoch(*epoch)));
                }
                prop_assert_eq!(end(&epochs, current, log_end), (current, log_end));
                prop_assert_eq!(end(&epochs, current + 1, log_end), (-1, -1));
                for requested in 0..current {
                    let retained = || log.iter().enumerate().skip(log_start as usize);
                    // Where the first later epoch starts: at its first record, or at the log end if it has none yet.
                    let next = retained().find(|(_, epoch)| **epoch > requested);
                    let next = next.map_or(log_end, |(offset, _)| offset as i64);
                    let floor = retained().filter(|(_, epoch)| **epoch <= requested).map(|(_, epoch)| *epoch).next_back();
                    prop_assert_eq!(end(&epochs, requested, log_end), (floor.unwrap_or(requested), next));
                }
                prop_assert_eq!(LeaderEpochs::decode(epochs.encode().as_bytes()), Ok(epochs.clone()));
            }
        }
    }
}
