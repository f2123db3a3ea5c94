//! The tasks around group coordinators, on virtual time and over a log that is played here: nobody gets an empty answer while the
//! log is replayed, whoever waits is answered, appends share batches, deadlines are kept.
#![cfg(feature = "runtime")]
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::cluster_metadata::TopicRecord;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use protocol::record::BatchView;
use protocol::{ErrorCode, RecordBytes, Str, Uuid};
use shard::budget::{BUDGET_CLASSES, Budget, BudgetLimits, ClassLimits};
use shard::coordinator::driver::{GroupDriver, GroupPage};
use shard::coordinator::group::{
    ClientIdentity, CommitTopic, GroupCoordinator, GroupOutput, GroupReply, GroupRequest, GroupSettings,
    OffsetCommit, OffsetFetch,
};
use shard::env::{Env, Instant, WallMs};
use shard::ids::ShardId;
use shard::image::{ImageDelta, MetadataImage};
use shard::message::{AppendResult, FetchAnswer, OffsetAnswer, OffsetQueryKind, PartitionData};
use shard::message::{ReplyTo, ShardReply, ShardRequest};
use shard::router::{Asked, Router, ShardMessage};
use shard::runtime::mailbox::{MailboxLimits, mailboxes};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

const LOG: LogId = LogId {
    topic: TopicId([7; 16]),
    partition: 3,
};

#[derive(Clone)]
struct SimEnv(SimHandle);

impl Env for SimEnv {
    fn now(&self) -> Instant {
        Instant(self.0.now_ns())
    }

    fn wall(&self) -> WallMs {
        WallMs(1_700_000_000_000 + i64::try_from(self.0.now_ns() / 1_000_000).unwrap())
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        drop(self.0.spawn(task));
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }

    async fn yield_to_reactor(&self) {
        self.0.yield_now().await;
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

/// The log that is played: batches with offsets, and how the owner of it behaves.
#[derive(Default)]
struct Log {
    batches: RefCell<Vec<Bytes>>,
    end: Cell<i64>,
    /// Answers to reads that come before data do.
    reads_fail: RefCell<VecDeque<ErrorCode>>,
    /// Answers to appends; NONE when there are no more.
    appends_fail: RefCell<VecDeque<ErrorCode>>,
    /// Answers to questions for its bounds that come before the truth does.
    offsets_fail: RefCell<VecDeque<ErrorCode>>,
    /// How often it was read.
    reads: Cell<usize>,
    /// How long an append and a read take.
    takes: Cell<Duration>,
}

impl Log {
    fn append(&self, batch: &Bytes) -> ErrorCode {
        let error = self.appends_fail.borrow_mut().pop_front().unwrap_or_default();
        if error == ErrorCode::NONE {
            let records = i64::from(BatchView::parse(batch, 0).unwrap().header().record_count);
            let mut stored = batch.to_vec();
            stored[..8].copy_from_slice(&self.end.get().to_be_bytes());
            self.batches.borrow_mut().push(stored.into());
            self.end.set(self.end.get() + records);
        }
        error
    }

    /// One batch a read, so that a replay takes several.
    fn read(&self, offset: i64) -> PartitionData {
        self.reads.set(self.reads.get() + 1);
        if let Some(error) = self.reads_fail.borrow_mut().pop_front() {
            return PartitionData {
                error,
                ..PartitionData::default()
            };
        }
        let base = |batch: &Bytes| i64::from_be_bytes(batch[..8].try_into().unwrap());
        let batches = self.batches.borrow();
        let found = batches.iter().rev().find(|batch| base(batch) <= offset);
        PartitionData {
            records: RecordBytes::from(found.cloned().unwrap_or_default()),
            ..PartitionData::default()
        }
    }

    fn answer(&self, request: ShardRequest) -> ShardReply {
        match request {
            ShardRequest::Append(append) => {
                let result = |batch: &Bytes| AppendResult {
                    error: self.append(batch),
                    base_offset: Offset(-1),
                    log_append_time: -1,
                    log_start_offset: Offset(0),
                    message: None,
                    current_leader: None,
                    is_duplicate: false,
                };
                ShardReply::Append(append.items.iter().map(|item| result(&item.batch)).collect())
            }
            ShardRequest::Fetch(read) => ShardReply::Fetch(FetchAnswer {
                partitions: read.entries.iter().map(|e| self.read(e.offset.0)).collect(),
                mark: 0,
            }),
            ShardRequest::Offsets(queries) => {
                let answer = |what: &OffsetQueryKind| OffsetAnswer {
                    error: self.offsets_fail.borrow_mut().pop_front().unwrap_or_default(),
                    offset: Offset(match what {
                        OffsetQueryKind::Latest(_) => self.end.get(),
                        _ => 0,
                    }),
                    timestamp: -1,
                    leader_epoch: LeaderEpoch::NONE,
                };
                ShardReply::Offsets(queries.iter().map(|q| answer(&q.what)).collect())
            }
            other => panic!("a coordinator does not ask {other:?}"),
        }
    }
}

/// A bug to plant, to show that the checks see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Canary {
    None,
    /// Whoever asks while the log is replayed is answered by a coordinator that has not read it.
    EmptyWhileLoading,
}

/// One shard with a driver, its inbox served by the log that is played.
struct Shard {
    env: SimEnv,
    router: Router<()>,
    driver: GroupDriver<SimEnv, ()>,
}

impl Shard {
    fn new(handle: &SimHandle, log: &Rc<Log>, canary: Canary) -> Self {
        let env = SimEnv(handle.clone());
        let (boxes, _) = mailboxes::<ShardMessage<()>>(1, MailboxLimits::default());
        let (outbox, mut inbox) = boxes.into_iter().next().unwrap().open(&env);
        let router = Router::new(outbox);
        let driver = GroupDriver::new(env.clone(), router.clone(), GroupSettings::default(), budget());
        driver.start();
        let shard = Self {
            env: env.clone(),
            router: router.clone(),
            driver: driver.clone(),
        };
        let log = log.clone();
        env.clone().spawn(async move {
            loop {
                for message in inbox.recv().await.messages {
                    match message {
                        ShardMessage::Request { to, request } => {
                            let (log, router, env2) = (log.clone(), router.clone(), env.clone());
                            env.spawn(async move {
                                env2.sleep(log.takes.get()).await;
                                router.answer(to, log.answer(request));
                            });
                        }
                        ShardMessage::Coordinate { to, log, request } => {
                            let loads = driver.stats().loading > 0;
                            if canary == Canary::EmptyWhileLoading && loads {
                                impostor(&router, &env, to, *request);
                            } else {
                                driver.handle(to, log, *request);
                            }
                        }
                        ShardMessage::Reply { token, reply, .. } => {
                            router.deliver(token, reply, None);
                        }
                        ShardMessage::Cancel(_) | ShardMessage::Node(()) => {}
                    }
                }
            }
        });
        shard
    }

