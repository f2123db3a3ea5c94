//! What every side-by-side report has: the figures of all rounds as tables, the host they were measured on, and how to repeat them.

mod host;
mod repeat;
mod rounds;

pub use host::describe as describe_host;
pub use repeat::{command, commit, write_result};
pub use rounds::{Column, markdown, percentile};
