//! How the process ends: exit statuses of sysexits(3), so that scripts and service managers can tell a wrong setting from
//! a broken disk.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// An exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The command line is wrong (EX_USAGE).
    Usage = 64,
    /// Files hold what they must not, or what a command names does not exist (EX_DATAERR).
    Data = 65,
    /// Something that is needed cannot be had: a port, a lock, a broker to talk to (EX_UNAVAILABLE).
    Unavailable = 69,
    /// A bug of ours (EX_SOFTWARE).
    Software = 70,
    /// The operating system refuses (EX_OSERR).
    System = 71,
    /// Reading or writing failed (EX_IOERR).
    Io = 74,
    /// It may succeed later: a group has members, a coordinator is loading (EX_TEMPFAIL).
    TempFail = 75,
    /// A peer does not speak the protocol (EX_PROTOCOL).
    Protocol = 76,
    /// The cluster does not allow it (EX_NOPERM).
    NoPermission = 77,
    /// The configuration is wrong (EX_CONFIG).
    Config = 78,
}

/// Why the process does not start or go on: one sentence that says what and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status to exit with.
    pub status: Status,
    /// The sentence.
    pub sentence: String,
}

impl Failure {
    /// A failure with a sentence.
    pub fn new(status: Status, sentence: impl Into<String>) -> Self {
        Self {
            status,
            sentence: sentence.into(),
        }
    }
}

/// Says why the process ends, as one line on standard error, and with which status. The line is no log event: it comes
/// whatever the log's filter and form.
#[must_use]
pub fn end(failure: &Failure) -> ExitCode {
    // Standard error may be closed; the status says it then.
    let _ = writeln!(io::stderr().lock(), "penstock: {failure}");
    ExitCode::from(failure.status as u8)
}

/// Ends the process at once with status 0: `signal` asked for it before anything was served. Without destructors: where many
/// executors are being started, each call that gives memory back waits seconds for the kernel.
pub fn give_up(signal: &str) -> ! {
    let _ = writeln!(io::stderr().lock(), "penstock: {signal}: the start is given up");
    signal_hook::low_level::exit(0)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}
