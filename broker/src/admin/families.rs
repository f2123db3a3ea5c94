//! The families that Kafka dashboards and alerts know: Kafka's JMX names in the spelling of the usual exporter rules
//! (lower case, `PerSec` meters as `_total`).

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::ApiKey;
use shard::ids::BrokerId;
use shard::image::{MetadataImage, PartitionImage};
use shard::owner::{OwnerCounters, PartitionStats};

use super::exposition::{Exposition, Family, Kind, QUANTILES};
use crate::observe::histogram::Histogram;
use crate::observe::metrics::Snapshot;
use crate::observe::shard::ShardSnapshot;

/// Writes them all.
pub(super) fn write(text: &mut Exposition, node: BrokerId, shards: &[ShardSnapshot], requests: &Snapshot) {
    requests_by_api(text, requests);
    topics(text, shards);
    sessions_and_waiting(text, shards);
    connections(text, shards);
    if let Some(image) = newest_image(shards) {
        controller(text, &image);
        replicas(text, &image, node, requests);
        partitions(text, &image, node, shards);
    }
}

/// Shards take new metadata one after the other; the newest says it for all.
pub(super) fn newest_image(shards: &[ShardSnapshot]) -> Option<Arc<MetadataImage>> {
    shards
        .iter()
        .map(|shard| &shard.image)
        .max_by_key(|image| image.position.index)
        .cloned()
}

/// Kafka counts a fetch under `Fetch` and under who sent it; all come from consumers so far.
fn names(api: ApiKey) -> &'static [&'static str] {
    match api {
        ApiKey::Fetch => &["Fetch", "FetchConsumer"],
        _ => &[],
    }
}

pub(super) fn each_name(api: ApiKey, mut write: impl FnMut(&str)) {
    match names(api) {
        [] => write(&format!("{api:?}")),
        several => several.iter().for_each(|name| write(name)),
    }
}

fn requests_by_api(text: &mut Exposition, requests: &Snapshot) {
    let name = "kafka_network_requestmetrics_requests_total";
    let mut family = text.family(name, Kind::Counter, "Requests by API and version.");
    for ((api, version), count) in &requests.requests {
        let version = version.to_string();
        each_name(*api, |name| {
            family.sample(&[("request", name), ("version", &version)], *count);
        });
    }
    let name = "kafka_network_requestmetrics_errors_total";
    let mut family = text.family(name, Kind::Counter, "Error codes in answers by API.");
    for ((api, error), count) in &requests.errors {
        let error = error.to_string();
        each_name(*api, |name| {
            family.sample(&[("request", name), ("error", &error)], *count);
        });
    }
    let name = "kafka_network_requestmetrics_totaltimems";
    let help = "Time from a whole request to its encoded answer, milliseconds, since the start.";
    let mut family = text.family(name, Kind::Summary, help);
    for (api, latency) in &requests.latency {
        each_name(*api, |name| summary_ms(&mut family, name, latency));
    }
    let name = "penstock_request_duration_seconds";
    let help = "Time from a whole request to its encoded answer.";
    let mut family = text.family(name, Kind::Histogram, help);
    for (api, latency) in &requests.latency {
        histogram_seconds(&mut family, &[("request", &format!("{api:?}"))], latency);
    }
}

pub(super) fn summary_ms(family: &mut Family<'_>, request: &str, latency: &Histogram) {
    for (quantile, share) in QUANTILES {
        let labels = [("request", request), ("quantile", quantile)];
        family.sample(&labels, latency.quantile_us(share) as f64 / 1e3);
    }
    let labels = [("request", request)];
    family.part("_sum", &labels, latency.sum_us() as f64 / 1e3);
    family.part("_count", &labels, latency.count());
}

/// Buckets at powers of two from 64 µs to 67 s.
pub(super) fn histogram_seconds(family: &mut Family<'_>, labels: &[(&str, &str)], latency: &Histogram) {
    for power in 6..=26u32 {
        let bound = ((1u64 << power) as f64 / 1e6).to_string();
        let with_bound: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
        family.part("_bucket", &with_bound, latency.count_below(power));
    }
    let last: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
    family.part("_bucket", &last, latency.count());
    family.part("_sum", labels, latency.sum_us() as f64 / 1e6);
    family.part("_count", labels, latency.count());
}

/// One family of Kafka's BrokerTopicMetrics.
type TopicFamily = (&'static str, &'static str, fn(&OwnerCounters) -> u64);

