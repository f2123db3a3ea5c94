//! Programs that are run to their end, within a time: what does not end is killed with all that it has started.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Doing, Result, failed};

/// How often it is looked at whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How a program ended.
pub(crate) struct End {
    /// Exit status; none when it was stopped or died of a signal.
    pub(crate) status: Option<i32>,
    /// Lines of its standard output.
    pub(crate) lines: Vec<String>,
    timed_out: bool,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            _ if self.timed_out => f.write_str("was stopped after its time"),
            Some(status) => write!(f, "ended with {status}"),
            None => f.write_str("died of a signal"),
        }
    }
}

/// Runs a program with its standard error into `log`.
///
/// # Errors
/// It does not start. How it ends is in the result.
pub(crate) fn run(command: &mut Command, log: &Path, limit: Duration) -> Result<End> {
    let errors = File::create(log).doing(log.display())?;
    command.stderr(errors);
    Ok(to_end(command, limit)?.0)
}

/// Runs a program and returns what it wrote to standard output.
///
/// # Errors
/// It does not start, ends with another status than 0, or not within `limit`; the error has what it wrote.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    command.stderr(Stdio::piped());
    let (end, errors) = to_end(command, limit)?;
    let said = end.lines.join("\n");
    if end.status == Some(0) && !end.timed_out {
        Ok(said)
    } else {
        failed(format!("{command:?} {end}: {said}\n{errors}"))
    }
}

/// Runs a program in a process group of its own, and kills the group after `limit`. Also what it wrote to standard error, where that
/// is a pipe.
fn to_end(command: &mut Command, limit: Duration) -> Result<(End, String)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().doing(format!("{command:?}"))?;
    let (stdout, stderr) = (text_of(child.stdout.take()), text_of(child.stderr.take()));
    let started = Instant::now();
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait().doing("waiting for a program")? {
            break status;
        }
        if started.elapsed() > limit && !timed_out {
            timed_out = true;
            let group = Pid::from_raw(i32::try_from(child.id()).expect("process ids fit 32 bits"));
            // It may have ended in between; the next turn sees that.
            let _ = killpg(group, Signal::SIGKILL);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let text = |reader: JoinHandle<String>| reader.join().expect("reading text does not panic");
    let end = End {
        status: status.code(),
        lines: text(stdout).lines().map(str::to_owned).collect(),
        timed_out,
    };
    Ok((end, text(stderr)))
}

/// Reads a pipe to its end.
fn text_of(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is what there is to show.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_does_not_end_is_stopped_with_its_children() {
        let started = Instant::now();
        let ran = output(
            &mut shell("echo before; sleep 60 | cat"),
            Duration::from_millis(300),
        );
        let said = ran.expect_err("it does not end by itself").to_string();
        assert!(said.contains("was stopped after its time: before"), "{said}");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn an_error_has_both_streams() {
        let ran = output(
            &mut shell("echo out; echo err >&2; exit 3"),
            Duration::from_secs(30),
        );
        let said = ran.expect_err("status 3").to_string();
        assert!(said.ends_with("ended with 3: out\nerr\n"), "{said}");
        let ran = output(&mut shell("echo out"), Duration::from_secs(30));
        assert_eq!(ran.expect("status 0"), "out");
    }
}
