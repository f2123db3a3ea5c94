//! Committers that commit offsets as fast as they are answered, each for a group of its own; at the end every group's offsets must
//! be those that were acknowledged last.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use protocol::{ErrorCode, Str};
use tokio::time::sleep;

use super::connection::Connection;
use super::setup::{RETRY_INTERVAL, TOPIC, comes_up, prepare};
use super::{Figures, Meter, allow_connections, on_this_thread};
use crate::compare::Serving;
use crate::error::{Error, Result, failed};

/// Versions of the APIs, those of Kafka's own clients.
const COMMIT_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 9;

/// What is not measured at first.
const WARMUP: Duration = Duration::from_secs(3);

/// Committers and what they commit.
#[derive(Clone, Copy, Debug)]
pub struct Commits {
    /// Committers, each with one commit in flight.
    pub committers: usize,
    /// Partitions of each commit.
    pub partitions: i32,
    /// How long is measured.
    pub time: Duration,
}

#[derive(Default)]
struct Shared {
    is_measured: Cell<bool>,
    is_over: Cell<bool>,
    latencies: RefCell<Vec<Duration>>,
}

impl Commits {
    /// Has all committers commit, and measures.
    ///
    /// # Errors
    /// A commit is refused, or is not there afterwards.
    pub fn run(&self, broker: &Serving) -> Result<Figures> {
        allow_connections(self.committers)?;
        on_this_thread(async {
            let group = |number| Str::from(format!("committer-{number}"));
            let groups: Vec<Str> = (0..self.committers).map(group).collect();
            prepare(&broker.bootstrap, self.partitions, &groups).await?;
            let shared = Rc::new(Shared::default());
            let mut tasks = Vec::with_capacity(self.committers);
            for group in groups {
                let connection = Connection::open(&broker.bootstrap).await?;
                let work = commit_all_the_while(connection, group, self.partitions, shared.clone());
                tasks.push(tokio::task::spawn_local(work));
            }
            sleep(WARMUP).await;
            let meter = Meter::start(broker)?;
            shared.is_measured.set(true);
            sleep(self.time).await;
            shared.is_measured.set(false);
            let latencies = shared.latencies.take();
            let requests = latencies.len() as u64;
            let offsets = requests * u64::from(self.partitions.unsigned_abs());
            let figures = meter.stop(offsets, requests, latencies)?;
            shared.is_over.set(true);
            for task in tasks {
                task.await.map_err(|error| Error::Failed(error.to_string()))??;
            }
            Ok(figures)
        })
    }
}

async fn commit_all_the_while(
    mut connection: Connection,
    group: Str,
    partitions: i32,
    shared: Rc<Shared>,
) -> Result<()> {
    let mut offset = 0;
    while !shared.is_over.get() {
        offset += 1;
        let partition = |partition_index| OffsetCommitRequestPartition {
            partition_index,
            committed_offset: offset,
            committed_leader_epoch: -1,
            committed_metadata: Some(Str::new()),
        };
        let request = OffsetCommitRequest {
            group_id: group.clone(),
            generation_id_or_member_epoch: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: Str::from(TOPIC),
                partitions: (0..partitions).map(partition).collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let asked = Instant::now();
        let answer = connection.call(&request, COMMIT_VERSION).await?;
        if shared.is_measured.get() {
            shared.latencies.borrow_mut().push(asked.elapsed());
        }
        let mut codes = answer
            .topics
            .iter()
            .flat_map(|t| &t.partitions)
            .map(|p| p.error_code);
        if let Some(code) = codes.find(|code| *code != ErrorCode::NONE) {
            if comes_up(code) && !shared.is_measured.get() {
                sleep(RETRY_INTERVAL).await;
                continue;
            }
            return failed(format!("a commit is answered with {code:?}"));
        }
    }
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.clone(),
            topics: None,
            member_epoch: -1,
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = connection.call(&request, FETCH_VERSION).await?;
    let found = answer
        .groups
        .iter()
        .flat_map(|g| &g.topics)
        .flat_map(|t| &t.partitions);
    let right = found.filter(|p| p.committed_offset == offset).count();
    if right != usize::try_from(partitions).unwrap_or(0) {
        return failed(format!(
            "of {partitions} offsets of {group} {right} are those committed last"
        ));
    }
    Ok(())
}
