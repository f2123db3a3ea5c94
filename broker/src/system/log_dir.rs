//! What the file systems of the log directories are good for: whether they outlive the host's memory and take direct I/O.
//! Nothing is written; a directory that does not exist yet is judged by the one it will be made in.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};

use super::Finding;

const SUBJECT: &str = "log directory";
const ADVICE: &str = "Put log.dirs on ext4 or XFS on a disk of its own.";

/// `RAMFS_MAGIC` of linux/magic.h.
const RAMFS: FsType = FsType(0x8584_58f6);

/// What was found out about a directory's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileSystem {
    kind: FsType,
    /// Whether a file can be opened with O_DIRECT; none where that cannot be tried without leaving a file behind.
    direct: Option<bool>,
}

/// A finding for each log directory; none for one that cannot be looked at, since opening it will say why.
#[must_use]
pub fn judge(dirs: &[PathBuf]) -> Vec<Finding> {
    let looked_at = dirs.iter().filter_map(|dir| Some((dir, look(dir)?)));
    looked_at.map(|(dir, found)| sentence(dir, found)).collect()
}

fn look(dir: &Path) -> Option<FileSystem> {
    let absolute = std::path::absolute(dir).ok()?;
    let existing = absolute.ancestors().find(|dir| dir.is_dir())?;
    let kind = statfs(existing).ok()?.filesystem_type();
    let opens = |flags| {
        // A file without a name: nothing is left of it.
        open(
            existing,
            OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC | flags,
            Mode::S_IRUSR,
        )
    };
    let direct = match opens(OFlag::O_DIRECT) {
        Ok(_) => Some(true),
        Err(Errno::EINVAL) => opens(OFlag::empty()).is_ok().then_some(false),
        Err(_) => None,
    };
    Some(FileSystem { kind, direct })
}

fn sentence(dir: &Path, found: FileSystem) -> Finding {
    let dir = dir.display();
    let in_memory = [TMPFS_MAGIC, RAMFS].contains(&found.kind);
    let through_cache = "its file system has no direct I/O, reads and writes go through the page cache";
    match (in_memory, found.direct == Some(false)) {
        (true, false) => Finding::degraded(
            SUBJECT,
            format!("{dir} lies in memory (tmpfs): acknowledged records are lost when the host restarts."),
            ADVICE,
        ),
        (true, true) => Finding::degraded(
            SUBJECT,
            format!(
                "{dir} lies in memory (tmpfs): acknowledged records are lost when the host restarts; {through_cache}."
            ),
            ADVICE,
        ),
        (false, true) => Finding::degraded(SUBJECT, format!("{dir}: {through_cache}."), ADVICE),
        (false, false) if found.kind == OVERLAYFS_SUPER_MAGIC => Finding::ok(
            SUBJECT,
            format!("{dir} lies on overlayfs: in a container it goes when the container goes."),
        ),
        (false, false) => Finding::ok(SUBJECT, format!("{dir} takes direct I/O.")),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::statfs::EXT4_SUPER_MAGIC;

    use super::*;
    use crate::system::Verdict;

    fn verdict(kind: FsType, direct: Option<bool>) -> (Verdict, String) {
        let finding = sentence(Path::new("/srv/data"), FileSystem { kind, direct });
        (finding.verdict, finding.to_string())
    }

    #[test]
    fn memory_and_missing_direct_io_are_told() {
        for (kind, direct, is_ok, word) in [
            (EXT4_SUPER_MAGIC, Some(true), true, "takes direct I/O"),
            (EXT4_SUPER_MAGIC, None, true, "takes direct I/O"),
            (EXT4_SUPER_MAGIC, Some(false), false, "page cache"),
            (OVERLAYFS_SUPER_MAGIC, Some(true), true, "container"),
            (OVERLAYFS_SUPER_MAGIC, Some(false), false, "page cache"),
            (TMPFS_MAGIC, Some(true), false, "lost when the host restarts."),
            (
                RAMFS,
                Some(false),
                false,
                "restarts; its file system has no direct I/O",
            ),
        ] {
            let (verdict, text) = verdict(kind, direct);
            assert_eq!(verdict == Verdict::Ok, is_ok, "{text}");
            assert!(text.contains(word), "{text}");
            assert!(text.starts_with("log directory: /srv/data"), "{text}");
        }
    }

    #[test]
    fn a_directory_that_is_to_be_made_is_judged_by_where() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let here = look(dir.path()).expect("the temporary folder can be looked at");
        assert_eq!(look(&dir.path().join("not/yet")), Some(here));
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("the folder").count(),
            0,
            "nothing is left behind"
        );
        let shm = Path::new("/dev/shm");
        if shm.is_dir() {
            assert_eq!(look(shm).map(|found| found.kind), Some(TMPFS_MAGIC));
        }
    }
}
