//! One process per log directory: exclusive locks on its `.lock` file. Two kinds, since they do not see each other: `flock`,
//! which ends with the process however it ends, and the one that Java takes (`fcntl`), so that Apache Kafka and we keep out of
//! each other's directories. Offline tools take the same.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use storage::layout::LOCK_FILE;

use crate::exit::{Failure, Status};
use crate::system::holder;

/// The held lock; given back when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: Option<File>,
}

/// Why a lock was not had.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another broker has it.
    Taken(Failure),
    /// The directory is not fit for one.
    Broken(Failure),
}

impl Refused {
    /// Whether another broker has it.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Taken(_))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Taken(failure) | Refused::Broken(failure) => failure,
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Taken(failure) | Self::Broken(failure) => failure.fmt(f),
        }
    }
}

impl DirectoryLock {
    /// Keeps the lock until the process ends: what still runs when the main thread returns may still write.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }

    /// Takes the lock of `dir` for a broker.
    ///
    /// # Errors
    /// When another process has it, or the file cannot be opened.
    pub(super) fn take(dir: &Path) -> Result<Self, Refused> {
        let path = dir.join(LOCK_FILE);
        let refuse = |what: String| Refused::Broken(Failure::new(Status::Config, what));
        let taken = |what: String| Refused::Taken(Failure::new(Status::Config, what));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| {
                refuse(format!(
                    "{} cannot be opened: {e}; check the directory's permissions",
                    path.display()
                ))
            })?;
        match lock(&file, true) {
            Ok(()) => Ok(Self { _file: Some(file) }),
            Err(Taken::By(holder)) => Err(taken(format!(
                "another broker uses the log directory {}{}; stop it, or give this one directory and ports of its own: log.dirs, \
                 listeners, penstock.admin.listener",
                dir.display(),
                holder.map_or_else(String::new, |holder| format!(" ({holder})"))
            ))),
            Err(Taken::Failed(e)) => Err(refuse(format!("{} cannot be locked: {e}", path.display()))),
        }
    }

    /// Takes the lock of `dir` for an offline tool. Where nothing may be written (a read-only file system, somebody else's
    /// directory) the lock file is only looked at.
    ///
    /// # Errors
    /// When a broker has the directory open.
    pub(crate) fn take_offline(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.read(true);
        let (file, is_writable) = match options
            .clone()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
        {
            Ok(file) => (file, true),
            Err(_) => match options.open(&path) {
                Ok(file) => (file, false),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self { _file: None }),
                Err(e) => {
                    let sentence = format!("{} cannot be opened: {e}", path.display());
                    return Err(Failure::new(Status::Io, sentence));
                }
            },
        };
        match lock(&file, is_writable) {
            Ok(()) => Ok(Self { _file: Some(file) }),
            Err(Taken::By(holder)) => {
                let holder = holder.unwrap_or_else(|| "a process that cannot be seen from here".to_owned());
                let sentence = format!("{} is in use by {holder}; stop it first", dir.display());
                Err(Failure::new(Status::Unavailable, sentence))
            }
            Err(Taken::Failed(e)) => {
                let sentence = format!("{} cannot be locked: {e}", path.display());
                Err(Failure::new(Status::Io, sentence))
            }
        }
    }
}

/// Why there is no lock.
enum Taken {
    /// Another process has it; who, if that can be seen.
    By(Option<String>),
    /// The system refused.
    Failed(io::Error),
}

fn lock(file: &File, is_writable: bool) -> Result<(), Taken> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Taken::By(holder_of_flock(file).map(holder::process))),
        Err(TryLockError::Error(e)) => return Err(Taken::Failed(e)),
    }
    let wanted = || libc::flock {
        l_type: (if is_writable { libc::F_WRLCK } else { libc::F_RDLCK }) as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_SETLK(&wanted())) {
        Ok(_) => Ok(()),
        Err(Errno::EACCES | Errno::EAGAIN) => {
            let mut found = wanted();
            let asked = fcntl(file, FcntlArg::F_GETLK(&mut found));
            let holder = asked.ok().and_then(|_| u32::try_from(found.l_pid).ok());
            Err(Taken::By(holder.filter(|pid| *pid > 0).map(holder::process)))
        }
        // A file system without such locks: the other kind holds.
        Err(_) => Ok(()),
    }
}

/// The process that holds a `flock` on the file, from the kernel's list; not seen from another pid namespace.
fn holder_of_flock(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let dev = metadata.dev();
    let place = format!(
        "{:02x}:{:02x}:{}",
        libc::major(dev),
        libc::minor(dev),
        metadata.ino()
    );
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let mut holders = locks.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let is_flock = words.nth(1)? == "FLOCK";
        let pid = words.nth(2)?;
        (is_flock && words.next()? == place).then(|| pid.parse().ok())?
    });
    holders.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_has_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirectoryLock::take(dir.path()).unwrap();
        // The same process again: flock sees another open file, as it would another process.
        let refused = DirectoryLock::take_offline(dir.path()).unwrap_err();
        assert_eq!(refused.status, Status::Unavailable);
        let this = format!("in use by process {}", std::process::id());
        assert!(refused.sentence.contains(&this), "{refused}");
        let refused = DirectoryLock::take(dir.path()).unwrap_err();
        assert!(refused.is_taken());
        let refused = Failure::from(refused);
        assert!(
            refused
                .sentence
                .starts_with("another broker uses the log directory"),
            "{refused}"
        );
        drop(held);
        drop(DirectoryLock::take_offline(dir.path()).unwrap());
        DirectoryLock::take(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_without_a_lock_file_that_cannot_be_written_is_free() {
        let missing = Path::new("/proc/self/fdinfo");
        DirectoryLock::take_offline(missing).unwrap();
    }
}
