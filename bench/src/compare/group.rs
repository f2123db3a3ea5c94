//! A memory control group for each broker that is started, so that its peak is known with what it had the kernel keep of files: a broker
//! that leaves caching to the page cache uses that memory as much as one that has a cache of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use broker::system::cgroup;

/// A control group of version 1 or 2, which goes when it is dropped.
#[derive(Debug)]
pub(super) struct Group {
    dir: PathBuf,
    /// Where a process goes back to.
    home: PathBuf,
    /// The file with the most bytes so far.
    peak: &'static str,
}

/// Files of both versions that have the most bytes so far.
const PEAK_V1: &str = "memory.max_usage_in_bytes";
const PEAK_V2: &str = "memory.peak";
/// Writing a process there moves it into the group.
const PROCESSES: &str = "cgroup.procs";

impl Group {
    /// A new group; none where this process may not make one, or the kernel does not count.
    pub(super) fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-bench-{}-{number}", std::process::id());
        let v1 = || {
            let home = cgroup::own_dir("memory")?;
            Self::made(home.join(&name), home, PEAK_V1)
        };
        let v2 = || {
            let home = cgroup::own_dir("")?;
            // A group with processes has no children that count.
            Self::made(home.parent()?.join(&name), home, PEAK_V2)
        };
        v1().or_else(v2)
    }

    fn made(dir: PathBuf, home: PathBuf, peak: &'static str) -> Option<Self> {
        if !home.join(peak).exists() {
            return None;
        }
        std::fs::create_dir(&dir).ok()?;
        let group = Self { dir, home, peak };
        group.peak_bytes().is_some().then_some(group)
    }

    /// What `work` starts begins in the group: a process is born where its parent is. This one is there only meanwhile.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_in = go(&self.dir);
        let done = work();
        if is_in {
            go(&self.home);
        }
        done
    }

    /// The most bytes that the processes of the group had at a time, pages of files included.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.dir.join(self.peak)).ok()?;
        text.trim().parse().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // One with processes in it stays, as nobody's harm: the broker was not stopped.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn go(dir: &Path) -> bool {
    std::fs::write(dir.join(PROCESSES), std::process::id().to_string()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_process_writes_to_files_is_in_its_peak() {
        let Some(group) = Group::new() else {
            return eprintln!("SKIPPED: no memory control groups can be made here");
        };
        let before = group.peak_bytes().expect("it was read once");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=1M", "count=48"]);
        command.arg(format!("of={}", dir.path().join("file").display()));
        let status = group.during(|| command.output()).expect("dd runs").status;
        assert!(status.success());
        let after = group.peak_bytes().expect("it was read once");
        assert!(after >= before + (48 << 20), "{before} {after}");
        let place = group.dir.clone();
        drop(group);
        assert!(!place.exists(), "{}", place.display());
    }
}