const TOPIC_FAMILIES: [TopicFamily; 7] = [
    ("messagesin", "Records appended.", |c| c.records_appended),
    ("bytesin", "Bytes of batches appended.", |c| c.bytes_appended),
    ("bytesout", "Record bytes handed to consumers.", |c| c.bytes_read),
    ("totalproducerequests", "Partitions in produce requests.", |c| {
        c.appends
    }),
    (
        "failedproducerequests",
        "Partitions in produce requests that the log refused.",
        |c| c.appends_failed,
    ),
    ("totalfetchrequests", "Partitions in fetch requests.", |c| c.reads),
    (
        "failedfetchrequests",
        "Partitions in fetch requests that the disk failed.",
        |c| c.reads_failed,
    ),
];

/// Without a topic: everything since the start. With one: since the topic was opened.
fn topics(text: &mut Exposition, shards: &[ShardSnapshot]) {
    let mut by_topic: BTreeMap<&str, Vec<&OwnerCounters>> = BTreeMap::new();
    for shard in shards {
        for partition in &shard.partitions {
            if let Some(topic) = shard.image.topics.by_id(partition.log.log.topic) {
                by_topic.entry(&topic.name).or_default().push(&partition.counters);
            }
        }
    }
    for (name, help, of) in TOPIC_FAMILIES {
        let full = format!("kafka_server_brokertopicmetrics_{name}_total");
        let mut family = text.family(&full, Kind::Counter, help);
        family.sample(&[], shards.iter().map(|s| of(&s.totals)).sum::<u64>());
        for (topic, counters) in &by_topic {
            family.sample(&[("topic", topic)], counters.iter().map(|c| of(c)).sum::<u64>());
        }
    }
}

fn sessions_and_waiting(text: &mut Exposition, shards: &[ShardSnapshot]) {
    let sum = |of: fn(&ShardSnapshot) -> u64| shards.iter().map(of).sum::<u64>();
    for (name, kind, help, value) in [
        (
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            Kind::Gauge,
            "Open fetch sessions.",
            sum(|s| s.sessions.0 as u64),
        ),
        (
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
            Kind::Gauge,
            "Partitions in open fetch sessions.",
            sum(|s| s.sessions.1 as u64),
        ),
        (
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
            Kind::Counter,
            "Fetch sessions evicted.",
            sum(|s| s.sessions.2),
        ),
    ] {
        text.single(name, kind, help, value);
    }
    for name in ["purgatorysize", "numdelayedoperations"] {
        let full = format!("kafka_server_delayedoperationpurgatory_{name}");
        let mut family = text.family(&full, Kind::Gauge, "Requests that wait for something to happen.");
        family.sample(
            &[("delayedoperation", "Produce")],
            sum(|s| s.waiting_produces as u64),
        );
        family.sample(
            &[("delayedoperation", "Fetch")],
            sum(|s| s.waiting_fetches as u64),
        );
    }
}

fn connections(text: &mut Exposition, shards: &[ShardSnapshot]) {
    let name = "kafka_server_socket_server_metrics_connection_count";
    let mut family = text.family(name, Kind::Gauge, "Open connections by listener and shard.");
    for shard in shards {
        let number = shard.shard.to_string();
        for (listener, open) in &shard.requests.connections_open {
            family.sample(&[("listener", listener), ("networkprocessor", &number)], *open);
        }
    }
}

fn controller(text: &mut Exposition, image: &MetadataImage) {
    let partitions = || image.topics.iter().flat_map(|topic| &topic.partitions);
    let leaderless = partitions().filter(|p| p.leader.is_none()).count();
    let imbalanced = partitions().filter(|p| p.leader.is_some() && p.leader != p.replicas.first().copied());
    let brokers = image.brokers.iter().count();
    let unfenced = image.brokers.unfenced().count();
    for (name, help, value) in [
        (
            "activecontrollercount",
            "Whether this node is the active controller.",
            1,
        ),
        (
            "globaltopiccount",
            "Topics of the cluster.",
            image.topics.len() as u64,
        ),
        (
            "globalpartitioncount",
            "Partitions of the cluster.",
            image.topics.partition_count() as u64,
        ),
        (
            "offlinepartitionscount",
            "Partitions without a leader.",
            leaderless as u64,
        ),
        (
            "preferredreplicaimbalancecount",
            "Partitions led by another than their first replica.",
            imbalanced.count() as u64,
        ),
        ("activebrokercount", "Brokers in service.", unfenced as u64),
        (
            "fencedbrokercount",
            "Registered brokers that are fenced.",
            brokers.saturating_sub(unfenced) as u64,
        ),
        (
            "lastappliedrecordoffset",
            "Position of the metadata served here.",
            image.position.index,
        ),
    ] {
        text.single(
            &format!("kafka_controller_kafkacontroller_{name}"),
            Kind::Gauge,
            help,
            value,
        );
    }
    let mut family = text.family("kafka_topic_partitions", Kind::Gauge, "Partitions of a topic.");
    for topic in image.topics.iter() {
        family.sample(&[("topic", &topic.name)], topic.partitions.len());
    }
    text.single("kafka_brokers", Kind::Gauge, "Brokers in service.", unfenced);
    let help = "The metadata.version in force.";
    let version = i64::from(image.feature("metadata.version"));
    text.single(
        "kafka_server_metadataloader_currentmetadataversion",
        Kind::Gauge,
        help,
        version,
    );
}

