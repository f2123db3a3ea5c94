//! Limits of the control group this process runs in, version 1 or 2: what a container is given. A limit may sit at any level
//! above; the smallest counts.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The smallest memory limit of this process's group and those above it, bytes.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    memory_limit_in(Path::new(MOUNT), &own_groups())
}

/// The smallest CPU quota of this process's group and those above it, in CPUs.
#[must_use]
pub fn cpu_quota() -> Option<f64> {
    cpu_quota_in(Path::new(MOUNT), &own_groups())
}

/// The directory of this process's group for `controller` (empty: version 2), or of the nearest one above it that is to be seen from
/// here.
#[must_use]
pub fn own_dir(controller: &str) -> Option<PathBuf> {
    levels(Path::new(MOUNT), &own_groups(), controller).find(|dir| dir.is_dir())
}

fn own_groups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

fn memory_limit_in(mount: &Path, own: &str) -> Option<u64> {
    let v2 = levels(mount, own, "").map(|dir| dir.join("memory.max"));
    let v1 = levels(mount, own, "memory").map(|dir| dir.join("memory.limit_in_bytes"));
    v2.chain(v1)
        .filter_map(|file| fs::read_to_string(file).ok())
        // Version 2 writes "max", version 1 a number near 2^63 for "no limit".
        .filter_map(|text| text.trim().parse().ok())
        .filter(|bytes| *bytes < 1 << 60)
        .min()
}

fn cpu_quota_in(mount: &Path, own: &str) -> Option<f64> {
    let v2 = levels(mount, own, "").filter_map(|dir| {
        let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        quota_of(quota, period)
    });
    let v1 = levels(mount, own, "cpu").filter_map(|dir| {
        let quota = fs::read_to_string(dir.join("cpu.cfs_quota_us")).ok()?;
        let period = fs::read_to_string(dir.join("cpu.cfs_period_us")).ok()?;
        quota_of(quota.trim(), period.trim())
    });
    v2.chain(v1).min_by(f64::total_cmp)
}

/// A quota in CPUs; version 1 writes -1 and version 2 "max" for none.
fn quota_of(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.parse().ok()?;
    let period: f64 = period.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// The directories of the process's group for `controller` (empty: version 2) and of all groups above it. In a container
/// the path often names the host's view and does not exist here; the mount's own root is then the container's group.
fn levels<'a>(mount: &'a Path, own: &str, controller: &'a str) -> impl Iterator<Item = PathBuf> + use<'a> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|c| c == controller)
        };
        ours.then(|| path.trim_start_matches('/').to_owned())
    });
    let root = mount.join(controller);
    let mut below: Option<PathBuf> = path.map(|path| root.join(path));
    std::iter::from_fn(move || {
        let dir = below.take()?;
        if dir != root {
            below = dir.parent().map(Path::to_owned);
        }
        Some(dir)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, file: &str, text: &str) {
        fs::create_dir_all(dir).expect("a temporary directory can be filled");
        fs::write(dir.join(file), text).expect("a temporary directory can be filled");
    }

    #[test]
    fn the_smallest_limit_of_all_levels_counts_in_version_2() {
        let mount = tempfile::tempdir().expect("a temporary directory");
        write(&mount.path().join("a"), "memory.max", "1073741824\n");
        write(&mount.path().join("a/b"), "memory.max", "max\n");
        write(&mount.path().join("a/b"), "cpu.max", "150000 100000\n");
        write(&mount.path().join("a"), "cpu.max", "max 100000\n");
        assert_eq!(memory_limit_in(mount.path(), "0::/a/b\n"), Some(1 << 30));
        assert_eq!(cpu_quota_in(mount.path(), "0::/a/b\n"), Some(1.5));
        assert_eq!(cpu_quota_in(mount.path(), "0::/a\n"), None);
    }

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let mount = tempfile::tempdir().expect("a temporary directory");
        write(
            &mount.path().join("memory/x"),
            "memory.limit_in_bytes",
            "536870912\n",
        );
        write(
            &mount.path().join("memory"),
            "memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        write(&mount.path().join("cpu/x"), "cpu.cfs_quota_us", "-1\n");
        write(&mount.path().join("cpu/x"), "cpu.cfs_period_us", "100000\n");
        let own = "4:memory:/x\n2:cpuacct,cpu:/x\n0::/\n";
        assert_eq!(memory_limit_in(mount.path(), own), Some(512 << 20));
        assert_eq!(cpu_quota_in(mount.path(), own), None);
        write(&mount.path().join("cpu/x"), "cpu.cfs_quota_us", "50000\n");
        assert_eq!(cpu_quota_in(mount.path(), own), Some(0.5));
    }

    #[test]
    fn a_container_finds_its_limit_at_the_root_of_its_mount() {
        let mount = tempfile::tempdir().expect("a temporary directory");
        write(mount.path(), "memory.max", "268435456\n");
        assert_eq!(
            memory_limit_in(mount.path(), "0::/host/path/of/the/container\n"),
            Some(256 << 20)
        );
        assert_eq!(memory_limit_in(mount.path(), ""), None);
    }
}
