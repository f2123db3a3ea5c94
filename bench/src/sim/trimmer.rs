//! A client that deletes the oldest records of the run's partitions, all the while. What it was told holds over restarts: the
//! log starts where the answer said, and what lies below is not read any more.

use std::rc::Rc;
use std::time::Duration;

use protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use protocol::{ErrorCode, Str};
use storage::sim_rng::{PPM, SimRng};

use super::client::{Closed, Connection, Surroundings};
use super::consumer::log_start;
use super::knobs::number;
use super::node::topic_name;
use super::restless::Restless;

/// A pause between two deletions, at most.
const PAUSE: Duration = Duration::from_millis(100);

/// The offset that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

/// The client of a run that deletes records.
pub struct Trimmer {
    around: Surroundings,
    name: Rc<str>,
    rng: SimRng,
    /// A deletion whose answer was lost was asked for at this time: until it has settled, another would hide what it did.
    lost: Option<Duration>,
}

impl Restless for Trimmer {
    fn identity(&mut self) -> (&Surroundings, &Rc<str>, &mut SimRng) {
        (&self.around, &self.name, &mut self.rng)
    }

    async fn work(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        while !self.around.is_over() {
            let around = self.around.clone();
            around.pause(&mut self.rng, PAUSE).await;
            if self.lost.is_some_and(|since| !around.has_settled(since)) {
                continue;
            }
            self.lost = Some(around.clock().now());
            self.delete(connection).await?;
            self.lost = None;
        }
        Ok(())
    }
}

impl Trimmer {
    /// A client that has deleted nothing yet.
    #[must_use]
    pub fn new(around: &Surroundings, seed: u64) -> Self {
        Self {
            around: around.clone(),
            name: Rc::from("trimmer"),
            rng: SimRng::new(seed, "trimmer"),
            lost: None,
        }
    }

    async fn delete(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let around = self.around.clone();
        let topic = self.rng.index(around.topics().len());
        let partitions = u64::try_from(around.topics()[topic]).expect("a count");
        let index: i32 = number(&mut self.rng, 0, partitions - 1);
        let partition = around.partition_number(topic, index);
        let floor = around.oracle().floor(partition);
        // Mostly a few records; all of them now and then, by number or by the name of the high watermark.
        let most = u64::try_from(floor.mark).expect("an offset");
        let least = u64::try_from(floor.start).expect("an offset");
        let target: i64 = match self.rng.below(8) {
            0 => HIGH_WATERMARK,
            1 => floor.mark,
            2 => number(&mut self.rng, 0, most),
            _ => number(&mut self.rng, least, least + (most - least) / 4),
        };
        let named = (target != HIGH_WATERMARK).then_some(target);
        around.oracle().deleting(partition, named);
        around.trace().event(format_args!(
            "{} deletes {partition} up to {target}, {floor:?}",
            self.name
        ));
        let request = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: Str::from(topic_name(topic)),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: index,
                    offset: target,
                }],
            }],
            timeout_ms: 30_000,
        };
        let version = number(&mut self.rng, 0, 2);
        let response: DeleteRecordsResponse = connection.call(&request, version).await?;
        let results = response.topics.iter().flat_map(|t| &t.partitions);
        let answer = results.map(|p| (p.error_code, p.low_watermark)).next();
        let least = floor.start.max(named.unwrap_or(floor.mark));
        match answer {
            Some((ErrorCode::NONE, start)) if start >= least => {
                around.oracle().deleted(partition, start);
                self.look(connection, topic, index, start).await?;
            }
            Some((ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, _)) => {
                // Right after a start the partition may not be open yet: nothing was deleted.
                around.oracle().deleted(partition, floor.start);
            }
            // The disk fails: the deletion may come to light after the restart.
            Some((ErrorCode::KAFKA_STORAGE_ERROR, _)) if connection.disk_may_fail() => return Err(Closed),
            other => {
                let what = format_args!("{other:?} where a start of {least} or more was due");
                around.trace().violation(format_args!("{}: {what}", self.name));
            }
        }
        Ok(())
    }

    /// Nobody else deletes: the log starts exactly where the answer said.
    async fn look(
        &mut self,
        connection: &mut Connection,
        topic: usize,
        index: i32,
        start: i64,
    ) -> Result<(), Closed> {
        if self.rng.chance(PPM / 2) {
            return Ok(());
        }
        let answer = log_start(connection, topic, index).await?;
        let is_right = match answer {
            Ok(found) => found == start,
            Err(code) => code == ErrorCode::KAFKA_STORAGE_ERROR && connection.disk_may_fail(),
        };
        if !is_right {
            let what = format_args!("the log of {topic}-{index} starts at {answer:?}, not at {start}");
            self.around
                .trace()
                .violation(format_args!("{}: {what}", self.name));
        }
        Ok(())
    }
}
