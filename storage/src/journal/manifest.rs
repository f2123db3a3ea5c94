//! Which files a shard's journal has: written when a file is there to stay, before the first commit goes in, and once more
//! at a clean stop. So a start can tell a file that was lost, cut or overwritten from one that a crash left half made. Files
//! come and go a few times in a run; appends never wait for it.
//!
//! `.penstock/checkpoints/journal-<n>`, rkyv in an envelope ([`crate::checkpoint::envelope`]).

use std::path::{Path, PathBuf};

use rkyv::{Archive, Deserialize, Serialize};

use crate::checkpoint::envelope::Checkpoint;
use crate::layout::checkpoint_dir;

const PREFIX: &str = "journal-";

/// The files of one shard's journal.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The run that has them.
    pub run: u64,
    /// Files 1 to this one exist, each with a durable header of the run. 0: the run ended in order, and the shard's
    /// checkpoint covers all of its commits.
    pub files: u64,
    /// Bytes that each file has at least.
    pub file_bytes: u64,
}

impl Checkpoint for Manifest {
    const MAGIC: [u8; 8] = *b"PNSTKJMF";
    const VERSION: u32 = 1;
}

/// The manifest of `shard`.
#[must_use]
pub fn manifest_path(log_dir: &Path, shard: u16) -> PathBuf {
    checkpoint_dir(log_dir).join(format!("{PREFIX}{shard}"))
}

/// The shard whose manifest the file `name` is.
#[must_use]
pub fn parse_manifest_name(name: &str) -> Option<u16> {
    let digits = name.strip_prefix(PREFIX)?;
    digits
        .parse()
        .ok()
        .filter(|shard: &u16| shard.to_string() == digits)
}

/// The name of a journal file.
#[must_use]
pub fn file_name(number: u64) -> String {
    format!("{number:020}.journal")
}

/// The number in the name of a journal file.
#[must_use]
pub fn parse_file_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".journal")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}
