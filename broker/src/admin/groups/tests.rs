//! What the ledger keeps of pages, and what it sums up.

use super::*;

fn image(id: &str, is_rest: bool, topics: &[(&str, &[(i32, i64)])]) -> GroupImage {
    GroupImage {
        id: Str::from(id.to_owned()),
        state: GroupState::Stable,
        members: 2,
        topics: topics
            .iter()
            .map(|(topic, offsets)| (Str::from((*topic).to_owned()), offsets.to_vec()))
            .collect(),
        is_rest,
    }
}

fn kept(ledger: &Ledger) -> Vec<(String, String, usize)> {
    let topics = |group: &GroupLine| {
        let id = group.id.to_string();
        let topics = group.topics.iter();
        let line = move |topic: &TopicLine| (id.clone(), topic.name.to_string(), topic.offsets.len());
        topics.map(line).collect::<Vec<_>>()
    };
    ledger.groups.iter().flat_map(topics).collect()
}

fn line(group: &str, topic: &str, offsets: usize) -> (String, String, usize) {
    (group.to_owned(), topic.to_owned(), offsets)
}

#[test]
fn a_group_cut_by_a_page_is_one_group() {
    let mut ledger = Ledger::new(100);
    ledger.add(image("a", false, &[("t", &[(0, 1), (1, 2)])]));
    ledger.add(image("a", true, &[("t", &[(2, 3)]), ("u", &[(0, 4)])]));
    ledger.add(image("b", false, &[]));
    assert_eq!(kept(&ledger), [line("a", "t", 3), line("a", "u", 1)]);
    assert_eq!((ledger.groups.len(), ledger.members, ledger.offsets), (2, 4, 4));
    assert_eq!(ledger.states[&GroupState::Stable], 2);
}

#[test]
fn above_the_maximum_topics_are_left_out_whole_and_summed_up() {
    let mut ledger = Ledger::new(3);
    ledger.add(image("a", false, &[("t", &[(0, 10)])]));
    ledger.add(image("a", true, &[("t", &[(1, 20), (2, 30)]), ("u", &[(0, 5)])]));
    ledger.add(image("filler", false, &[]));
    // A rest of a topic that was left out does not come in again, nor does a group above the maximum.
    ledger.add(image("a", true, &[("u", &[(1, 6)])]));
    ledger.add(image("b", false, &[("t", &[(0, 7)])]));
    ledger.add(image("c", false, &[("t", &[(0, 8)])]));
    ledger.add(image("c", true, &[("t", &[(1, 9)])]));
    assert_eq!(kept(&ledger), [line("a", "t", 3)]);
    assert_eq!((ledger.groups.len(), ledger.left_out.groups), (3, 1));
    let left: Vec<_> = ledger
        .left_out
        .offsets
        .iter()
        .flat_map(|(topic, of)| of.iter().map(move |(p, sums)| (topic.as_str(), *p, *sums)))
        .collect();
    let expected = [
        ("t", 0, (2, 15)),
        ("t", 1, (1, 9)),
        ("u", 0, (1, 5)),
        ("u", 1, (1, 6)),
    ];
    assert_eq!(left, expected);
    assert_eq!(ledger.offsets, 8);
}

/// The pages of all shards go into one ledger: what is kept is never above the maximum, however they are cut.
#[test]
fn the_maximum_holds_for_all_shards_together() {
    let mut ledger = Ledger::new(10);
    for shard in 0..4 {
        for group in 0..5 {
            let id = format!("g-{shard}-{group}");
            ledger.add(image(&id, false, &[("t", &[(0, 1), (1, 1)])]));
            ledger.add(image(&id, true, &[("t", &[(2, 1)]), ("u", &[(0, 1)])]));
        }
    }
    assert!(ledger.kept <= 10 && ledger.kept_groups <= 10, "{ledger:?}");
    assert_eq!((ledger.groups.len(), ledger.left_out.groups), (10, 10));
    let samples: usize = kept(&ledger).iter().map(|(_, _, offsets)| offsets).sum();
    assert_eq!((samples, ledger.offsets), (ledger.kept, 80));
}

#[test]
fn a_topic_that_grows_too_large_with_a_later_page_is_left_out_whole() {
    let mut ledger = Ledger::new(4);
    ledger.add(image("a", false, &[("s", &[(0, 1)]), ("t", &[(0, 10), (1, 20)])]));
    ledger.add(image("a", true, &[("t", &[(2, 30), (3, 40)])]));
    ledger.add(image(
        "a",
        true,
        &[("t", &[(4, 50)]), ("u", &[(0, 7), (1, 8), (2, 9)])],
    ));
    assert_eq!(kept(&ledger), [line("a", "s", 1), line("a", "u", 3)]);
    assert_eq!(ledger.kept, 4);
    let left: Vec<_> = ledger.left_out.offsets["t"]
        .iter()
        .map(|(p, sums)| (*p, *sums))
        .collect();
    assert_eq!(left, [0, 1, 2, 3, 4].map(|p| (p, (1, i64::from(p + 1) * 10))));
}

#[test]
fn partitions_without_a_commit_are_shown_while_there_is_room() {
    let of = |committed: &[(i32, i64)], partitions, room: usize| {
        let mut left = room;
        let shown: Vec<_> = shown(committed, partitions, &mut left).collect();
        (shown, left)
    };
    let committed = [(1, 10), (3, 30), (7, 70)];
    // Partition 7 is not there any more.
    let all = vec![(0, None), (1, Some(10)), (2, None), (3, Some(30)), (4, None)];
    assert_eq!(of(&committed, 5, 9), (all, 6));
    let some = vec![(0, None), (1, Some(10)), (3, Some(30))];
    assert_eq!(of(&committed, 5, 1), (some, 0));
    // Without room the partitions there are cost nothing.
    let none = vec![(1, Some(10)), (3, Some(30)), (7, Some(70))];
    for _ in 0..10_000 {
        assert_eq!(of(&committed, i32::MAX, 0), (none.clone(), 0));
    }
    assert_eq!(of(&[], 2, 1), (vec![(0, None)], 0));
    assert_eq!(of(&[(0, 5)], 0, 3), (vec![], 3));
}

#[test]
fn a_long_scrape_lets_others_have_their_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let others = runtime.block_on(async {
        let probe = tokio::spawn(async {});
        let mut pace = Pace::default();
        let mut answered_after = None;
        for turn in 0..2 * TURNS_MAX {
            pace.spend(1).await;
            if probe.is_finished() {
                answered_after.get_or_insert(turn);
            }
        }
        answered_after
    });
    assert_eq!(others, Some(TURNS_MAX - 1));
}

#[test]
fn long_names_of_groups_count_as_several_and_very_long_ones_are_left_out() {
    let mut ledger = Ledger::new(10);
    let long = "g".repeat(900);
    ledger.add(image(
        &long,
        false,
        &[("t", &[(0, 1), (1, 1), (2, 1), (3, 1)]), ("u", &[(0, 1), (1, 1)])],
    ));
    ledger.add(image("short", false, &[("t", &[(0, 1)])]));
    assert_eq!(ledger.kept, 9, "four samples that count twice, and one");
    assert_eq!(kept(&ledger), [line(&long, "t", 4), line("short", "t", 1)]);
    let mut ledger = Ledger::new(10);
    ledger.add(image(&"g".repeat(NAME_BYTES_MAX + 1), false, &[("t", &[(0, 1)])]));
    ledger.add(image("short", false, &[("t", &[(0, 2)])]));
    assert_eq!(kept(&ledger), [line("short", "t", 1)]);
    assert_eq!((ledger.left_out.groups, ledger.offsets), (1, 2));
}
