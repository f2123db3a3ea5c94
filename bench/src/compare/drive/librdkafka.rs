//! Our C program on librdkafka, compiled on the host, told when to start the measured part.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::topic::Topic;
use super::{Driven, Meter, On};
use crate::compare::figure::{Figure, Figures, Work};
use crate::compare::workload::Librdkafka;
use crate::error::{Doing, Error, Result, failed};

/// What the client says about the measured part.
#[derive(Clone, Debug, Deserialize)]
struct Measured {
    /// Bytes of values acknowledged.
    bytes: u64,
    /// From the first record to the last answer.
    seconds: f64,
    /// CPU time of the client.
    client_cpu_seconds: f64,
    /// Percentiles 50, 99 and 99.9 of the time from the produce call to the delivery report, in milliseconds, of one record in 61.
    latency_ms: [f64; 3],
}

/// Compiles the client into `dir`; `None` when there is no compiler or no librdkafka.
///
/// # Errors
/// It does not compile.
pub(super) fn build_client(dir: &Path) -> Result<Option<PathBuf>> {
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

/// Version of librdkafka, as the client says it.
pub(super) fn version(client: &Path) -> Option<String> {
    let out = Command::new(client).arg("version").output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !text.is_empty()).then_some(text)
}

/// Produces with it.
///
/// # Errors
/// The client fails, or the broker refuses its topic.
pub(super) fn drive(load: Librdkafka, client: &Path, on: &On<'_>) -> Result<Driven> {
    let topic = Topic::create(load.partitions, on)?;
    let mut child = start(load, client, &topic.name, on)?;
    let measured = follow(&mut child, on);
    if measured.is_err() {
        // It may wait for a word that does not come.
        let _ = child.kill();
    }
    let status = child.wait().doing("the client")?;
    let (measured, meter) = measured?;
    if !status.success() {
        return failed(format!("the client ended with {status}"));
    }
    let mut figures = Figures::default();
    let bytes = measured.bytes as f64;
    let messages = bytes / load.record_bytes as f64;
    figures.set(Figure::ProducedMegabytes, bytes / 1e6 / measured.seconds);
    figures.set(Figure::ProducedMessages, messages / measured.seconds);
    let percentiles = [Figure::ProduceP50, Figure::ProduceP99, Figure::ProduceP999];
    for (figure, latency) in percentiles.into_iter().zip(measured.latency_ms) {
        figures.set(figure, latency);
    }
    figures.set(
        Figure::ClientCpuPerGigabyte,
        measured.client_cpu_seconds * 1e9 / bytes,
    );
    std::thread::sleep(super::SETTLE);
    meter.stop(Work { bytes, messages }, bytes, &mut figures)?;
    topic.delete()?;
    Ok(Driven { figures, trace: None })
}

fn start(load: Librdkafka, client: &Path, topic: &str, on: &On<'_>) -> Result<Child> {
    let scale = &on.plan.scale;
    let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
    let records = |bytes: u64| (bytes / load.record_bytes).to_string();
    let mut command = Command::new(client);
    command.args([on.bootstrap, topic, &load.record_bytes.to_string()]);
    command.args([seconds(scale.warmup), seconds(scale.time)]);
    command.args([
        records(scale.bytes_max / 2),
        "all".to_owned(),
        records(load.megabytes_per_second * 1_000_000),
    ]);
    command.args(&on.plan.client_properties);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .doing(client.display())
}

/// Waits for the warm-up, says when to go on, and reads the figures.
fn follow(child: &mut Child, on: &On<'_>) -> Result<(Measured, Meter)> {
    let mut stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).doing("the client's warm-up")?;
    if line.trim() != "warm" {
        return failed("the client ended in its warm-up");
    }
    let meter = Meter::start(on)?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    stdin.write_all(b"go\n").doing("starting the measured part")?;
    line.clear();
    stdout.read_line(&mut line).doing("the client's figures")?;
    let measured = serde_json::from_str(&line);
    let measured =
        measured.map_err(|error| Error::Failed(format!("the client printed {line:?}: {error}")))?;
    Ok((measured, meter))
}
