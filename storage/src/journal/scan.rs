//! Which commits of a shard's journal files count: those of the current generations, in sequence without a gap. Where the
//! chain ends, it tells a torn tail (cut) from damage (reported): a commit that is bad at or below a sequence that any
//! other commit, or the checkpoint, recorded as durable is damage. Pure: the reading is in [`crate::recovery`].

use std::borrow::Borrow;

use super::frame::{CommitHeader, FileHeader, Incarnation, Invalid};
use crate::types::Offset;

/// A commit and where it lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPlace {
    /// Byte position of the header.
    pub position: u64,
    /// The header; of a commit whose header is damaged, what others say about it: no frames and nothing durable.
    pub header: CommitHeader,
    /// Its checks fail, and which frames it has is known all the same ([`super::salvage`]): a torn tail unless it was durable.
    pub is_damaged: bool,
}

/// What one file holds.
#[derive(Clone, Debug)]
pub struct FileContent {
    /// Its header; one that cannot be read means a file that was being prepared.
    pub header: Result<FileHeader, Invalid>,
    /// The commits of the header's generation from the first block on, damaged ones included that can be read.
    pub commits: Vec<CommitPlace>,
    /// Where the first block that is no such commit lies, and why it is none.
    pub stop: (u64, Invalid),
    /// Valid commits of the generation behind the stop: evidence of what was durable, never replayed.
    pub behind: Vec<CommitPlace>,
    /// Incarnations that the commits retire, with the commits' sequences.
    pub retired: Vec<(u64, Incarnation)>,
    /// Where the commits say that logs start, with the commits' sequences.
    pub starts: Vec<(u64, Incarnation, Offset)>,
}

impl FileContent {
    /// The sequence of the first valid commit.
    #[must_use]
    pub fn first_sequence(&self) -> Option<u64> {
        self.commits.first().map(|place| place.header.sequence)
    }
}

/// The commits to replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Index of the file in the input, and the commit, in sequence order.
    pub commits: Vec<(usize, CommitPlace)>,
    /// The highest sequence that is known to have been durable; everything up to it is in the chain.
    pub durable_sequence: u64,
}

/// A break in the chain at or below a sequence known durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// Index of the file in the input.
    pub file: usize,
    /// Byte position.
    pub position: u64,
    /// The sequence that should be there.
    pub expected_sequence: u64,
    /// The highest sequence known durable.
    pub durable_sequence: u64,
    /// Why what is there does not count.
    pub reason: Invalid,
}

