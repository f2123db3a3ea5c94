//! The families of consumer groups: lag and committed offsets under the names of kafka_exporter, which dashboards know, and the
//! coordinators' counts under Kafka's and our own. Groups are read page by page from each shard before the ends of the logs are,
//! so that a consumer at the end never seems ahead of it; both are joined here, on the admin thread, with pauses for probes.
//!
//! Costs of a scrape: a shard 100 ns for each group and committed offset, at most 4096 of them at a time; here 60 bytes while it
//! lasts and two samples of about 100 bytes for each committed offset that has samples of its own (OPERATIONS.md).

mod pages;

use std::collections::{BTreeMap, HashMap};

use protocol::Str;
use shard::coordinator::driver::{CoordinatorStats, GroupPage};
use shard::coordinator::group::{GroupImage, GroupState, RebalanceReason};
use shard::image::MetadataImage;
use storage::types::LogId;

use super::Running;
use super::exposition::{Exposition, Family, Kind, Labels, Number};
use super::families::histogram_seconds;
use crate::observe::shard::ShardSnapshot;

/// Samples and the like that are written at a time, about a millisecond's; then the admin runtime serves others.
const TURNS_MAX: usize = 4096;

/// What a scrape has heard of groups.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    series_max: usize,
    groups: Vec<GroupLine>,
    /// The [`weight`] of `groups`.
    kept_groups: usize,
    /// The [`weight`] of the committed offsets of `groups`: at most `series_max`, of all shards together.
    kept: usize,
    /// The group whose pages come has no samples of its own.
    skips: bool,
    left_out: LeftOut,
    states: BTreeMap<GroupState, usize>,
    members: usize,
    offsets: usize,
    unread_shards: usize,
}

#[derive(Debug)]
struct GroupLine {
    id: Str,
    members: usize,
    topics: Vec<TopicLine>,
}

#[derive(Debug)]
struct TopicLine {
    name: Str,
    offsets: Vec<(i32, i64)>,
}

/// What has no samples of its own.
#[derive(Debug, Default)]
struct LeftOut {
    groups: usize,
    /// A topic of the group being read, whose next pages belong here as well.
    topic: Option<Str>,
    /// How often a partition is committed, and the sum of those offsets: so the lag needs no more than this.
    offsets: BTreeMap<Str, BTreeMap<i32, (u64, i64)>>,
}

/// Reads the groups of all shards.
pub(super) async fn read(running: &Running, series_max: usize) -> Ledger {
    let mut ledger = Ledger::new(series_max);
    let take = |page: GroupPage| {
        page.groups.into_iter().for_each(|group| ledger.add(group));
    };
    let unread = pages::read(
        running.port.shards(),
        pages::WAIT_MAX,
        pages::asking(running),
        take,
    );
    ledger.unread_shards = unread.await;
    ledger
}

/// A group with a longer name has no samples of its own: clients choose names of up to 32 KiB, and a scrape is bounded in bytes, too.
const NAME_BYTES_MAX: usize = 1024;

/// As how many series one with names of so many bytes counts.
const fn weight(name_bytes: usize) -> usize {
    1 + name_bytes / 512
}

impl Ledger {
    fn new(series_max: usize) -> Self {
        Self {
            series_max,
            ..Self::default()
        }
    }

    fn add(&mut self, group: GroupImage) {
        if !group.is_rest {
            *self.states.entry(group.state).or_default() += 1;
            self.members += group.members;
            self.left_out.topic = None;
            let kept = self.kept_groups + weight(group.id.len());
            self.skips = kept > self.series_max || group.id.len() > NAME_BYTES_MAX;
            if self.skips {
                self.left_out.groups += 1;
            } else {
                self.kept_groups = kept;
                self.groups.push(GroupLine {
                    id: group.id,
                    members: group.members,
                    topics: Vec::new(),
                });
            }
        }
        for (topic, offsets) in group.topics {
            self.add_offsets(topic, offsets);
        }
    }

