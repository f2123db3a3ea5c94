//! Holds the journal files that are there against the manifests of their shards: a file that is named there and is missing,
//! shorter, or without a header of its run was lost or damaged, since a crash leaves none of that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::journals::{OldFile, ShardJournal};
use super::record::shard_path;
use crate::checkpoint::envelope;
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::journal::frame::{Invalid, run_of};
use crate::journal::manifest::{Manifest, file_name, manifest_path, parse_file_name, parse_manifest_name};
use crate::layout::{checkpoint_dir, journal_dir};

/// The manifests of a log directory.
#[derive(Default)]
pub(super) struct Manifests {
    /// Those of a run that is not merged yet.
    current: BTreeMap<u16, Manifest>,
    /// All files.
    pub(super) paths: Vec<PathBuf>,
}

impl Manifests {
    /// Reads those in `dir`; those of `run` and before are void.
    ///
    /// # Errors
    /// [`StorageError`] from the disk, or for a damaged file.
    pub(super) async fn load<D: Disk>(disk: &D, dir: &Path, run: u64) -> Result<Self, StorageError> {
        let entries = match disk.list(&checkpoint_dir(dir)).await {
            Ok(entries) => entries,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let mut all = Self::default();
        for entry in &entries {
            let Some(shard) = parse_manifest_name(&entry.name) else {
                continue;
            };
            let path = manifest_path(dir, shard);
            if let Some(manifest) = envelope::load::<D, Manifest>(disk, &path).await?
                && manifest.run > run
            {
                all.current.insert(shard, manifest);
            }
            all.paths.push(path);
        }
        Ok(all)
    }

    /// Checks the journals of the runs after `run`. `covered_sequences`: how far the shards' checkpoints cover them.
    ///
    /// # Errors
    /// [`StorageError::Damage`].
    pub(super) fn check(
        &self,
        dir: &Path,
        run: u64,
        journals: &[ShardJournal],
        covered_sequences: &BTreeMap<u16, u64>,
    ) -> Result<(), StorageError> {
        for (shard, manifest) in &self.current {
            if manifest.files == 0 && !covered_sequences.contains_key(shard) {
                let expected = format!("the checkpoint of run {}, which ended in order", manifest.run);
                return Err(Damage::of_file(shard_path(dir, *shard), 0, expected, "no file").into());
            }
            let journal = journals.iter().find(|journal| journal.shard == Some(*shard));
            let files = journal.map_or(&[][..], |journal| &journal.files);
            for number in 1..=manifest.files {
                let name = file_name(number);
                let file = files.iter().find(|file| file.has_name(&name));
                check_named(&journal_dir(dir, *shard).join(name), *shard, manifest, file)?;
            }
        }
        for journal in journals {
            let covered = journal.shard.and_then(|shard| covered_sequences.get(&shard));
            let named = journal.shard.and_then(|shard| self.current.get(&shard));
            let named = named.map_or(0, |manifest| manifest.files);
            let unnamed = journal.files.iter().filter(|file| !is_named(&file.path, named));
            for file in unnamed {
                check_unnamed(dir, run, journal.shard, covered.copied().unwrap_or(0), file)?;
            }
        }
        Ok(())
    }
}

fn is_named(path: &Path, files: u64) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(parse_file_name)
        .is_some_and(|number| (1..=files).contains(&number))
}

fn check_named(
    path: &Path,
    shard: u16,
    manifest: &Manifest,
    file: Option<&OldFile>,
) -> Result<(), StorageError> {
    let Manifest { run, file_bytes, .. } = *manifest;
    let report = |position, expected, found| Err(Damage::of_file(path, position, expected, found).into());
    let Some(file) = file else {
        let expected = format!("a journal file of run {run}, which did not end in order");
        return report(0, expected, "no file".to_owned());
    };
    let expected = format!("the header of a journal file of run {run} and shard {shard}");
    match file.content.header {
        Ok(header) if run_of(header.generation) != run || header.shard != shard => {
            let of = run_of(header.generation);
            report(0, expected, format!("one of run {of} and shard {}", header.shard))
        }
        Err(invalid) if file.size > 0 => {
            let found = match invalid {
                Invalid::Checksum => "a header with another checksum".to_owned(),
                Invalid::Magic => "no header".to_owned(),
                other => format!("{other:?}"),
            };
            report(0, expected, found)
        }
        _ if file.size < file_bytes => {
            let expected = format!("a journal file of at least {file_bytes} bytes");
            report(
                file.size,
                expected,
                format!("the end of the file at {}", file.size),
            )
        }
        _ => Ok(()),
    }
}

/// A file that no manifest names was being created when its run ended: no commit is in it. Or it was being removed after
/// a clean stop: the checkpoint covers its commits.
fn check_unnamed(
    dir: &Path,
    run: u64,
    shard: Option<u16>,
    covered_sequence: u64,
    file: &OldFile,
) -> Result<(), StorageError> {
    let content = &file.content;
    let is_current = content.header.is_ok_and(|header| run_of(header.generation) > run);
    let mut commits = content.commits.iter().chain(&content.behind);
    let Some(shard) = shard.filter(|_| is_current) else {
        return Ok(());
    };
    match commits.find(|place| place.header.sequence > covered_sequence) {
        Some(place) => {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let expected = format!("a list with {name}, which holds commit {}", place.header.sequence);
            Err(Damage::of_file(manifest_path(dir, shard), 0, expected, "no such list").into())
        }
        None => Ok(()),
    }
}