/// Puts the commits of a shard's files in order. Those up to `covered_sequence` are covered by the shard's checkpoint, and
/// their files may be in use again (0: none); the chain begins no later than behind it. When the first commit that is
/// needed is lost, what was written behind it was never acknowledged, and is cut with it.
///
/// # Errors
/// The chain breaks where it was durable.
pub fn chain<F: Borrow<FileContent>>(files: &[F], covered_sequence: u64) -> Result<Chain, Break> {
    let known = files
        .iter()
        .map(Borrow::borrow)
        .flat_map(|file| file.commits.iter().chain(&file.behind))
        .map(|place| place.header.durable_sequence)
        .fold(covered_sequence, u64::max);
    // Files are used in the order in which they became ready, which need not be the order of their generations.
    let mut order: Vec<(u64, usize)> = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        order.extend(file.borrow().first_sequence().map(|sequence| (sequence, index)));
    }
    order.sort_unstable();

    let mut out = Chain {
        commits: Vec::new(),
        durable_sequence: known,
    };
    let follows = |expected: Option<u64>, sequence: u64| match expected {
        Some(expected) => sequence == expected,
        None => sequence <= covered_sequence + 1,
    };
    let mut expected = None;
    let mut stop = None;
    'files: for (_, index) in order {
        let file = files[index].borrow();
        for place in &file.commits {
            if !follows(expected, place.header.sequence) {
                stop.get_or_insert((index, place.position, Invalid::Field("sequence")));
                break 'files;
            }
            if place.is_damaged && place.header.sequence > known {
                stop = Some((index, place.position, Invalid::Checksum));
                break 'files;
            }
            out.commits.push((index, *place));
            expected = Some(place.header.sequence + 1);
        }
        stop = Some((index, file.stop.0, file.stop.1));
    }
    let expected_sequence = expected.unwrap_or(covered_sequence + 1);
    let stop = stop.or_else(|| {
        let index = files.iter().position(|file| !file.borrow().behind.is_empty())?;
        let (position, reason) = files[index].borrow().stop;
        Some((index, position, reason))
    });
    match stop {
        Some((file, position, reason)) if expected_sequence <= known => Err(Break {
            file,
            position,
            expected_sequence,
            durable_sequence: known,
            reason,
        }),
        _ => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(generation: u64, sequences: &[(u64, u64)]) -> FileContent {
        let place = |index: usize, &(sequence, durable_sequence): &(u64, u64)| CommitPlace {
            position: 4096 * (index as u64 + 1),
            header: CommitHeader {
                generation,
                sequence,
                durable_sequence,
                frames_bytes: 0,
                frames: 0,
                frames_crc: 0,
            },
            is_damaged: false,
        };
        FileContent {
            header: Ok(FileHeader { shard: 0, generation }),
            commits: sequences.iter().enumerate().map(|(i, s)| place(i, s)).collect(),
            stop: (4096 * (sequences.len() as u64 + 1), Invalid::Magic),
            behind: Vec::new(),
            retired: Vec::new(),
            starts: Vec::new(),
        }
    }

    fn sequences(chain: &Chain) -> Vec<u64> {
        chain
            .commits
            .iter()
            .map(|(_, place)| place.header.sequence)
            .collect()
    }

    #[test]
    fn files_are_read_in_generation_order_and_prepared_ones_are_empty() {
        let files = [
            file(12, &[(7, 6), (8, 6)]),
            file(13, &[]),
            file(11, &[(5, 4), (6, 5)]),
        ];
        let chain = chain(&files, 4).expect("whole");
        assert_eq!(sequences(&chain), [5, 6, 7, 8]);
        assert_eq!(chain.durable_sequence, 6);
    }

    #[test]
    fn a_bad_last_commit_is_a_torn_tail() {
        let mut torn = file(1, &[(5, 4), (6, 5)]);
        torn.stop.1 = Invalid::Checksum;
        assert_eq!(sequences(&chain(&[torn], 4).expect("torn tail")), [5, 6]);
    }

    #[test]
    fn a_bad_commit_that_a_later_one_calls_durable_is_damage() {
        let mut bad = file(1, &[(5, 4), (6, 5)]);
        bad.stop.1 = Invalid::Checksum;
        bad.behind = file(1, &[(8, 7)]).commits;
        let found = chain(&[bad], 4).expect_err("damage");
        assert_eq!((found.expected_sequence, found.durable_sequence), (7, 7));
        assert_eq!((found.position, found.reason), (4096 * 3, Invalid::Checksum));
    }

    #[test]
    fn a_damaged_commit_is_a_torn_tail_unless_it_was_durable() {
        let with_damaged = |durable: u64| {
            let mut bad = file(1, &[(5, 4), (6, 5), (7, 5), (8, durable)]);
            bad.commits[2].is_damaged = true;
            chain(&[bad], 4).map(|chain| sequences(&chain))
        };
        assert_eq!(with_damaged(6).expect("torn tail"), [5, 6]);
        assert_eq!(with_damaged(7).expect("read all the same"), [5, 6, 7, 8]);
    }

    #[test]
    fn a_commit_written_ahead_of_a_lost_one_is_cut_with_it() {
        let mut torn = file(1, &[(5, 4), (6, 5)]);
        torn.behind = file(1, &[(8, 6)]).commits; // 7 was lost, 8 was written while 7 was being synced
        assert_eq!(sequences(&chain(&[torn], 4).expect("torn tail")), [5, 6]);
    }

    #[test]
    fn a_file_missing_from_the_middle_is_damage_when_it_was_durable() {
        let files = [file(1, &[(5, 4)]), file(3, &[(8, 7)])];
        assert_eq!(chain(&files, 4).expect_err("damage").expected_sequence, 6);
        let unsynced = [file(1, &[(5, 4)]), file(3, &[(8, 5)])];
        assert_eq!(sequences(&chain(&unsynced, 4).expect("cut")), [5]);
    }

    #[test]
    fn files_that_were_being_prepared_do_not_count() {
        let mut unreadable = file(3, &[]);
        unreadable.header = Err(Invalid::Checksum);
        let files = [file(1, &[(5, 4)]), unreadable];
        assert_eq!(sequences(&chain(&files, 4).expect("whole")), [5]);
    }

    #[test]
    fn what_was_written_behind_a_lost_first_commit_is_cut_with_it() {
        // Commit 1 went to the first file, commit 2 to the next; only 2 reached the disk.
        let files = [file(1, &[]), file(2, &[(2, 0)])];
        assert_eq!(sequences(&chain(&files, 0).expect("cut")), [0; 0]);
        // Commits up to 4 went with a file that is in use again; 5 is lost.
        let files = [file(2, &[]), file(3, &[(6, 4)])];
        assert_eq!(sequences(&chain(&files, 4).expect("cut")), [0; 0]);
        let files = [file(2, &[(5, 3)]), file(3, &[(6, 4)])];
        assert_eq!(sequences(&chain(&files, 4).expect("whole")), [5, 6]);
        // Commit 4 is still there: its file was not prepared anew yet.
        assert_eq!(
            sequences(&chain(&[file(2, &[(4, 3), (5, 4)])], 4).expect("whole")),
            [4, 5]
        );
    }

    #[test]
    fn a_lost_first_commit_that_was_durable_is_damage() {
        let files = [file(1, &[]), file(2, &[(2, 1)])];
        let found = chain(&files, 0).expect_err("damage");
        assert_eq!((found.expected_sequence, found.durable_sequence), (1, 1));
        let mut first = file(1, &[]);
        first.behind = file(1, &[(2, 1)]).commits;
        assert_eq!(chain(&[first], 0).expect_err("damage").position, 4096);
    }

    #[test]
    fn what_the_checkpoint_covers_is_not_missed() {
        assert!(
            chain(&[file(1, &[(5, 4)])], 6).is_err(),
            "yet 6 follows 5, and was durable"
        );
        assert!(chain(&[file(1, &[(5, 4)])], 5).is_ok());
        assert!(chain(&[file(1, &[])], 6).is_ok());
        assert!(chain::<FileContent>(&[], 6).is_ok());
    }
}
