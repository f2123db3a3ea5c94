//! What scrapes are told: pages, and counts of rebalances.

use super::*;

/// A group and its offsets: topic, partition, offset.
type Told = (Str, Vec<(Str, i32, i64)>);

/// All pages of so many entries, put together again.
fn read(f: &Fixture, entries_max: usize) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    let mut from = None;
    loop {
        let (mut entries, mut page) = (0, Vec::new());
        from = f
            .coordinator
            .page(from.as_ref(), &mut entries, entries_max, &mut page);
        assert!(entries <= entries_max, "{entries} of {entries_max}");
        for group in page {
            if !group.is_rest {
                all.push((group.id.clone(), Vec::new()));
            }
            let (id, offsets) = all.last_mut().unwrap();
            assert_eq!(*id, group.id);
            for (topic, of) in group.topics {
                offsets.extend(of.into_iter().map(|(p, offset)| (topic.clone(), p, offset)));
            }
        }
        if from.is_none() {
            return all;
        }
    }
}

#[test]
fn pages_of_any_size_hold_every_group_and_offset_once() {
    let mut f = Fixture::new();
    for (group, topics) in [("", 1), ("a", 0), ("b", 3), ("c", 1), ("d", 2)] {
        f.commit(group, "first", 0..1, "");
        for n in 0..topics {
            f.commit(group, &format!("t{n}"), 0..5, "");
        }
    }
    f.stable(2);
    let whole = read(&f, usize::MAX);
    let counts: Vec<(&str, usize)> = whole.iter().map(|(id, of)| (id.as_str(), of.len())).collect();
    assert_eq!(
        counts,
        [("", 6), ("a", 1), ("b", 16), ("c", 6), ("d", 11), ("g", 0)]
    );
    for entries_max in 2..30 {
        assert_eq!(read(&f, entries_max), whole, "{entries_max} a page");
    }
}

#[test]
fn a_rebalance_counts_with_its_reason_and_its_time() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    let begun =
        |f: &Fixture, reason: RebalanceReason| f.coordinator.counters().rebalances_begun[reason as usize];
    assert_eq!(begun(&f, RebalanceReason::MemberJoined), 1);
    let counters = f.coordinator.counters();
    assert_eq!(counters.rebalances.count(), 1);
    assert_eq!(
        counters.rebalances.sum_us(),
        6_000_000,
        "the initial delay, once prolonged"
    );

    f.leave(&ids[1], None);
    assert_eq!(begun(&f, RebalanceReason::MemberLeft), 1);
    f.pass(Duration::from_secs(2));
    let to = f.join(&ids[0]);
    let generation = f.joined(to).generation_id;
    f.assign(&ids[..1], generation);
    let counters = f.coordinator.counters();
    assert_eq!(counters.rebalances.count(), 2);
    assert_eq!(counters.rebalances.sum_us(), 8_000_000);

    // A new member's arrival and its silence afterwards.
    f.come();
    assert_eq!(begun(&f, RebalanceReason::MemberJoined), 2);
    let to = f.join(&ids[0]);
    assert_eq!(f.joined(to).error_code, ErrorCode::NONE);
    f.pass(Duration::from_secs(61));
    assert_eq!(begun(&f, RebalanceReason::SessionExpired), 1);
    assert_eq!(f.coordinator.counters().rebalances.count(), 2);
}

#[test]
fn offsets_count_as_committed_expired_or_deleted() {
    let mut f = Fixture::new();
    f.commit("a", "t", 0..3, "");
    f.commit("b", "t", 0..2, "");
    f.coordinator.forget_topics(&[("t".into(), Uuid::ONE)], f.now);
    f.advance(f.now);
    f.finish_writes();
    f.commit("c", "u", 0..4, "");
    f.pass(Duration::from_secs(8 * 24 * 60 * 60));
    f.finish_writes();
    let counters = f.coordinator.counters();
    assert_eq!(
        (
            counters.offsets_committed,
            counters.offsets_deleted,
            counters.offsets_expired
        ),
        (9, 5, 4)
    );
}
