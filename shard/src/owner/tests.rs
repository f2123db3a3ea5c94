//! The owner against a list of batches: what is answered when, and what a reader sees.

//! The owner as its shard drives it: appends, reads and look-ups against logs in memory.

use std::cell::RefCell;

use bytes::Bytes;
use protocol::{ErrorCode, RecordBytes};
use storage::error::AppendError;
use storage::log::{LogOffsets, LogSize};
use storage::types::ProducerId;

use super::*;
use crate::ids::ShardId;
use crate::message::{
    Acks, Append, AppendItem, FetchAnswer, FetchEntry, FetchRead, Isolation, OffsetQuery, OffsetQueryKind,
    Wait,
};
use crate::partition::watermark::Watermark;
use crate::replies::Replies;

/// Logs of ten-byte batches with one record each; the first byte of a batch names it, an equal one is a duplicate.
#[derive(Debug, Default)]
struct FakeLogs(RefCell<Vec<FakeLog>>);

#[derive(Debug, Default)]
struct FakeLog {
    batches: Vec<Bytes>,
    durable: usize,
    cold_below: usize,
    is_offline: bool,
}

impl FakeLogs {
    fn sync(&self, log: usize) -> Offset {
        let log = &mut self.0.borrow_mut()[log];
        log.durable = log.batches.len();
        Offset(log.durable as i64)
    }
}

impl Logs for FakeLogs {
    type Log = usize;
    type Cold = (usize, usize);

    fn append(&self, log: usize, batch: Bytes, _: LeaderEpoch, _: WallMs) -> Result<Appended, AppendError> {
        let log = &mut self.0.borrow_mut()[log];
        if batch.is_empty() {
            return Err(AppendError::OutOfOrderSequence {
                producer_id: 1,
                expected: 1,
                found: 2,
            });
        }
        let known = log.batches.iter().position(|b| b[0] == batch[0]);
        let at = Offset(known.unwrap_or(log.batches.len()) as i64);
        if known.is_none() {
            log.batches.push(batch);
        }
        Ok(Appended {
            base_offset: at,
            last_offset: at,
            is_duplicate: known.is_some(),
            log_append_time: -1,
            log_start: Offset(0),
        })
    }

    fn read(
        &self,
        log: usize,
        from: Offset,
        upper: Offset,
        max: usize,
        at_least_one: bool,
    ) -> Read<Self::Cold> {
        let id = log;
        let log = &self.0.borrow()[log];
        let (from, upper) = (from.0 as usize, upper.0 as usize);
        if from < log.cold_below {
            return Read::Cold {
                plan: (id, from),
                bytes_max: max,
            };
        }
        let mut records = RecordBytes::default();
        for batch in &log.batches[from..upper] {
            let fits = records.len() + batch.len() <= max || (at_least_one && records.is_empty());
            if !fits {
                break;
            }
            records.push(batch.clone());
        }
        Read::Cached(records)
    }

    fn ends(&self, log: usize) -> LogOffsets {
        let log = &self.0.borrow()[log];
        LogOffsets {
            log_end: Offset(log.batches.len() as i64),
            durable_end: Offset(log.durable as i64),
            ..LogOffsets::default()
        }
    }

    fn size(&self, _: usize) -> LogSize {
        LogSize {
            segments: 1,
            ..LogSize::default()
        }
    }

    fn epoch_end(&self, log: usize, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        (LeaderEpoch(epoch.0.min(3)), self.ends(log).log_end)
    }

    fn newest_epoch(&self, _: usize) -> LeaderEpoch {
        LeaderEpoch(3)
    }

    fn epoch_of(&self, _: usize, _: Offset) -> LeaderEpoch {
        LeaderEpoch(3)
    }

    fn is_offline(&self, log: usize) -> bool {
        self.0.borrow()[log].is_offline
    }

    fn lead(&self, _: usize, _: LeaderEpoch) {}

    fn high_watermark(&self, _: usize, _: Offset) {}

    fn aborted(&self, _: usize, _: Offset, _: Offset) -> Vec<(ProducerId, Offset)> {
        Vec::new()
    }
}

struct Bed {
    owner: Owner<FakeLogs>,
    replies: Replies<()>,
    open: Vec<crate::replies::Reply<()>>,
}

