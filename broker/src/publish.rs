//! Metadata reaches the shards: the controller's shard makes one [`Publication`] of each new image, every shard brings its
//! logs in line with it, shows it to its requests, and says so. A command is answered after that, so that a created topic
//! can be used at once (BR-026).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Str, Uuid};
use shard::config::TopicSettings;
use shard::coordinator::driver::GroupDriver;
use shard::driver::OwnerDriver;
use shard::env::Env;
use shard::ids::{BrokerId, LogDir, ShardId};
use shard::image::{ImageChanges, MetadataImage};
use shard::moves::Moves;
use shard::owner::{DirLog, Dirs, LogsIo, PartitionSettings};
use shard::placement::Placement;
use storage::error::StorageError;
use storage::notify::join_all;
use storage::types::{LeaderEpoch, LogId, TopicId};

use crate::api::groups::OFFSETS_TOPIC;
use crate::homes::Homes;
use crate::node::{Broker, NodeMessage};
use crate::view::View;

/// A new state of the metadata, for every shard.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The cluster's metadata.
    pub image: Arc<MetadataImage>,
    /// Which shard owns which partition of this node.
    pub placement: Arc<Placement>,
    /// What to do about logs, in order; each shard looks for its own.
    pub changes: Arc<[LogChange]>,
    /// Partitions of this node that cannot be served, in a directory that failed or for what their files hold.
    pub offline: Arc<BTreeSet<LogId>>,
    /// Told by each shard when it is done.
    pub done: flume::Sender<Opened>,
}

/// A shard has carried a publication out.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Who.
    pub shard: ShardId,
    /// What it could not open; what only waits for space is not among it.
    pub failed: Vec<LogId>,
}

impl Publication {
    /// Takes the deletions out, into a publication to be carried out before this one, if there are both deletions and logs to
    /// open: a topic that was deleted and one created with its name may be on different shards and use the same directory names.
    pub fn deletions_first(&mut self) -> Option<Self> {
        let is_deletion = |change: &LogChange| change.what == LogChangeKind::Delete;
        let opens = |change: &LogChange| matches!(change.what, LogChangeKind::Open(..));
        if !(self.changes.iter().any(is_deletion) && self.changes.iter().any(opens)) {
            return None;
        }
        let (deletions, rest): (Vec<_>, Vec<_>) = self.changes.iter().cloned().partition(is_deletion);
        self.changes = rest.into();
        Some(Self {
            changes: deletions.into(),
            ..self.clone()
        })
    }
}

/// A partition of this node that came, went or changed.
#[derive(Clone, Debug)]
pub struct LogChange {
    /// The partition.
    pub log: LogId,
    /// The topic's name.
    pub topic: Arc<str>,
    /// Who owns or owned it.
    pub shard: ShardId,
    /// What to do.
    pub what: LogChangeKind,
}

/// What happens to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogChangeKind {
    /// Open or create it in this directory, and lead it in this epoch.
    Open(LeaderEpoch, LogDir),
    /// The topic's settings changed.
    Reconfigure,
    /// The topic is gone.
    Delete,
}

/// The controller's side: turns image changes into publications. On the controller's shard.
#[derive(Debug)]
pub struct Publisher {
    node: BrokerId,
    placement: Arc<Placement>,
    homes: Homes,
    /// Directories of logs that were found and are no partition's.
    left: Vec<(String, LogDir)>,
    offline: Arc<BTreeSet<LogId>>,
}

impl Publisher {
    /// A publisher of nothing yet on a node with that many shards.
    #[must_use]
    pub fn new(node: BrokerId, shards: u16, homes: Homes) -> Self {
        Self {
            node,
            placement: Arc::new(Placement::new(shards)),
            homes,
            left: Vec::new(),
            offline: Arc::default(),
        }
    }

    /// Where partitions are.
    pub const fn homes(&mut self) -> &mut Homes {
        &mut self.homes
    }

    /// Directories of logs that were found at the start and are no partition's, by name, once.
    pub fn take_left(&mut self) -> Vec<(String, LogDir)> {
        std::mem::take(&mut self.left)
    }

    /// Partitions whose move the end of the run before interrupted, the shards that have them, and where they were to go.
    pub fn interrupted(&mut self) -> Vec<(LogId, ShardId, LogDir)> {
        let moves = self.homes.take_interrupted().into_iter();
        moves
            .filter_map(|(log, dir)| Some((log, self.placement.owner(log)?, dir)))
            .collect()
    }

