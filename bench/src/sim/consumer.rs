//! A consumer that follows all partitions: each from offset 0, with or without a fetch session, by long polls. It checks that
//! nothing is skipped or read twice, and that what it sees is below the high watermark. Where records were deleted under it,
//! it goes on at the log start, as `auto.offset.reset=earliest` does.

use std::rc::Rc;

use protocol::messages::fetch::{
    FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic, FetchResponse,
    FetchResponsePartitionData,
};
use protocol::messages::list_offsets::ListOffsetsResponse;
use protocol::{ErrorCode, Str, Uuid};
use storage::sim_rng::SimRng;

use super::client::{Closed, Connection, Surroundings};
use super::knobs::ConsumerKnobs;
use super::node::topic_name;
use super::oracle::{Floor, ReadLog, Source};
use super::record::{ReadRecord, read};
use super::requests::list_offset;
use super::restless::Restless;

/// The version of Fetch that says where a log starts.
const LOG_START_VERSION: i16 = 5;

/// A consumer of a run.
pub struct Consumer {
    around: Surroundings,
    knobs: ConsumerKnobs,
    name: Rc<str>,
    rng: SimRng,
    partitions: Vec<Position>,
    topic_ids: Vec<Uuid>,
    session: Option<(i32, i32)>,
    /// Keeps what it reads, to be checked as a whole.
    collected: Option<Vec<ReadLog>>,
}

/// What is to be done after one partition's part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    /// Learn the topics again.
    Refresh,
    /// Ask where the log starts: the position is not in it any more.
    Reset,
}

#[derive(Clone, Debug)]
struct Position {
    topic: usize,
    index: i32,
    next: i64,
    /// The high watermark of the last answer.
    mark: i64,
    /// The session knows this position.
    told: i64,
}

impl Restless for Consumer {
    fn identity(&mut self) -> (&Surroundings, &Rc<str>, &mut SimRng) {
        (&self.around, &self.name, &mut self.rng)
    }

    async fn work(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        self.session = None;
        self.learn_topics(connection).await?;
        while !self.around.is_over() {
            self.fetch(connection).await?;
            let (around, pause) = (self.around.clone(), self.knobs.pause);
            around.pause(&mut self.rng, pause).await;
        }
        Ok(())
    }
}

impl Consumer {
    /// A consumer at offset 0 of all partitions.
    #[must_use]
    pub fn new(around: &Surroundings, knobs: &ConsumerKnobs, name: &str, seed: u64) -> Self {
        let mut partitions = Vec::new();
        for (topic, count) in around.topics().iter().enumerate() {
            partitions.extend((0..*count).map(|index| Position {
                topic,
                index,
                next: 0,
                mark: -1,
                told: -1,
            }));
        }
        Self {
            around: around.clone(),
            knobs: knobs.clone(),
            name: Rc::from(name),
            rng: SimRng::new(seed, name),
            partitions,
            topic_ids: Vec::new(),
            session: None,
            collected: None,
        }
    }

    /// Reads everything from the log starts up to what is readable now, at least up to `floors`; `None` when the connection
    /// is lost.
    pub async fn read_all(mut self, floors: &[Floor]) -> Option<Vec<ReadLog>> {
        self.collected = Some(vec![ReadLog::default(); self.partitions.len()]);
        let (name, around) = (self.name.clone(), self.around.clone());
        let mut connection = around.connect_as(&name, &mut self.rng, true).await?;
        self.learn_topics(&mut connection).await.ok()?;
        loop {
            let is_at_end = self
                .partitions
                .iter()
                .zip(floors)
                .all(|(p, floor)| p.mark >= 0 && p.next >= p.mark && p.next >= floor.mark);
            if is_at_end {
                return self.collected;
            }
            self.fetch(&mut connection).await.ok()?;
        }
    }

