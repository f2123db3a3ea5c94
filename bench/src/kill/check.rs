//! Holds what a topic has after the kills against what its producer was told: pure, so that it is tested without a broker.

use std::collections::BTreeMap;

/// An answer that a producer got: this value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The record's value; producers count up.
    pub value: u64,
    /// Partition it went to.
    pub partition: u32,
    /// Its offset; none when the answer carried none (a duplicate that the broker only knows as such).
    pub offset: Option<u64>,
}

/// A record as read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Partition it was read from.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Its value.
    pub value: u64,
}

/// Counts of one topic; see [`Verdict::violations`] for those that must be 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Answers that promised a stored record.
    pub acknowledged: u64,
    /// Records read back.
    pub found: u64,
    /// Read back though nobody was told: allowed, their answer was lost.
    pub unacknowledged: u64,
    /// Acknowledged and not there.
    pub lost: u64,
    /// Values that are there more than once, each repetition counted.
    pub repeated: u64,
    /// Records after one with a larger value in the same partition.
    pub disordered: u64,
    /// Acknowledged with another partition or offset than they have.
    pub misplaced: u64,
    /// Offsets missing between 0 and the end of a partition.
    pub gaps: u64,
    /// Values acknowledged more than once.
    pub acknowledged_twice: u64,
    /// The first violation in words.
    pub first: Option<String>,
}

impl Verdict {
    /// Broken promises in all.
    pub fn violations(&self) -> u64 {
        self.lost + self.repeated + self.disordered + self.misplaced + self.gaps + self.acknowledged_twice
    }

    fn note(&mut self, words: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(words());
        }
    }
}

/// Compares; `found` may be in any order between partitions, within one it is by offset.
pub fn check(acknowledged: &[Acknowledged], found: &[Found]) -> Verdict {
    let mut verdict = Verdict {
        acknowledged: acknowledged.len() as u64,
        found: found.len() as u64,
        ..Verdict::default()
    };
    let places = places(found, &mut verdict);
    let mut told = BTreeMap::new();
    for answer in acknowledged {
        if told.insert(answer.value, answer).is_some() {
            verdict.acknowledged_twice += 1;
            verdict.note(|| format!("{answer:?} was acknowledged before"));
        }
        match places.get(&answer.value) {
            None => {
                verdict.lost += 1;
                verdict.note(|| format!("{answer:?} is not there"));
            }
            Some(at)
                if at.partition != answer.partition
                    || answer.offset.is_some_and(|offset| offset != at.offset) =>
            {
                verdict.misplaced += 1;
                verdict.note(|| format!("{answer:?} is there as {at:?}"));
            }
            Some(_) => {}
        }
    }
    verdict.unacknowledged = places.keys().filter(|value| !told.contains_key(value)).count() as u64;
    verdict
}

/// Where each value is first found; checks offsets, order and repetition on the way.
fn places(found: &[Found], verdict: &mut Verdict) -> BTreeMap<u64, Found> {
    let mut places = BTreeMap::new();
    let mut ends: BTreeMap<u32, (u64, Option<u64>)> = BTreeMap::new();
    for &record in found {
        let (next, largest) = ends.entry(record.partition).or_insert((0, None));
        if record.offset != *next {
            verdict.gaps += record.offset.abs_diff(*next);
            verdict.note(|| format!("{record:?} comes where offset {next} was due"));
        }
        *next = record.offset + 1;
        if places.contains_key(&record.value) {
            verdict.repeated += 1;
            verdict.note(|| format!("{record:?} was there before at {:?}", places[&record.value]));
            continue;
        }
        if largest.is_some_and(|largest| largest > record.value) {
            verdict.disordered += 1;
            verdict.note(|| format!("{record:?} comes after the larger value {largest:?}"));
        }
        *largest = Some(largest.map_or(record.value, |largest| largest.max(record.value)));
        places.insert(record.value, record);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(value: u64, partition: u32, offset: u64) -> Acknowledged {
        Acknowledged {
            value,
            partition,
            offset: Some(offset),
        }
    }

    fn found(partition: u32, offset: u64, value: u64) -> Found {
        Found {
            partition,
            offset,
            value,
        }
    }

    #[test]
    fn a_clean_run_has_no_violations() {
        let told = [
            acknowledged(0, 0, 0),
            acknowledged(1, 1, 0),
            Acknowledged {
                value: 2,
                partition: 0,
                offset: None,
            },
        ];
        let there = [found(0, 0, 0), found(0, 1, 2), found(1, 0, 1), found(1, 1, 3)];
        let verdict = check(&told, &there);
        assert_eq!(verdict.violations(), 0, "{verdict:?}");
        assert_eq!(
            (verdict.acknowledged, verdict.found, verdict.unacknowledged),
            (3, 4, 1)
        );
    }

    #[test]
    fn each_kind_of_violation_is_seen() {
        let lost = check(&[acknowledged(7, 0, 0)], &[]);
        assert_eq!((lost.lost, lost.violations()), (1, 1));
        let repeated = check(&[acknowledged(7, 0, 0)], &[found(0, 0, 7), found(0, 1, 7)]);
        assert_eq!((repeated.repeated, repeated.violations()), (1, 1));
        let disordered = check(&[], &[found(0, 0, 7), found(0, 1, 6), found(0, 2, 8)]);
        assert_eq!((disordered.disordered, disordered.violations()), (1, 1));
        let misplaced = check(
            &[acknowledged(7, 0, 3), acknowledged(8, 1, 1)],
            &[found(0, 0, 7), found(0, 1, 8)],
        );
        assert_eq!((misplaced.misplaced, misplaced.violations()), (2, 2));
        let gap = check(&[], &[found(0, 0, 7), found(0, 3, 8)]);
        assert_eq!((gap.gaps, gap.violations()), (2, 2));
        let twice = check(&[acknowledged(7, 0, 0), acknowledged(7, 0, 0)], &[found(0, 0, 7)]);
        assert_eq!((twice.acknowledged_twice, twice.violations()), (1, 1));
        assert!(lost.first.expect("said").contains("not there"));
    }
}
