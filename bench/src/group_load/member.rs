//! A member of a group of the classic protocol, as a consumer's client behaves: it joins, syncs, and rejoins when told to. The
//! leader deals the topic's partitions out by range.

use bytes::Bytes;
use protocol::framing::{from_versioned_bytes, versioned_bytes};
use protocol::message::Message;
use protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition, ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
};
use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use protocol::{ErrorCode, Str};
use tokio::time::sleep;

use super::connection::Connection;
use super::setup::{RETRY_INTERVAL, TOPIC, comes_up};
use crate::error::{Result, failed};

/// Versions of the APIs, those of Kafka's own clients of the classic protocol.
const JOIN_VERSION: i16 = 9;
const SYNC_VERSION: i16 = 5;
const HEARTBEAT_VERSION: i16 = 4;
const SUBSCRIPTION_VERSION: i16 = 3;

/// The defaults of Kafka's Java client, in milliseconds.
const SESSION_TIMEOUT_MS: i32 = 45_000;
const REBALANCE_TIMEOUT_MS: i32 = 300_000;

/// A member, on a connection of its own.
#[derive(Debug)]
pub(super) struct Member {
    connection: Connection,
    group: Str,
    id: Str,
    generation: i32,
    /// The partitions that it was dealt last.
    partitions: Vec<i32>,
    partitions_of_topic: i32,
}

impl Member {
    /// A member that has not joined yet.
    ///
    /// # Errors
    /// The system's.
    pub(super) async fn connect(bootstrap: &str, group: &Str, partitions_of_topic: i32) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(bootstrap).await?,
            group: group.clone(),
            id: Str::new(),
            generation: -1,
            partitions: Vec::new(),
            partitions_of_topic,
        })
    }

    /// The partitions that it was dealt last.
    pub(super) fn partitions(&self) -> &[i32] {
        &self.partitions
    }

    /// Joins and syncs until it has its part of a generation. `round` is part of the subscription: another than last time makes
    /// the group rebalance.
    ///
    /// # Errors
    /// The connection is lost, or an error that a client does not survive.
    pub(super) async fn join(&mut self, round: u32) -> Result<()> {
        loop {
            self.send_join(round).await?;
            let answer = self.connection.receive::<JoinGroupRequest>(JOIN_VERSION).await?;
            if self.sync_after(answer).await? {
                return Ok(());
            }
        }
    }

    /// Asks to join; [`Self::finish_join`] goes on.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send_join(&mut self, round: u32) -> Result<()> {
        let owned = ConsumerProtocolSubscriptionTopicPartition {
            topic: Str::from(TOPIC),
            partitions: self.partitions.clone(),
        };
        let subscription = ConsumerProtocolSubscription {
            topics: vec![Str::from(TOPIC)],
            user_data: Some(Bytes::copy_from_slice(&round.to_be_bytes())),
            owned_partitions: vec![owned],
            generation_id: self.generation,
            rack_id: None,
        };
        let request = JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
            member_id: self.id.clone(),
            protocol_type: Str::from("consumer"),
            protocols: vec![JoinGroupRequestProtocol {
                name: Str::from("range"),
                metadata: versioned(&subscription, SUBSCRIPTION_VERSION),
            }],
            ..Default::default()
        };
        self.connection.send(&request, JOIN_VERSION).await
    }

    /// Waits for the answer to [`Self::send_join`] and syncs.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub(super) async fn finish_join(&mut self, round: u32) -> Result<()> {
        let answer = self.connection.receive::<JoinGroupRequest>(JOIN_VERSION).await?;
        if self.sync_after(answer).await? {
            return Ok(());
        }
        self.join(round).await
    }

    /// Whether the member has its part of the generation now; else it is to join again.
    async fn sync_after(&mut self, answer: JoinGroupResponse) -> Result<bool> {
        match answer.error_code {
            ErrorCode::NONE => {}
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.id = answer.member_id;
                return Ok(false);
            }
            ErrorCode::REBALANCE_IN_PROGRESS => return Ok(false),
            code if comes_up(code) => {
                sleep(RETRY_INTERVAL).await;
                return Ok(false);
            }
            other => return failed(format!("a join is answered with {other:?}")),
        }
        let assignments = if answer.leader == answer.member_id {
            self.deal(&answer)
        } else {
            Vec::new()
        };
        self.id = answer.member_id;
        self.generation = answer.generation_id;
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            protocol_type: Some(Str::from("consumer")),
            protocol_name: answer.protocol_name,
            assignments,
            ..Default::default()
        };
        let answer = self.connection.call(&request, SYNC_VERSION).await?;
        match answer.error_code {
            ErrorCode::NONE => {
                self.partitions = dealt(answer.assignment)?;
                Ok(true)
            }
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION => Ok(false),
            other => failed(format!("a sync is answered with {other:?}")),
        }
    }

    /// The partitions by range, each member its part.
    fn deal(&self, answer: &JoinGroupResponse) -> Vec<SyncGroupRequestAssignment> {
        let members = i32::try_from(answer.members.len()).unwrap_or(i32::MAX);
        let (each, over) = (
            self.partitions_of_topic / members,
            self.partitions_of_topic % members,
        );
        let mut next = 0;
        let part = |(place, member): (i32, &protocol::messages::join_group::JoinGroupResponseMember)| {
            let end = next + each + i32::from(place < over);
            let partitions = (next..end).collect();
            next = end;
            let assignment = ConsumerProtocolAssignment {
                assigned_partitions: vec![ConsumerProtocolAssignmentTopicPartition {
                    topic: Str::from(TOPIC),
                    partitions,
                }],
                user_data: None,
            };
            SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: versioned(&assignment, SUBSCRIPTION_VERSION),
            }
        };
        (0..).zip(&answer.members).map(part).collect()
    }

    /// Tells that it lives. Says whether the group goes on; else the member is to join again.
    ///
    /// # Errors
    /// The connection is lost, or the member is not one any more.
    pub(super) async fn heartbeat(&mut self) -> Result<bool> {
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: None,
        };
        match self
            .connection
            .call(&request, HEARTBEAT_VERSION)
            .await?
            .error_code
        {
            ErrorCode::NONE => Ok(true),
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION => Ok(false),
            other => failed(format!("a heartbeat is answered with {other:?}")),
        }
    }
}

/// A part of the consumer's embedded protocol.
fn versioned<M: Message>(message: &M, version: i16) -> Bytes {
    versioned_bytes(message, version).expect("a message of ours can be encoded")
}

fn dealt(assignment: Bytes) -> Result<Vec<i32>> {
    match from_versioned_bytes::<ConsumerProtocolAssignment>(assignment) {
        Ok((_, assignment)) => {
            let topics = assignment.assigned_partitions.into_iter();
            Ok(topics.flat_map(|t| t.partitions).collect())
        }
        Err(error) => failed(format!("an assignment that no member made: {error}")),
    }
}
