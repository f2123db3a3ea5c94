//! The plan of a reset: from what is committed and where the logs begin and end to new offsets. No I/O.
//!
//! As in Kafka's tool, an offset outside of a log is moved to its nearer end, a time after the last record means the end,
//! and a partition without a committed offset stays `current` at its end.

use std::collections::BTreeMap;

use crate::client::TopicPartition;

/// An offset above it may be a time in ms since 1970, for as one it is of 1973 or later.
const TIME_MIN_MS: i64 = 100_000_000_000;

/// Where a group shall go on, with a duration already turned into a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The first record there is.
    Earliest,
    /// Behind the last record.
    Latest,
    /// What is committed.
    Current,
    /// This offset.
    Offset(i64),
    /// The first record of this time or later, ms since 1970.
    Time(i64),
    /// So many records after what is committed; before it when negative.
    Shift(i64),
}

/// What is known of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// First offset.
    pub(super) earliest: i64,
    /// Offset behind the last record.
    pub(super) latest: i64,
    /// First offset of the wanted time or later; `None` when no record is, or no time is wanted.
    pub(super) at_time: Option<i64>,
}

/// What becomes of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The partition.
    pub(super) partition: TopicPartition,
    /// What is committed.
    pub(super) from: Option<i64>,
    /// What shall be committed.
    pub(super) to: i64,
    /// The offset that was meant, when it lies outside of the log.
    pub(super) moved_from: Option<i64>,
    /// The log.
    pub(super) ends: Ends,
}

impl Step {
    /// What has to be said of it: that something else is taken than was meant.
    pub(super) fn remark(&self, target: Target) -> Option<String> {
        let (topic, number) = &self.partition;
        let Ends { earliest, latest, .. } = self.ends;
        let to = self.to;
        match (target, self.from, self.moved_from) {
            (Target::Current, None, _) => Some(format!(
                "nothing is committed for {topic}-{number}; its end, {to}, is taken"
            )),
            (_, _, Some(meant)) => Some(format!(
                "offset {meant} lies outside of {topic}-{number}, which has {earliest} to {latest}; {to} is taken"
            )),
            _ => None,
        }
    }
}

/// The sentence about a time that is written as if it were an offset: it would silently mean the ends of all logs.
pub(super) fn refuse_time(target: Target, steps: &[Step]) -> Result<(), String> {
    let Target::Offset(offset) = target else {
        return Ok(());
    };
    // A log that has the offset is told from one that cannot.
    if offset <= TIME_MIN_MS || steps.iter().any(|step| step.moved_from.is_none()) {
        return Ok(());
    }
    Err(format!(
        "no log that is meant has an offset {offset}; write a time like 2025-12-01T04:05:30Z, the end as latest"
    ))
}

