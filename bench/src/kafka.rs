//! Apache Kafka 4.3.1 beside us: starts and stops one broker through the script `bench/kafka/kafka`, and runs Kafka's own tools.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Doing, Result, failed};
use crate::process::{free_port_pair, with_ports};

/// One running Kafka broker; stopped when dropped.
#[derive(Debug)]
pub struct Kafka {
    dir: PathBuf,
    port: u16,
    pid: u32,
}

/// How Kafka is started.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// Where its files lie.
    pub dir: PathBuf,
    /// Port of its listener on 127.0.0.1; the controller takes the next one.
    pub port: u16,
    /// Heap as the JVM takes it, for example `1g`.
    pub heap: String,
    /// Further lines of `server.properties`.
    pub overrides: Vec<String>,
}

impl KafkaOptions {
    /// A broker below `dir` on free ports with this heap (as the JVM takes it); each of `overrides` is a `key=value`, which may
    /// name the port as [`with_ports`] says.
    ///
    /// # Errors
    /// No port is free.
    pub fn new(dir: &Path, heap: &str, overrides: &[&str]) -> Result<Self> {
        let port = free_port_pair()?;
        Ok(Self {
            dir: dir.to_path_buf(),
            port,
            heap: heap.to_owned(),
            overrides: with_ports(overrides, port),
        })
    }

    /// `HOST:PORT` for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Kafka {
    /// Starts a broker and waits until it accepts connections. The jars are fetched from Maven on first use.
    ///
    /// # Errors
    /// Java or Maven is missing, the port is taken, or the broker ended by itself; the error has its last words.
    pub fn start(options: &KafkaOptions) -> Result<Self> {
        let out = Command::new(script())
            .arg("start")
            .arg(&options.dir)
            .arg(options.port.to_string())
            .args(&options.overrides)
            .env("HEAP", &options.heap)
            .output()
            .doing("bench/kafka/kafka start")?;
        let said = String::from_utf8_lossy(&out.stdout);
        match said.trim().parse() {
            Ok(pid) if out.status.success() => Ok(Self {
                dir: options.dir.clone(),
                port: options.port,
                pid,
            }),
            _ => failed(format!(
                "Kafka did not start: {said}{}",
                String::from_utf8_lossy(&out.stderr)
            )),
        }
    }

    /// `HOST:PORT` for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the JVM as `kill -9` does, and waits until it is gone. A new start in the same folder goes on with its data.
    ///
    /// # Errors
    /// It is still there after ten seconds.
    pub fn kill(self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid).expect("process ids fit 32 bits"));
        kill(pid, Signal::SIGKILL)
            .map_err(std::io::Error::from)
            .doing("kill -9 of Kafka")?;
        let asked = Instant::now();
        while kill(pid, None).is_ok() {
            if asked.elapsed() > Duration::from_secs(10) {
                return failed("Kafka is still there ten seconds after kill -9");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Process id of the JVM.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Nothing can be done about a failure here: the script has already tried SIGKILL.
        let _ = Command::new(script()).arg("stop").arg(&self.dir).status();
    }
}

/// A command that runs a main class of Kafka's jars, for example `org.apache.kafka.tools.DumpLogSegments`.
pub fn tool(class: &str) -> Command {
    let mut command = Command::new(script());
    command.arg("run").arg(class);
    command.env("JAVA_OPTS", "-Xmx512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC");
    command
}

/// Runs a program that needs Apache Kafka and its tools: without them it says SKIPPED and ends with status 69.
#[allow(clippy::print_stdout, reason = "for command-line programs")]
pub fn with_kafka(work: impl FnOnce() -> Result<()>) -> ExitCode {
    if let Some(why) = missing() {
        println!("SKIPPED: {why}");
        return ExitCode::from(69);
    }
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Why Apache Kafka and its tools cannot run on this host, if so. The jars are fetched from Maven on first use.
pub fn missing() -> Option<&'static str> {
    let works = |command: &mut Command| {
        let quiet = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    if !works(Command::new("java").arg("-version")) {
        return Some("java is missing");
    }
    (!works(Command::new(script()).arg("jars"))).then_some("Maven is missing or could not fetch Kafka's jars")
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kafka/kafka")
}
