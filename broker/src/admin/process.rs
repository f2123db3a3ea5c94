//! What the kernel counts for this process, from `/proc/self` (proc(5)).

use std::fs;

use super::exposition::{Exposition, Kind};

/// Writes the `process_*` families that Prometheus clients have in common, and the bytes this process moved.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(super) fn write(text: &mut Exposition) {
    // The kernel counts in USER_HZ, which is 100 in its interface whatever it ticks at.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = Stat::read();
    if let Some(stat) = stat {
        let cpu = stat.cpu_ticks as f64 / TICKS_PER_SECOND;
        text.single(
            "process_cpu_seconds_total",
            Kind::Counter,
            "CPU time of this process.",
            cpu,
        );
        text.single(
            "process_threads",
            Kind::Gauge,
            "Threads of this process.",
            stat.threads,
        );
        if let Some(boot) = boot_seconds() {
            let started = boot as f64 + stat.start_ticks as f64 / TICKS_PER_SECOND;
            let help = "Start of this process, seconds since 1970.";
            text.single("process_start_time_seconds", Kind::Gauge, help, started);
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(kib) = number_after(&status, "VmRSS:") {
        let help = "Memory of this process that is in RAM.";
        text.single("process_resident_memory_bytes", Kind::Gauge, help, kib * 1024);
    }
    if let Some(kib) = number_after(&status, "VmHWM:") {
        let help = "The most memory of this process that ever was in RAM.";
        text.single(
            "process_resident_memory_peak_bytes",
            Kind::Gauge,
            help,
            kib * 1024,
        );
    }
    if let Some(kib) = number_after(&status, "VmSize:") {
        let help = "Address space of this process.";
        text.single("process_virtual_memory_bytes", Kind::Gauge, help, kib * 1024);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.single(
            "process_open_fds",
            Kind::Gauge,
            "Open file descriptors.",
            open.count(),
        );
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(most) = number_after(&limits, "Max open files") {
        text.single(
            "process_max_fds",
            Kind::Gauge,
            "Limit of open file descriptors.",
            most,
        );
    }
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    for (name, key, help) in [
        (
            "kafka_server_kafkaserver_linux_disk_read_bytes",
            "\nread_bytes:",
            "Bytes this process had read from storage.",
        ),
        (
            "kafka_server_kafkaserver_linux_disk_write_bytes",
            "\nwrite_bytes:",
            "Bytes this process had written to storage.",
        ),
    ] {
        if let Some(bytes) = number_after(&io, key) {
            text.single(name, Kind::Gauge, help, bytes);
        }
    }
}

/// Fields of `/proc/self/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The name in parentheses may hold anything; the fields after it are counted from 3.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
        })
    }
}

fn boot_seconds() -> Option<u64> {
    number_after(&fs::read_to_string("/proc/stat").ok()?, "\nbtime")
}

/// The first number after `key`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 12345 1000 200 18446744073709551615";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                cpu_ticks: 200,
                threads: 9,
                start_ticks: 12345
            })
        );
        assert_eq!(Stat::parse("7 (a"), None);
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let mut text = Exposition::default();
        write(&mut text);
        let text = text.finish();
        for name in [
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_cpu_seconds_total",
        ] {
            let line = text
                .lines()
                .find(|l| l.starts_with(&format!("{name} ")))
                .expect(name);
            let value: f64 = line
                .rsplit(' ')
                .next()
                .and_then(|v| v.parse().ok())
                .expect("a number");
            assert!(value >= 0.0, "{line}");
        }
    }
}