/// The plan for these partitions.
///
/// # Errors
/// The sentence about a shift without a committed offset.
pub(super) fn plan(
    target: Target,
    committed: &BTreeMap<TopicPartition, i64>,
    logs: &BTreeMap<TopicPartition, Ends>,
) -> Result<Vec<Step>, String> {
    logs.iter()
        .map(|(partition, ends)| {
            let from = committed.get(partition).copied();
            let meant = match (target, from) {
                (Target::Earliest, _) => ends.earliest,
                (Target::Latest, _) => ends.latest,
                (Target::Current, from) => from.unwrap_or(ends.latest),
                (Target::Offset(offset), _) => offset,
                (Target::Time(_), _) => ends.at_time.unwrap_or(ends.latest),
                (Target::Shift(by), Some(from)) => from.saturating_add(by),
                (Target::Shift(_), None) => {
                    let (topic, number) = partition;
                    return Err(format!(
                        "nothing is committed for {topic}-{number}, so there is nothing to shift; use --to, or leave the partition out"
                    ));
                }
            };
            // The current offset is written as it is, though its record may be gone.
            let to = match target {
                Target::Current => meant,
                _ => meant.min(ends.latest).max(ends.earliest),
            };
            Ok(Step {
                partition: partition.clone(),
                from,
                to,
                moved_from: Some(meant).filter(|&meant| meant != to),
                ends: *ends,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: i32) -> TopicPartition {
        ("t".to_owned(), number)
    }

    /// The step of a log of 100 to 200 with 150 committed in partition 0 and nothing in partition 1.
    fn step(target: Target, at_time: Option<i64>, number: i32) -> Result<Step, String> {
        let ends = Ends {
            earliest: 100,
            latest: 200,
            at_time,
        };
        let mut steps = plan(target, &[(key(0), 150)].into(), &[(key(number), ends)].into())?;
        let step = steps.pop().expect("one partition");
        assert_eq!(step.from, (number == 0).then_some(150));
        Ok(step)
    }

    /// Its new offset, and the one that was meant when that lies outside.
    fn planned(target: Target, at_time: Option<i64>, number: i32) -> Result<(i64, Option<i64>), String> {
        step(target, at_time, number).map(|step| (step.to, step.moved_from))
    }

    #[test]
    fn every_target() {
        for (target, at_time, to) in [
            (Target::Earliest, None, (100, None)),
            (Target::Latest, None, (200, None)),
            (Target::Current, None, (150, None)),
            (Target::Offset(170), None, (170, None)),
            (Target::Time(5), Some(120), (120, None)),
            (Target::Time(5), None, (200, None)),
            (Target::Shift(-10), None, (140, None)),
            (Target::Shift(10), None, (160, None)),
        ] {
            assert_eq!(planned(target, at_time, 0), Ok(to), "{target:?}");
        }
    }

    #[test]
    fn an_offset_outside_of_the_log_is_moved_to_its_nearer_end() {
        assert_eq!(planned(Target::Offset(99), None, 0), Ok((100, Some(99))));
        assert_eq!(planned(Target::Offset(201), None, 0), Ok((200, Some(201))));
        assert_eq!(
            planned(Target::Shift(i64::MIN), None, 0),
            Ok((100, Some(i64::MIN + 150)))
        );
        assert_eq!(
            planned(Target::Shift(i64::MAX), None, 0),
            Ok((200, Some(i64::MAX)))
        );
    }

    #[test]
    fn without_a_committed_offset_current_is_the_end_and_a_shift_is_refused() {
        assert_eq!(planned(Target::Current, None, 1), Ok((200, None)));
        assert!(planned(Target::Shift(1), None, 1).unwrap_err().contains("t-1"));
    }
    #[test]
    fn what_is_taken_instead_of_what_was_meant_is_told() {
        let remark = |target, number| step(target, None, number).expect("a step").remark(target);
        for (target, sentence) in [
            (
                Target::Offset(99),
                "offset 99 lies outside of t-0, which has 100 to 200; 100 is taken",
            ),
            (
                Target::Shift(60),
                "offset 210 lies outside of t-0, which has 100 to 200; 200 is taken",
            ),
        ] {
            assert_eq!(remark(target, 0).as_deref(), Some(sentence));
        }
        assert_eq!(
            remark(Target::Current, 1).as_deref(),
            Some("nothing is committed for t-1; its end, 200, is taken")
        );
        for target in [Target::Current, Target::Offset(170), Target::Time(5)] {
            assert_eq!(remark(target, 0), None, "{target:?}");
        }
    }

    #[test]
    fn milliseconds_are_not_taken_for_an_offset_that_no_log_has() {
        const TIME: i64 = 1_764_561_930_000;
        let of = |offset| {
            let target = Target::Offset(offset);
            (target, step(target, None, 0).expect("a step"))
        };
        let (target, outside) = of(TIME);
        let refused = refuse_time(target, std::slice::from_ref(&outside)).unwrap_err();
        assert!(
            refused.contains("1764561930000") && refused.contains("2025-12-01T04:05:30Z"),
            "{refused}"
        );
        // A log may have so many records.
        let long = Step {
            moved_from: None,
            ..outside.clone()
        };
        assert_eq!(refuse_time(target, &[outside, long]), Ok(()));
        let (target, near) = of(100_000);
        assert_eq!(refuse_time(target, &[near]), Ok(()));
    }
}
