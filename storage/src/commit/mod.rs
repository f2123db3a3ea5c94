//! Group commit: takes what all logs have staged, plans where each log's bytes go, writes and syncs, and moves the durable
//! ends. [`planner`] decides and does no I/O; the rest of this module is the thin driver around it.

pub(crate) mod buffers;
pub mod planner;
mod room;
pub(crate) mod run;
pub(crate) mod seal;
mod turn;

pub use planner::{CommitCosts, CommitLimits, Route};