    /// A topic of a group has samples with all its partitions, or none: one that turns out to be too large with a later page is taken
    /// out again.
    fn add_offsets(&mut self, topic: Str, offsets: Vec<(i32, i64)>) {
        self.offsets += offsets.len();
        let last = self.groups.last_mut().filter(|_| !self.skips);
        if let Some(group) = last
            && self.left_out.topic.as_ref() != Some(&topic)
        {
            let each = weight(group.id.len() + topic.len());
            let kept = self.kept + offsets.len() * each;
            let fits = kept <= self.series_max;
            match group.topics.pop_if(|line| line.name == topic) {
                Some(mut line) if fits => {
                    line.offsets.extend(offsets);
                    self.kept = kept;
                    return group.topics.push(line);
                }
                Some(line) => {
                    self.kept -= line.offsets.len() * each;
                    self.left_out.add(&topic, line.offsets);
                }
                None if fits => {
                    self.kept = kept;
                    return group.topics.push(TopicLine { name: topic, offsets });
                }
                None => {}
            }
        }
        self.left_out.add(&topic, offsets);
        self.left_out.topic = Some(topic);
    }
}

impl LeftOut {
    fn add(&mut self, topic: &Str, offsets: Vec<(i32, i64)>) {
        let sums = self.offsets.entry(topic.clone()).or_default();
        for (partition, offset) in offsets {
            let (count, sum) = sums.entry(partition).or_default();
            *count += 1;
            *sum = sum.saturating_add(offset);
        }
    }
}

/// Where the logs end that are led here, by topic name and partition.
struct Ends<'a> {
    image: &'a MetadataImage,
    marks: HashMap<LogId, i64>,
}

impl<'a> Ends<'a> {
    fn new(image: &'a MetadataImage, shards: &[ShardSnapshot]) -> Self {
        let logs = shards.iter().flat_map(|s| &s.partitions).map(|p| &p.log);
        Self {
            image,
            marks: logs.map(|log| (log.log, log.high_watermark.0)).collect(),
        }
    }

    /// How many partitions a topic has, if there is one.
    fn partitions(&self, topic: &str) -> Option<i32> {
        let topic = self.image.topics.by_name(topic)?;
        i32::try_from(topic.partitions.len()).ok()
    }

    /// What a consumer can read up to, for all that ListOffsets says.
    fn end(&self, topic: &str, partition: i32) -> Option<i64> {
        let topic = self.image.topics.by_name(topic)?.id;
        self.marks.get(&LogId { topic, partition }).copied()
    }
}

/// Writes the families that need the ends of the logs.
pub(super) async fn write(
    text: &mut Exposition,
    ledger: &Ledger,
    image: &MetadataImage,
    shards: &[ShardSnapshot],
) {
    let ends = Ends::new(image, shards);
    let mut pace = Pace::default();
    members(text, ledger, &mut pace).await;
    current_offsets(text, ledger, &ends, &mut pace).await;
    lags(text, ledger, &ends, &mut pace).await;
    sums(text, ledger, &ends, &mut pace).await;
    left_out(text, ledger, &ends, &mut pace).await;
    states(text, ledger);
}

/// Lets the admin runtime, which has one thread, answer probes between the parts of a long scrape.
#[derive(Debug, Default)]
struct Pace {
    turns: usize,
}

impl Pace {
    async fn spend(&mut self, turns: usize) {
        self.turns += turns;
        if self.turns >= TURNS_MAX {
            self.turns = 0;
            tokio::task::yield_now().await;
        }
    }
}

async fn members(text: &mut Exposition, ledger: &Ledger, pace: &mut Pace) {
    let help = "Members of a group.";
    let mut family = text.family("kafka_consumergroup_members", Kind::Gauge, help);
    for group in &ledger.groups {
        family.sample(&[("consumergroup", &group.id)], group.members);
        pace.spend(1).await;
    }
}

/// As kafka_exporter has it: a topic that is gone has no samples; a partition without a commit of a topic that has some has
/// −1 for its offset and its lag.
async fn current_offsets(text: &mut Exposition, ledger: &Ledger, ends: &Ends<'_>, pace: &mut Pace) {
    let help = "The next offset that a group reads; -1 for none, in a topic it reads.";
    let name = "kafka_consumergroup_current_offset";
    let family = text.family(name, Kind::Gauge, help);
    let value = |_: &str, _, offset: Option<i64>| Some(offset.unwrap_or(-1));
    each_partition(family, ledger, ends, pace, value).await;
}

/// A commit beyond the end is a negative lag, as kafka-consumer-groups shows it.
async fn lags(text: &mut Exposition, ledger: &Ledger, ends: &Ends<'_>, pace: &mut Pace) {
    let help =
        "Records between what a group has committed and the high watermark; -1 if it has committed nothing.";
    let family = text.family("kafka_consumergroup_lag", Kind::Gauge, help);
    let value = |topic: &str, partition, offset: Option<i64>| match offset {
        Some(offset) => Some(ends.end(topic, partition)?.saturating_sub(offset)),
        None => Some(-1),
    };
    each_partition(family, ledger, ends, pace, value).await;
}

