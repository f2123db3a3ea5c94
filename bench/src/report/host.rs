//! What a reader must know of the host to judge figures, without its name or any path.

use std::path::Path;

/// Processors, memory, kernel and the file system below `dir`, in a line. What `/proc` does not tell is left out.
pub fn describe(dir: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut parts = vec![match value_of(&read("/proc/cpuinfo"), "model name") {
        Some(model) => format!("{cores} CPUs ({model})"),
        None => format!("{cores} CPUs"),
    }];
    if let Some(memory) = value_of(&read("/proc/meminfo"), "MemTotal") {
        let kib = memory.split(' ').next().and_then(|kib| kib.parse::<f64>().ok());
        parts.extend(kib.map(|kib| format!("{:.1} GB of memory", kib * 1024.0 / 1e9)));
    }
    parts.push(format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()));
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    parts.extend(file_system(&read("/proc/mounts"), &absolute).map(|kind| format!("data on {kind}")));
    parts.join(", ")
}

/// The value of the first line `name: value`.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// The type of the mount that holds `path`: of those above it the deepest, of equal ones the last, which hides the others.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    mounts
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_the_path() {
        let mounts =
            "a / ext4 rw 0 0\nb /mnt tmpfs rw 0 0\nc /mnt/fast xfs rw 0 0\nd /mnt/fast btrfs rw 0 0\n";
        let kind = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(kind("/mnt/fast/x"), Some("btrfs"));
        assert_eq!(kind("/mnt/faster"), Some("tmpfs"));
        assert_eq!(kind("/home"), Some("ext4"));
    }

    #[test]
    fn this_host_has_processors_memory_and_a_kernel() {
        let words = describe(Path::new("."));
        assert!(words.contains(" CPUs") && words.contains("Linux "), "{words}");
        assert!(
            words.contains(" GB of memory") && words.contains("data on "),
            "{words}"
        );
    }
}
