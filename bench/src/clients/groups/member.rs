//! A member of a group: one process of the client under test, commanded by lines on its standard input, that tells what happens to it
//! in lines of JSON on its standard output. `bench/clients/README.md` describes both.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;

use super::history::History;
use crate::error::{Doing, Result};

/// The session timeout of members, of which none may be late on a busy host.
const SESSION_MS: u32 = 45_000;
/// The one of members that are killed: the shortest that brokers take by default.
pub(super) const SESSION_KILL_MS: u32 = 6000;

/// How a member is started.
#[derive(Clone, Debug)]
pub(super) struct MemberOptions {
    /// Another group than the case's.
    pub(super) group: Option<String>,
    /// Static membership.
    pub(super) instance: Option<&'static str>,
    /// `range`, or `cooperative-sticky`.
    pub(super) assignor: &'static str,
    /// `earliest`, `latest` or `none`.
    pub(super) reset: &'static str,
    /// Commits by itself, every 200 ms and when it leaves.
    pub(super) auto_commit: bool,
    pub(super) session_ms: u32,
    /// How many records a tool shall read that is told so.
    pub(super) count: Option<u64>,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self {
            group: None,
            instance: None,
            assignor: "range",
            reset: "earliest",
            auto_commit: false,
            session_ms: SESSION_MS,
            count: None,
        }
    }
}

/// What a member tells.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event {
    /// The first line.
    Hello {
        /// Of the client.
        version: String,
        /// Whether it tells what it owns.
        owners: bool,
    },
    /// It got these partitions in addition.
    Assigned {
        partitions: Vec<i32>,
        /// Where the client tells it.
        generation: Option<i32>,
    },
    /// It gave these up, or they were lost.
    Revoked { partitions: Vec<i32> },
    /// It read a record.
    Record {
        partition: i32,
        offset: i64,
        value: String,
    },
    /// A tool that does not show records has read so many, and is done.
    Count { records: u64 },
    /// A command was carried out.
    Done { command: String },
    /// A command could not be carried out, or the consumer itself failed (`poll`).
    Failed { command: String, error: String },
    /// The client does not have what was asked for.
    Absent { why: String },
}

/// An event with its time in milliseconds, by the member's clock (it is the same host's).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line {
    pub(super) at: f64,
    #[serde(flatten)]
    pub(super) event: Event,
}

/// A running member; killed when dropped.
pub(super) struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

impl Member {
    /// Starts `command` as member number `index` of a history.
    pub(super) fn start(
        mut command: Command,
        log: &Path,
        history: &Arc<History>,
        index: usize,
    ) -> Result<Self> {
        let errors = File::options()
            .create(true)
            .append(true)
            .open(log)
            .doing(log.display())?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .process_group(0);
        let mut child = command.spawn().doing(format!("{command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("standard output is piped");
        let history = Arc::clone(history);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                match serde_json::from_str::<Line>(&line) {
                    Ok(line) => history.tell(index, line),
                    Err(error) => history.fail(index, &format!("it printed {line:?}: {error}")),
                }
            }
            history.ended(index);
        });
        Ok(Self {
            child,
            stdin,
            reader: Some(reader),
        })
    }

    /// Sends a command. A member that has ended does not take it; its history says so.
    pub(super) fn command(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            // The history has the end of the process, which is why a write fails.
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// `kill -9`, and gone when this returns.
    pub(super) fn kill(&mut self) {
        let Some(reader) = self.reader.take() else {
            // Waited for before: its number may be another process's by now.
            return;
        };
        let group = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids fit 32 bits"));
        // It may have ended already.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
        reader.join().expect("reading lines does not panic");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}