    async fn learn_topics(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        loop {
            if let Some(ids) = connection.topic_ids().await? {
                self.topic_ids = ids;
                return Ok(());
            }
            let around = self.around.clone();
            around.back_off(&mut self.rng).await;
        }
    }

    async fn fetch(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let request = self.request();
        let floors: Vec<Floor> = (0..self.partitions.len())
            .map(|number| self.around.oracle().floor(number as u32))
            .collect();
        let response: FetchResponse = connection.call(&request, self.knobs.version).await?;
        match response.error_code {
            ErrorCode::NONE => {}
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND | ErrorCode::INVALID_FETCH_SESSION_EPOCH => {
                self.session = None;
                return Ok(());
            }
            other => {
                self.wrong(format_args!("a fetch was answered with {other:?}"));
                return Ok(());
            }
        }
        if let Some((_, epoch)) = self.session {
            let next = if epoch == i32::MAX { 1 } else { epoch + 1 };
            self.session = (response.session_id != 0).then_some((response.session_id, next));
        }
        let (mut refresh, mut resets) = (false, Vec::new());
        for topic in &response.responses {
            for data in &topic.partitions {
                let place = self.partitions.iter().position(|p| {
                    p.index == data.partition_index
                        && (topic_name(p.topic) == topic.topic.as_str()
                            || self.topic_ids[p.topic] == topic.topic_id)
                });
                match place {
                    Some(place) => match self.take(place, data, floors[place]) {
                        Next::GoOn => {}
                        Next::Refresh => refresh = true,
                        Next::Reset => resets.push(place),
                    },
                    None => self.wrong(format_args!(
                        "an answer for {:?}-{}",
                        topic.topic, data.partition_index
                    )),
                }
            }
        }
        if refresh {
            self.session = None;
            let around = self.around.clone();
            around.back_off(&mut self.rng).await;
            self.learn_topics(connection).await?;
        }
        for place in resets {
            self.reset(connection, place).await?;
        }
        Ok(())
    }

    /// Goes on at the log start.
    async fn reset(&mut self, connection: &mut Connection, place: usize) -> Result<(), Closed> {
        let (floor, number) = (self.around.oracle().floor(place as u32), place as u32);
        let position = &self.partitions[place];
        let answer = log_start(connection, position.topic, position.index).await?;
        let Some(start) = answer.ok() else {
            let around = self.around.clone();
            around.back_off(&mut self.rng).await;
            return Ok(()); // the next fetch is refused again
        };
        let whence = format!("{} asks", self.name);
        self.around.oracle().check_start(number, start, floor, &whence);
        let position = &mut self.partitions[place];
        (position.next, position.told) = (start, -1);
        if let Some(collected) = &mut self.collected {
            collected[place] = ReadLog {
                start,
                records: Vec::new(),
            };
        }
        Ok(())
    }

    fn request(&mut self) -> FetchRequest {
        let with_session = self.knobs.session && self.knobs.version >= 7;
        let (id, epoch) = match self.session {
            Some(session) => session,
            None if with_session => (0, 0),
            None => (0, -1),
        };
        if with_session {
            self.session.get_or_insert((0, 0));
        }
        let full = epoch <= 0;
        let mut topics: Vec<FetchRequestFetchTopic> = Vec::new();
        for position in &mut self.partitions {
            if !full && position.told == position.next {
                continue;
            }
            position.told = position.next;
            let entry = FetchRequestFetchPartition {
                partition: position.index,
                current_leader_epoch: -1,
                fetch_offset: position.next,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: self.knobs.partition_bytes_max,
                ..Default::default()
            };
            let name = topic_name(position.topic);
            match topics.iter_mut().find(|t| t.topic.as_str() == name) {
                Some(topic) => topic.partitions.push(entry),
                None => topics.push(FetchRequestFetchTopic {
                    topic: Str::from(name),
                    topic_id: self.topic_ids[position.topic],
                    partitions: vec![entry],
                }),
            }
        }
        FetchRequest {
            replica_id: -1,
            max_wait_ms: self.knobs.wait_ms,
            min_bytes: self.knobs.bytes_min,
            max_bytes: self.knobs.bytes_max,
            isolation_level: self.knobs.isolation,
            session_id: id,
            session_epoch: epoch,
            topics,
            ..Default::default()
        }
    }