const NOW: WallMs = WallMs(0);

fn id(partition: i32) -> LogId {
    LogId {
        partition,
        ..LogId::default()
    }
}

impl Bed {
    fn new(partitions: i32) -> Self {
        let logs = FakeLogs::default();
        let mut owner = Owner::new(BrokerId(1), logs);
        for partition in 0..partitions {
            owner.logs.0.borrow_mut().push(FakeLog::default());
            let settings = PartitionSettings {
                min_insync_replicas: 1,
            };
            owner.adopt(id(partition), partition as usize, LeaderEpoch(3), settings);
        }
        Self {
            owner,
            replies: Replies::new(100),
            open: Vec::new(),
        }
    }

    fn to(&mut self) -> ReplyTo {
        let (token, reply) = self.replies.register().expect("few are open");
        self.open.push(reply);
        ReplyTo {
            shard: ShardId(0),
            token,
            is_traced: false,
        }
    }

    fn append(&mut self, acks: Acks, items: &[(i32, u8)]) -> ReplyTo {
        let to = self.to();
        let items = items
            .iter()
            .map(|(partition, name)| AppendItem {
                log: id(*partition),
                batch: if *name == 0 {
                    Bytes::new()
                } else {
                    Bytes::from(vec![*name; 10])
                },
            })
            .collect();
        self.owner.handle(
            to,
            ShardRequest::Append(Append {
                items,
                acks,
                deadline: Instant(100),
            }),
            NOW,
        );
        to
    }

    fn fetch(&mut self, read: FetchRead) -> ReplyTo {
        let to = self.to();
        self.owner.handle(to, ShardRequest::Fetch(read), NOW);
        to
    }

    fn sync(&mut self, log: usize) {
        let end = self.owner.logs.sync(log);
        self.owner.durable(log, end);
    }

    fn appended(&mut self) -> Vec<(ReplyTo, Vec<(ErrorCode, i64)>)> {
        let mut all = Vec::new();
        while let Some(output) = self.owner.poll_output() {
            let OwnerOutput::Reply {
                to,
                reply: ShardReply::Append(results),
            } = output
            else {
                panic!("an append reply, not {output:?}")
            };
            all.push((to, results.iter().map(|r| (r.error, r.base_offset.0)).collect()));
        }
        all
    }

    fn fetched(&mut self) -> Option<(ReplyTo, FetchAnswer)> {
        match self.owner.poll_output()? {
            OwnerOutput::Reply {
                to,
                reply: ShardReply::Fetch(answer),
            } => Some((to, answer)),
            other => panic!("a fetch reply, not {other:?}"),
        }
    }
}

fn read(entries: &[(i32, i64)], bytes_max: usize) -> FetchRead {
    let entry = |(partition, offset): &(i32, i64)| FetchEntry {
        log: id(*partition),
        offset: Offset(*offset),
        bytes_max: 1000,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
    };
    FetchRead {
        entries: entries.iter().map(entry).collect(),
        bytes_max,
        isolation: Isolation::ReadUncommitted,
        wait: None,
    }
}

fn sizes(answer: &FetchAnswer) -> Vec<usize> {
    answer.partitions.iter().map(|p| p.records.len()).collect()
}

#[test]
fn an_append_is_answered_only_after_every_partition_is_durable() {
    let mut bed = Bed::new(2);
    let to = bed.append(Acks::All, &[(0, 1), (1, 2)]);
    assert!(bed.appended().is_empty(), "staged is not durable");
    bed.sync(0);
    assert!(bed.appended().is_empty());
    bed.sync(1);
    assert_eq!(
        bed.appended(),
        [(to, vec![(ErrorCode::NONE, 0), (ErrorCode::NONE, 0)])]
    );
}

#[test]
fn acks_zero_is_answered_at_once_and_acks_one_at_the_durable_end() {
    let mut bed = Bed::new(1);
    let none = bed.append(Acks::None, &[(0, 1)]);
    assert_eq!(bed.appended(), [(none, vec![(ErrorCode::NONE, 0)])]);
    let one = bed.append(Acks::Leader, &[(0, 2)]);
    assert!(bed.appended().is_empty());
    bed.sync(0);
    assert_eq!(bed.appended(), [(one, vec![(ErrorCode::NONE, 1)])]);
}

