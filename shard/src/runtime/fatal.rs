//! The end of a process whose shard has panicked: it says which shard and where, and exits with a status of its own.
//! Partitions are not served by a process that has lost a core (trap D6).
#![allow(unsafe_code)] // _exit(2) only: destructors of the other threads must not run while those threads do

use std::any::Any;
use std::io::Write;

use super::pulse::Place;
use crate::ids::ShardId;

/// The exit status of a process that stopped because of a bug of its own: `EX_SOFTWARE` of sysexits.h.
pub const PANIC_EXIT_STATUS: i32 = 70;

/// Reports the panic of a task and ends the process with [`PANIC_EXIT_STATUS`].
pub(super) fn stop_process(shard: ShardId, place: Place, panic: &(dyn Any + Send)) -> ! {
    let message = panic_message(panic);
    tracing::error!(%shard, ?place, message, "a task panicked; the process stops");
    // The log may still sit in the buffer of a writer thread, so the reason goes to stderr by itself as well.
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(
        stderr,
        "penstock: shard {shard}: {place} panicked: {message}. This is a bug. \
         The process stops with status {PANIC_EXIT_STATUS}; start it again, it recovers from its journal."
    );
    let _ = stderr.flush();
    // SAFETY: _exit takes no pointer and does not return. Unlike exit(3) it runs no destructors, which would race with
    // the shards that still run; files need none, what is acknowledged has been synced.
    unsafe { libc::_exit(PANIC_EXIT_STATUS) }
}

/// The text of a panic's payload.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text")
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task(file, line) => write!(f, "the task spawned at {file}:{line}"),
            Self::Section(name) => write!(f, "the section \"{name}\""),
            Self::Others => f.write_str("some other place"),
        }
    }
}
