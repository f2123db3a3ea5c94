//! What a process uses, from `/proc`: CPU seconds and resident memory of a broker, ours or Kafka's, seen from outside.

use crate::error::{Doing, Result, failed};

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux that Rust runs on (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time since the start of the process, all threads, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory now, in bytes.
    pub resident_bytes: u64,
    /// The most resident memory so far, in bytes.
    pub resident_peak_bytes: u64,
    /// Threads now.
    pub threads: u64,
}

/// Reads what process `pid` uses.
///
/// # Errors
/// The process is gone, or `/proc` is not readable.
pub fn usage(pid: u32) -> Result<Usage> {
    let stat_path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&stat_path).doing(&stat_path)?;
    let status_path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&status_path).doing(&status_path)?;
    parse(&stat, &status).map_or_else(|| failed(format!("{stat_path} is not as proc(5) says")), Ok)
}

fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The command's name in parentheses may hold spaces and parentheses; the fields after its end do not.
    let fields: Vec<_> = stat
        .get(stat.rfind(')')? + 1..)?
        .split_ascii_whitespace()
        .collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some(Usage {
        cpu_seconds: ticks / TICKS_PER_SECOND,
        resident_bytes: kib("VmRSS:")? * 1024,
        resident_peak_bytes: kib("VmHWM:")? * 1024,
        threads: kib("Threads:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_process() {
        let usage = usage(std::process::id()).expect("this process is running");
        assert!(usage.resident_bytes > 500_000, "{usage:?}");
        assert!(usage.resident_peak_bytes >= usage.resident_bytes, "{usage:?}");
        assert!(usage.threads >= 1, "{usage:?}");
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 150 0 0 20 0 1 0 5 6 7";
        let status = "Name:\ta\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t3\n";
        let usage = parse(stat, status).expect("well-formed");
        assert_eq!(
            usage,
            Usage {
                cpu_seconds: 4.0,
                resident_bytes: 1 << 20,
                resident_peak_bytes: 2 << 20,
                threads: 3
            }
        );
    }
}