#[test]
fn a_duplicate_is_answered_with_the_original_and_not_before_it_is_durable() {
    let mut bed = Bed::new(1);
    let first = bed.append(Acks::All, &[(0, 1)]);
    let again = bed.append(Acks::All, &[(0, 1)]);
    assert!(bed.appended().is_empty());
    bed.sync(0);
    assert_eq!(
        bed.appended(),
        [
            (first, vec![(ErrorCode::NONE, 0)]),
            (again, vec![(ErrorCode::NONE, 0)])
        ]
    );
    let late = bed.append(Acks::All, &[(0, 1)]);
    assert_eq!(bed.appended(), [(late, vec![(ErrorCode::NONE, 0)])]);
    assert_eq!(bed.owner.counters().duplicates, 2);
}

#[test]
fn one_refused_partition_does_not_hold_back_the_others() {
    let mut bed = Bed::new(1);
    let to = bed.append(Acks::All, &[(0, 0), (0, 1), (7, 1)]);
    bed.sync(0);
    let codes = vec![
        (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (ErrorCode::NONE, 0),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, -1),
    ];
    assert_eq!(bed.appended(), [(to, codes)]);
}

#[test]
fn a_produce_times_out_when_another_replica_does_not_follow() {
    let mut bed = Bed::new(1);
    let isr = vec![bed.owner.broker, BrokerId(7)];
    let index = bed.owner.index_of(id(0)).expect("adopted");
    bed.owner.partitions[index].watermark = Watermark::new(bed.owner.broker, 2, isr, Offset(0));
    let to = bed.append(Acks::All, &[(0, 1)]);
    let leader = bed.append(Acks::Leader, &[(0, 2)]);
    assert_eq!(bed.owner.next_deadline(), Some(Instant(100)));
    bed.owner.expire(Instant(100));
    assert_eq!(bed.appended(), [(to, vec![(ErrorCode::REQUEST_TIMED_OUT, -1)])]);
    bed.sync(0);
    assert_eq!(bed.appended(), [(leader, vec![(ErrorCode::NONE, 1)])]);
}

#[test]
fn what_only_this_broker_has_to_sync_does_not_time_out_whatever_acks() {
    let mut bed = Bed::new(1);
    let all = bed.append(Acks::All, &[(0, 1)]);
    let leader = bed.append(Acks::Leader, &[(0, 2)]);
    assert_eq!(bed.owner.next_deadline(), None);
    bed.owner.expire(Instant(u64::MAX));
    assert_eq!(bed.appended(), []);
    bed.sync(0);
    let mut answers = bed.appended();
    answers.sort_by_key(|(to, _)| *to != all);
    let fine = |offset| vec![(ErrorCode::NONE, offset)];
    assert_eq!(answers, [(all, fine(0)), (leader, fine(1))]);
}

#[test]
fn who_waits_for_a_sync_is_told_when_storage_fails() {
    let mut bed = Bed::new(2);
    let all = bed.append(Acks::All, &[(0, 1), (1, 1)]);
    let leader = bed.append(Acks::Leader, &[(1, 2)]);
    bed.sync(0);
    assert_eq!(bed.appended(), []);
    bed.owner.logs.0.borrow_mut()[1].is_offline = true;
    assert_eq!(bed.owner.storage_failed(), [id(1)]);
    let mut answers = bed.appended();
    answers.sort_by_key(|(to, _)| *to != all);
    let lost = (ErrorCode::KAFKA_STORAGE_ERROR, -1);
    assert_eq!(
        answers,
        [(all, vec![(ErrorCode::NONE, 0), lost]), (leader, vec![lost])]
    );
    assert_eq!(bed.owner.waiting(), (0, 0));
    // What lies in other directories is served as before.
    bed.fetch(read(&[(1, 0), (0, 0)], 1000));
    let (_, answer) = bed.fetched().expect("answered at once");
    let told: Vec<_> = answer
        .partitions
        .iter()
        .map(|p| (p.error, p.records.len()))
        .collect();
    assert_eq!(told, [(ErrorCode::KAFKA_STORAGE_ERROR, 0), (ErrorCode::NONE, 10)]);
}