    /// One partition's part of an answer.
    fn take(&mut self, place: usize, data: &FetchResponsePartitionData, floor: Floor) -> Next {
        let next = self.partitions[place].next;
        if data.error_code != ErrorCode::NONE {
            return self.refused(place, data);
        }
        let mark = data.high_watermark;
        let oracle = self.around.oracle();
        oracle.check_mark(place as u32, mark, floor.mark);
        if self.knobs.version >= LOG_START_VERSION {
            oracle.check_start(place as u32, data.log_start_offset, floor, &self.name);
        }
        if next < floor.start {
            self.wrong(format_args!(
                "fetch of {place} from {next}, which was deleted, is answered"
            ));
        }
        self.partitions[place].mark = mark;
        let bytes = data.records.clone().unwrap_or_default().into_bytes();
        let found = read(&bytes, &mut self.around.codecs());
        let found = match found {
            Ok(found) => found,
            Err(what) => {
                self.wrong(format_args!("fetch of {place} from {next}: {what}"));
                return Next::GoOn;
            }
        };
        let (first, end) = (found.first.unwrap_or(next), found.end.unwrap_or(next));
        if first > next || (end <= next && found.first.is_some()) || end > mark.max(next) {
            let what = format_args!("fetch of {place} from {next} below {mark} brought {first} to {end}");
            self.wrong(what);
        }
        if found.first.is_some() {
            self.around.trace().event(format_args!(
                "{} reads {place}: {next} to {end} of {mark}",
                self.name
            ));
        }
        let is_new = |record: &&ReadRecord| record.offset >= next;
        for record in found.records.iter().filter(is_new) {
            if record.id.partition as usize != place {
                self.wrong(format_args!(
                    "{:?} at {} of partition {place}",
                    record.id, record.offset
                ));
            }
            self.around.oracle().learn(*record, Source::Consumed);
        }
        if let Some(collected) = &mut self.collected {
            collected[place]
                .records
                .extend(found.records.iter().filter(is_new));
        }
        self.partitions[place].next = end;
        Next::GoOn
    }

    /// What to do after an error of a partition.
    fn refused(&mut self, place: usize, data: &FetchResponsePartitionData) -> Next {
        let next = self.partitions[place].next;
        match data.error_code {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::KAFKA_STORAGE_ERROR => {
                self.partitions[place].told = -1;
                Next::Refresh
            }
            ErrorCode::OFFSET_OUT_OF_RANGE if self.around.oracle().may_be_deleted(place as u32, next) => {
                Next::Reset
            }
            other => {
                let mark = data.high_watermark;
                self.wrong(format_args!(
                    "fetch of {place} from {next}: {other:?}, high watermark {mark}"
                ));
                Next::Refresh
            }
        }
    }

    fn wrong(&self, what: std::fmt::Arguments<'_>) {
        self.around
            .trace()
            .violation(format_args!("{}: {what}", self.name));
    }
}

/// Where the log of a partition of the run starts, or why that is not said.
///
/// # Errors
/// [`Closed`].
pub(super) async fn log_start(
    connection: &mut Connection,
    topic: usize,
    partition_index: i32,
) -> Result<Result<i64, ErrorCode>, Closed> {
    let request = list_offset(&topic_name(topic), partition_index, -2);
    let response: ListOffsetsResponse = connection.call(&request, 5).await?;
    let answer = response.topics.iter().flat_map(|t| &t.partitions).next();
    Ok(match answer.map(|p| (p.error_code, p.offset)) {
        Some((ErrorCode::NONE, start)) => Ok(start),
        Some((code, _)) => Err(code),
        None => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
    })
}
