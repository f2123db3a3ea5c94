//! A client that sends what must be refused: broken batches beside good ones, garbage, frames of impossible size, versions that
//! nobody serves. It checks that each gets its error or its closed connection, and that nothing of it is ever read.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use protocol::frame::FRAME_LENGTH_BYTES;
use protocol::header::RequestHeader;
use protocol::messages::api_versions::ApiVersionsRequest;
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use protocol::{ApiKey, ErrorCode, RecordBytes, Str, Writer};
use storage::sim_rng::SimRng;

use super::client::{Closed, Connection, Surroundings};
use super::env::EPOCH_MS;
use super::knobs::number;
use super::node::{REQUEST_BYTES_MAX, topic_name};
use super::record::{RecordId, Sender, build};
use crate::conformance::batch::resealed;

/// A pause between two attacks, at most.
const PAUSE: Duration = Duration::from_millis(50);

/// The least version of Produce in which a response says what is wrong with a record.
const PRODUCE_VERSION: i16 = 9;

/// A vandal of a run.
pub struct Vandal {
    around: Surroundings,
    name: Rc<str>,
    number: u32,
    next_number: u32,
    session: u32,
    rng: SimRng,
}

/// What makes a batch one that must be refused.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Crc,
    Count,
    Magic,
    Length,
    Cut,
}

impl Vandal {
    /// A vandal that has done nothing yet.
    #[must_use]
    pub fn new(around: &Surroundings, seed: u64) -> Self {
        let number = around.oracle().add_producer(false);
        Self {
            around: around.clone(),
            name: Rc::from(format!("vandal{number}")),
            number,
            next_number: 0,
            session: 0,
            rng: SimRng::new(seed ^ u64::from(number), "vandal"),
        }
    }

    /// Goes on until the run's workload is over.
    pub async fn run(mut self) {
        loop {
            let (name, around) = (self.name.clone(), self.around.clone());
            let Some(mut connection) = around.connect(&name, &mut self.rng).await else {
                return;
            };
            self.session += 1;
            // Whatever the attack, it ends with the connection.
            let _ = self.attack(&mut connection).await;
            drop(connection);
            around.pause(&mut self.rng, PAUSE).await;
        }
    }

    async fn attack(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        match self.rng.below(8) {
            0 => self.frame_of_size(connection, -1).await,
            1 => {
                let size = i32::try_from(REQUEST_BYTES_MAX).expect("a size") + 1;
                self.frame_of_size(connection, size).await
            }
            2 => self.garbage(connection).await,
            3 => self.unserved_version(connection).await,
            4 => self.dawdle(connection).await,
            5 => self.impossible_acks(connection).await,
            _ => {
                for _ in 0..self.rng.between(1, 10) {
                    self.broken_batch(connection).await?;
                }
                Ok(())
            }
        }
    }

    async fn frame_of_size(&mut self, connection: &mut Connection, size: i32) -> Result<(), Closed> {
        self.around
            .trace()
            .event(format_args!("{} sends a frame of {size} bytes", self.name));
        connection.allow_close();
        let bytes = Bytes::copy_from_slice(&size.to_be_bytes());
        connection.send_bytes([bytes].into()).await?;
        connection.expect_close().await;
        Ok(())
    }

    async fn garbage(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let mut body = vec![0; self.rng.index(200)];
        self.rng.fill(&mut body);
        // A key that no version of Kafka has.
        let mut frame = Vec::from(i32::try_from(body.len() + 2).expect("small").to_be_bytes());
        frame.extend_from_slice(&[0x7f, 0xff]);
        frame.extend_from_slice(&body);
        self.around
            .trace()
            .event(format_args!("{} sends garbage", self.name));
        connection.allow_close();
        connection.send_bytes([Bytes::from(frame)].into()).await?;
        connection.expect_close().await;
        Ok(())
    }

    /// ApiVersions answers any version; others close the connection.
    async fn unserved_version(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        connection.call(&ApiVersionsRequest::default(), 0).await?;
        let mut writer = Writer::framed(64);
        RequestHeader {
            api_key: ApiKey::Metadata,
            api_version: 99,
            correlation_id: 1,
            client_id: Some(Str::from(self.name.to_string())),
        }
        .encode(&mut writer);
        let chunks = writer.finish().expect("a header fits");
        self.around
            .trace()
            .event(format_args!("{} asks in version 99", self.name));
        connection.allow_close();
        connection.send_bytes(chunks.into()).await?;
        connection.expect_close().await;
        Ok(())
    }