#[test]
fn consumers_read_only_what_is_durable() {
    let mut bed = Bed::new(1);
    bed.append(Acks::None, &[(0, 1)]);
    bed.appended();
    bed.fetch(read(&[(0, 0)], 1000));
    let (_, answer) = bed.fetched().expect("answered at once");
    assert_eq!(
        (sizes(&answer), answer.partitions[0].high_watermark),
        (vec![0], 0)
    );
    bed.sync(0);
    bed.fetch(read(&[(0, 0)], 1000));
    let (_, answer) = bed.fetched().expect("answered at once");
    assert_eq!(
        (sizes(&answer), answer.partitions[0].high_watermark),
        (vec![10], 1)
    );
}

#[test]
fn a_waiting_fetch_is_woken_by_the_high_watermark_and_not_before() {
    let mut bed = Bed::new(2);
    let wait = Some(Wait {
        seen: 0,
        needed_bytes: 15,
    });
    let to = bed.fetch(FetchRead {
        wait,
        ..read(&[(0, 0), (1, 0)], 1000)
    });
    bed.append(Acks::None, &[(0, 1), (1, 2)]);
    bed.appended();
    bed.sync(0);
    assert!(bed.fetched().is_none());
    bed.sync(1);
    let (woken, answer) = bed.fetched().expect("20 bytes are readable");
    assert_eq!((woken, sizes(&answer), answer.mark), (to, vec![10, 10], 20));
    // A wait on what has been seen already goes on waiting; one behind is answered at once.
    bed.fetch(FetchRead {
        wait: Some(Wait {
            seen: 20,
            needed_bytes: 1,
        }),
        ..read(&[(0, 1)], 1000)
    });
    bed.fetch(FetchRead {
        wait: Some(Wait {
            seen: 0,
            needed_bytes: 1,
        }),
        ..read(&[(1, 0)], 1000)
    });
    assert_eq!(sizes(&bed.fetched().expect("data came before the wait").1), [10]);
}