async fn each_partition(
    mut family: Family<'_>,
    ledger: &Ledger,
    ends: &Ends<'_>,
    pace: &mut Pace,
    value: impl Fn(&str, i32, Option<i64>) -> Option<i64>,
) {
    let mut room = ledger.series_max.saturating_sub(ledger.kept);
    for (group, topic, partitions) in topics(ledger, ends) {
        pace.spend(1).await;
        let each = weight(group.id.len() + topic.name.len());
        let before = room / each;
        let mut left = before;
        for (partition, offset) in shown(&topic.offsets, partitions, &mut left) {
            if let Some(value) = value(&topic.name, partition, offset) {
                let labels: &Labels<'_> = &[
                    ("consumergroup", &group.id),
                    ("topic", &topic.name),
                    ("partition", &partition.to_string()),
                ];
                family.sample(labels, value);
            }
            pace.spend(1).await;
        }
        room -= (before - left) * each;
    }
}

/// The partitions of a topic that have samples, in order: those committed, and while there is room those that are not. What
/// it costs is bounded by the offsets that are kept and the room, not by the partitions there are.
fn shown<'a>(
    committed: &'a [(i32, i64)],
    partitions: i32,
    room: &'a mut usize,
) -> impl Iterator<Item = (i32, Option<i64>)> + 'a {
    let mut committed = committed
        .iter()
        .copied()
        .filter(move |(partition, _)| (0..partitions).contains(partition))
        .peekable();
    let mut next = 0;
    std::iter::from_fn(move || {
        let upcoming = committed.peek().map(|(partition, _)| *partition);
        if *room > 0 && next < partitions && upcoming != Some(next) {
            *room -= 1;
            next += 1;
            return Some((next - 1, None));
        }
        let (partition, offset) = committed.next()?;
        next = partition + 1;
        Some((partition, Some(offset)))
    })
}

/// The groups' topics that exist, with the number of their partitions.
fn topics<'a>(
    ledger: &'a Ledger,
    ends: &'a Ends<'_>,
) -> impl Iterator<Item = (&'a GroupLine, &'a TopicLine, i32)> {
    let lines = ledger
        .groups
        .iter()
        .flat_map(|group| group.topics.iter().map(move |topic| (group, topic)));
    lines.filter_map(|(group, topic)| Some((group, topic, ends.partitions(&topic.name)?)))
}

async fn sums(text: &mut Exposition, ledger: &Ledger, ends: &Ends<'_>, pace: &mut Pace) {
    let name = "kafka_consumergroup_current_offset_sum";
    let help = "Sum over a topic's partitions of the offsets that a group has committed.";
    let mut family = text.family(name, Kind::Gauge, help);
    for (group, topic, _) in topics(ledger, ends) {
        let offsets = topic.offsets.iter().map(|(_, offset)| *offset);
        let sum = offsets.fold(0i64, i64::saturating_add);
        family.sample(&[("consumergroup", &group.id), ("topic", &topic.name)], sum);
        pace.spend(topic.offsets.len()).await;
    }
    let help = "Sum over a topic's partitions of a group's lag, of those it has committed.";
    let mut family = text.family("kafka_consumergroup_lag_sum", Kind::Gauge, help);
    for (group, topic, _) in topics(ledger, ends) {
        let lags = topic
            .offsets
            .iter()
            .filter_map(|(p, offset)| Some(ends.end(&topic.name, *p)?.saturating_sub(*offset)));
        let sum = lags.fold(0i64, i64::saturating_add);
        family.sample(&[("consumergroup", &group.id), ("topic", &topic.name)], sum);
        pace.spend(topic.offsets.len()).await;
    }
}

async fn left_out(text: &mut Exposition, ledger: &Ledger, ends: &Ends<'_>, pace: &mut Pace) {
    let (mut lag, mut offsets) = (0i64, 0u64);
    for (topic, partitions) in &ledger.left_out.offsets {
        for (partition, (count, sum)) in partitions {
            if let Some(end) = ends.end(topic, *partition) {
                let times = i64::try_from(*count).unwrap_or(i64::MAX);
                lag = lag.saturating_add(end.saturating_mul(times).saturating_sub(*sum));
                offsets += count;
            }
        }
        pace.spend(partitions.len()).await;
    }
    let families: [(&str, &str, Number); 4] = [
        (
            "penstock_group_left_out_groups",
            "Groups without samples, above penstock.metrics.group.series.max.",
            ledger.left_out.groups.into(),
        ),
        (
            "penstock_group_left_out_offsets",
            "Committed offsets without samples, above penstock.metrics.group.series.max.",
            offsets.into(),
        ),
        (
            "penstock_group_left_out_lag",
            "The lag of those, summed up.",
            lag.into(),
        ),
        (
            "penstock_scrape_unread_group_shards",
            "Shards whose groups this scrape has not read to the end.",
            ledger.unread_shards.into(),
        ),
    ];
    for (name, help, value) in families {
        text.single(name, Kind::Gauge, help, value);
    }
}