    fn ask(&self, request: GroupRequest) -> Asked {
        self.router.coordinate(ShardId(0), LOG, request).unwrap()
    }

    async fn told(&self, asked: Asked) -> Result<GroupReply, ErrorCode> {
        match asked.await {
            ShardReply::Group(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&self, group: &str, offset: i64) -> Asked {
        self.ask(GroupRequest::Commit(OffsetCommit {
            group: Str::from(group.to_owned()),
            generation: -1,
            version: 8,
            topics: vec![CommitTopic {
                name: "t".into(),
                id: Uuid::ONE,
                partitions: vec![(0, offset, -1, Str::new())],
            }],
            ..OffsetCommit::default()
        }))
    }

    async fn committed(&self, asked: Asked) -> Result<ErrorCode, ErrorCode> {
        match self.told(asked).await? {
            GroupReply::Commit(results) => Ok(results[0].1[0].1),
            other => panic!("{other:?}"),
        }
    }

    /// What a group has committed.
    async fn fetch(&self, group: &str) -> Result<Option<i64>, ErrorCode> {
        let asked = self.ask(GroupRequest::Fetch(OffsetFetch {
            group: Str::from(group.to_owned()),
            topics: Some(vec![("t".into(), vec![0])]),
            require_stable: false,
        }));
        match self.told(asked).await? {
            GroupReply::Fetch(found) => Ok(found[0].1[0].1.as_ref().unwrap().as_ref().map(|o| o.offset)),
            other => panic!("{other:?}"),
        }
    }

    /// Takes the partition up and waits until it serves.
    async fn lead(&self) {
        self.driver.lead(LOG);
        while self.driver.stats().serving == 0 {
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }

    fn join(&self, group: &str) -> Asked {
        self.ask(GroupRequest::Join {
            request: JoinGroupRequest {
                group_id: Str::from(group.to_owned()),
                session_timeout_ms: 10_000,
                rebalance_timeout_ms: 60_000,
                protocol_type: "consumer".into(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: "range".into(),
                    metadata: Bytes::new(),
                }],
                ..JoinGroupRequest::default()
            },
            version: 3,
            client: ClientIdentity::default(),
            fresh: Uuid::ONE,
        })
    }
}

fn budget() -> Budget {
    let limits = ClassLimits {
        reserved_bytes: 1 << 30,
        max_bytes: 1 << 30,
    };
    Budget::new(BudgetLimits {
        classes: [limits; BUDGET_CLASSES],
        shared_bytes: 0,
    })
}

/// The planted bug: an answer from an empty coordinator.
fn impostor(router: &Router<()>, env: &SimEnv, to: ReplyTo, request: GroupRequest) {
    let mut empty = GroupCoordinator::new(GroupSettings::default(), budget());
    empty.handle(to, request, env.now(), env.wall());
    while let Some(output) = empty.poll_output() {
        if let GroupOutput::Reply { to, reply } = output {
            router.answer(to, ShardReply::Group(Box::new(Ok(reply))));
        }
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(SimHandle) -> F) {
    let executor = SimExecutor::new(1);
    executor.block_on(test(executor.handle()));
}

/// Commits of many groups, a new owner of the partition, and questions all the while: each answer is the truth or says that it
/// loads.
fn nobody_is_told_that_nothing_was_committed(canary: Canary) {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let first = Shard::new(&handle, &log, canary);
        first.lead().await;
        for n in 0..50 {
            let asked = first.commit(&format!("g-{n}"), n);
            assert_eq!(first.committed(asked).await, Ok(ErrorCode::NONE));
        }
        let second = Shard::new(&handle, &log, canary);
        log.takes.set(Duration::from_millis(2));
        second.driver.lead(LOG);
        let mut refused = 0;
        for round in 0..40 {
            for n in [0, 17, 49] {
                match second.fetch(&format!("g-{n}")).await {
                    Ok(found) => assert_eq!(found, Some(n), "round {round}"),
                    Err(error) => {
                        assert_eq!(error, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
                        refused += 1;
                    }
                }
            }
            second.env.sleep(Duration::from_millis(4)).await;
        }
        assert!((10..100).contains(&refused), "{refused} of 120");
        assert_eq!(second.driver.stats().loads.count(), 1);
    });
}

/// BR-059.
#[test]
fn while_a_log_is_replayed_nobody_is_told_that_nothing_was_committed() {
    nobody_is_told_that_nothing_was_committed(Canary::None);
}

#[test]
fn an_empty_answer_while_loading_would_be_seen() {
    let seen = std::panic::catch_unwind(|| {
        nobody_is_told_that_nothing_was_committed(Canary::EmptyWhileLoading);
    });
    let message = seen.expect_err("the planted bug goes unseen");
    let message = message.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("left: None"),
        "seen for another reason: {message}"
    );
}

/// BR-127.
#[test]
fn a_log_that_cannot_be_read_is_tried_again_and_one_that_cannot_be_replayed_is_not_served() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let first = Shard::new(&handle, &log, Canary::None);
        first.lead().await;
        let asked = first.commit("g", 5);
        assert_eq!(first.committed(asked).await, Ok(ErrorCode::NONE));

