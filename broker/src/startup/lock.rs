//! One broker per log directory: an exclusive lock on its `.lock` file, as Kafka takes it.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::exit::{Failure, Status};

/// The held lock; given back when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Keeps the lock until the process ends: what still runs when the main thread returns may still write.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }

    /// Takes the lock of `dir`.
    ///
    /// # Errors
    /// When another process has it, or the file cannot be opened.
    pub(super) fn take(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(".lock");
        let refuse = |what: String| Failure::new(Status::Config, what);
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
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(refuse(format!(
                "another broker uses the log directory {}; stop it, or name another directory with log.dirs",
                dir.display()
            ))),
            Err(TryLockError::Error(e)) => Err(refuse(format!("{} cannot be locked: {e}", path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_broker_on_the_same_directory_is_refused_until_the_first_has_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = DirectoryLock::take(dir.path()).expect("free");
        let refused = DirectoryLock::take(dir.path()).expect_err("taken");
        assert_eq!(refused.status, Status::Config);
        assert!(refused.sentence.contains("another broker"), "{refused}");
        drop(first);
        DirectoryLock::take(dir.path()).expect("free again");
    }
}
