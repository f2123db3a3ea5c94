//! What of a log is cleaned, and when: the range (CP-1), the dirty ratio and the lag that is too long (CP-2), and which
//! segments become one (CP-7). Pure.

use crate::log::config::CompactionConfig;
use crate::types::Offset;

/// Parts in a million.
pub const PPM: u32 = 1_000_000;

/// The largest relative offset an index can hold.
const RELATIVE_OFFSET_MAX: i64 = i32::MAX as i64;

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its first offset.
    pub base: Offset,
    /// Bytes of batches.
    pub size: u32,
    /// Its largest timestamp, −1 without one.
    pub largest_timestamp: i64,
    /// The largest timestamp of its first batch, if that is known.
    pub first_timestamp: Option<i64>,
    /// Bytes of its offset index and of its time index, the larger of the two.
    pub index_bytes: u32,
    /// It is rolled, and all of it is on disk and synced.
    pub is_finished: bool,
}

/// What is known of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// Up to where it is clean, as it was noted.
    pub cleaned_to: Option<Offset>,
    /// Its first offset.
    pub log_start: Offset,
    /// Nothing from here on may be cleaned: the least of durable end, high watermark and last stable offset.
    pub stable_end: Offset,
    /// In order; the last is the active one.
    pub segments: Vec<SegmentFacts>,
}

/// The part of a log that can be cleaned now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleanable {
    /// Where the dirty part begins.
    pub first_dirty: Offset,
    /// Where what may be cleaned ends: the base of a segment.
    pub end: Offset,
    /// Bytes of the segments that begin in the clean part.
    pub clean_bytes: u64,
    /// Bytes of the segments that can be cleaned.
    pub dirty_bytes: u64,
    /// By how much the oldest dirty record is older than it should get, milliseconds; 0 when it is not.
    pub overdue_ms: i64,
}

impl Cleanable {
    /// The dirty share, parts per million.
    #[must_use]
    pub fn dirty_ppm(&self) -> u32 {
        let all = self.clean_bytes + self.dirty_bytes;
        if all == 0 {
            return 0;
        }
        u32::try_from(u128::from(self.dirty_bytes) * u128::from(PPM) / u128::from(all)).unwrap_or(PPM)
    }

    /// Whether a pass is due (CP-2).
    #[must_use]
    pub fn is_due(&self, config: &CompactionConfig) -> bool {
        self.dirty_bytes > 0 && (self.overdue_ms > 0 || self.dirty_ppm() > config.min_dirty_ppm)
    }
}

impl LogFacts {
    /// Where the dirty part begins: what was noted, unless the log is not that one any more.
    #[must_use]
    pub fn first_dirty(&self) -> Offset {
        let end = self.segments.last().map_or(self.log_start, |active| active.base);
        self.cleaned_to
            .filter(|cleaned| (self.log_start..=end.max(self.stable_end)).contains(cleaned))
            .unwrap_or(self.log_start)
    }

    /// The range that can be cleaned at `now_ms`.
    #[must_use]
    pub fn cleanable(&self, config: &CompactionConfig, now_ms: i64) -> Cleanable {
        let first_dirty = self.first_dirty();
        let first = self.segments_from(first_dirty);
        let closed = self.segments.len().saturating_sub(1);
        let mut end = first.min(closed);
        while end < closed {
            let segment = &self.segments[end];
            let next = self.segments[end + 1].base;
            let is_young =
                config.min_lag_ms > 0 && segment.largest_timestamp > now_ms.saturating_sub(config.min_lag_ms);
            if !segment.is_finished || is_young || next > self.stable_end {
                break;
            }
            end += 1;
        }
        let bytes = |range: &[SegmentFacts]| range.iter().map(|segment| u64::from(segment.size)).sum();
        let dirty = self.segments.get(first..end).unwrap_or_default();
        let clean_segments = self
            .segments
            .partition_point(|segment| segment.base < first_dirty)
            .min(closed);
        Cleanable {
            first_dirty,
            end: self.segments.get(end).map_or(first_dirty, |segment| segment.base),
            clean_bytes: bytes(self.segments.get(..clean_segments).unwrap_or_default()),
            dirty_bytes: bytes(dirty),
            overdue_ms: overdue_ms(dirty, config, now_ms),
        }
    }

    /// The number of the segment that holds `offset`.
    fn segments_from(&self, offset: Offset) -> usize {
        self.segments
            .partition_point(|segment| segment.base <= offset)
            .saturating_sub(1)
    }
}

fn overdue_ms(dirty: &[SegmentFacts], config: &CompactionConfig, now_ms: i64) -> i64 {
    if config.max_lag_ms == i64::MAX {
        return 0;
    }
    let times = dirty.iter().filter_map(|segment| segment.first_timestamp);
    match times.filter(|time| *time > 0).min() {
        Some(oldest) => now_ms
            .saturating_sub(config.max_lag_ms.max(0))
            .saturating_sub(oldest)
            .max(0),
        None => 0,
    }
}

