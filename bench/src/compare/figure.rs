//! The figures of a run, each with its name in JSON and how tables show it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::load::LatencySummary;

/// A figure, in the order of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Acknowledged.
    ProducedMegabytes,
    /// Acknowledged.
    ProducedMessages,
    /// Of all subscriptions.
    ConsumedMegabytes,
    /// Of all subscriptions.
    ConsumedMessages,
    /// What consumers of a backlog got.
    CatchUpMegabytes,
    /// From due, or the client's call, to acknowledged.
    ProduceP50,
    /// As the 50th.
    ProduceP99,
    /// As the 50th.
    ProduceP999,
    /// From due to a consumer.
    EndToEndP50,
    /// As the 50th.
    EndToEndP99,
    /// As the 50th.
    EndToEndP999,
    /// While others catch up.
    BesideP99,
    /// The same divided by that without them.
    BesideShare,
    /// Of the broker, for bytes of keys and values produced and consumed.
    CpuPerGigabyte,
    /// Its part outside the kernel.
    UserPerGigabyte,
    /// Its part in the kernel.
    SystemPerGigabyte,
    /// Of the broker, for messages produced and consumed.
    CpuPerMillion,
    /// Its part outside the kernel.
    UserPerMillion,
    /// Its part in the kernel.
    SystemPerMillion,
    /// Of the broker.
    Cores,
    /// The broker without any client, percent of a core.
    IdleShare,
    /// The most resident memory of the broker.
    PeakResident,
    /// How much the page cache of the host grew at most since the broker began.
    PageCache,
    /// The most memory of the broker's control group since it began, pages of files included.
    PeakGroup,
    /// Bytes that the broker had storage write, for each byte produced.
    WrittenPerByte,
    /// What the device wrote in the whole workload.
    DeviceMegabytes,
    /// Of the client, which takes it from the broker on a small host.
    ClientCpuPerGigabyte,
    /// From the command until a client is answered.
    ReadyMilliseconds,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::ProducedMegabytes,
        Self::ProducedMessages,
        Self::ConsumedMegabytes,
        Self::ConsumedMessages,
        Self::CatchUpMegabytes,
        Self::ProduceP50,
        Self::ProduceP99,
        Self::ProduceP999,
        Self::EndToEndP50,
        Self::EndToEndP99,
        Self::EndToEndP999,
        Self::BesideP99,
        Self::BesideShare,
        Self::CpuPerGigabyte,
        Self::UserPerGigabyte,
        Self::SystemPerGigabyte,
        Self::CpuPerMillion,
        Self::UserPerMillion,
        Self::SystemPerMillion,
        Self::Cores,
        Self::IdleShare,
        Self::PeakResident,
        Self::PageCache,
        Self::PeakGroup,
        Self::WrittenPerByte,
        Self::DeviceMegabytes,
        Self::ClientCpuPerGigabyte,
        Self::ReadyMilliseconds,
    ];

    /// Name in JSON, heading and decimals.
    const fn shown(self) -> (&'static str, &'static str, usize) {
        match self {
            Self::ProducedMegabytes => ("produced_mb_per_second", "produced MB/s", 1),
            Self::ProducedMessages => ("produced_per_second", "produced msg/s", 0),
            Self::ConsumedMegabytes => ("consumed_mb_per_second", "consumed MB/s", 1),
            Self::ConsumedMessages => ("consumed_per_second", "consumed msg/s", 0),
            Self::CatchUpMegabytes => ("catch_up_mb_per_second", "catch-up MB/s", 1),
            Self::ProduceP50 => ("produce_p50_ms", "produce p50 ms", 2),
            Self::ProduceP99 => ("produce_p99_ms", "produce p99 ms", 2),
            Self::ProduceP999 => ("produce_p99_9_ms", "produce p99.9 ms", 2),
            Self::EndToEndP50 => ("end_to_end_p50_ms", "end-to-end p50 ms", 2),
            Self::EndToEndP99 => ("end_to_end_p99_ms", "end-to-end p99 ms", 2),
            Self::EndToEndP999 => ("end_to_end_p99_9_ms", "end-to-end p99.9 ms", 2),
            Self::BesideP99 => ("beside_catch_up_p99_ms", "produce p99 ms beside catch-up", 2),
            Self::BesideShare => ("beside_catch_up_share", "the same ÷ without catch-up", 2),
            Self::CpuPerGigabyte => ("cpu_seconds_per_gb", "broker CPU s/GB", 3),
            Self::UserPerGigabyte => ("user_seconds_per_gb", "… user", 3),
            Self::SystemPerGigabyte => ("system_seconds_per_gb", "… system", 3),
            Self::CpuPerMillion => ("cpu_seconds_per_million", "broker CPU s/million messages", 3),
            Self::UserPerMillion => ("user_seconds_per_million", "… user", 3),
            Self::SystemPerMillion => ("system_seconds_per_million", "… system", 3),
            Self::Cores => ("cores", "broker cores", 3),
            Self::IdleShare => ("idle_cpu_percent", "broker CPU idle, % of a core", 2),
            Self::PeakResident => ("peak_resident_mb", "peak RSS MB", 0),
            Self::PageCache => ("page_cache_mb", "page cache MB more", 0),
            Self::PeakGroup => ("peak_group_mb", "peak memory MB, files included", 0),
            Self::WrittenPerByte => ("written_bytes_per_byte", "broker wrote bytes/byte", 2),
            Self::DeviceMegabytes => ("device_written_mb", "device wrote MB", 0),
            Self::ClientCpuPerGigabyte => ("client_cpu_seconds_per_gb", "client CPU s/GB", 3),
            Self::ReadyMilliseconds => ("ready_ms", "answers after ms", 0),
        }
    }

    /// Its name in JSON.
    pub const fn key(self) -> &'static str {
        self.shown().0
    }

    /// How tables call it.
    pub const fn heading(self) -> &'static str {
        self.shown().1
    }

    /// Decimals that tables show.
    pub const fn decimals(self) -> usize {
        self.shown().2
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

/// What a line about a run shows.
const MAIN: [Figure; 11] = [
    Figure::ProducedMegabytes,
    Figure::ConsumedMegabytes,
    Figure::CatchUpMegabytes,
    Figure::ProduceP50,
    Figure::ProduceP99,
    Figure::EndToEndP99,
    Figure::BesideShare,
    Figure::CpuPerGigabyte,
    Figure::IdleShare,
    Figure::PeakResident,
    Figure::ReadyMilliseconds,
];

/// Figures of a run; what was not measured is not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<Figure, f64>);

impl Figures {
    /// Notes a figure. What is no number was not measured.
    pub fn set(&mut self, figure: Figure, value: f64) {
        if value.is_finite() {
            self.0.insert(figure, value);
        }
    }

    /// A figure that was measured.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        self.0.get(&figure).copied()
    }

    /// Notes all figures of others.
    pub(super) fn add(&mut self, others: &Self) {
        self.0.extend(&others.0);
    }

    /// Those of `figures` that are higher in a run are noted.
    pub(super) fn raise(&mut self, run: &Self, figures: &[Figure]) {
        for figure in figures {
            if let Some(value) = run.get(*figure) {
                let most = self.get(*figure).map_or(value, |known| known.max(value));
                self.set(*figure, most);
            }
        }
    }

    /// The main ones in a line.
    pub(super) fn line(&self) -> String {
        let shown = MAIN.iter().filter_map(|figure| {
            let value = self.get(*figure)?;
            Some(format!("{} {value:.*}", figure.heading(), figure.decimals()))
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// Notes percentiles as three figures, if there are any latencies.
    pub(super) fn set_latency(&mut self, figures: [Figure; 3], latency: &LatencySummary) {
        if latency.count > 0 {
            let values = [latency.p50_ms, latency.p99_ms, latency.p99_9_ms];
            for (figure, value) in figures.into_iter().zip(values) {
                self.set(figure, value);
            }
        }
    }

    /// Notes the CPU seconds of a broker, all and those in the kernel, for so many bytes and messages.
    pub(super) fn set_cpu(&mut self, cpu: Cpu, work: Work) {
        let gigabytes = work.bytes / 1e9;
        let user = cpu.all - cpu.system;
        self.set(Figure::CpuPerGigabyte, cpu.all / gigabytes);
        self.set(Figure::UserPerGigabyte, user / gigabytes);
        self.set(Figure::SystemPerGigabyte, cpu.system / gigabytes);
        self.set(Figure::CpuPerMillion, cpu.all / work.messages * 1e6);
        self.set(Figure::UserPerMillion, user / work.messages * 1e6);
        self.set(Figure::SystemPerMillion, cpu.system / work.messages * 1e6);
    }
}

/// CPU seconds of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    pub(super) all: f64,
    pub(super) system: f64,
}

/// What was produced and consumed for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) bytes: f64,
    pub(super) messages: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_in_the_list_once_in_order_with_a_name_of_its_own() {
        assert!(Figure::ALL.is_sorted_by(|a, b| a < b));
        let names: std::collections::BTreeSet<_> = Figure::ALL.iter().map(|figure| figure.key()).collect();
        assert_eq!(names.len(), Figure::ALL.len());
    }

    #[test]
    fn cpu_is_for_bytes_and_messages_and_nothing_is_no_figure() {
        let mut figures = Figures::default();
        let cpu = Cpu {
            all: 3.0,
            system: 1.0,
        };
        figures.set_cpu(
            cpu,
            Work {
                bytes: 2e9,
                messages: 0.0,
            },
        );
        let text = serde_json::to_string(&figures).expect("it has string keys only");
        assert_eq!(
            text,
            r#"{"cpu_seconds_per_gb":1.5,"user_seconds_per_gb":1.0,"system_seconds_per_gb":0.5}"#
        );
    }
}