#[test]
fn a_released_partition_answers_everyone_who_waits_on_it() {
    let mut bed = Bed::new(1);
    let produce = bed.append(Acks::All, &[(0, 1)]);
    let wait = Some(Wait {
        seen: 0,
        needed_bytes: 1,
    });
    bed.fetch(FetchRead {
        wait,
        ..read(&[(0, 0)], 1000)
    });
    assert_eq!(bed.owner.release(id(0)), Some(0));
    let Some(OwnerOutput::Reply {
        to,
        reply: ShardReply::Append(results),
    }) = bed.owner.poll_output()
    else {
        panic!("the produce is answered first")
    };
    assert_eq!(
        (to, results[0].error),
        (produce, ErrorCode::NOT_LEADER_OR_FOLLOWER)
    );
    let (_, answer) = bed.fetched().expect("the fetch is answered");
    assert_eq!(answer.partitions[0].error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn limits_bind_after_the_first_partition_with_data() {
    let mut bed = Bed::new(3);
    bed.append(Acks::None, &[(1, 1), (1, 2), (2, 3)]);
    bed.appended();
    (0..3).for_each(|log| bed.sync(log));
    bed.fetch(read(&[(0, 0), (1, 0), (2, 0)], 25));
    assert_eq!(sizes(&bed.fetched().expect("answered").1), [0, 20, 0]);
    bed.fetch(read(&[(0, 0), (1, 0), (2, 0)], 5));
    let (_, answer) = bed.fetched().expect("answered");
    assert_eq!(
        sizes(&answer),
        [0, 10, 0],
        "one whole batch although it is larger"
    );
    assert!(answer.partitions[1].is_oversized);
}

#[test]
fn cold_data_goes_through_the_driver_and_keeps_its_place() {
    let mut bed = Bed::new(2);
    bed.append(Acks::None, &[(0, 1), (1, 2)]);
    bed.appended();
    (0..2).for_each(|log| bed.sync(log));
    bed.owner.logs.0.borrow_mut()[0].cold_below = 1;
    bed.fetch(read(&[(0, 0), (1, 0)], 1000));
    let Some(OwnerOutput::ReadCold(fetch)) = bed.owner.poll_output() else {
        panic!("a cold read")
    };
    assert_eq!(fetch.pieces.iter().map(|p| p.plan).collect::<Vec<_>>(), [(0, 0)]);
    bed.owner
        .cold_done(fetch, vec![Ok(RecordBytes::from(Bytes::from_static(b"cold")))]);
    let (_, answer) = bed.fetched().expect("answered");
    assert_eq!(answer.partitions[0].records.len(), 4);
    assert_eq!(
        answer.partitions[1].records.len(),
        0,
        "the cold read was planned with the whole limit"
    );
}

#[test]
fn a_cold_read_of_what_was_deleted_meanwhile_is_told_so_and_is_no_failure_of_the_disk() {
    let told = [
        (ErrorCode::OFFSET_OUT_OF_RANGE, 0),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, 0),
        (ErrorCode::KAFKA_STORAGE_ERROR, 1),
    ];
    for (error, failed) in told {
        let mut bed = Bed::new(1);
        bed.append(Acks::None, &[(0, 1)]);
        bed.appended();
        bed.sync(0);
        bed.owner.logs.0.borrow_mut()[0].cold_below = 1;
        bed.fetch(read(&[(0, 0)], 1000));
        let Some(OwnerOutput::ReadCold(fetch)) = bed.owner.poll_output() else {
            panic!("a cold read")
        };
        bed.owner.cold_done(fetch, vec![Err(error)]);
        let (_, answer) = bed.fetched().expect("answered");
        let part = &answer.partitions[0];
        assert_eq!((part.error, part.log_start_offset), (error, -1));
        assert_eq!(bed.owner.counters().reads_failed, failed, "{error:?}");
    }
}

#[test]
fn a_round_of_retention_sees_every_partition_whatever_its_turns() {
    let mut bed = Bed::new(10);
    bed.owner.release(id(3));
    bed.owner.release(id(9));
    for slots in [1, 4, 1000] {
        let (mut seen, mut slot) = (Vec::new(), 0);
        while let Some((next, some)) = bed.owner.logs_from(slot, slots) {
            assert!(next > slot && some.len() <= slots);
            seen.extend(some.into_iter().map(|(log, _)| log));
            slot = next;
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 4, 5, 6, 7, 8], "in turns of {slots}");
    }
}

#[test]
fn epochs_fence_and_offsets_outside_are_refused() {
    let mut bed = Bed::new(1);
    let mut fenced = |epoch: i32, offset: i64| {
        let mut read = read(&[(0, offset)], 1000);
        read.entries[0].current_leader_epoch = LeaderEpoch(epoch);
        bed.fetch(read);
        bed.fetched().expect("answered").1.partitions[0].error
    };
    assert_eq!(fenced(2, 0), ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(fenced(4, 0), ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(fenced(3, 0), ErrorCode::NONE);
    assert_eq!(fenced(-1, 1), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(fenced(-1, -1), ErrorCode::OFFSET_OUT_OF_RANGE);
}

#[test]
fn delete_records_is_bounded_by_the_high_watermark() {
    let mut bed = Bed::new(1);
    bed.append(Acks::None, &[(0, 1)]);
    bed.appended();
    let mut delete = |offset: i64| {
        let to = bed.to();
        let what = OffsetQueryKind::DeleteBefore(Offset(offset));
        let query = OffsetQuery {
            log: id(0),
            current_leader_epoch: LeaderEpoch::NONE,
            what,
        };
        bed.owner.handle(to, ShardRequest::Offsets(vec![query]), NOW);
        match bed.owner.poll_output() {
            Some(OwnerOutput::Reply {
                reply: ShardReply::Offsets(answers),
                ..
            }) => Err(answers[0].error),
            Some(OwnerOutput::LookUp(lookup)) => Ok(lookup.open[0].what),
            other => panic!("an answer, not {other:?}"),
        }
    };
    assert_eq!(
        delete(1),
        Err(ErrorCode::OFFSET_OUT_OF_RANGE),
        "appended but not durable"
    );
    assert_eq!(delete(-2), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    assert_eq!(delete(-1), Ok(LookUp::DeleteBefore(Offset(0))));
}

mod moving;
