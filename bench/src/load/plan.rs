//! What a run is to do, with everything decided: what `arguments` makes of flags, workload and driver files.

use std::time::Duration;

use broker::client::Address;
use protocol::compression::Codec;
use serde::Serialize;

use super::keys::Keys;
use super::payload::Payload;

/// Connections of a run at most.
pub const CONNECTIONS_MAX: usize = 60_000;

/// Threads of a run at most.
pub const THREADS_MAX: usize = 64;

/// A rate from which on the authors of the OpenMessaging workloads mean "as fast as possible", messages a second.
pub const RATE_UNLIMITED: f64 = 10_000_000.0;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name in reports.
    pub name: String,
    /// Brokers to begin with.
    pub bootstrap: Vec<Address>,
    /// Topics.
    pub topics: TopicPlan,
    /// Producers.
    pub producers: ProducerPlan,
    /// Consumers.
    pub consumers: ConsumerPlan,
    /// Time before anything counts.
    pub warmup: Duration,
    /// Time that counts.
    pub time: Duration,
    /// Bytes of batches after which the run ends, whatever its time.
    pub bytes_max: Option<u64>,
    /// Time between two figures of the series.
    pub interval: Duration,
    /// A backlog that is built up and drained.
    pub backlog: Option<BacklogPlan>,
    /// Threads.
    pub threads: usize,
    /// Process of the broker, if it runs on this host.
    pub pid: Option<u32>,
    /// How long brokers may take: to answer requests about topics, and at the end until all is answered and consumed.
    pub patience: Duration,
}

/// The topics of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// Names.
    pub names: Vec<String>,
    /// Whether they exist already, and stay.
    pub exist: bool,
    /// Partitions of each new one.
    pub partitions: u32,
    /// Replicas of each; -1 for the broker's default.
    pub replication_factor: i16,
    /// Their configs.
    pub configs: Vec<(String, String)>,
    /// Whether they stay after the run.
    pub keep: bool,
}

/// How fast messages are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many a second of all producers, on a schedule that does not wait for the broker.
    Rate(f64),
    /// As fast as they are answered, with a bounded number of requests under way.
    Maximum,
    /// At the highest rate that the bounds allow, which is looked for first.
    Search(SearchPlan),
}

/// How the highest sustainable rate is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchPlan {
    /// The first rate, messages a second; it doubles until one is too high.
    pub from: f64,
    /// A step's time, of which the first third does not count.
    pub step: Duration,
    /// Bound of the 99th percentile of produce latency, milliseconds.
    pub p99_ms_max: f64,
    /// Bound of what consumers are behind, in seconds of the rate.
    pub behind_s_max: f64,
    /// The search ends when the bounds are within this share of each other.
    pub precision: f64,
}

/// The producers of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducerPlan {
    /// Producers, each with a connection to each broker that it sends to.
    pub count: usize,
    /// How fast.
    pub load: Load,
    /// Bytes of a message's value.
    pub message_bytes: usize,
    /// Values.
    pub payload: Payload,
    /// Keys.
    pub keys: Keys,
    /// Different keys.
    pub key_count: usize,
    /// Bytes of a batch at which it is sent at once.
    pub batch_bytes: usize,
    /// How long a batch waits for more messages.
    pub linger: Duration,
    /// Codec of batches.
    pub codec: Codec,
    /// Its level.
    pub level: i32,
    /// -1 (all), 0 or 1.
    pub acks: i16,
    /// With producer id and sequence numbers.
    pub idempotent: bool,
    /// Requests of a connection without an answer.
    pub in_flight_max: usize,
    /// Bytes of a request.
    pub request_bytes_max: usize,
    /// Bytes that a producer holds unsent.
    pub buffer_bytes: usize,
    /// Batches that were made before the run are sent.
    pub pre_encoded: bool,
}