fn states(text: &mut Exposition, ledger: &Ledger) {
    let of = |state| ledger.states.get(&state).copied().unwrap_or(0);
    let all: usize = ledger.states.values().sum();
    for (name, help, value) in [
        ("numgroups", "Groups.", all),
        ("numoffsets", "Committed offsets.", ledger.offsets),
        (
            "numgroupspreparingrebalance",
            "Groups whose members are called to join.",
            of(GroupState::PreparingRebalance),
        ),
        (
            "numgroupscompletingrebalance",
            "Groups that wait for their assignment.",
            of(GroupState::CompletingRebalance),
        ),
        (
            "numgroupsstable",
            "Groups that work by their assignments.",
            of(GroupState::Stable),
        ),
        ("numgroupsempty", "Groups without members.", of(GroupState::Empty)),
        // A group that is gone is not there to be counted.
        ("numgroupsdead", "Groups that are gone and still there.", 0),
    ] {
        let name = format!("kafka_coordinator_group_groupmetadatamanager_{name}");
        text.single(&name, Kind::Gauge, help, value);
    }
    text.family(
        "kafka_server_group_coordinator_metrics_group_count",
        Kind::Gauge,
        "Groups, by protocol.",
    )
    .sample(&[("protocol", "classic")], all);
    let help = "Members of all groups.";
    text.single("penstock_group_members", Kind::Gauge, help, ledger.members);
}

/// Writes what the coordinators have counted; needs no pages.
pub(super) fn counts(text: &mut Exposition, shards: &[ShardSnapshot]) {
    let mut all = CoordinatorStats::default();
    for shard in shards {
        all.loading += shard.groups.loading;
        all.serving += shard.groups.serving;
        all.failed += shard.groups.failed;
        all.counters.merge(&shard.groups.counters);
        all.loads.merge(&shard.groups.loads);
    }
    let name = "kafka_server_group_coordinator_metrics_num_partitions";
    let mut family = text.family(name, Kind::Gauge, "Partitions of __consumer_offsets led here.");
    for (state, count) in [
        ("loading", all.loading),
        ("active", all.serving),
        ("failed", all.failed),
    ] {
        family.sample(&[("state", state)], count);
    }
    for (name, help, value) in [
        (
            "offset_commit_count",
            "Offsets committed.",
            all.counters.offsets_committed,
        ),
        (
            "offset_expiration_count",
            "Committed offsets that grew old.",
            all.counters.offsets_expired,
        ),
        (
            "offset_deletion_count",
            "Committed offsets deleted: by request, with their group or their topic.",
            all.counters.offsets_deleted,
        ),
        (
            "group_completed_rebalance_count",
            "Rebalances that ended with an assignment.",
            all.counters.rebalances.count(),
        ),
    ] {
        let name = format!("kafka_server_group_coordinator_metrics_{name}");
        text.single(&name, Kind::Counter, help, value);
    }
    let name = "penstock_group_memory_refusals_total";
    let help = "Joins, syncs and commits refused because the memory of coordinators is used up.";
    text.single(name, Kind::Counter, help, all.counters.memory_refusals);
    let name = "penstock_group_rebalances_total";
    let mut family = text.family(name, Kind::Counter, "Rebalances begun, by what began them.");
    for (reason, count) in RebalanceReason::ALL.iter().zip(all.counters.rebalances_begun) {
        family.sample(&[("reason", reason.name())], count);
    }
    let name = "penstock_group_rebalance_duration_seconds";
    let help = "From the call to join until the assignment was written.";
    let mut family = text.family(name, Kind::Histogram, help);
    histogram_seconds(&mut family, &[], &all.counters.rebalances);
    let name = "penstock_group_load_duration_seconds";
    let help =
        "Replays of partitions of __consumer_offsets, from their taking-up until their groups were served.";
    histogram_seconds(&mut text.family(name, Kind::Histogram, help), &[], &all.loads);
}

#[cfg(test)]
mod tests;
