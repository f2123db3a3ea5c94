//! Which CPUs the shards run on: the allowed ones (affinity mask, cpuset), fewer under a CPU quota.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::{Finding, cgroup};

const SUBJECT: &str = "CPUs";

/// What the host says about CPUs.
#[derive(Clone, PartialEq, Debug)]
pub struct CpuFacts {
    /// CPUs this process may run on, rising.
    pub allowed: Vec<usize>,
    /// The quota of its control group, in CPUs.
    pub quota: Option<f64>,
}

/// Where the shards go.
#[derive(Clone, PartialEq, Debug)]
pub struct Placement {
    /// One CPU per shard.
    pub cpus: Vec<usize>,
    /// Whether each shard stays on its CPU.
    pub pinned: bool,
    /// What to say about it.
    pub finding: Finding,
}

/// Asks the kernel.
#[must_use]
pub fn look() -> CpuFacts {
    let allowed = match sched_getaffinity(Pid::from_raw(0)) {
        Ok(set) => (0..CpuSet::count())
            .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
            .collect(),
        // More CPUs than the mask of libc holds (1024): all of the first ones, then.
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    };
    CpuFacts {
        allowed,
        quota: cgroup::cpu_quota(),
    }
}

/// Decides: as many shards as `shards` says, else one per allowed CPU, but no more than a quota pays for. Under such a quota
/// shards are not pinned: every container of the host would otherwise take the same first CPUs.
#[must_use]
pub fn place(facts: &CpuFacts, shards: Option<usize>) -> Placement {
    let allowed = facts.allowed.len();
    let paid = facts
        .quota
        .map(|quota| (quota.ceil() as usize).max(1))
        .filter(|paid| *paid < allowed);
    let count = shards.unwrap_or_else(|| paid.unwrap_or(allowed)).max(1);
    let cpus: Vec<_> = facts.allowed.iter().copied().cycle().take(count).collect();
    let finding = match (paid, facts.quota) {
        _ if count > allowed => Finding::degraded(
            SUBJECT,
            format!("{count} shards share {allowed} CPUs and wait for each other."),
            format!("Set penstock.shards to at most {allowed}, or allow the process more CPUs."),
        ),
        (Some(_), Some(quota)) => Finding::degraded(
            SUBJECT,
            format!(
                "The control group pays for {quota:.1} of {allowed} allowed CPUs: {count} {} run unpinned and pause when the quota is used up.",
                plural(count, "shard")
            ),
            "Give the container whole CPUs by a cpuset, or no quota.",
        ),
        _ => Finding::ok(
            SUBJECT,
            format!("{count} {} on CPUs {}.", plural(count, "shard"), ranges(&cpus)),
        ),
    };
    Placement {
        cpus,
        pinned: paid.is_none() && count <= allowed,
        finding,
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

/// Rising CPU numbers as in a cpuset: `0-3,8`.
fn ranges(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let runs: Vec<_> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    runs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Verdict;

    fn facts(allowed: &[usize], quota: Option<f64>) -> CpuFacts {
        CpuFacts {
            allowed: allowed.to_vec(),
            quota,
        }
    }

    #[test]
    fn every_allowed_cpu_gets_a_pinned_shard() {
        let placement = place(&facts(&[1, 2, 3, 8], None), None);
        assert_eq!(placement.cpus, [1, 2, 3, 8]);
        assert!(placement.pinned);
        assert_eq!(placement.finding.sentence, "4 shards on CPUs 1-3,8.");
        // A quota that covers them changes nothing.
        assert_eq!(place(&facts(&[1, 2, 3, 8], Some(4.0)), None).cpus.len(), 4);
    }

    #[test]
    fn a_quota_below_the_cpus_means_fewer_shards_that_may_move() {
        let placement = place(&facts(&[0, 1, 2, 3], Some(1.5)), None);
        assert_eq!(placement.cpus.len(), 2);
        assert!(!placement.pinned);
        assert_eq!(placement.finding.verdict, Verdict::Degraded);
        assert!(
            placement.finding.sentence.contains("1.5 of 4 allowed CPUs"),
            "{}",
            placement.finding
        );
    }

    #[test]
    fn a_configured_count_is_kept_and_too_many_is_said() {
        assert_eq!(place(&facts(&[0, 1, 2, 3], None), Some(2)).cpus, [0, 1]);
        let crowded = place(&facts(&[4, 5], None), Some(5));
        assert_eq!(crowded.cpus, [4, 5, 4, 5, 4]);
        assert!(!crowded.pinned);
        assert_eq!(crowded.finding.verdict, Verdict::Degraded);
    }
}