        let second = Shard::new(&handle, &log, Canary::None);
        log.reads_fail
            .borrow_mut()
            .extend([ErrorCode::KAFKA_STORAGE_ERROR; 2]);
        second.driver.lead(LOG);
        second.env.sleep(Duration::from_millis(1500)).await;
        assert_eq!(
            second.fetch("g").await,
            Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
        );
        second.env.sleep(Duration::from_secs(2)).await;
        assert_eq!(second.fetch("g").await, Ok(Some(5)));

        // A flipped byte in a record.
        let damaged = {
            let mut bytes = log.batches.borrow()[0].to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            bytes.into()
        };
        log.batches.borrow_mut()[0] = damaged;
        let third = Shard::new(&handle, &log, Canary::None);
        third.driver.lead(LOG);
        third.env.sleep(Duration::from_secs(5)).await;
        assert_eq!(third.fetch("g").await, Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        let listed = third.told(third.ask(GroupRequest::List)).await;
        assert_eq!(
            listed.err(),
            Some(ErrorCode::NOT_COORDINATOR),
            "others are listed"
        );
        assert_eq!(third.driver.stats().failed, 1);
    });
}

#[test]
fn commits_that_come_while_one_is_written_share_the_next_batch_and_fail_with_it() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        shard.lead().await;
        log.takes.set(Duration::from_millis(10));
        let asked: Vec<Asked> = (0..20).map(|n| shard.commit(&format!("g-{n}"), n)).collect();
        for asked in asked {
            assert_eq!(shard.committed(asked).await, Ok(ErrorCode::NONE));
        }
        let batches = log.batches.borrow().len();
        assert!(batches <= 2, "20 commits in {batches} batches");

        log.appends_fail
            .borrow_mut()
            .push_back(ErrorCode::NOT_ENOUGH_REPLICAS);
        let asked = shard.commit("g-0", 100);
        assert_eq!(
            shard.committed(asked).await,
            Ok(ErrorCode::COORDINATOR_NOT_AVAILABLE)
        );
        assert_eq!(shard.fetch("g-0").await, Ok(Some(0)));
    });
}

