//! One workload on one broker that runs: who drives it, and its figures.

mod generator;
mod java;
mod librdkafka;
mod rest;
mod topic;

use std::path::PathBuf;
use std::time::Duration;

use super::figure::{Cpu, Figure, Figures, Work};
use super::plan::Plan;
use super::workload::{Task, Workload};
use crate::error::{Error, Result};
use crate::kafka;
use crate::resources::{Usage, usage};

/// Work that a broker does after the last answer (writing behind, flushing) counts as long as this, where the client does not say when
/// its measured part ends.
const SETTLE: Duration = Duration::from_secs(1);

/// A broker that runs.
pub(super) struct On<'a> {
    pub(super) bootstrap: &'a str,
    /// Its process, if it is on this host.
    pub(super) pid: Option<u32>,
    pub(super) plan: &'a Plan,
    pub(super) tools: &'a Tools,
}

/// What clients need on this host, or why they are not there.
#[derive(Debug)]
pub(super) struct Tools {
    librdkafka: Option<PathBuf>,
    pub(super) java: Option<&'static str>,
}

/// What came of a workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Driven {
    pub(super) figures: Figures,
    pub(super) trace: Option<Trace>,
}

/// What plots show of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    /// Latency by percentile, to the consumer where there is one.
    pub(super) curve: Vec<(f64, f64)>,
    /// MB/s over time, of consumers where there are some.
    pub(super) throughput: Vec<(f64, f64)>,
    /// The 99th percentile over time.
    pub(super) p99: Vec<(f64, f64)>,
}

impl Tools {
    /// Looks for what the workloads need.
    ///
    /// # Errors
    /// Our client does not compile.
    pub(super) fn find(plan: &Plan) -> Result<Self> {
        let has = |wanted: fn(&Task) -> bool| plan.workloads.iter().any(|workload| wanted(&workload.task));
        let librdkafka = match has(|task| matches!(task, Task::Librdkafka(_))) {
            true => librdkafka::build_client(&plan.dir.join("client"))?,
            false => None,
        };
        Ok(Self {
            librdkafka,
            java: kafka::missing(),
        })
    }

    /// Versions of clients that are not ours.
    pub(super) fn versions(&self) -> Vec<String> {
        let librdkafka = self.librdkafka.as_deref().and_then(librdkafka::version);
        let java = self
            .java
            .is_none()
            .then(|| "Apache Kafka's Java client 4.3.1".to_owned());
        librdkafka
            .map(|version| format!("librdkafka {version}"))
            .into_iter()
            .chain(java)
            .collect()
    }

    /// Why a workload cannot be driven here, if so.
    pub(super) fn missing(&self, workload: &Workload) -> Option<String> {
        match workload.task {
            Task::Librdkafka(_) if self.librdkafka.is_none() => Some(
                "a C compiler or librdkafka's header is missing (Debian packages gcc and librdkafka-dev)"
                    .into(),
            ),
            Task::JavaProducer | Task::JavaConsumer => self.java.map(str::to_owned),
            _ => None,
        }
    }
}

/// Has a workload driven. Those that start brokers are for `run`.
///
/// # Errors
/// A client fails, or a broker refuses.
pub(super) fn drive(workload: &Workload, on: &On<'_>) -> Result<Driven> {
    match workload.task {
        Task::Generator(flags) => generator::drive(flags, on),
        Task::Backlog(flags) => generator::catch_up(flags, on),
        Task::Librdkafka(load) => {
            let missing = || Error::Failed("our program on librdkafka was not built".into());
            librdkafka::drive(load, on.tools.librdkafka.as_deref().ok_or_else(missing)?, on)
        }
        Task::JavaProducer => java::produce(on),
        Task::JavaConsumer => java::consume(on),
        Task::Idle(partitions) => rest::idle(partitions, on),
        Task::Start | Task::Peak => Ok(Driven::default()),
    }
}

/// Loads a broker that has just begun, so that a JVM has compiled what workloads of latency use.
///
/// # Errors
/// As [`drive`].
pub(super) fn warm_up(on: &On<'_>) -> Result<()> {
    generator::drive(
        "--rate max --linger 0ms --producers 2 --message-size 1KiB --batch-size 4KiB",
        on,
    )
    .map(|_| ())
}

/// What a broker used between two readings.
struct Meter(Option<(u32, Usage)>);

impl Meter {
    fn start(on: &On<'_>) -> Result<Self> {
        Ok(Self(match on.pid {
            Some(pid) => Some((pid, usage(pid)?)),
            None => None,
        }))
    }

    /// Notes what was used for what was produced and consumed, and written for what was produced.
    fn stop(&self, work: Work, produced_bytes: f64, figures: &mut Figures) -> Result<()> {
        let Some((pid, before)) = self.0 else {
            return Ok(());
        };
        let after = usage(pid)?;
        let cpu = Cpu {
            all: after.cpu_seconds - before.cpu_seconds,
            system: after.system_seconds - before.system_seconds,
        };
        figures.set_cpu(cpu, work);
        if let Some((after, before)) = after.written_bytes.zip(before.written_bytes)
            && produced_bytes > 0.0
        {
            let written = after.saturating_sub(before) as f64;
            figures.set(Figure::WrittenPerByte, written / produced_bytes);
        }
        Ok(())
    }
}
