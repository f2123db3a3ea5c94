//! Which segments of a log are to go, by age, by size, and because the log starts above them. Decided without I/O from what
//! memory has of each segment, oldest first and whole segments only (RT-4 to RT-7, RT-10). Who carries it out is
//! `log/retain.rs`.

use crate::types::Offset;

/// What a log may lose by itself: `cleanup.policy`, `retention.ms` and `retention.bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionRules {
    /// `cleanup.policy` has `delete`: age and size count. Without it, be it `compact` or nothing at all, only what lies below
    /// the log start goes (RT-10).
    pub by_age_and_size: bool,
    /// `retention.ms`; negative is for ever.
    pub ms: i64,
    /// `retention.bytes`; negative is no limit.
    pub bytes: i64,
}

impl RetentionRules {
    /// Nothing goes but what lies below the log start.
    pub const KEEP: Self = Self {
        by_age_and_size: false,
        ms: -1,
        bytes: -1,
    };

    /// What the log is cut down to, if anything; at least so much stays.
    #[must_use]
    pub fn bytes_max(&self) -> Option<u64> {
        u64::try_from(self.bytes).ok().filter(|_| self.by_age_and_size)
    }
}

impl Default for RetentionRules {
    /// Kafka's: seven days, whatever the size.
    fn default() -> Self {
        Self {
            by_age_and_size: true,
            ms: 7 * 24 * 3600 * 1000,
            bytes: -1,
        }
    }
}

/// Why a segment goes, in the order in which a pass looks (RT-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetentionReason {
    /// It lies below the log start, which DeleteRecords has moved.
    LogStart,
    /// The log is as large without it as it may be.
    Size,
    /// Its newest record is too old.
    Age,
}

/// What is to be known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFacts {
    /// One past its last offset: the next segment's base, or the log's end.
    pub(crate) end: Offset,
    pub(crate) bytes: u64,
    /// The largest timestamp of its records; without one, when it was last written to (RT-4).
    pub(crate) newest_ms: i64,
    /// Appends go to it: the last one.
    pub(crate) is_active: bool,
}

/// Up to where segments go, each reason behind the one before: a segment that ends at or below one of these goes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetentionCut {
    pub(crate) by_log_start: Offset,
    pub(crate) by_size: Offset,
    pub(crate) by_age: Offset,
    /// The active segment goes too: the log is to be rolled first (RT-6).
    pub(crate) takes_active: bool,
}

impl RetentionCut {
    /// The end of the last segment that goes.
    pub(crate) fn end(&self) -> Offset {
        self.by_log_start.max(self.by_size).max(self.by_age)
    }

    /// Why the segment that ends at `end` goes.
    pub(crate) fn reason(&self, end: Offset) -> RetentionReason {
        if end <= self.by_log_start {
            RetentionReason::LogStart
        } else if end <= self.by_size {
            RetentionReason::Size
        } else {
            RetentionReason::Age
        }
    }
}

