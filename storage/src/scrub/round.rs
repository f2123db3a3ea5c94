//! Which log the scrub looks at next: all logs of a store in turn, once in a pass, a large one in several turns between which
//! the others have theirs. A state machine without I/O: [`Round::next`] is the output, [`Round::turn_ended`] the event. What it
//! knows outlasts a restart ([`super::record`]).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::types::{LogId, Offset};

/// Logs that are picked at a time: picking looks at all logs of the store.
const NEAR_MAX: usize = 256;

/// Logs that may be between two turns; beyond that a turn goes on to the log's end.
const LEFT_MAX: usize = 64 << 10;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before this time, milliseconds since 1970.
    Rest(i64),
    /// Look at this log, from the segment that holds the offset on.
    Log(LogId, Option<Offset>),
    /// All logs were looked at; ask again.
    PassEnded,
}

/// See the module. Memory: 40 bytes for each log that is larger than a turn.
#[derive(Debug)]
pub(super) struct Round {
    interval_ms: i64,
    /// When the pass began that runs or ran last, or when the store was first seen.
    began_ms: Option<i64>,
    pass: Option<Pass>,
}

/// A pass that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pass {
    /// Every log is to have its first turn still.
    is_first_lap: bool,
    /// The log whose turn it was last.
    cursor: Option<LogId>,
    /// Logs that are not through, and where to go on.
    left: BTreeMap<LogId, Offset>,
    near: VecDeque<LogId>,
}

impl Pass {
    /// A pass as it was when the process ended.
    pub(super) fn resumed(
        is_first_lap: bool,
        cursor: Option<LogId>,
        left: impl IntoIterator<Item = (LogId, Offset)>,
    ) -> Self {
        Self {
            is_first_lap,
            cursor,
            left: left.into_iter().take(LEFT_MAX).collect(),
            near: VecDeque::new(),
        }
    }

    /// What [`Self::resumed`] takes.
    pub(super) fn parts(&self) -> (bool, Option<LogId>, impl Iterator<Item = (LogId, Offset)>) {
        let left = self.left.iter().map(|(id, offset)| (*id, *offset));
        (self.is_first_lap, self.cursor, left)
    }
}

impl Round {
    /// A pass begins `interval_ms` after the one before. `began_ms`, `pass`: as they were when the process ended.
    pub(super) fn new(interval_ms: i64, began_ms: Option<i64>, pass: Option<Pass>) -> Self {
        Self {
            interval_ms,
            began_ms,
            pass,
        }
    }

    /// What to do at `now_ms`. `logs` gives the ids of all open logs, in any order.
    pub(super) fn next<I: Iterator<Item = LogId>>(&mut self, now_ms: i64, logs: impl Fn() -> I) -> Next {
        // A clock that was set back must not keep it from ever beginning.
        let began_ms = (*self.began_ms.get_or_insert(now_ms)).min(now_ms);
        let Some(pass) = &mut self.pass else {
            let due_ms = began_ms.saturating_add(self.interval_ms);
            if now_ms < due_ms {
                return Next::Rest(due_ms);
            }
            self.began_ms = Some(now_ms);
            self.pass = Some(Pass {
                is_first_lap: true,
                ..Pass::default()
            });
            return self.next(now_ms, logs);
        };
        if pass.is_first_lap {
            if pass.near.is_empty() {
                pass.near = nearest(pass.cursor, logs());
            }
            match pass.near.pop_front() {
                Some(id) => {
                    pass.cursor = Some(id);
                    return Next::Log(id, None);
                }
                None => (pass.is_first_lap, pass.cursor) = (false, None),
            }
        }
        let after = pass.cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let next = pass.left.range((after, Bound::Unbounded)).next();
        let next = next.or_else(|| pass.left.first_key_value());
        match next.map(|(id, offset)| (*id, *offset)) {
            Some((id, offset)) => {
                pass.cursor = Some(id);
                Next::Log(id, Some(offset))
            }
            None => {
                self.pass = None;
                Next::PassEnded
            }
        }
    }

    /// The log's turn is over; it goes on at `left` with its next one, or is through.
    pub(super) fn turn_ended(&mut self, id: LogId, left: Option<Offset>) {
        let Some(pass) = &mut self.pass else { return };
        match left {
            Some(offset) => {
                pass.left.insert(id, offset);
            }
            None => {
                pass.left.remove(&id);
            }
        }
    }

