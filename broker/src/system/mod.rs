//! What the host allows this process, looked at once before any shard starts, and said in sentences: [`HostReport`]. It is
//! a node's view. The start prints what is not as it should be; `/health` repeats it.

pub mod cgroup;
pub mod cpu;
pub(crate) mod holder;
pub mod io_uring;
pub mod log_dir;
pub mod memory;
pub mod rlimit;

use std::fmt;
use std::path::PathBuf;

/// Bytes of each shard's direct-I/O arena when nothing forbids it. It is resident from the start where it is registered with
/// the kernel, so it is part of the idle footprint; 32 buffers of 1 MiB keep a device busy.
pub const IO_MEMORY_BYTES: u64 = 32 << 20;

/// The smallest arena worth having: below, buffers come from the allocator anyway.
pub const IO_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// What one look at the host has found.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Everything looked at, also what is fine, in the order of the checks.
    pub findings: Vec<Finding>,
    /// The CPUs for shards, one each.
    pub cpus: Vec<usize>,
    /// Whether shards are pinned to them.
    pub pinned: bool,
    /// Bytes of each shard's arena for direct I/O.
    pub io_memory_bytes: u64,
    /// The memory this process may use, bytes: of its control group or of the machine.
    pub memory_bytes: u64,
    /// File descriptors this process may have open.
    pub descriptors: u64,
    /// Those of them that nothing it inherited takes.
    pub descriptors_free: u64,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What: `io_uring`, `locked memory` and so on.
    pub subject: &'static str,
    /// Whether the broker can work with it.
    pub verdict: Verdict,
    /// What was found and what follows from it, one sentence.
    pub sentence: String,
    /// What to change; empty when there is nothing to do.
    pub advice: String,
}

/// How good a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The broker works, not at its best.
    Degraded,
    /// The broker does not start.
    Refuse,
}

impl HostReport {
    /// Raises what limits may be raised, looks at everything, and decides. `shards` is `penstock.shards` if it is set,
    /// `log_dirs` are the log directories.
    #[must_use]
    pub fn examine(shards: Option<usize>, log_dirs: &[PathBuf]) -> Self {
        let mut findings = Vec::new();
        let placement = cpu::place(&cpu::look(), shards);
        findings.push(placement.finding);
        let count = placement.cpus.len().max(1) as u64;

        let (descriptors, descriptors_free, finding) = rlimit::descriptors(count);
        findings.push(finding);

        let memory_bytes = memory::limit();
        let (wanted, finding) = memory::arena(memory_bytes, count);
        findings.push(finding);

        let locked = rlimit::locked_memory(wanted, count);
        findings.push(locked.finding);
        findings.push(io_uring::judge(&io_uring::probe()));
        findings.extend(log_dir::judge(log_dirs));
        Self {
            findings,
            cpus: placement.cpus,
            pinned: placement.pinned,
            io_memory_bytes: wanted,
            memory_bytes,
            descriptors,
            descriptors_free,
        }
    }

    /// The worst verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.findings
            .iter()
            .map(|f| f.verdict)
            .max()
            .unwrap_or(Verdict::Ok)
    }

    /// What is not as it should be, the worst first.
    #[must_use]
    pub fn troubles(&self) -> Vec<&Finding> {
        let mut troubles: Vec<_> = self
            .findings
            .iter()
            .filter(|f| f.verdict != Verdict::Ok)
            .collect();
        troubles.sort_by_key(|f| std::cmp::Reverse(f.verdict));
        troubles
    }
}

impl Finding {
    fn ok(subject: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            subject,
            verdict: Verdict::Ok,
            sentence: sentence.into(),
            advice: String::new(),
        }
    }

    fn degraded(subject: &'static str, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            subject,
            verdict: Verdict::Degraded,
            sentence: sentence.into(),
            advice: advice.into(),
        }
    }

    fn refuse(subject: &'static str, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            subject,
            verdict: Verdict::Refuse,
            sentence: sentence.into(),
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.sentence)?;
        if !self.advice.is_empty() {
            write!(f, " {}", self.advice)?;
        }
        Ok(())
    }
}

impl Verdict {
    /// The word used in `/health`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Refuse => "refuse",
        }
    }
}

/// `bytes` for a sentence: whole MiB where it is at least one, whole KiB below.
fn human(bytes: u64) -> String {
    match bytes {
        u64::MAX => "unlimited".to_owned(),
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_run_the_tests_and_says_so() {
        let report = HostReport::examine(None, &[PathBuf::from(".")]);
        assert_ne!(report.verdict(), Verdict::Refuse, "{:?}", report.troubles());
        assert!(!report.cpus.is_empty());
        assert!(report.memory_bytes > 64 << 20);
        for finding in &report.findings {
            assert!(finding.sentence.ends_with('.'), "{finding}");
            assert_eq!(
                finding.advice.is_empty(),
                finding.verdict == Verdict::Ok,
                "{finding}"
            );
        }
    }

    #[test]
    fn the_worst_trouble_comes_first() {
        let report = HostReport {
            findings: vec![
                Finding::ok("a", "Fine."),
                Finding::degraded("b", "So so.", "Do this."),
                Finding::refuse("c", "No.", "Do that."),
            ],
            cpus: vec![0],
            pinned: true,
            io_memory_bytes: 0,
            memory_bytes: 0,
            descriptors: 0,
            descriptors_free: 0,
        };
        assert_eq!(report.verdict(), Verdict::Refuse);
        let subjects: Vec<_> = report.troubles().iter().map(|f| f.subject).collect();
        assert_eq!(subjects, ["c", "b"]);
        assert_eq!(report.troubles()[0].to_string(), "c: No. Do that.");
    }
}