    /// These partitions cannot be served any more; returns those that could so far. The next publication says it.
    pub fn lost(&mut self, logs: impl IntoIterator<Item = LogId>) -> BTreeSet<LogId> {
        let new: BTreeSet<LogId> = logs
            .into_iter()
            .filter(|log| !self.offline.contains(log))
            .collect();
        if !new.is_empty() {
            Arc::make_mut(&mut self.offline).extend(new.iter().copied());
        }
        new
    }

    /// Whether one of these partitions cannot be served.
    #[must_use]
    pub fn is_lost(&self, topic: TopicId) -> bool {
        let first = LogId { topic, partition: 0 };
        let last = LogId {
            topic,
            partition: i32::MAX,
        };
        self.offline.range(first..=last).next().is_some()
    }

    /// The publication of a first image: every partition of this node is opened.
    pub fn first(&mut self, image: Arc<MetadataImage>, done: flume::Sender<Opened>) -> Publication {
        let placement = Placement::of_image(self.placement.shards(), &image, self.node);
        let changes = placement
            .iter()
            .filter_map(|(log, shard)| open(&image, log, shard, &mut self.homes, false))
            .collect();
        self.left = self.homes.all_are_placed();
        self.placement = Arc::new(placement);
        Publication {
            image,
            placement: self.placement.clone(),
            changes,
            offline: self.offline.clone(),
            done,
        }
    }

    /// The publication of `image`, which came of the one before by `changes`.
    pub fn next(
        &mut self,
        image: Arc<MetadataImage>,
        changes: &ImageChanges,
        done: flume::Sender<Opened>,
    ) -> Publication {
        let before = self.placement.clone();
        let after = before.updated(&image, changes, self.node);
        let mut log_changes = Vec::new();
        for topic in changes.topics_removed.values() {
            for (partition, _) in topic.indexed() {
                let log = LogId {
                    topic: topic.id,
                    partition,
                };
                if let Some(shard) = before.owner(log) {
                    self.homes.remove(log);
                    if self.offline.contains(&log) {
                        Arc::make_mut(&mut self.offline).remove(&log);
                    }
                    let what = LogChangeKind::Delete;
                    log_changes.push(LogChange {
                        log,
                        topic: topic.name.clone(),
                        shard,
                        what,
                    });
                }
            }
        }
        for (topic, partition) in &changes.partitions {
            let log = LogId {
                topic: *topic,
                partition: *partition,
            };
            if let (None, Some(shard)) = (before.owner(log), after.owner(log)) {
                log_changes.extend(open(&image, log, shard, &mut self.homes, true));
            }
        }
        for topic in reconfigured(&image, changes) {
            for (log, shard) in owned(&image, topic, &after) {
                let topic = image
                    .topics
                    .by_id(topic)
                    .map(|t| t.name.clone())
                    .unwrap_or_default();
                log_changes.push(LogChange {
                    log,
                    topic,
                    shard,
                    what: LogChangeKind::Reconfigure,
                });
            }
        }
        self.placement = Arc::new(after);
        Publication {
            image,
            placement: self.placement.clone(),
            changes: log_changes.into(),
            offline: self.offline.clone(),
            done,
        }
    }
}

fn open(
    image: &MetadataImage,
    log: LogId,
    shard: ShardId,
    homes: &mut Homes,
    is_new: bool,
) -> Option<LogChange> {
    let topic = image.topics.by_id(log.topic)?;
    let partition = topic.partition(log.partition)?;
    let dir = homes.place(log, &format!("{}-{}", topic.name, log.partition), is_new);
    let what = LogChangeKind::Open(partition.leader_epoch, dir);
    Some(LogChange {
        log,
        topic: topic.name.clone(),
        shard,
        what,
    })
}

/// Topics whose settings may be different now: all of them when a broker default changed.
fn reconfigured(image: &MetadataImage, changes: &ImageChanges) -> Vec<TopicId> {
    if !changes.broker_configs.is_empty() {
        return image.topics.iter().map(|t| t.id).collect();
    }
    changes
        .topic_configs
        .iter()
        .filter_map(|name| Some(image.topics.by_name(name)?.id))
        .collect()
}

fn owned(image: &MetadataImage, topic: TopicId, placement: &Placement) -> Vec<(LogId, ShardId)> {
    let partitions = image.topics.by_id(topic).map_or(0, |t| t.partitions.len());
    (0i32..)
        .take(partitions)
        .map(|partition| LogId { topic, partition })
        .filter_map(|log| Some((log, placement.owner(log)?)))
        .collect()
}

/// Logs of a shard that are opened at a time.
const OPENING_MAX: usize = 8;

