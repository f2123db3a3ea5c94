//! `penstock log`: what an operator does with the files of a log directory while no broker has it open: verify, dump,
//! repair, import. Plain blocking I/O on the main thread. Nothing changes a byte without `--write`.

mod decode;
mod dump;
mod import;
mod journal;
mod meter;
mod records;
mod repair;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use storage::error::StorageError;
use storage::layout::{DirName, LOCK_FILE, META_PROPERTIES_FILE, PRIVATE_DIR, PartitionName};

use crate::client::clean;
use crate::exit::{Failure, Status};
use crate::startup::lock::DirectoryLock;

const EXAMPLES: &str = "\
Examples:
  penstock log verify /var/lib/penstock                 every checksum, offset and index of a stopped broker
  penstock log verify /var/lib/penstock/orders-3        one partition; --json for scripts
  penstock log dump /var/lib/penstock/orders-3 --from 1000 --to 1020 --records
  penstock log dump /var/lib/penstock/__consumer_offsets-7 --records --json
  penstock log dump /var/lib/penstock/.penstock/journal/shard-0
  penstock log repair /var/lib/penstock                 says what can be done and what is lost; --write does it
  penstock log import /var/lib/kafka --to /var/lib/penstock             says what would be taken over
  penstock log import /var/lib/kafka --to /var/lib/penstock --write

They work on files: stop the broker first, ours or Apache Kafka. A directory that one has open is refused, with the process
that has it. Nothing is changed unless --write is given.

Exit codes (sysexits):
  0   done; what was verified is whole
  64  wrong command line
  65  damage was found, the directory is none, or it cannot be taken over
  69  a broker has the directory open
  74  reading or writing failed";

/// `penstock log …`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LogArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// Check every batch and every file beside it; names file, byte, offsets, expected and found
    Verify(verify::VerifyArgs),
    /// Print what files hold: batches, records, indexes, snapshots, journals, checkpoints
    Dump(dump::DumpArgs),
    /// Rebuild indexes, cut torn ends, set damage aside; says exactly what is lost
    Repair(repair::RepairArgs),
    /// Take over the data directories of a stopped Apache Kafka 4.x node as they are
    Import(import::ImportArgs),
}

/// Does what was asked for.
pub(super) fn run(args: &LogArgs) -> Result<(), Failure> {
    match &args.verb {
        Verb::Verify(args) => verify::run(args),
        Verb::Dump(args) => dump::run(args),
        Verb::Repair(args) => repair::run(args),
        Verb::Import(args) => import::run(args),
    }
}

/// What a path on the command line is.
enum Target {
    /// A log directory.
    Directory(PathBuf),
    /// One partition in a log directory.
    Partition(PathBuf, PartitionName),
}

impl Target {
    /// Looks at the path.
    fn of(path: &Path) -> Result<Self, Failure> {
        let absolute = std::fs::canonicalize(path).map_err(|e| {
            let sentence = format!("{} cannot be opened: {e}", shown(path));
            Failure::new(Status::Data, sentence)
        })?;
        if !absolute.is_dir() {
            let sentence = format!("{} is no directory; `penstock log dump` takes files", shown(path));
            return Err(Failure::new(Status::Usage, sentence));
        }
        let name = absolute
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        match (PartitionName::parse(name), absolute.parent()) {
            (Some(name), Some(parent)) if !is_log_directory(&absolute) => {
                Ok(Self::Partition(parent.to_owned(), name))
            }
            _ if is_log_directory(&absolute) => Ok(Self::Directory(absolute)),
            _ => {
                let sentence = format!(
                    "{} is no log directory: it has neither {META_PROPERTIES_FILE} nor a partition; name what log.dirs names",
                    shown(path)
                );
                Err(Failure::new(Status::Data, sentence))
            }
        }
    }

    /// The log directory that it is, or is in.
    fn directory(&self) -> &Path {
        match self {
            Self::Directory(dir) | Self::Partition(dir, _) => dir,
        }
    }
}

fn is_log_directory(dir: &Path) -> bool {
    if dir.join(META_PROPERTIES_FILE).exists() || dir.join(PRIVATE_DIR).is_dir() {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut kinds = names.map(|name| DirName::parse(&name));
    kinds.any(|kind| matches!(kind, DirName::Partition(_)))
}

/// Keeps brokers out of a log directory until it is dropped. A directory that is none (a partition copied somewhere) gets no
/// lock file.
fn locked(dir: &Path) -> Result<Option<DirectoryLock>, Failure> {
    let is_used = [META_PROPERTIES_FILE, PRIVATE_DIR, LOCK_FILE];
    if !is_used.iter().any(|name| dir.join(name).exists()) {
        return Ok(None);
    }
    DirectoryLock::take_offline(dir).map(Some)
}

/// Does something with each of the directories, after a look at all of them, while no broker can open it.
fn each_locked<T>(
    dirs: &[PathBuf],
    mut work: impl FnMut(&Target) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let targets: Vec<Target> = dirs.iter().map(|dir| Target::of(dir)).collect::<Result<_, _>>()?;
    let mut done = Vec::with_capacity(targets.len());
    for target in &targets {
        let _lock = locked(target.directory())?;
        done.push(work(target)?);
    }
    Ok(done)
}

/// The name of the directory that a file lies in.
fn parent_name(path: &Path) -> Option<&str> {
    path.parent().and_then(Path::file_name)?.to_str()
}

fn shown(path: &Path) -> String {
    clean(&path.display().to_string())
}

fn failed(error: &StorageError) -> Failure {
    let status = match error {
        StorageError::Damage(_) | StorageError::Version { .. } => Status::Data,
        _ => Status::Io,
    };
    Failure::new(status, clean(&error.to_string()))
}

/// A file could not be read or written.
fn io_failed(path: &Path, error: &std::io::Error) -> Failure {
    let sentence = format!("{} cannot be read: {error}", shown(path));
    Failure::new(Status::Io, sentence)
}

/// A number of bytes as people read it.
fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match UNITS.get(unit) {
        Some(name) if unit == 0 => format!("{bytes} {name}"),
        Some(name) => format!("{value:.1} {name}"),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_units() {
        let shown: Vec<String> = [0, 1023, 1024, 1_500_000, 5 << 30, u64::MAX]
            .map(human_bytes)
            .into();
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.4 MiB", "5.0 GiB", "16777216.0 TiB"]
        );
    }
}
