//! A broker on this host that is measured: started with empty data, stopped, and its data removed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use broker::client::frame;
use protocol::messages::api_versions::ApiVersionsRequest;
use protocol::{DecodeLimits, ErrorCode};

use super::group::Group;
use crate::error::{Doing, Error, Result, failed};
use crate::process::Profile;
use crate::target::{self, Target};

/// How long a start may take until a client is answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Before a client that was not answered tries again.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// Heap of Apache Kafka, as its own start script has it.
const HEAP: &str = "1g";

/// A broker to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// What the tables call it.
    pub name: String,
    /// Which one.
    pub kind: Kind,
    /// Further settings, `key=value`.
    pub overrides: Vec<String>,
}

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Ours, built for release.
    Penstock,
    /// Apache Kafka 4.3.1 with a heap of 1 GB.
    Kafka,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Penstock => "Penstock",
            Self::Kafka => "Apache Kafka 4.3.1",
        })
    }
}

/// A broker that runs to be measured.
#[derive(Clone, Debug)]
pub struct Serving {
    /// `HOST:PORT` for clients.
    pub bootstrap: String,
    /// Its process.
    pub pid: u32,
    /// From the start of the process (and, for Kafka, formatting its directory) until it serves.
    pub ready_after: Duration,
}

/// A broker with its data below a folder of its own, which goes with it.
#[derive(Debug)]
pub struct Host {
    target: Option<Target>,
    dir: PathBuf,
    ready_after: Duration,
    /// Goes after the process that is in it.
    group: Option<Group>,
}

impl Host {
    /// Starts a broker with empty data below `dir`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(contender: &Contender, dir: &Path, overrides: &[&str]) -> Result<Self> {
        remove(dir)?;
        let own = contender.overrides.iter().map(String::as_str);
        let overrides: Vec<_> = overrides.iter().copied().chain(own).collect();
        let kind = match contender.kind {
            Kind::Penstock => target::Kind::Penstock(Profile::Release),
            Kind::Kafka => target::Kind::Kafka,
        };
        let mut target = Target::with_heap(kind, dir, HEAP, &overrides)?;
        let group = Group::new();
        let started = Instant::now();
        start(&mut target, group.as_ref())?;
        let ready_after = match &target {
            Target::Penstock(broker) => broker.ready_after(),
            Target::Kafka(..) => started.elapsed(),
        };
        Ok(Self {
            target: Some(target),
            dir: dir.to_path_buf(),
            ready_after,
            group,
        })
    }

    /// The most memory that it had since it was started, pages of its files included, bytes; none where nobody counts.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        self.group.as_ref().and_then(Group::peak_bytes)
    }

    fn target(&mut self) -> &mut Target {
        self.target.as_mut().expect("it is there until the end")
    }

    /// What clients need to know of it.
    ///
    /// # Errors
    /// It has ended.
    pub fn serving(&self) -> Result<Serving> {
        let target = self.target.as_ref().expect("it is there until the end");
        Ok(Serving {
            bootstrap: target.bootstrap(),
            pid: target
                .pid()
                .ok_or_else(|| Error::Failed("the broker ended".into()))?,
            ready_after: self.ready_after,
        })
    }

    /// Stops it in order and starts it again on its data: how long it takes from the command until a client is answered.
    ///
    /// # Errors
    /// It does not stop or start, or answers nobody.
    pub fn restart(&mut self) -> Result<Duration> {
        self.target().terminate()?;
        let bootstrap = self.target().bootstrap();
        let started = Instant::now();
        let probe = std::thread::spawn(move || answered(&bootstrap, started));
        let target = self.target.as_mut().expect("it is there until the end");
        start(target, self.group.as_ref())?;
        probe.join().expect("the probe does not panic")
    }

    /// Stops it in order and removes its data.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn end(mut self) -> Result<()> {
        self.target().terminate()?;
        self.target = None;
        remove(&self.dir)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After a failure: the process goes first, then its data, as far as that is possible.
        if self.target.take().is_some() {
            let _ = remove(&self.dir);
        }
    }
}

/// Starts it where its memory is counted.
fn start(target: &mut Target, group: Option<&Group>) -> Result<()> {
    match group {
        Some(group) => group.during(|| target.start(None)),
        None => target.start(None),
    }
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).doing(dir.display())?;
    }
    Ok(())
}

/// Tries to be answered as a client is, until that is so: the time since `started`.
fn answered(bootstrap: &str, started: Instant) -> Result<Duration> {
    while started.elapsed() < ANSWER_TIMEOUT {
        if matches!(ask(bootstrap), Ok(ErrorCode::NONE)) {
            return Ok(started.elapsed());
        }
        std::thread::sleep(PROBE_INTERVAL);
    }
    failed(format!(
        "nobody was answered at {bootstrap} within {ANSWER_TIMEOUT:?}"
    ))
}

fn ask(bootstrap: &str) -> std::io::Result<ErrorCode> {
    let mut stream = TcpStream::connect(bootstrap)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let request = frame::encode(0, 0, "penstock-bench", &ApiVersionsRequest::default());
    stream.write_all(&request.expect("it can be encoded"))?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut answer = vec![0; (u32::from_be_bytes(head) as usize).min(1 << 16)];
    stream.read_exact(&mut answer)?;
    frame::decode::<ApiVersionsRequest>(answer.into(), 0, 0, DecodeLimits::TRUSTED)
        .map(|answer| answer.error_code)
        .map_err(std::io::Error::other)
}

/// Starts a broker with empty data below `dir`, has `work` done with it, stops it, and removes the data again.
///
/// # Errors
/// The broker or the work fails.
pub fn serve<T>(
    contender: &Contender,
    dir: &Path,
    overrides: &[&str],
    work: impl FnOnce(&Serving) -> Result<T>,
) -> Result<T> {
    let host = Host::start(contender, dir, overrides)?;
    let done = work(&host.serving()?)?;
    host.end()?;
    Ok(done)
}

/// Measures every one of `contenders` once, in their order, or `backwards`: so that over the rounds none always runs on the warmer host.
/// The runs come back in the order of the contenders.
///
/// # Errors
/// As `measure`.
pub fn round<C, R>(
    contenders: &[C],
    backwards: bool,
    measure: impl FnMut(&C) -> Result<R>,
) -> Result<Vec<R>> {
    if backwards {
        let runs: Result<Vec<_>> = contenders.iter().rev().map(measure).collect();
        runs.map(|runs| runs.into_iter().rev().collect())
    } else {
        contenders.iter().map(measure).collect()
    }
}