/// How long a log that could not be opened for lack of space is left before it is tried again.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// A shard's side: carries publications out one after the other, until the senders are gone.
pub async fn follow<E: Env, L: LogsIo>(
    broker: Rc<Broker<E>>,
    driver: OwnerDriver<E, L, NodeMessage>,
    groups: GroupDriver<E, NodeMessage>,
    logs: Dirs<L>,
    moves: Moves<E, L, NodeMessage>,
    publications: flume::Receiver<Publication>,
) {
    // Logs that found no space when they were opened: they are served as soon as there is some.
    let mut waiting: Vec<LogChange> = Vec::new();
    loop {
        let next = async { publications.recv_async().await.map(Some) };
        let received = if waiting.is_empty() {
            next.await
        } else {
            let pause = async {
                broker.env.sleep(REOPEN_INTERVAL).await;
                Ok(None)
            };
            futures_lite::future::or(next, pause).await
        };
        let Ok(received) = received else { return };
        let Some(publication) = received else {
            reopen(&broker, &driver, &logs, &moves, &groups, &mut waiting).await;
            continue;
        };
        let shard = broker.router.shard();
        let fixed = Arc::clone(&broker.settings.fixed);
        let Publication {
            image,
            placement,
            changes,
            offline,
            done,
        } = publication;
        let view = View::new(image, placement, broker.settings.node_id, fixed).without(offline);
        let mut failed = Vec::new();
        let mine = || changes.iter().filter(|c| c.shard == shard);
        let opening = mine()
            .filter(|c| matches!(c.what, LogChangeKind::Open(..)))
            .count();
        broker.metrics.logs_to_open(opening);
        let mine: Vec<&LogChange> = mine().collect();
        // Logs are opened side by side: most of it is waiting for the disk. Everything else keeps its order.
        let opens = |change: &LogChange| matches!(change.what, LogChangeKind::Open(..));
        for run in mine.chunk_by(|a, b| opens(a) && opens(b)) {
            for some in run.chunks(OPENING_MAX) {
                let carried = some
                    .iter()
                    .map(|change| carry_out(&broker, &driver, &logs, &moves, &view, change));
                for (outcome, change) in join_all(carried).await.into_iter().zip(some) {
                    waiting.retain(|waiting| {
                        waiting.log != change.log || change.what == LogChangeKind::Reconfigure
                    });
                    match outcome {
                        Carried::Done => {}
                        Carried::NoSpace => waiting.push((*change).clone()),
                        Carried::Failed => failed.push(change.log),
                    }
                }
            }
        }
        groups.know_topics(&view.image);
        let is_open = |log: LogId| !failed.contains(&log) && !waiting.iter().any(|w| w.log == log);
        lead_groups(&groups, &changes, shard, is_open);
        broker.set_view(view);
        // Nobody waits for it any more only when the node stops.
        let _ = done.send(Opened { shard, failed });
    }
}

/// Group coordinators follow their partitions; those whose log is not open have none. Of topics that are gone the committed offsets
/// are, too: a coordinator that serves begins to look for them, one that does not when it begins to serve.
fn lead_groups<E: Env>(
    groups: &GroupDriver<E, NodeMessage>,
    changes: &[LogChange],
    shard: ShardId,
    is_open: impl Fn(LogId) -> bool,
) {
    let is_groups = |change: &&LogChange| &*change.topic == OFFSETS_TOPIC && change.shard == shard;
    for change in changes.iter().filter(is_groups) {
        match change.what {
            LogChangeKind::Open(..) if is_open(change.log) => groups.lead(change.log),
            LogChangeKind::Open(..) => groups.cannot_lead(change.log),
            LogChangeKind::Delete => groups.resign(change.log),
            LogChangeKind::Reconfigure => {}
        }
    }
    let mut gone: Vec<(Str, Uuid)> = changes
        .iter()
        .filter(|change| change.what == LogChangeKind::Delete)
        .map(|change| (Str::from(change.topic.to_string()), Uuid(change.log.topic.0)))
        .collect();
    gone.dedup();
    if !gone.is_empty() {
        groups.forget_topics(&gone);
    }
}

/// How a change to a log went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// It was made.
    Done,
    /// The log cannot be opened, as was said in the log.
    Failed,
    /// The log could not be opened, since the disk is full.
    NoSpace,
}