#[test]
fn whoever_waits_when_the_partition_leaves_is_sent_away_and_an_earlier_life_has_no_effect() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        let asked = shard.commit("g", 1);
        assert_eq!(shard.committed(asked).await, Err(ErrorCode::NOT_COORDINATOR));
        shard.lead().await;
        log.takes.set(Duration::from_millis(50));
        let (join, commit) = (shard.join("g"), shard.commit("h", 1));
        shard.env.sleep(Duration::from_millis(10)).await;
        shard.driver.resign(LOG);
        assert_eq!(shard.committed(commit).await, Ok(ErrorCode::NOT_COORDINATOR));
        match shard.told(join).await {
            Ok(GroupReply::Join(answer)) => assert_eq!(answer.error_code, ErrorCode::NOT_COORDINATOR),
            other => panic!("{other:?}"),
        }
        // The append of the life before ends while the next one loads, and is in its log.
        shard.lead().await;
        assert_eq!(shard.fetch("h").await, Ok(Some(1)));
        assert_eq!(shard.driver.stats().serving, 1);
    });
}

#[test]
fn a_partition_that_is_taken_up_twice_sends_whoever_waits_away_and_counts_on() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        shard.lead().await;
        let asked = shard.commit("h", 1);
        assert_eq!(shard.committed(asked).await, Ok(ErrorCode::NONE));
        let join = shard.join("g");
        shard.env.sleep(Duration::from_millis(10)).await;
        shard.driver.lead(LOG);
        match shard.told(join).await {
            Ok(GroupReply::Join(answer)) => assert_eq!(answer.error_code, ErrorCode::NOT_COORDINATOR),
            other => panic!("{other:?}"),
        }
        assert_eq!(shard.driver.stats().counters.offsets_committed, 1);
        shard.lead().await;
        assert_eq!(shard.fetch("h").await, Ok(Some(1)));
    });
}

#[test]
fn deadlines_are_kept_without_anybody_asking() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        shard.lead().await;
        let began = shard.env.now();
        let join = shard.join("g");
        match shard.told(join).await {
            Ok(GroupReply::Join(answer)) => assert_eq!(answer.error_code, ErrorCode::NONE),
            other => panic!("{other:?}"),
        }
        let took = shard.env.now().since(began);
        // The initial delay, and once more for the newcomer in it.
        assert!((2_990..6_100).contains(&took.as_millis()), "{took:?}");
        let counters = shard.driver.stats().counters;
        assert_eq!(counters.rebalances_begun.iter().sum::<u64>(), 1);
    });
}

#[test]
fn pages_hold_the_groups_of_all_partitions_that_serve() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        shard.lead().await;
        let asked: Vec<Asked> = (0..9_000).map(|n| shard.commit(&format!("g-{n}"), n)).collect();
        for asked in asked {
            assert_eq!(shard.committed(asked).await, Ok(ErrorCode::NONE));
        }
        let (mut groups, mut pages, mut from) = (0, 0, None);
        loop {
            let page: GroupPage = shard.driver.page(from.as_ref());
            groups += page.groups.iter().filter(|g| !g.is_rest).count();
            pages += 1;
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!((groups, pages), (9_000, 5), "18,000 entries of 4096");
    });
}

/// An image of a cluster with these topics.
fn image(topics: &[&str]) -> Arc<MetadataImage> {
    let mut delta = ImageDelta::new(&MetadataImage::empty("c"));
    for name in topics {
        let record = TopicRecord {
            name: Str::from((*name).to_owned()),
            topic_id: Uuid::ONE,
        };
        delta.apply(&record.into()).unwrap();
    }
    Arc::new(delta.image().clone())
}

