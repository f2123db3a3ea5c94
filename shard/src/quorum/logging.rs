//! raft's log lines, which come through slog, go where ours go.

use slog::{Drain, Level, Logger, OwnedKVList, Record};

/// Passes records on to `tracing` under the target `raft`.
struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), slog::Never> {
        match record.level() {
            Level::Critical | Level::Error => tracing::error!(target: "raft", "{}", record.msg()),
            Level::Warning => tracing::warn!(target: "raft", "{}", record.msg()),
            // raft tells each step of an election at "info": that is our "debug".
            Level::Info | Level::Debug | Level::Trace => tracing::debug!(target: "raft", "{}", record.msg()),
        }
        Ok(())
    }
}

pub(super) fn logger() -> Logger {
    Logger::root(ToTracing, slog::o!())
}