/// Which neighbouring `segments` are rewritten into one, as ranges of their numbers: as long as together they fit
/// `segment_bytes` and `index_bytes` and the offsets fit the indexes. `end` is where the last of them ends.
#[must_use]
pub fn groups(
    segments: &[SegmentFacts],
    end: Offset,
    segment_bytes: u32,
    index_bytes: u32,
) -> Vec<std::ops::Range<usize>> {
    let mut groups = Vec::new();
    let mut from = 0;
    while from < segments.len() {
        let base = segments[from].base;
        let (mut bytes, mut indexes) = (0u64, 0u64);
        let mut to = from;
        while let Some(segment) = segments.get(to) {
            let segment_end = segments.get(to + 1).map_or(end, |next| next.base);
            bytes += u64::from(segment.size);
            indexes += u64::from(segment.index_bytes);
            let fits = bytes <= u64::from(segment_bytes)
                && indexes <= u64::from(index_bytes)
                && segment_end.0 - 1 - base.0 <= RELATIVE_OFFSET_MAX;
            if to > from && !fits {
                break;
            }
            to += 1;
        }
        groups.push(from..to);
        from = to;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: CompactionConfig = CompactionConfig {
        enabled: true,
        min_dirty_ppm: 500_000,
        min_lag_ms: 0,
        max_lag_ms: i64::MAX,
        delete_retention_ms: 1000,
    };

    fn segment(base: i64, size: u32, time: i64) -> SegmentFacts {
        SegmentFacts {
            base: Offset(base),
            size,
            largest_timestamp: time + 9,
            first_timestamp: Some(time),
            index_bytes: 8,
            is_finished: true,
        }
    }

    /// Segments of 10 offsets and 100 bytes; the last is active.
    fn log(count: i64) -> LogFacts {
        LogFacts {
            cleaned_to: None,
            log_start: Offset::ZERO,
            stable_end: Offset(count * 10),
            segments: (0..count)
                .map(|number| segment(number * 10, 100, number * 1000 + 1))
                .collect(),
        }
    }

    /// CP-1.
    #[test]
    fn the_range_ends_before_the_active_segment_an_open_transaction_and_young_records() {
        let mut facts = log(5);
        assert_eq!(facts.cleanable(&CONFIG, 9000).end, Offset(40));
        facts.stable_end = Offset(35);
        assert_eq!(
            facts.cleanable(&CONFIG, 9000).end,
            Offset(30),
            "the segment of the transaction stays whole"
        );
        facts.stable_end = Offset(30);
        assert_eq!(facts.cleanable(&CONFIG, 9000).end, Offset(30));
        facts.stable_end = Offset(50);
        let lag = CompactionConfig {
            min_lag_ms: 2000,
            ..CONFIG
        };
        assert_eq!(
            facts.cleanable(&lag, 4005).end,
            Offset(20),
            "2010 is younger than 2005"
        );
        facts.segments[1].is_finished = false;
        assert_eq!(facts.cleanable(&CONFIG, 9000).end, Offset(10));
        let empty = log(1).cleanable(&CONFIG, 9000);
        assert_eq!((empty.end, empty.dirty_bytes), (Offset::ZERO, 0));
        assert!(!empty.is_due(&CONFIG));
    }

    /// CP-2.
    #[test]
    fn a_log_is_due_by_its_dirty_share_or_by_age() {
        let mut facts = log(5);
        facts.cleaned_to = Some(Offset(20));
        let half = facts.cleanable(&CONFIG, 9000);
        assert_eq!(
            (half.first_dirty, half.clean_bytes, half.dirty_bytes),
            (Offset(20), 200, 200)
        );
        assert_eq!(half.dirty_ppm(), 500_000);
        assert!(!half.is_due(&CONFIG), "above, not at the ratio");
        facts.cleaned_to = Some(Offset(10));
        assert!(facts.cleanable(&CONFIG, 9000).is_due(&CONFIG));
        let lag = CompactionConfig {
            max_lag_ms: 500,
            min_dirty_ppm: PPM,
            ..CONFIG
        };
        facts.cleaned_to = Some(Offset(30));
        assert!(!facts.cleanable(&lag, 3501).is_due(&lag));
        let late = facts.cleanable(&lag, 3502);
        assert_eq!(late.overdue_ms, 1);
        assert!(late.is_due(&lag));
        facts.cleaned_to = Some(Offset(40));
        assert!(
            !facts.cleanable(&lag, 9000).is_due(&lag),
            "nothing dirty is closed"
        );
    }

    #[test]
    fn a_noted_place_outside_the_log_means_nothing() {
        let mut facts = log(3);
        facts.log_start = Offset(5);
        for (noted, first) in [(4, 5), (5, 5), (17, 17), (30, 30), (31, 5), (1000, 5)] {
            facts.cleaned_to = Some(Offset(noted));
            assert_eq!(facts.first_dirty(), Offset(first), "{noted}");
        }
    }

    /// CP-7.
    #[test]
    fn small_neighbours_are_merged_within_the_limits() {
        let segments: Vec<_> = [60, 30, 20, 200, 0, 10]
            .iter()
            .enumerate()
            .map(|(number, size)| segment(number as i64 * 10, *size, 0))
            .collect();
        let end = Offset(60);
        assert_eq!(groups(&segments, end, 100, 100), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(groups(&segments, end, 1000, 24), [0..3, 3..6]);
        assert_eq!(
            groups(&segments, end, 10, 1),
            [0..1, 1..2, 2..3, 3..4, 4..5, 5..6]
        );
        let far = [segment(0, 1, 0), segment(100, 1, 0), segment(1 << 31, 1, 0)];
        assert_eq!(groups(&far, Offset((1 << 31) + 1), 1000, 1000), [0..2, 2..3]);
        assert!(groups(&[], end, 100, 100).is_empty());
    }
}
