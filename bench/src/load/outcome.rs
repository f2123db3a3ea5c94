//! What a run found, as JSON has it and as the other reports are made from.

use std::collections::BTreeMap;

use serde::Serialize;

use super::latency::LatencySummary;
use super::plan::PlanSummary;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the run.
    pub name: String,
    /// The host.
    pub host: String,
    /// The command that was given.
    pub command: String,
    /// What was asked for.
    pub plan: PlanSummary,
    /// Bytes of a message, key and value.
    pub message_bytes: usize,
    /// Phases in their order.
    pub phases: Vec<PhaseOutcome>,
    /// Steps of the search for the highest rate.
    pub search: Vec<SearchStep>,
    /// What a backlog took.
    pub backlog: Option<BacklogOutcome>,
    /// Interval by interval.
    pub series: Vec<Point>,
    /// Messages of the whole run, warm-up included.
    pub totals: Totals,
}

/// Messages of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// In requests.
    pub sent: u64,
    /// Acknowledged by the broker.
    pub acknowledged: u64,
    /// Refused by the broker.
    pub refused: u64,
    /// Due, but not sent when the rate changed or the run ended.
    pub given_up: u64,
    /// Got by consumers.
    pub consumed: u64,
    /// To be got by consumers: acknowledged ones for each subscription.
    pub to_consume: u64,
    /// Refused messages by the name of the error.
    pub errors: BTreeMap<String, u64>,
}

/// A phase of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PhaseOutcome {
    /// Its name.
    pub name: String,
    /// When it began, seconds of the run.
    pub from_s: f64,
    /// How long it was.
    pub seconds: f64,
    /// The rate that was asked for, messages a second.
    pub asked_per_second: Option<f64>,
    /// Acknowledged messages a second.
    pub produced_per_second: f64,
    /// The same in MB (10^6 bytes of keys and values).
    pub produced_mb_per_second: f64,
    /// The same in MB of batches as they were sent.
    pub produced_wire_mb_per_second: f64,
    /// Produce requests a second.
    pub produce_requests_per_second: f64,
    /// Consumed messages a second, of all subscriptions.
    pub consumed_per_second: f64,
    /// The same in MB of keys and values.
    pub consumed_mb_per_second: f64,
    /// Fetches a second.
    pub fetches_per_second: f64,
    /// From when a message was due to its acknowledgement.
    pub produce_latency: LatencySummary,
    /// From when a message was due until a consumer had it.
    pub end_to_end_latency: LatencySummary,
    /// What the broker used, if its process was given.
    pub broker: Option<Used>,
    /// What this program used.
    pub generator: Used,
}

/// What a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Used {
    /// User and system time.
    pub cpu_seconds: f64,
    /// The part of it in the kernel.
    pub system_seconds: f64,
    /// The same in cores.
    pub cores: f64,
    /// CPU seconds for 10^9 bytes of keys and values, produced and consumed.
    pub cpu_seconds_per_gb: f64,
    /// CPU seconds for 10^6 messages, produced and consumed.
    pub cpu_seconds_per_million: f64,
    /// The most resident memory since the process began, bytes.
    pub resident_peak_bytes: u64,
    /// Bytes that it had storage write, those in the page cache included; `None` where the system does not tell.
    pub written_bytes: Option<u64>,
}

/// A step of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchStep {
    /// Messages a second that were asked for.
    pub asked_per_second: f64,
    /// What was acknowledged.
    pub produced_per_second: f64,
    /// 99th percentile of produce latency, milliseconds.
    pub p99_ms: f64,
    /// What consumers were behind at its end, in seconds of the rate.
    pub behind_s: f64,
    /// Why it was too high; `None` when the rate holds.
    pub too_high: Option<String>,
}

/// What a backlog took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BacklogOutcome {
    /// Messages when consumers went on.
    pub messages: u64,
    /// Seconds of building it.
    pub build_s: f64,
    /// Seconds of draining it.
    pub drain_s: f64,
    /// MB of keys and values a second that consumers got meanwhile.
    pub drain_mb_per_second: f64,
}

/// An interval of the series.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// Its end, seconds of the run.
    pub at_s: f64,
    /// Its phase; none before and after.
    pub phase: Option<usize>,
    /// Acknowledged messages a second.
    pub produced_per_second: f64,
    /// MB of keys and values.
    pub produced_mb_per_second: f64,
    /// Consumed messages a second.
    pub consumed_per_second: f64,
    /// MB of keys and values.
    pub consumed_mb_per_second: f64,
    /// Of produce latency, milliseconds.
    pub p50_ms: f64,
    /// As `p50_ms`.
    pub p99_ms: f64,
    /// As `p50_ms`.
    pub p99_9_ms: f64,
    /// As `p50_ms`.
    pub max_ms: f64,
    /// 99th percentile of end-to-end latency, milliseconds.
    pub end_to_end_p99_ms: f64,
    /// Messages that were due and in no request.
    pub unsent: u64,
    /// Messages that consumers had still to get.
    pub behind: u64,
    /// Cores that the broker used.
    pub broker_cores: Option<f64>,
}