    /// Whether a turn may end before the log does.
    pub(super) fn may_leave(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.left.len() < LEFT_MAX)
    }

    /// When the pass began that runs or ran last, and where it is.
    pub(super) fn state(&self) -> (Option<i64>, Option<&Pass>) {
        (self.began_ms, self.pass.as_ref())
    }
}

/// The smallest ids above `cursor`, in order.
fn nearest(cursor: Option<LogId>, logs: impl Iterator<Item = LogId>) -> VecDeque<LogId> {
    let mut near = std::collections::BinaryHeap::with_capacity(NEAR_MAX + 1);
    for id in logs.filter(|id| cursor.is_none_or(|cursor| *id > cursor)) {
        if near.len() < NEAR_MAX {
            near.push(id);
        } else if near.peek().is_some_and(|largest| id < *largest) {
            near.pop();
            near.push(id);
        }
    }
    near.into_sorted_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TopicId;

    const DAY: i64 = 86_400_000;

    fn id(number: u32) -> LogId {
        let mut topic = [0; 16];
        topic[..4].copy_from_slice(&number.to_be_bytes());
        LogId {
            topic: TopicId(topic),
            partition: 0,
        }
    }

    fn number(id: LogId) -> u32 {
        u32::from_be_bytes(id.topic.0[..4].try_into().expect("four bytes"))
    }

    /// The logs of the turns of a pass; log n has `turns(n)` of them.
    fn pass(round: &mut Round, now_ms: i64, logs: &[u32], turns: impl Fn(u32) -> i64) -> Vec<u32> {
        let mut out = Vec::new();
        loop {
            match round.next(now_ms, || logs.iter().map(|n| id(*n))) {
                Next::Log(log, from) => {
                    let n = number(log);
                    out.push(n);
                    let done = from.map_or(0, |offset| offset.0) + 1;
                    round.turn_ended(log, (done < turns(n)).then_some(Offset(done)));
                }
                Next::PassEnded => return out,
                Next::Rest(until) => panic!("it rests until {until}"),
            }
        }
    }

    #[test]
    fn every_log_has_its_turns_and_a_large_one_does_not_keep_the_others_waiting() {
        let mut round = Round::new(DAY, Some(0), None);
        let turns = pass(&mut round, DAY, &[3, 1, 2], |n| {
            if n == 2 { 3 } else { 1 + i64::from(n == 3) }
        });
        assert_eq!(turns, [1, 2, 3, 2, 3, 2]);
    }

    #[test]
    fn a_pass_begins_an_interval_after_the_one_before() {
        let mut round = Round::new(DAY, None, None);
        let none = || std::iter::empty();
        assert_eq!(
            round.next(1000, none),
            Next::Rest(1000 + DAY),
            "a new store is not looked at"
        );
        assert_eq!(round.next(1000 + DAY, none), Next::PassEnded);
        assert_eq!(round.next(2000 + DAY, none), Next::Rest(1000 + 2 * DAY));
        // The clock goes back by a month: at most an interval is lost.
        assert_eq!(round.next(1000 - 30 * DAY, none), Next::Rest(1000 - 29 * DAY));
    }

    #[test]
    fn all_of_many_logs_are_looked_at_once() {
        let logs: Vec<u32> = (0..3000).rev().collect();
        let mut round = Round::new(0, Some(0), None);
        let turns = pass(&mut round, 1, &logs, |_| 1);
        assert_eq!(turns, (0..3000).collect::<Vec<_>>());
    }

    #[test]
    fn a_pass_goes_on_where_it_was_also_in_its_second_lap() {
        let logs = [1, 2, 3, 4];
        for turns_before in 0..7 {
            let mut round = Round::new(0, Some(0), None);
            let mut all = Vec::new();
            let step =
                |round: &mut Round, all: &mut Vec<u32>| match round.next(5, || logs.iter().map(|n| id(*n))) {
                    Next::Log(log, from) => {
                        all.push(number(log));
                        round.turn_ended(log, from.is_none().then_some(Offset(7)));
                        true
                    }
                    _ => false,
                };
            for _ in 0..turns_before {
                assert!(step(&mut round, &mut all));
            }
            let (began, state) = round.state();
            let resumed = state.map(|pass| {
                let (first, cursor, left) = pass.parts();
                Pass::resumed(first, cursor, left)
            });
            let mut round = Round::new(0, began, resumed);
            while step(&mut round, &mut all) {}
            assert_eq!(all, [1, 2, 3, 4, 1, 2, 3, 4], "stopped after {turns_before}");
        }
    }
}
