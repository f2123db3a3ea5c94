//! One Penstock process on loopback, for tests that kill, stop and restart it: builds the binary when it must, starts it on free
//! ports, waits for its ready line, and asks its admin address for metrics.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Doing, Error, Result, failed};
use crate::http::Server;

/// How long a start may take, recovery and an unoptimised binary on a busy host included.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a file or process is looked at while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of an answer of the admin address that are kept.
const ADMIN_ANSWER_BYTES_MAX: u64 = 64 << 20;
/// What the line begins with that a broker prints on standard output once it serves.
const READY_PREFIX: &str = "penstock ready";

/// How the binary is built when `PENSTOCK_BIN` does not name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As `cargo test` builds it.
    Dev,
    /// As an operator runs it, for measurements.
    Release,
}

/// One broker of ours. Dropping it kills the process; the data stay where they are.
#[derive(Debug)]
pub struct Broker {
    binary: PathBuf,
    dir: PathBuf,
    port: u16,
    admin_port: u16,
    overrides: Vec<String>,
    child: Option<Child>,
    starts: u32,
    ready_line: String,
    ready_after: Duration,
    ready_timeout: Duration,
}

impl Broker {
    /// Prepares a broker below `dir` on two free ports of 127.0.0.1; [`Broker::start`] runs it. Each of `overrides` is a `key=value`,
    /// which may name the port as [`with_ports`] says.
    ///
    /// # Errors
    /// The binary could not be built, or no port is free.
    pub fn new(profile: Profile, dir: &Path, overrides: &[&str]) -> Result<Self> {
        Self::of(binary(profile)?, dir, overrides)
    }

    fn of(binary: PathBuf, dir: &Path, overrides: &[&str]) -> Result<Self> {
        let (port, admin_port) = (free_port()?, free_port()?);
        Ok(Self {
            binary,
            // The broker runs in it, and would look for a relative one below it.
            dir: std::path::absolute(dir).doing(dir.display())?,
            port,
            admin_port,
            overrides: with_ports(overrides, port),
            child: None,
            starts: 0,
            ready_line: String::new(),
            ready_after: Duration::ZERO,
            ready_timeout: READY_TIMEOUT,
        })
    }

    /// Starts may take so long, for one with very many partitions.
    pub fn allow_for_starts(&mut self, limit: Duration) {
        self.ready_timeout = limit;
    }