/// Tries the logs again that found no space. They are still to be opened: what says otherwise comes by the same queue.
async fn reopen<E: Env, L: LogsIo>(
    broker: &Broker<E>,
    driver: &OwnerDriver<E, L, NodeMessage>,
    logs: &Dirs<L>,
    moves: &Moves<E, L, NodeMessage>,
    groups: &GroupDriver<E, NodeMessage>,
    waiting: &mut Vec<LogChange>,
) {
    let view = broker.view();
    let mut still = Vec::new();
    for change in waiting.drain(..) {
        // One stands for all: while the disk is full, thousands of tries would only wear it.
        if !still.is_empty() {
            still.push(change);
            continue;
        }
        match carry_out(broker, driver, logs, moves, &view, &change).await {
            Carried::Done => lead_groups(groups, std::slice::from_ref(&change), change.shard, |_| true),
            Carried::NoSpace => still.push(change),
            Carried::Failed => broker.lost(vec![change.log]),
        }
    }
    *waiting = still;
}

async fn carry_out<E: Env, L: LogsIo>(
    broker: &Broker<E>,
    driver: &OwnerDriver<E, L, NodeMessage>,
    logs: &Dirs<L>,
    moves: &Moves<E, L, NodeMessage>,
    view: &View,
    change: &LogChange,
) -> Carried {
    let settings = view
        .image
        .topics
        .by_id(change.log.topic)
        .map(|topic| view.settings(topic));
    match (change.what, settings) {
        (LogChangeKind::Open(epoch, dir), Some(settings)) => {
            let opened = match logs.get(dir) {
                Some(logs) => {
                    let wall = broker.env.wall();
                    logs.open(change.log, &change.topic, &settings, wall).await
                }
                None => Err(StorageError::Offline(Rc::from(
                    "it could not be used at the start",
                ))),
            };
            match opened {
                Ok(log) => {
                    broker.metrics.log_opened(change.log, true);
                    let log = DirLog { dir, log };
                    driver.with_owner(|owner| {
                        owner.adopt(change.log, log, epoch, partition_settings(&settings))
                    });
                }
                Err(error) => {
                    let partition = change.log.partition;
                    let is_first = !broker.metrics.is_offline(change.log);
                    broker.metrics.log_opened(change.log, false);
                    if is_first {
                        tracing::error!(topic = %change.topic, partition, %error, "the partition is offline");
                    }
                    driver.with_owner(|owner| owner.lose(change.log));
                    return match error {
                        StorageError::NoSpace(_) => Carried::NoSpace,
                        _ => Carried::Failed,
                    };
                }
            }
        }
        (LogChangeKind::Reconfigure, Some(settings)) => {
            moves.until_rest(change.log).await;
            driver.with_owner(|owner| owner.reconfigure(change.log, partition_settings(&settings)));
            if let Some(log) = driver.with_owner(|owner| owner.log_of(change.log)) {
                logs.of(&log).configure(log.log, &settings);
            }
        }
        (LogChangeKind::Delete, _) => {
            moves.call_off(change.log).await;
            broker.metrics.log_gone(change.log);
            if let Some(log) = driver.with_owner(|owner| owner.release(change.log))
                && let Err(error) = logs.of(&log).delete(log.log).await
            {
                let partition = change.log.partition;
                tracing::error!(topic = %change.topic, partition, %error, "a deleted partition's files stay");
            }
        }
        // The topic is gone again by now.
        (LogChangeKind::Open(..), None) => broker.metrics.log_opened(change.log, true),
        (LogChangeKind::Reconfigure, None) => {}
    }
    Carried::Done
}

fn partition_settings(settings: &TopicSettings) -> PartitionSettings {
    PartitionSettings {
        min_insync_replicas: usize::try_from(settings.min_insync_replicas).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_carried_out_before_logs_are_opened_under_their_names() {
        let change = |topic: u8, what| LogChange {
            log: LogId {
                topic: TopicId([topic; 16]),
                partition: 0,
            },
            topic: Arc::from("t"),
            shard: ShardId(u16::from(topic)),
            what,
        };
        let (done, _) = flume::bounded(1);
        let publication = |changes: &[LogChange]| Publication {
            image: Arc::new(MetadataImage::empty("c")),
            placement: Arc::new(Placement::new(2)),
            changes: changes.into(),
            offline: Arc::default(),
            done: done.clone(),
        };
        let (delete, open) = (
            change(0, LogChangeKind::Delete),
            change(1, LogChangeKind::Open(LeaderEpoch(0), LogDir(0))),
        );
        let mut both = publication(&[open.clone(), delete.clone()]);
        let first = both.deletions_first().expect("a deletion and a new log");
        let kinds =
            |publication: &Publication| publication.changes.iter().map(|c| c.what).collect::<Vec<_>>();
        assert_eq!(kinds(&first), [delete.what]);
        assert_eq!(kinds(&both), [open.what]);
        for alone in [delete, open] {
            assert!(publication(&[alone]).deletions_first().is_none());
        }
    }
}
