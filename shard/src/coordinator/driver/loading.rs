//! How a partition of `__consumer_offsets` gets to serve: its log is read from its owner, this shard, and replayed; what could not be
//! read is tried again.

use std::time::Duration;

use protocol::ErrorCode;
use storage::types::{LeaderEpoch, LogId, Offset};

use super::{GroupDriver, Serving, State};
use crate::coordinator::group::GroupCoordinator;
use crate::coordinator::replay::{GroupReplay, REPLAY_READ_BYTES};
use crate::coordinator::writer::Queue;
use crate::env::Env;
use crate::message::{
    FetchEntry, FetchRead, Isolation, OffsetQuery, OffsetQueryKind, ShardReply, ShardRequest,
};

/// How long to wait before a replay is tried again; twice as long each time, up to the second.
const REPLAY_RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

impl<E: Env, N: Send + 'static> GroupDriver<E, N> {
    /// Replays a partition's log, then serves it. A log that cannot be read is not served: an empty answer would be a lie.
    pub(super) async fn load(&self, log: LogId, life: u64) {
        let began = self.0.env.now();
        let partition = log.partition;
        let [mut pause, longest] = REPLAY_RETRY;
        while self.lives(log, life) {
            match self.replay(log, life).await {
                // It leads the partition no longer, or does again: what came of reading it is nobody's concern.
                _ if !self.lives(log, life) => return,
                Ok((mut coordinator, end)) => {
                    let took = self.0.env.now().since(began);
                    self.0.loads.borrow_mut().record(took);
                    let took_ms = took.as_millis() as u64;
                    tracing::debug!(partition, end_offset = end.0, took_ms, "groups are loaded");
                    if let Some(topics) = self.0.topics.borrow().clone() {
                        coordinator.know_topics(topics);
                    }
                    let serving = Serving {
                        coordinator,
                        queue: Queue::default(),
                        is_writing: false,
                    };
                    self.set_state(log, life, State::Serving(Box::new(serving)));
                    return self.with(log, Some(life), |c, now, wall| c.start(now, wall));
                }
                Err(Unloaded::Refused(why)) => {
                    tracing::error!(
                        partition,
                        %why,
                        "a partition of __consumer_offsets cannot be replayed; its groups are not served"
                    );
                    return self.set_state(log, life, State::Failed);
                }
                Err(Unloaded::Unread(why)) => {
                    tracing::warn!(
                        partition, %why, seconds = pause.as_secs(),
                        "a partition of __consumer_offsets could not be read; trying again"
                    );
                    self.0.env.sleep(pause).await;
                    pause = longest.min(pause * 2);
                }
            }
        }
    }

    /// Whether the partition is in that life still.
    fn lives(&self, log: LogId, life: u64) -> bool {
        let partitions = self.0.partitions.borrow();
        partitions.get(&log).is_some_and(|p| p.life == life)
    }

    fn set_state(&self, log: LogId, life: u64, state: State) {
        let mut partitions = self.0.partitions.borrow_mut();
        if let Some(partition) = partitions.get_mut(&log).filter(|p| p.life == life) {
            partition.state = state;
        }
    }

    async fn replay(&self, log: LogId, life: u64) -> Result<(GroupCoordinator, Offset), Unloaded> {
        let mut replay = GroupReplay::default();
        let mut coordinator = GroupCoordinator::new(self.0.settings.clone(), self.0.memory.clone());
        let mut offset = self.offset_of(log, OffsetQueryKind::Earliest).await?;
        let end = self
            .offset_of(log, OffsetQueryKind::Latest(Isolation::ReadUncommitted))
            .await?;
        while offset < end && self.lives(log, life) {
            let bytes = self.read(log, offset).await?;
            let wall = self.0.env.wall();
            match replay.batches(&bytes, &mut coordinator, wall) {
                Ok(Some(next)) => offset = Offset(next),
                Ok(None) => return Err(Unloaded::unread("an answer holds no whole batch")),
                Err(error) => return Err(Unloaded::Refused(error.to_string())),
            }
            self.0.env.yield_to_reactor().await;
        }
        Ok((coordinator, offset))
    }

    async fn offset_of(&self, log: LogId, what: OffsetQueryKind) -> Result<Offset, Unloaded> {
        let query = OffsetQuery {
            log,
            current_leader_epoch: LeaderEpoch::NONE,
            what,
        };
        match self.ask(ShardRequest::Offsets(vec![query])).await {
            Some(ShardReply::Offsets(answers)) => match answers.first() {
                Some(answer) if answer.error == ErrorCode::NONE => Ok(answer.offset),
                Some(answer) => Err(Unloaded::by(answer.error, "its offsets")),
                None => Err(Unloaded::unread("an answer is empty")),
            },
            _ => Err(Unloaded::unread("the shard is busy")),
        }
    }

    async fn read(&self, log: LogId, offset: Offset) -> Result<bytes::Bytes, Unloaded> {
        let read = FetchRead {
            entries: vec![FetchEntry {
                log,
                offset,
                bytes_max: REPLAY_READ_BYTES,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            }],
            bytes_max: REPLAY_READ_BYTES,
            isolation: Isolation::ReadUncommitted,
            wait: None,
        };
        match self.ask(ShardRequest::Fetch(read)).await {
            Some(ShardReply::Fetch(mut answer)) => match answer.partitions.pop() {
                Some(data) if data.error == ErrorCode::NONE => Ok(data.records.into_bytes()),
                Some(data) => Err(Unloaded::by(data.error, &format!("offset {}", offset.0))),
                None => Err(Unloaded::unread("an answer is empty")),
            },
            _ => Err(Unloaded::unread("the shard is busy")),
        }
    }
}

/// Why a partition is not loaded.
enum Unloaded {
    /// It could not be read this time: a sentence says why.
    Unread(String),
    /// It cannot be read: a sentence says why.
    Refused(String),
}

impl Unloaded {
    fn unread(why: &str) -> Self {
        Self::Unread(why.to_owned())
    }

    /// What an error of the log's owner means for a replay: a disk may answer another time, a log may be on its way to another
    /// directory or its start have moved; everything else stays so.
    fn by(error: ErrorCode, what: &str) -> Self {
        let why = format!("{what}: {error}");
        match error {
            ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::OFFSET_OUT_OF_RANGE => Self::Unread(why),
            _ => Self::Refused(why),
        }
    }
}