/// The consumers of a run, which read assigned partitions without a group.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerPlan {
    /// Consumers of each subscription; 0 for none.
    pub count: usize,
    /// Subscriptions, each of which reads everything.
    pub subscriptions: usize,
    /// Bytes of an answer.
    pub fetch_bytes_max: i32,
    /// Bytes of a partition in it.
    pub partition_bytes_max: i32,
    /// Bytes below which the broker waits, and how long.
    pub fetch_bytes_min: i32,
    /// Milliseconds.
    pub wait_ms: i32,
    /// 0: all records, 1: committed ones.
    pub isolation: i8,
    /// Whether the checksum of each batch is checked, as Java's client does.
    pub check_crcs: bool,
    /// Whether they begin at the first offset of topics that exist already, not at the end.
    pub from_earliest: bool,
}

/// A backlog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BacklogPlan {
    /// Bytes of messages before consumers go on.
    pub bytes: u64,
    /// The share of it that is to be drained.
    pub drain_share: f64,
    /// It is built as fast as possible, whatever the rate.
    pub is_built_fast: bool,
}

/// A plan as results tell it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Name and value, in the order to show them.
    pub lines: Vec<(&'static str, String)>,
}

impl Plan {
    /// Bytes of a message, key and value.
    pub fn message_bytes(&self) -> usize {
        let has_key = !matches!(self.producers.keys, Keys::None | Keys::NoneRoundRobin);
        self.producers.message_bytes
            + if has_key && !self.producers.pre_encoded {
                8
            } else {
                0
            }
    }

    /// Whether messages carry the time at which they were due: not in batches that were compressed before the run.
    pub fn is_stamped(&self) -> bool {
        let is_fixed = self.producers.pre_encoded && self.producers.codec != Codec::None;
        self.consumers.count > 0 && !is_fixed
    }

    /// All consumers.
    pub fn consumers(&self) -> usize {
        self.consumers.count * self.consumers.subscriptions
    }

    /// What reports say of it.
    pub fn summary(&self) -> PlanSummary {
        let producers = &self.producers;
        let load = match producers.load {
            Load::Rate(rate) => format!("{rate} messages/s, open loop"),
            Load::Maximum => "as fast as possible, closed loop".to_owned(),
            Load::Search(search) => format!(
                "the highest rate with p99 ≤ {} ms and consumers ≤ {} s behind",
                search.p99_ms_max, search.behind_s_max
            ),
        };
        let batches = format!(
            "{} bytes, linger {} ms, {}{}",
            producers.batch_bytes,
            producers.linger.as_secs_f64() * 1e3,
            producers.codec.name(),
            if producers.pre_encoded {
                ", made before the run"
            } else {
                ""
            }
        );
        let acks = format!(
            "{}{}, at most {} requests in flight",
            if producers.acks < 0 {
                "all".to_owned()
            } else {
                producers.acks.to_string()
            },
            if producers.idempotent { ", idempotent" } else { "" },
            producers.in_flight_max
        );
        let topics = format!(
            "{} with {} partitions each",
            self.topics.names.len(),
            self.topics.partitions
        );
        let mut lines = vec![
            ("load", load),
            ("topics", topics),
            ("producers", producers.count.to_string()),
            ("message bytes", producers.message_bytes.to_string()),
            ("keys", format!("{:?}", producers.keys)),
            ("batches", batches),
            ("acks", acks),
            (
                "consumers",
                format!(
                    "{} in {} subscriptions",
                    self.consumers(),
                    self.consumers.subscriptions
                ),
            ),
            ("warm-up", format!("{} s", self.warmup.as_secs_f64())),
            ("threads of the generator", self.threads.to_string()),
        ];
        if !self.topics.configs.is_empty() {
            let pairs = self
                .topics
                .configs
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            lines.push(("topic configs", pairs.collect::<Vec<_>>().join(", ")));
        }
        if let Some(backlog) = self.backlog {
            lines.push(("backlog", format!("{:.2} GB", backlog.bytes as f64 / 1e9)));
        }
        PlanSummary { lines }
    }
}