    /// The start of a frame, then nothing for a while; then it leaves.
    async fn dawdle(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let bytes = Bytes::from_static(&[0, 0, 1, 0, 0, 3, 0, 9]);
        let count = 1 + self.rng.index(bytes.len() - 1);
        self.around.trace().event(format_args!(
            "{} sends {count} of {FRAME_LENGTH_BYTES} and 256 bytes",
            self.name
        ));
        connection.allow_close();
        connection.send_bytes([bytes.slice(..count)].into()).await?;
        let around = self.around.clone();
        around.pause(&mut self.rng, PAUSE * 10).await;
        Ok(())
    }

    async fn impossible_acks(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let (topic, index, ids, bytes) = self.batch();
        let request = request(7, vec![(topic, index, bytes)]);
        self.around
            .trace()
            .event(format_args!("{} produces with acks=7", self.name));
        let response: ProduceResponse = connection.call(&request, PRODUCE_VERSION).await?;
        self.expect_refusal(connection, &response, &ids, &[ErrorCode::INVALID_REQUIRED_ACKS]);
        Ok(())
    }

    /// A batch that is broken in one way.
    async fn broken_batch(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let fault = [Fault::Crc, Fault::Count, Fault::Magic, Fault::Length, Fault::Cut][self.rng.index(5)];
        let (topic, index, ids, bytes) = self.batch();
        let bytes = fault.apply(&bytes, &mut self.rng);
        let request = request(-1, vec![(topic, index, bytes)]);
        self.around
            .trace()
            .event(format_args!("{} sends {ids:?} with a wrong {fault:?}", self.name));
        let response: ProduceResponse = connection.call(&request, PRODUCE_VERSION).await?;
        let codes = [
            ErrorCode::CORRUPT_MESSAGE,
            ErrorCode::INVALID_RECORD,
            ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT,
            // A flipped bit may make it part of a transaction.
            ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ];
        self.expect_refusal(connection, &response, &ids, &codes);
        Ok(())
    }

    fn expect_refusal(
        &self,
        connection: &Connection,
        response: &ProduceResponse,
        ids: &[RecordId],
        codes: &[ErrorCode],
    ) {
        let results = response.responses.iter().flat_map(|t| &t.partition_responses);
        for result in results {
            let tells_of_the_disk =
                connection.disk_may_fail() && result.error_code == ErrorCode::KAFKA_STORAGE_ERROR;
            if !tells_of_the_disk && !codes.contains(&result.error_code) {
                let what = format_args!("{}: {ids:?} was answered with {:?}", self.name, result.error_code);
                self.around.trace().violation(what);
            }
        }
        ids.iter().for_each(|id| self.around.oracle().refused(*id));
    }

    /// A good batch for some partition.
    fn batch(&mut self) -> (usize, i32, Vec<RecordId>, Bytes) {
        let topics = self.around.topics().to_vec();
        let topic = self.rng.index(topics.len());
        let index = number::<i32>(
            &mut self.rng,
            0,
            u64::try_from(topics[topic]).expect("a count") - 1,
        );
        let partition = self.around.partition_number(topic, index);
        let count = number::<u32>(&mut self.rng, 1, 5);
        let ids: Vec<RecordId> = (0..count)
            .map(|i| RecordId {
                producer: self.number,
                partition,
                number: self.next_number + i,
                value_bytes: 20,
            })
            .collect();
        self.next_number += count;
        ids.iter()
            .for_each(|id| self.around.oracle().sending(*id, self.session));
        let bytes = build(&ids, Sender::NOBODY, EPOCH_MS, 0, &mut self.around.codecs());
        (topic, index, ids, bytes)
    }
}

impl Fault {
    fn apply(self, batch: &Bytes, rng: &mut SimRng) -> Bytes {
        let mut bytes = batch.to_vec();
        match self {
            Self::Crc => {
                let at = 21 + rng.index(bytes.len() - 21);
                bytes[at] ^= 1 << rng.index(8);
            }
            Self::Count => {
                // With a CRC that is right: only who counts the records sees it.
                return resealed(batch, |header| header.record_count += 1);
            }
            Self::Magic => bytes[16] = 3,
            Self::Length => bytes[8] ^= 0x80,
            Self::Cut => bytes.truncate(61 + rng.index(bytes.len() - 61)),
        }
        Bytes::from(bytes)
    }
}

fn request(acks: i16, batches: Vec<(usize, i32, Bytes)>) -> ProduceRequest {
    let topic = |(topic, index, bytes): (usize, i32, Bytes)| TopicProduceData {
        name: Str::from(topic_name(topic)),
        partition_data: vec![PartitionProduceData {
            index,
            records: Some(RecordBytes::from(bytes)),
        }],
        ..Default::default()
    };
    ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 30_000,
        topic_data: batches.into_iter().map(topic).collect(),
    }
}