    /// Starts the process and waits until it is ready. `shards` sets `penstock.shards`, else the broker decides.
    ///
    /// # Errors
    /// It runs already, ended by itself, or was not ready in time; the error has the end of what it wrote.
    pub fn start(&mut self, shards: Option<usize>) -> Result<()> {
        if self.child.is_some() {
            return failed("the broker runs already");
        }
        std::fs::create_dir_all(&self.dir).doing(self.dir.display())?;
        self.starts += 1;
        let (stdout, stderr) = (self.output("stdout"), self.output("stderr"));
        let started = Instant::now();
        let child = self
            .command(shards)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).doing(stdout.display())?)
            .stderr(File::create(&stderr).doing(stderr.display())?)
            .spawn()
            .doing(self.binary.display())?;
        self.child = Some(child);
        self.wait_ready(&stdout, started)
    }

    /// The command line of a start, without its standard streams.
    pub fn command(&self, shards: Option<usize>) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("start").current_dir(&self.dir);
        // The broker reads its settings from PENSTOCK_… too; those of whoever runs the tests must not reach it.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PENSTOCK_"))
        {
            command.env_remove(name);
        }
        let own = [
            format!("listeners=PLAINTEXT://127.0.0.1:{}", self.port),
            format!("penstock.admin.listener=127.0.0.1:{}", self.admin_port),
            format!("log.dirs={}", self.data_dir().display()),
        ];
        let shards = shards.map(|count| format!("penstock.shards={count}"));
        for setting in own
            .into_iter()
            .chain(shards)
            .chain(self.overrides.iter().cloned())
        {
            command.arg("--override").arg(setting);
        }
        command
    }

    fn wait_ready(&mut self, stdout: &Path, started: Instant) -> Result<()> {
        loop {
            let text = std::fs::read_to_string(stdout).doing(stdout.display())?;
            // A line without its end is still being written.
            let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(line) = complete
                .map(str::trim_end)
                .find(|line| line.starts_with(READY_PREFIX))
            {
                self.ready_after = started.elapsed();
                line.clone_into(&mut self.ready_line);
                return Ok(());
            }
            let child = self.child.as_mut().expect("wait_ready runs after a start");
            if let Some(status) = child.try_wait().doing("waiting for the broker")? {
                self.child = None;
                return failed(format!(
                    "the broker ended with {status} before it was ready:\n{}",
                    self.last_words()
                ));
            }
            if started.elapsed() > self.ready_timeout {
                self.kill()?;
                return failed(format!(
                    "the broker was not ready after {:?}:\n{}",
                    self.ready_timeout,
                    self.last_words()
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills the process as `kill -9` does, and waits until it is gone.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return failed("the broker does not run");
        };
        child.kill().doing("kill -9")?;
        child.wait().doing("waiting for the broker")?;
        Ok(())
    }

    /// Sends SIGTERM and waits for the end of the process at most `limit`; then it is killed and that is an error.
    ///
    /// # Errors
    /// It does not run, or did not end in time.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        let asked = Instant::now();
        let mut child = self.child.take().expect("signal fails without a process");
        loop {
            if let Some(status) = child.try_wait().doing("waiting for the broker")? {
                return Ok(status);
            }
            if asked.elapsed() > limit {
                child.kill().doing("kill -9")?;
                child.wait().doing("waiting for the broker")?;
                return failed(format!(
                    "the broker did not end within {limit:?} of SIGTERM:\n{}",
                    self.last_words()
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal, for example SIGSTOP.
    ///
    /// # Errors
    /// The broker does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self
            .pid()
            .ok_or_else(|| Error::Failed("the broker does not run".into()))?;
        let pid = i32::try_from(pid).expect("process ids fit 32 bits");
        kill(Pid::from_raw(pid), signal)
            .map_err(std::io::Error::from)
            .doing(format!("{signal} to {pid}"))
    }

    /// `HOST:PORT` for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Where the logs of its partitions lie.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The whole ready line of the last start.
    pub fn ready_line(&self) -> &str {
        &self.ready_line
    }

    /// From the start of the process to its ready line, at the last start.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The end of what the last start wrote, for messages.
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for name in ["stdout", "stderr"] {
            let text = std::fs::read(self.output(name)).unwrap_or_default();
            let from = text.len().saturating_sub(4000);
            words.push_str(&String::from_utf8_lossy(&text[from..]));
        }
        words
    }

    fn output(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}-{}", self.starts))
    }

    /// GET of a path on the admin address, for example `/metrics`: status and body.
    ///
    /// # Errors
    /// The broker does not answer with HTTP.
    pub fn admin(&self, path: &str) -> Result<(u16, String)> {
        let server = Server {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin_port)),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(10),
            answer_bytes_max: ADMIN_ANSWER_BYTES_MAX,
        };
        server.ask("GET", path, None)
    }

    /// Sum of all series of a metric, 0 when there is none.
    ///
    /// # Errors
    /// `/metrics` does not answer with status 200.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let (status, body) = self.admin("/metrics")?;
        if status != 200 {
            failed(format!("/metrics answered {status}"))
        } else {
            Ok(metric_sum(&body, name))
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.child.is_some() {
            let _ = self.kill();
        }
    }
}

fn metric_sum(exposition: &str, name: &str) -> f64 {
    let values = exposition.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (series.split('{').next()? == name).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

/// A TCP port of 127.0.0.1 that nobody listens on at the moment; never one that this process was given before.
///
/// # Errors
/// The system has none.
pub fn free_port() -> Result<u16> {
    // The system may name one again as soon as it is let go, and a broker was given the same for both of its addresses.
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    for _ in 0..100 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("looking for a free port")?;
        let port = listener.local_addr().doing("looking for a free port")?.port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
    failed("no port in 100 tries that was not given out before")
}

/// A free port whose successor is free too: Kafka's controller takes the next one.
///
/// # Errors
/// The system has none.
pub fn free_port_pair() -> Result<u16> {
    for _ in 0..100 {
        let port = free_port()?;
        let next = port.checked_add(1);
        if next.is_some_and(|next| TcpListener::bind((Ipv4Addr::LOCALHOST, next)).is_ok()) {
            return Ok(port);
        }
    }
    failed("no two free ports beside each other in 100 tries")
}

/// Settings for a broker on this port: `{port}` stands for it, `{next}` for the one behind it, which is the controller's of Kafka.
pub fn with_ports(overrides: &[&str], port: u16) -> Vec<String> {
    let (port, next) = (port.to_string(), port.saturating_add(1).to_string());
    let named = |text: &&str| text.replace("{port}", &port).replace("{next}", &next);
    overrides.iter().map(named).collect()
}

/// The `penstock` binary: `PENSTOCK_BIN`, or what cargo builds (once a process; cargo itself skips what is fresh).
///
/// # Errors
/// cargo fails; the error has its messages.
pub fn binary(profile: Profile) -> Result<PathBuf> {
    static BUILT: [OnceLock<std::result::Result<PathBuf, String>>; 2] = [OnceLock::new(), OnceLock::new()];
    if let Some(path) = std::env::var_os("PENSTOCK_BIN") {
        return Ok(PathBuf::from(path));
    }
    let cell = &BUILT[usize::from(profile == Profile::Release)];
    cell.get_or_init(|| build(profile).map_err(|error| error.to_string()))
        .clone()
        .map_err(Error::Failed)
}

fn build(profile: Profile) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--locked",
        "-p",
        "broker",
        "--bin",
        "penstock",
        "--message-format",
        "json-render-diagnostics",
    ]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    let out = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .doing("cargo build")?;
    if !out.status.success() {
        return failed(format!(
            "cargo build failed:\n{}",
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    // Cargo names the file itself, whatever target directory is configured.
    let messages = String::from_utf8_lossy(&out.stdout);
    let executable = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    });
    executable.map_or_else(|| failed("cargo build named no executable"), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_directory_is_that_of_whoever_asks() {
        let broker = Broker::of(PathBuf::from("penstock"), Path::new("some/where"), &[]).expect("free ports");
        let here = std::env::current_dir().expect("a directory");
        let command = broker.command(None);
        assert_eq!(command.get_current_dir(), Some(&*here.join("some/where")));
        let wanted = format!("log.dirs={}", here.join("some/where/data").display());
        assert!(
            command.get_args().any(|argument| argument == &*wanted),
            "{command:?}"
        );
    }

    #[test]
    fn a_port_is_given_out_once() {
        let ports: BTreeSet<u16> = (0..500).map(|_| free_port().expect("a port")).collect();
        assert_eq!(ports.len(), 500);
    }

    #[test]
    fn a_metric_is_the_sum_of_its_series() {
        let text = "# TYPE a counter\na_total{shard=\"0\"} 2\na_total{shard=\"1\",x=\"a b\"} 3.5\na_total_created 9\nb_total 7\n";
        assert!((metric_sum(text, "a_total") - 5.5).abs() < 1e-9);
        assert!((metric_sum(text, "b_total") - 7.0).abs() < 1e-9);
        assert!(metric_sum(text, "c_total").abs() < 1e-9);
    }
}
