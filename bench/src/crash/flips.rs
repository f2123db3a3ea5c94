//! A bit is flipped in some file while the process is away. What must hold then: what is served is right, what was acknowledged
//! is there or reported, and no other log is touched than the one whose bytes they were.

use std::path::{Path, PathBuf};

use storage::disk::sim::SimDisk;
use storage::error::StorageError;
use storage::log::batch::BatchHeader;
use storage::recovery::recover_journals;
use storage::sim_rng::SimRng;
use storage::store::Store;

use super::NOW_MS;
use super::check::{check, read};
use super::life::{DIR, options};
use super::model::Model;

/// What became of a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// All is there and right: it was made anew from somewhere else, or nobody needs it.
    Healed,
    /// Its log stays closed, with a report.
    LogClosed,
    /// Its log is open, and a read of the place is refused.
    ReadRefused,
    /// The log directory is refused, with a report.
    DirectoryRefused,
}

/// Flips a bit of a file of ours that can be told from right: index files by time and of transactions, the prefix of a batch, and
/// the numbers in the file of leader epochs have no checksum in Kafka's format. Returns the file.
pub fn flip_somewhere(disk: &SimDisk, rng: &mut SimRng) -> Option<PathBuf> {
    const KINDS: [&str; 8] = [
        ".log",
        ".log",
        ".journal",
        ".journal",
        ".index",
        ".snapshot",
        "leader-epoch-checkpoint",
        "/checkpoints/",
    ];
    for _ in 0..20 {
        let kind = KINDS[rng.index(KINDS.len())];
        let paths: Vec<PathBuf> = disk.paths();
        let of_kind = paths.into_iter().filter(|path| {
            let text = path.to_string_lossy();
            text.contains(kind) && !text.contains("-delete") && !text.ends_with(".tmp")
        });
        let files: Vec<(PathBuf, Vec<u8>)> = of_kind
            .filter_map(|path| disk.contents(&path).ok().map(|bytes| (path, bytes)))
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect();
        if files.is_empty() {
            continue;
        }
        let (path, bytes) = &files[rng.index(files.len())];
        let position = place(kind, bytes, rng);
        let mask = 1 << rng.index(8);
        if disk.flip_bits(path, position as u64, mask).expect("a file") {
            return Some(path.clone());
        }
    }
    None
}

/// A byte of the file: of a journal one that was written, of a segment none that has no checksum, of leader epochs the version.
fn place(kind: &str, bytes: &[u8], rng: &mut SimRng) -> usize {
    if kind == ".journal" {
        let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        return written.get(rng.index(written.len())).copied().unwrap_or(0);
    }
    let mut position = rng.index(bytes.len());
    if kind == "leader-epoch-checkpoint" {
        return 0;
    }
    let mut at = 0;
    while kind == ".log"
        && let Some(header) = BatchHeader::parse(&bytes[at..])
    {
        let end = at + header.size as usize;
        if (at..end.min(bytes.len())).contains(&position) && matches!(position - at, 0..8 | 12..16) {
            position = at + 17;
        }
        if end >= bytes.len() {
            break;
        }
        at = end;
    }
    position
}

/// Starts on what is there after `flipped` was changed. Everything acknowledged was on record as durable before.
///
/// # Panics
/// On a violation.
pub async fn look(disk: SimDisk, model: &Model, flipped: &Path) -> Fate {
    let root = Path::new(DIR);
    match recover_journals(&disk, root, |_, _| {}).await {
        Ok(_) => {}
        Err(StorageError::Damage(damage)) => {
            let inside = flipped.starts_with(root.join(".penstock"));
            assert!(inside, "{} was changed, {damage}", flipped.display());
            return Fate::DirectoryRefused;
        }
        Err(error) => panic!("{} was changed: {error}", flipped.display()),
    }
    let store = match Store::open(disk.clone(), root, 0, options(1)).await {
        Ok(store) => store,
        Err(error) => panic!("{} was changed: {error}", flipped.display()),
    };
    let mut fate = Fate::Healed;
    for index in model.open() {
        let sent = model.logs[index].clone();
        let dir = root.join(sent.directory());
        let is_its_own = flipped.starts_with(&dir);
        let is_shared = flipped.starts_with(root.join(".penstock"));
        let opened = store
            .open_log(sent.id, &sent.topic, sent.config.clone(), NOW_MS)
            .await;
        match opened {
            Ok(log) if is_its_own => {
                let end = store.offsets(log).expect("an open log").log_end;
                assert!(end >= sent.durable, "{}: cut without a report", sent.directory());
                match read(&store, log, end).await {
                    Ok(_) => {
                        check(&store, log, sent).await.expect("it was read before");
                    }
                    Err(StorageError::Damage(_)) => fate = Fate::ReadRefused,
                    Err(error) => panic!("{}: {error}", sent.directory()),
                }
            }
            Ok(log) => {
                check(&store, log, sent).await.expect("nothing of it was changed");
            }
            Err(StorageError::Damage(damage)) => {
                let is_only = fate != Fate::LogClosed;
                assert!(
                    is_its_own || (is_shared && is_only),
                    "{} was changed, {damage}",
                    flipped.display()
                );
                fate = Fate::LogClosed;
            }
            Err(error) => panic!("{}: {error}", sent.directory()),
        }
    }
    fate
}
