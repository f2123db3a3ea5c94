//! What a process uses, from `/proc`: CPU seconds, resident memory and bytes written of a broker, ours or Kafka's, seen from outside.

use crate::error::{Doing, Result, failed};

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux that Rust runs on (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time since the start of the process, all threads, in seconds.
    pub cpu_seconds: f64,
    /// The part of it in the kernel.
    pub system_seconds: f64,
    /// Bytes that it had storage write, those in the page cache included; `None` where the system does not tell.
    pub written_bytes: Option<u64>,
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
    // Another user's process does not show it.
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    parse(&stat, &status, &io).map_or_else(|| failed(format!("{stat_path} is not as proc(5) says")), Ok)
}

/// The most resident memory counts anew from now. Whether the system does that.
pub fn forget_peak(pid: u32) -> bool {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
}

fn parse(stat: &str, status: &str, io: &str) -> Option<Usage> {
    // The command's name in parentheses may hold spaces and parentheses; the fields after its end do not.
    let fields: Vec<_> = stat
        .get(stat.rfind(')')? + 1..)?
        .split_ascii_whitespace()
        .collect();
    let seconds = |field: usize| Some(fields.get(field)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    let (user, system) = (seconds(11)?, seconds(12)?);
    let number = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let kib = |name: &str| number(status, name);
    Some(Usage {
        cpu_seconds: user + system,
        system_seconds: system,
        written_bytes: number(io, "write_bytes:"),
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
        let io = "rchar: 1\nread_bytes: 2\nwrite_bytes: 4096\ncancelled_write_bytes: 0\n";
        let usage = parse(stat, status, io).expect("well-formed");
        assert_eq!(
            usage,
            Usage {
                cpu_seconds: 4.0,
                system_seconds: 1.5,
                written_bytes: Some(4096),
                resident_bytes: 1 << 20,
                resident_peak_bytes: 2 << 20,
                threads: 3
            }
        );
    }

    #[test]
    fn a_peak_that_is_forgotten_is_the_memory_of_now() {
        let pid = std::process::id();
        drop(std::hint::black_box(vec![1u8; 200 << 20]));
        let before = usage(pid).expect("this process is running");
        if !forget_peak(pid) {
            return eprintln!("SKIPPED: this system does not reset VmHWM");
        }
        let after = usage(pid).expect("this process is running");
        assert!(
            after.resident_peak_bytes + (100 << 20) < before.resident_peak_bytes,
            "{before:?} {after:?}"
        );
    }
}
