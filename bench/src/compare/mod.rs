//! `penstock-bench compare`: brokers side by side on one host. Each in turn gets the same workloads from the same clients, round after
//! round in an order that rotates, and what is reported are medians, extremes, ratios and which goals are met.
//!
//! `workload` and `goal` are the table of what is measured, `arguments` makes a `plan` of it, `run` starts and stops brokers (`host`,
//! each in a `group` that counts its memory) and has workloads driven (`drive`) under the eyes of `watch`; what came of it is an
//! `outcome`, which `report` writes as JSON, Markdown and HTML. Pure parts: `workload`, `goal`, `figure`, `outcome`, `report`.

pub mod arguments;
mod drive;
mod figure;
mod goal;
mod group;
mod host;
mod outcome;
mod plan;
pub mod report;
mod run;
mod watch;
mod workload;

pub use figure::{Figure, Figures};
pub use goal::{Against, Bound, Goal, Verdict};
pub use host::{Contender, Kind, Serving, round, serve};
pub use outcome::{BrokerOutcome, GoalOutcome, Outcome, Run, Spread, WorkloadOutcome};
pub use plan::{Contestant, Plan, Scale, What};
pub use run::run;
pub use workload::{WORKLOADS, Workload, list};
