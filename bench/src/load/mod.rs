//! `penstock-bench run`: a load generator for any broker of the Kafka protocol that costs a small part of what it measures.
//!
//! `arguments` makes a `plan` of `flags` and of the OpenMessaging benchmark's files (`omb`); `run` makes topics (`cluster`), starts
//! threads (`worker`: `producer`, `consumer`, `link`, `poller`) and, as their `conductor`, puts their intervals (`stats`) together into
//! an `outcome`, which `report` writes as JSON, Markdown and HTML. Pure parts: `pace`, `keys`, `payload`, `batch`, `request`, `latency`.
//!
//! - **Open loop.** With a rate each message has a time at which it is due, and its latency counts from then, whatever keeps it back:
//!   this program, a full buffer, a broker that stands still. What is due and not sent when the run ends counts with the time it has
//!   waited so far.
//! - **End to end.** The first 8 bytes of each value are the time at which it was due, in nanoseconds since 1970, big-endian. Batches
//!   that were compressed before the run (`--pre-encoded` with a codec) have no stamp, so that there is no such latency.
//! - **Phases** begin and end at the edges of intervals; a message's latency belongs to the phase in which it was due.

pub mod arguments;
mod batch;
mod clock;
mod cluster;
mod conductor;
mod connect;
mod consumer;
mod control;
mod flags;
mod keys;
mod latency;
mod link;
pub mod omb;
mod outcome;
mod pace;
mod payload;
mod plan;
mod poller;
mod producer;
mod random;
pub mod report;
mod request;
mod run;
mod search;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod values;
mod worker;

pub use keys::Keys;
pub use latency::LatencySummary;
pub use outcome::{BacklogOutcome, Outcome, PhaseOutcome, Point, SearchStep, Totals, Used};
pub use payload::Payload;
pub use plan::{BacklogPlan, ConsumerPlan, Load, Plan, PlanSummary, ProducerPlan, SearchPlan, TopicPlan};
pub use run::{MEASURED, run};
