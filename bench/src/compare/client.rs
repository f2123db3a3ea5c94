//! The load: our C program on librdkafka, compiled on the host, told when to start the measured part.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::{Doing, Error, Result, failed};

/// What the client sends.
#[derive(Clone, Debug)]
pub struct Load {
    /// Partitions of the topic; records go to them at random, as the client's partitioner does without keys.
    pub partitions: u32,
    /// Bytes of each record's value.
    pub record_bytes: u64,
    /// Megabytes sent before the measured part, so that a JVM has compiled its code.
    pub warmup_megabytes: u64,
    /// Megabytes of the measured part.
    pub megabytes: u64,
    /// `all`, `1` or `0`.
    pub acks: String,
    /// Megabytes a second of the measured part; 0 is as fast as the client goes.
    pub megabytes_per_second: u64,
    /// Further settings of librdkafka, `key=value`.
    pub properties: Vec<String>,
}

/// What the client says about the measured part.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// Bytes of values acknowledged.
    pub bytes: u64,
    /// From the first record to the last answer.
    pub seconds: f64,
    /// CPU time of the client.
    pub client_cpu_seconds: f64,
    /// Percentiles 50, 99 and 99.9 of the time from the produce call to the delivery report, in milliseconds, of one record in 61.
    pub latency_ms: [f64; 3],
    /// Version of librdkafka.
    pub version: String,
}

/// Compiles the client into `dir`; `None` when there is no compiler or no librdkafka.
///
/// # Errors
/// It does not compile.
pub fn build_client(dir: &Path) -> Result<Option<PathBuf>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("compare/produce.c");
    std::fs::create_dir_all(dir).doing(dir.display())?;
    let program = dir.join("produce");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let found = Command::new(&compiler)
        .args(["-E", "-include", "librdkafka/rdkafka.h", "-x", "c", "/dev/null"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !found.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let out = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-o"])
        .args([&program, &source])
        .arg("-lrdkafka")
        .output()
        .doing("the C compiler")?;
    if !out.status.success() {
        return failed(format!(
            "{} does not compile: {}",
            source.display(),
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    Ok(Some(program))
}

impl Load {
    /// Runs the client once; `before` is called between the warm-up and the measured part.
    ///
    /// # Errors
    /// The client fails, or `before` does.
    pub fn run(
        &self,
        client: &Path,
        bootstrap: &str,
        before: impl FnOnce() -> Result<()>,
    ) -> Result<Measured> {
        let records = |megabytes: u64| (megabytes * 1_000_000 / self.record_bytes).to_string();
        let mut command = Command::new(client);
        command.args([bootstrap, "side-by-side", &self.record_bytes.to_string()]);
        command.args([
            records(self.warmup_megabytes),
            records(self.megabytes),
            self.acks.clone(),
            records(self.megabytes_per_second),
        ]);
        command.args(&self.properties);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .doing(client.display())?;
        let mut stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).doing("the client's warm-up")?;
        if line.trim() != "warm" {
            let status = child.wait().doing("the client")?;
            return failed(format!("the client ended with {status} in its warm-up"));
        }
        before()?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        stdin.write_all(b"go\n").doing("starting the measured part")?;
        line.clear();
        stdout.read_line(&mut line).doing("the client's figures")?;
        let status = child.wait().doing("the client")?;
        if !status.success() {
            return failed(format!("the client ended with {status}"));
        }
        serde_json::from_str(&line)
            .map_err(|error| Error::Failed(format!("the client printed {line:?}: {error}")))
    }
}