/// Looks at a log's `segments`, oldest first, until one stays; `None` when none goes. `total_bytes` is asked for only if there
/// is a limit of size. Nothing at or above `high_watermark` goes.
pub(crate) fn decide(
    rules: RetentionRules,
    log_start: Offset,
    high_watermark: Offset,
    now_ms: i64,
    total_bytes: impl FnOnce() -> u64,
    segments: impl Iterator<Item = SegmentFacts>,
) -> Option<RetentionCut> {
    let mut segments = segments.peekable();
    let mut gone_bytes = 0u64;
    let mut cut = RetentionCut {
        by_log_start: Offset::NONE,
        by_size: Offset::NONE,
        by_age: Offset::NONE,
        takes_active: false,
    };
    while let Some(segment) = segments.next_if(|s| !s.is_active && s.end <= log_start) {
        gone_bytes += segment.bytes;
        cut.by_log_start = segment.end;
    }
    // An active segment without records has nothing to give: a log always has one.
    let may_go = |s: &SegmentFacts| s.end <= high_watermark && !(s.is_active && s.bytes == 0);
    if let Some(limit) = rules.bytes_max() {
        let total = total_bytes().saturating_sub(gone_bytes);
        let mut excess = total.checked_sub(limit);
        while let Some(left) = excess
            && let Some(segment) = segments.next_if(|s| may_go(s) && s.bytes <= left)
        {
            excess = left.checked_sub(segment.bytes);
            cut.by_size = segment.end;
            cut.takes_active |= segment.is_active;
        }
    }
    if rules.by_age_and_size && rules.ms >= 0 {
        let is_old = |s: &SegmentFacts| now_ms.saturating_sub(s.newest_ms) > rules.ms;
        while let Some(segment) = segments.next_if(|s| may_go(s) && is_old(s)) {
            cut.by_age = segment.end;
            cut.takes_active |= segment.is_active;
        }
    }
    (cut.end() != Offset::NONE).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_000_000;

    /// Segments of ten offsets each, given as bytes and newest timestamp; the last is the active one.
    fn segments(all: &[(u64, i64)]) -> Vec<SegmentFacts> {
        let ends = (1..).map(|number| Offset(number * 10));
        all.iter()
            .zip(ends)
            .enumerate()
            .map(|(index, ((bytes, newest_ms), end))| SegmentFacts {
                end,
                bytes: *bytes,
                newest_ms: *newest_ms,
                is_active: index + 1 == all.len(),
            })
            .collect()
    }

    fn decide_all(
        rules: RetentionRules,
        log_start: i64,
        high_watermark: i64,
        all: &[SegmentFacts],
    ) -> Option<RetentionCut> {
        let total = || all.iter().map(|s| s.bytes).sum();
        let (start, mark) = (Offset(log_start), Offset(high_watermark));
        decide(rules, start, mark, NOW_MS, total, all.iter().copied())
    }

    fn by_age(ms: i64) -> RetentionRules {
        RetentionRules {
            by_age_and_size: true,
            ms,
            bytes: -1,
        }
    }

    fn by_size(bytes: i64) -> RetentionRules {
        RetentionRules {
            by_age_and_size: true,
            ms: -1,
            bytes,
        }
    }

    #[test]
    fn rt_4_a_segment_goes_when_its_newest_record_is_older_than_retention_ms() {
        let all = segments(&[(100, NOW_MS - 501), (100, NOW_MS - 500), (100, NOW_MS - 9000)]);
        let cut = decide_all(by_age(500), 0, 30, &all).unwrap();
        // Exactly that old is not older, and what stays keeps what comes behind it, however old that is.
        assert_eq!((cut.end(), cut.takes_active), (Offset(10), false));
        assert_eq!(cut.reason(Offset(10)), RetentionReason::Age);
        assert_eq!(decide_all(by_age(501), 0, 30, &all), None);
        assert_eq!(decide_all(by_age(-1), 0, 30, &all), None, "for ever");
        let zero = decide_all(by_age(0), 0, 30, &all).unwrap();
        assert_eq!((zero.end(), zero.takes_active), (Offset(30), true));
    }

    #[test]
    fn rt_4_a_time_in_the_future_pins_its_segment_and_all_behind_it_but_not_against_size() {
        let all = segments(&[(100, i64::MAX), (100, 0), (100, 0)]);
        assert_eq!(decide_all(by_age(500), 0, 30, &all), None);
        let both = RetentionRules {
            bytes: 150,
            ..by_age(500)
        };
        let cut = decide_all(both, 0, 30, &all).unwrap();
        // Size takes the pinned one, and then age has the rest.
        assert_eq!((cut.by_size, cut.by_age), (Offset(10), Offset(30)));
        // A time before all times is as old as can be, and does not overflow.
        let oldest = segments(&[(100, i64::MIN), (100, NOW_MS)]);
        assert_eq!(decide_all(by_age(500), 0, 20, &oldest).unwrap().end(), Offset(10));
    }

    #[test]
    fn rt_5_size_leaves_at_least_retention_bytes() {
        let all = segments(&[(100, 0), (100, 0), (100, 0), (40, 0)]);
        for (limit, end) in [
            (341, None),
            (340, None),
            (241, None),
            (240, Some(10)),
            (141, Some(10)),
            (140, Some(20)),
            (41, Some(20)),
            (40, Some(30)),
            (1, Some(30)),
        ] {
            let cut = decide_all(by_size(limit), 0, 40, &all);
            assert_eq!(cut.map(|cut| cut.end()), end.map(Offset), "{limit}");
            assert!(cut.is_none_or(|cut| !cut.takes_active), "{limit}");
        }
        // Nothing is to be kept: the active segment goes, too.
        let cut = decide_all(by_size(0), 0, 40, &all).unwrap();
        assert_eq!((cut.end(), cut.takes_active), (Offset(40), true));
        // A large one in front keeps small ones behind it, though the log would stay large enough without them.
        let all = segments(&[(300, 0), (10, 0), (10, 0)]);
        assert_eq!(decide_all(by_size(100), 0, 30, &all), None);
    }

    #[test]
    fn rt_6_only_whole_segments_below_the_high_watermark_go_and_an_empty_active_one_stays() {
        let all = segments(&[(100, 0), (100, 0), (100, 0)]);
        for (mark, end, takes_active) in [
            (9, None, false),
            (10, Some(10), false),
            (29, Some(20), false),
            (30, Some(30), true),
        ] {
            for rules in [by_age(500), by_size(0)] {
                let cut = decide_all(rules, 0, mark, &all);
                assert_eq!(cut.map(|cut| cut.end()), end.map(Offset), "{mark}");
                assert_eq!(cut.is_some_and(|cut| cut.takes_active), takes_active, "{mark}");
            }
        }
        let mut empty = segments(&[(100, 0), (0, 0)]);
        empty[1].end = Offset(10);
        let cut = decide_all(by_age(500), 0, 10, &empty).unwrap();
        assert_eq!((cut.end(), cut.takes_active), (Offset(10), false));
        let alone = [SegmentFacts {
            end: Offset(10),
            bytes: 0,
            newest_ms: 0,
            is_active: true,
        }];
        assert_eq!(decide_all(by_age(500), 10, 10, &alone), None);
        assert_eq!(decide_all(by_size(0), 10, 10, &alone), None);
    }

    #[test]
    fn rt_7_log_start_first_then_size_then_age_each_with_what_the_one_before_left() {
        let all = segments(&[(100, NOW_MS), (100, NOW_MS), (100, 0), (100, NOW_MS), (100, 0)]);
        let rules = RetentionRules {
            by_age_and_size: true,
            ms: 500,
            bytes: 300,
        };
        let cut = decide_all(rules, 15, 50, &all).unwrap();
        // The log start takes the first, of the other 400 bytes size takes 100, age one more, and a young one ends it.
        assert_eq!(
            (cut.by_log_start, cut.by_size, cut.by_age),
            (Offset(10), Offset(20), Offset(30))
        );
        let reasons = [10, 20, 30].map(|end| cut.reason(Offset(end)));
        let expected = [
            RetentionReason::LogStart,
            RetentionReason::Size,
            RetentionReason::Age,
        ];
        assert_eq!(reasons, expected);
        assert!(!cut.takes_active);
    }

    #[test]
    fn rt_10_without_delete_only_what_lies_below_the_log_start_goes() {
        let all = segments(&[(100, 0), (100, 0), (100, 0)]);
        let rules = RetentionRules {
            by_age_and_size: false,
            ms: 0,
            bytes: 0,
        };
        assert_eq!(decide_all(rules, 9, 30, &all), None);
        let cut = decide_all(rules, 25, 30, &all).unwrap();
        assert_eq!((cut.end(), cut.takes_active), (Offset(20), false));
        // All records were deleted: the active segment stays until it is rolled.
        let cut = decide_all(rules, 30, 30, &all).unwrap();
        assert_eq!((cut.end(), cut.takes_active), (Offset(20), false));
    }

    #[test]
    fn without_a_limit_of_size_no_segment_is_counted() {
        let all = segments(&[(100, NOW_MS), (100, NOW_MS)]);
        let unasked = || -> u64 { panic!("asked for the size of all") };
        let cut = decide(
            by_age(500),
            Offset(0),
            Offset(20),
            NOW_MS,
            unasked,
            all.iter().copied(),
        );
        assert_eq!(cut, None);
    }
}