/// CG-50: the broker may end between the deletion of a topic and the tombstones, and a partition may be loading then.
#[test]
fn offsets_of_a_topic_that_goes_while_a_partition_does_not_serve_go_when_it_does() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let first = Shard::new(&handle, &log, Canary::None);
        first.driver.know_topics(&image(&["t"]));
        first.lead().await;
        for n in 0..50 {
            let asked = first.commit(&format!("g-{n}"), n);
            assert_eq!(first.committed(asked).await, Ok(ErrorCode::NONE));
        }
        first.env.sleep(Duration::from_secs(1)).await;
        first.driver.resign(LOG);

        let second = Shard::new(&handle, &log, Canary::None);
        second.driver.know_topics(&image(&["t"]));
        log.takes.set(Duration::from_millis(2));
        second.driver.lead(LOG);
        second.env.sleep(Duration::from_millis(10)).await;
        assert_eq!(second.driver.stats().loading, 1);
        second.driver.know_topics(&image(&[]));
        second.driver.forget_topics(&[("t".into(), Uuid::ONE)]);
        while second.driver.stats().serving == 0 {
            second.env.sleep(Duration::from_millis(1)).await;
        }
        second.env.sleep(Duration::from_secs(1)).await;
        for n in [0, 17, 49] {
            assert_eq!(second.fetch(&format!("g-{n}")).await, Ok(None));
        }
        // The log says so, too.
        let third = Shard::new(&handle, &log, Canary::None);
        third.lead().await;
        assert_eq!(third.fetch("g-0").await, Ok(None));
    });
}

/// A disk that does not answer once is asked again, whatever it was asked.
#[test]
fn a_log_whose_bounds_cannot_be_read_is_tried_again() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let first = Shard::new(&handle, &log, Canary::None);
        first.lead().await;
        let asked = first.commit("g", 5);
        assert_eq!(first.committed(asked).await, Ok(ErrorCode::NONE));
        let second = Shard::new(&handle, &log, Canary::None);
        // Also while it is on its way to another directory.
        log.offsets_fail
            .borrow_mut()
            .extend([ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::NOT_LEADER_OR_FOLLOWER]);
        second.lead().await;
        assert_eq!(second.fetch("g").await, Ok(Some(5)));

        let third = Shard::new(&handle, &log, Canary::None);
        log.offsets_fail
            .borrow_mut()
            .push_back(ErrorCode::UNKNOWN_SERVER_ERROR);
        third.driver.lead(LOG);
        third.env.sleep(Duration::from_secs(5)).await;
        assert_eq!(third.driver.stats().failed, 1);
    });
}

/// What does not come back is asked less and less often.
#[test]
fn a_log_that_is_not_there_for_long_is_asked_for_now_and_then() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        log.offsets_fail
            .borrow_mut()
            .extend([ErrorCode::KAFKA_STORAGE_ERROR; 1000]);
        shard.driver.lead(LOG);
        shard.env.sleep(Duration::from_secs(600)).await;
        let asked = 1000 - log.offsets_fail.borrow().len();
        assert!((10..=20).contains(&asked), "{asked}");
        assert_eq!(shard.driver.stats().loading, 1);
    });
}

/// A log that could not be opened is nobody's to read.
#[test]
fn a_partition_without_a_log_is_not_served_and_counts_as_failed() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let shard = Shard::new(&handle, &log, Canary::None);
        shard.driver.cannot_lead(LOG);
        assert_eq!(shard.driver.stats().failed, 1);
        assert_eq!(shard.fetch("g").await, Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        shard.env.sleep(Duration::from_secs(60)).await;
        assert_eq!((log.reads.get(), shard.driver.stats().failed), (0, 1));
        shard.lead().await;
        assert_eq!(shard.driver.stats().serving, 1);
    });
}

/// What is read for a life that is over is not read on, and its failure is none.
#[test]
fn a_replay_ends_when_the_partition_leaves() {
    run(|handle| async move {
        let log = Rc::new(Log::default());
        let first = Shard::new(&handle, &log, Canary::None);
        first.lead().await;
        for n in 0..50 {
            let asked = first.commit(&format!("g-{n}"), n);
            assert_eq!(first.committed(asked).await, Ok(ErrorCode::NONE));
        }
        let second = Shard::new(&handle, &log, Canary::None);
        log.takes.set(Duration::from_millis(2));
        log.reads.set(0);
        second.driver.lead(LOG);
        second.env.sleep(Duration::from_millis(20)).await;
        second.driver.resign(LOG);
        let before = log.reads.get();
        assert!((2..20).contains(&before), "{before}");
        second.env.sleep(Duration::from_secs(5)).await;
        assert!(
            log.reads.get() <= before + 1,
            "{} after {before}",
            log.reads.get()
        );
        // One that fails behind the end of its life is neither tried again nor said to have failed.
        second.driver.lead(LOG);
        second.env.sleep(Duration::from_millis(20)).await;
        log.reads_fail
            .borrow_mut()
            .push_back(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        second.driver.lead(LOG);
        second.env.sleep(Duration::from_secs(5)).await;
        let stats = second.driver.stats();
        assert_eq!((stats.failed, stats.serving), (0, 1));
        assert_eq!(stats.loads.count(), 1);
    });
}