fn is_under_replicated(partition: &PartitionImage) -> bool {
    partition.isr.len() < partition.replicas.len()
}

fn replicas(text: &mut Exposition, image: &MetadataImage, node: BrokerId, requests: &Snapshot) {
    let here = || {
        image
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .filter(|partition| partition.has_replica(node))
    };
    let led = || here().filter(|p| p.leader == Some(node));
    let reassigning = led().filter(|p| !p.adding.is_empty() || !p.removing.is_empty());
    for (name, help, value) in [
        (
            "partitioncount",
            "Partitions with a replica here.",
            here().count(),
        ),
        ("leadercount", "Partitions led here.", led().count()),
        (
            "underreplicatedpartitions",
            "Partitions led here with fewer in-sync replicas than replicas.",
            led().filter(|p| is_under_replicated(p)).count(),
        ),
        (
            "reassigningpartitions",
            "Partitions led here that are being moved.",
            reassigning.count(),
        ),
        (
            "offlinereplicacount",
            "Partitions whose log here cannot be opened.",
            requests.offline_partitions,
        ),
    ] {
        text.single(
            &format!("kafka_server_replicamanager_{name}"),
            Kind::Gauge,
            help,
            value,
        );
    }
}

/// One family with a sample for each partition led here.
type PartitionFamily = (
    &'static str,
    &'static str,
    fn(&PartitionImage, &PartitionStats) -> i64,
);

const PARTITION_FAMILIES: [PartitionFamily; 10] = [
    // kafka_exporter's names: the dashboards of lag draw what is produced beside what is consumed.
    (
        "kafka_topic_partition_current_offset",
        "The high watermark.",
        |_, s| s.log.high_watermark.0,
    ),
    (
        "kafka_topic_partition_oldest_offset",
        "The first offset that can be read.",
        |_, s| s.log.log_start.0,
    ),
    ("kafka_log_log_size", "Bytes in segments.", |_, s| {
        to_i64(s.log.size_bytes)
    }),
    (
        "kafka_log_log_retentionsizeinpercent",
        "Bytes in segments as a percentage of retention.bytes; 0 without that.",
        |_, s| match s.log.size_bytes_max {
            Some(most) if most > 0 => to_i64(s.log.size_bytes.saturating_mul(100) / most),
            _ => 0,
        },
    ),
    ("kafka_log_log_numlogsegments", "Segments.", |_, s| {
        to_i64(s.log.segments as u64)
    }),
    (
        "kafka_log_log_logstartoffset",
        "The first offset that can be read.",
        |_, s| s.log.log_start.0,
    ),
    (
        "kafka_log_log_logendoffset",
        "One past the last offset appended.",
        |_, s| s.log.log_end.0,
    ),
    (
        "kafka_cluster_partition_underreplicated",
        "Whether replicas are out of sync.",
        |p, _| i64::from(is_under_replicated(p)),
    ),
    (
        "kafka_cluster_partition_insyncreplicascount",
        "Replicas in sync.",
        |p, _| to_i64(p.isr.len() as u64),
    ),
    ("kafka_cluster_partition_replicascount", "Replicas.", |p, _| {
        to_i64(p.replicas.len() as u64)
    }),
];

fn partitions(text: &mut Exposition, image: &MetadataImage, node: BrokerId, shards: &[ShardSnapshot]) {
    let mut all: Vec<_> = shards
        .iter()
        .flat_map(|shard| &shard.partitions)
        .filter_map(|stats| {
            let log = stats.log.log;
            let topic = image.topics.by_id(log.topic)?;
            let partition = topic.partition(log.partition)?;
            (partition.leader == Some(node)).then_some((topic.name.as_ref(), log.partition, partition, stats))
        })
        .collect();
    all.sort_by_key(|(topic, index, ..)| (*topic, *index));
    for (name, help, of) in PARTITION_FAMILIES {
        let mut family = text.family(name, Kind::Gauge, help);
        for (topic, index, partition, stats) in &all {
            let index = index.to_string();
            family.sample(&[("topic", topic), ("partition", &index)], of(partition, stats));
        }
    }
}

fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
