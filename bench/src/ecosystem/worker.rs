//! A Java program that runs beside the broker for the time of a test: a Connect worker, MirrorMaker, a console producer.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use super::POLL_INTERVAL;
use crate::error::{Doing, Result, failed};
use crate::kafka::tool;

/// How long a program may take to its end once it has nothing more to do.
const END_TIMEOUT: Duration = Duration::from_secs(120);

/// The running program; killed when dropped.
pub(super) struct Worker {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Starts a main class; what it says goes to `NAME.log` below `dir`.
    ///
    /// # Errors
    /// Java does not start.
    pub(super) fn start(name: &'static str, class: &str, arguments: &[&str], dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let stdout = File::create(&log).doing(log.display())?;
        let stderr = stdout.try_clone().doing(log.display())?;
        let mut command = tool(class);
        command.env("JAVA_OPTS", "-Xmx384m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC");
        let child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .doing(name)?;
        Ok(Self { name, child, log })
    }

    /// Its standard input, once.
    ///
    /// # Errors
    /// It was taken before.
    pub(super) fn stdin(&mut self) -> Result<ChildStdin> {
        match self.child.stdin.take() {
            Some(stdin) => Ok(stdin),
            None => failed(format!("{} has no standard input", self.name)),
        }
    }

    /// Waits for its end, after its standard input was closed.
    ///
    /// # Errors
    /// It ends with another status than 0, or not in time.
    pub(super) fn wait(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            match self.child.try_wait().doing(self.name)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return failed(format!("{} ended with {status}: {}", self.name, self.said()));
                }
                None if started.elapsed() > END_TIMEOUT => {
                    return failed(format!(
                        "{} has not ended after {END_TIMEOUT:?}: {}",
                        self.name,
                        self.said()
                    ));
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Fails when it has ended.
    ///
    /// # Errors
    /// It has; the error has the end of what it said.
    pub(super) fn expect_running(&mut self) -> Result<()> {
        match self.child.try_wait().doing(self.name)? {
            None => Ok(()),
            Some(status) => failed(format!("{} ended with {status}: {}", self.name, self.said())),
        }
    }

    fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let from = text.len().saturating_sub(4000);
        String::from_utf8_lossy(&text[from..]).into_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself; nothing else can go wrong here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
