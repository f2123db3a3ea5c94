//! Who waits while a log is handed over to another directory, and in which order they are served then.

use super::*;
use crate::message::{FetchEntry, Isolation, OffsetQuery, OffsetQueryKind};
use crate::owner::Hold;

fn read_of(partitions: &[i32]) -> FetchRead {
    FetchRead {
        entries: partitions
            .iter()
            .map(|partition| FetchEntry {
                log: id(*partition),
                offset: Offset(0),
                bytes_max: 1000,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            })
            .collect(),
        bytes_max: 1000,
        isolation: Isolation::ReadUncommitted,
        wait: None,
    }
}

/// The log of partition 0 goes to number 2, with all that it holds.
fn relocate(bed: &mut Bed) {
    let mut logs = bed.owner.logs.0.borrow_mut();
    let batches = std::mem::take(&mut logs[0].batches);
    let durable = logs[0].durable;
    logs.push(FakeLog {
        batches,
        durable,
        ..FakeLog::default()
    });
    drop(logs);
    bed.owner.relocate(id(0), 2);
}

#[test]
fn appends_wait_for_the_hand_over_and_keep_their_order() {
    let mut bed = Bed::new(2);
    bed.append(Acks::None, &[(0, 1), (1, 1)]);
    bed.sync(0);
    bed.sync(1);
    assert_eq!(bed.appended().len(), 1);
    bed.owner.note_move(id(0), crate::ids::LogDir(1), 10, Offset(1));
    bed.owner.hold(id(0), Hold::Changes);
    let both = bed.append(Acks::None, &[(1, 2), (0, 2)]);
    // What follows one that waits must not overtake it, and what has nothing to do with it need not wait.
    let other = bed.append(Acks::None, &[(1, 3)]);
    assert!(bed.appended().is_empty());
    bed.fetch(read_of(&[0]));
    let (_, answer) = bed.fetched().expect("reads go on");
    assert_eq!(answer.partitions[0].records.len(), 10);

    bed.owner.hold(id(0), Hold::All);
    relocate(&mut bed);
    bed.owner.end_move(id(0), NOW);
    let answered = bed.appended();
    let offsets: Vec<_> = answered
        .iter()
        .map(|(to, results)| (*to, results.clone()))
        .collect();
    let none = ErrorCode::NONE;
    assert_eq!(
        offsets,
        [(both, vec![(none, 1), (none, 1)]), (other, vec![(none, 2)])]
    );
    assert_eq!(bed.owner.logs.0.borrow()[2].batches.len(), 2, "in the new log");
    assert_eq!(bed.owner.log_of(id(0)), Some(2));
}

#[test]
fn an_append_to_a_partition_that_nobody_waits_for_goes_on() {
    let mut bed = Bed::new(2);
    bed.owner.note_move(id(0), crate::ids::LogDir(1), 0, Offset(0));
    bed.owner.hold(id(0), Hold::All);
    bed.append(Acks::None, &[(1, 1)]);
    assert_eq!(bed.appended().len(), 1);
}

#[test]
fn reads_and_questions_wait_while_there_is_no_log_and_none_sees_an_empty_one() {
    let mut bed = Bed::new(2);
    bed.append(Acks::None, &[(0, 1), (1, 1)]);
    bed.sync(0);
    bed.sync(1);
    assert_eq!(bed.appended().len(), 1);
    // One is under way to the disk.
    bed.owner.logs.0.borrow_mut()[0].cold_below = 1;
    bed.fetch(read_of(&[0, 1]));
    let Some(OwnerOutput::ReadCold(cold)) = bed.owner.poll_output() else {
        panic!("a cold read");
    };
    bed.owner.note_move(id(0), crate::ids::LogDir(1), 10, Offset(1));
    bed.owner.hold(id(0), Hold::All);
    bed.owner
        .cold_done(cold, vec![Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)]);
    bed.fetch(read_of(&[1, 0]));
    let ask = bed.to();
    let latest = OffsetQuery {
        log: id(0),
        current_leader_epoch: LeaderEpoch::NONE,
        what: OffsetQueryKind::Latest(Isolation::ReadUncommitted),
    };
    bed.owner.handle(ask, ShardRequest::Offsets(vec![latest]), NOW);
    let left = bed.fetch(read_of(&[0]));
    bed.owner.cancel(left);
    assert!(bed.owner.poll_output().is_none());

    relocate(&mut bed);
    bed.owner.end_move(id(0), NOW);
    for _ in 0..2 {
        let (_, answer) = bed.fetched().expect("an answer");
        let bytes: Vec<_> = answer
            .partitions
            .iter()
            .map(|p| (p.error, p.records.len()))
            .collect();
        assert_eq!(bytes, [(ErrorCode::NONE, 10); 2]);
    }
    let Some(OwnerOutput::Reply {
        reply: ShardReply::Offsets(answers),
        ..
    }) = bed.owner.poll_output()
    else {
        panic!("an offset");
    };
    assert_eq!(answers[0].offset, Offset(1));
    assert!(bed.owner.poll_output().is_none(), "who has left is not answered");
}

#[test]
fn a_partition_that_is_given_up_in_its_hand_over_answers_who_waits() {
    let mut bed = Bed::new(1);
    bed.owner.note_move(id(0), crate::ids::LogDir(1), 0, Offset(0));
    bed.owner.hold(id(0), Hold::All);
    bed.append(Acks::All, &[(0, 1)]);
    assert!(bed.appended().is_empty());
    bed.owner.release(id(0));
    bed.owner.end_move(id(0), NOW);
    let answered = bed.appended();
    assert_eq!(answered[0].1, [(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1)]);
}

#[test]
fn reports_show_the_copy_beside_the_log_and_how_far_it_is_behind() {
    let mut bed = Bed::new(1);
    for name in 1..=3 {
        bed.append(Acks::None, &[(0, name)]);
    }
    assert_eq!(bed.appended().len(), 3);
    bed.owner.note_move(id(0), crate::ids::LogDir(1), 10, Offset(1));
    let summaries = bed.owner.summaries();
    let shown: Vec<_> = summaries
        .iter()
        .map(|s| (s.is_future, s.dir.0, s.high_watermark.0 - s.log_end.0))
        .collect();
    assert_eq!(shown[1..], [(true, 1, 2)]);
    assert!(!shown[0].0);
    bed.owner.end_move(id(0), NOW);
    assert_eq!(bed.owner.summaries().len(), 1);
}
