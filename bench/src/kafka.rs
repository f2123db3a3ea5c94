//! Apache Kafka 4.3.1 beside us: starts and stops one broker through the script `bench/kafka/kafka`, and runs Kafka's own tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Result, failed};

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

/// A command that runs a main class of Kafka's jars, for example `kafka.tools.DumpLogSegments`.
pub fn tool(class: &str) -> Command {
    let mut command = Command::new(script());
    command.arg("run").arg(class);
    command.env("JAVA_OPTS", "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC");
    command
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kafka/kafka")
}
