//! `penstock log dump`: what is in the files, one line for each thing, for people or as a JSON object a line. Which file it is
//! is told by its name. A broker may have the directory open: then the ends of what it writes may be half written.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use storage::checkpoint::{envelope, meta_properties, offsets, partition_metadata};
use storage::journal::manifest::{Manifest, parse_file_name, parse_manifest_name};
use storage::layout::{
    CLEANER_OFFSET_FILE, FileName, HIGH_WATERMARK_FILE, LOG_START_FILE, META_PROPERTIES_FILE, PartitionName,
    RECOVERY_POINT_FILE, SegmentFile,
};
use storage::leader_epoch::LeaderEpochs;
use storage::offline::read_small;
use storage::producer_state::snapshot;
use storage::recovery::record::DirectoryRecord;
use storage::segment::offset_index::OffsetIndex;
use storage::segment::time_index::TimeIndex;
use storage::segment::txn_index::TxnIndex;
use storage::types::Offset;

use super::records::{Decoding, RecordOptions, dump_batches};
use super::{failed, io_failed, journal, locked, parent_name, shown};
use crate::cli::remote::note;
use crate::cli::say;
use crate::exit::{Failure, Status};

#[derive(Clone, Debug, Args)]
pub(super) struct DumpArgs {
    /// A segment, index, snapshot, journal or checkpoint file, or a partition or journal directory
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// The records of each batch too, decompressed; those of internal topics and of the metadata decoded
    #[arg(short, long)]
    records: bool,
    /// Batches that end at this offset or above
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: i64,
    /// Batches that begin at this offset or below
    #[arg(long, value_name = "OFFSET", default_value_t = i64::MAX)]
    to: i64,
    /// Keys and values of internal topics as they are
    #[arg(long)]
    raw: bool,
    /// A JSON object a line, for scripts
    #[arg(long)]
    json: bool,
}

/// Where lines go.
pub(super) struct Out {
    json: bool,
}

impl Out {
    /// One line, in the form that was asked for.
    pub(super) fn line(&self, text: impl FnOnce() -> String, value: impl FnOnce() -> Value) {
        if self.json {
            say(&format!("{}\n", value()));
        } else {
            say(&format!("{}\n", text()));
        }
    }

    /// A heading for people.
    fn heading(&self, path: &Path) {
        if !self.json {
            say(&format!("{}\n", shown(path)));
        }
    }

    /// A thing that has one form for both: its fields in JSON, in the order given.
    pub(super) fn fields(&self, kind: &str, fields: &[(&str, Value)]) {
        let text = || {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            format!("{kind} {}", fields.join("  "))
        };
        let value = || {
            let mut object = serde_json::Map::new();
            object.insert("type".to_owned(), json!(kind));
            object.extend(
                fields
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.clone())),
            );
            Value::Object(object)
        };
        self.line(text, value);
    }
}

pub(super) fn run(args: &DumpArgs) -> Result<(), Failure> {
    let out = Out { json: args.json };
    args.paths.iter().try_for_each(|path| {
        let path = std::fs::canonicalize(path).map_err(|error| io_failed(path, &error))?;
        // Only a hint: reading what a broker writes does no harm.
        let log_dir = path
            .ancestors()
            .find(|dir| dir.join(META_PROPERTIES_FILE).exists());
        let _lock = log_dir.and_then(|dir| {
            let held = locked(dir);
            if let Err(failure) = &held {
                note(&format!("{failure}, or expect half-written ends"));
            }
            held.ok()
        });
        if path.is_dir() {
            directory(&path, args, &out)
        } else {
            file(&path, args, &out)
        }
    })
}

fn directory(dir: &Path, args: &DumpArgs, out: &Out) -> Result<(), Failure> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let entries = std::fs::read_dir(dir).map_err(|error| io_failed(dir, &error))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    let journals: Vec<&String> = names
        .iter()
        .filter(|name| parse_file_name(name).is_some())
        .collect();
    if !journals.is_empty() {
        return journals
            .iter()
            .try_for_each(|name| file(&dir.join(name), args, out));
    }
    if PartitionName::parse(name).is_none() {
        let sentence = format!(
            "{} is neither a partition nor a journal directory; name one of those in it, or a file",
            shown(dir)
        );
        return Err(Failure::new(Status::Usage, sentence));
    }
    let bases: Vec<Offset> = names.iter().filter_map(|name| FileName::log_base(name)).collect();
    for (number, base) in bases.iter().enumerate() {
        let is_below = bases.get(number + 1).is_some_and(|next| next.0 <= args.from);
        if base.0 <= args.to && !is_below {
            file(&dir.join(SegmentFile::Log.name(*base)), args, out)?;
        }
    }
    Ok(())
}

fn file(path: &Path, args: &DumpArgs, out: &Out) -> Result<(), Failure> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let options = RecordOptions {
        records: args.records,
        from: Offset(args.from),
        to: Offset(args.to),
        decoding: if args.raw {
            Decoding::None
        } else {
            Decoding::of_directory(path)
        },
    };
    out.heading(path);
    if let FileName::Segment { file, base, .. } = FileName::parse(name) {
        return match file {
            SegmentFile::Log => dump_batches(path, base, &options, out),
            SegmentFile::OffsetIndex => offset_index(path, base, out),
            SegmentFile::TimeIndex => time_index(path, base, out),
            SegmentFile::TxnIndex => txn_index(path, base, out),
            SegmentFile::ProducerSnapshot => producer_snapshot(path, out),
        };
    }
    if parse_file_name(name).is_some() {
        return journal::dump(path, out);
    }
    if name.ends_with(".checkpoint") {
        return dump_batches(path, Offset::ZERO, &options, out);
    }
    small(path, name, out)
}

/// The content of a small file.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, Failure> {
    let found = read_small(path).map_err(|error| failed(&error))?;
    found.ok_or_else(|| io_failed(path, &std::io::ErrorKind::NotFound.into()))
}

fn damaged(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(Status::Data, format!("{} is damaged: {why}", shown(path)))
}

fn offset_index(path: &Path, base: Offset, out: &Out) -> Result<(), Failure> {
    let index =
        OffsetIndex::decode(base, usize::MAX, &content(path)?).map_err(|error| damaged(path, error))?;
    for entry in index.iter() {
        out.fields(
            "offset",
            &[
                ("offset", json!(entry.offset.0)),
                ("position", json!(entry.position)),
            ],
        );
    }
    Ok(())
}

fn time_index(path: &Path, base: Offset, out: &Out) -> Result<(), Failure> {
    let index = TimeIndex::decode(base, usize::MAX, &content(path)?).map_err(|error| damaged(path, error))?;
    for entry in index.iter() {
        out.fields(
            "timestamp",
            &[
                ("timestamp", json!(entry.timestamp)),
                ("offset", json!(entry.offset.0)),
            ],
        );
    }
    Ok(())
}

fn txn_index(path: &Path, base: Offset, out: &Out) -> Result<(), Failure> {
    let index = TxnIndex::decode(base, &content(path)?).map_err(|error| damaged(path, error))?;
    for txn in index.entries() {
        let fields = [
            ("producer_id", json!(txn.producer_id.0)),
            ("first_offset", json!(txn.first_offset.0)),
            ("last_offset", json!(txn.last_offset.0)),
            ("last_stable_offset", json!(txn.last_stable_offset.0)),
        ];
        out.fields("aborted", &fields);
    }
    Ok(())
}

fn producer_snapshot(path: &Path, out: &Out) -> Result<(), Failure> {
    let entries = snapshot::decode(&content(path)?).map_err(|error| damaged(path, error))?;
    for entry in entries {
        let fields = [
            ("producer_id", json!(entry.producer_id.0)),
            ("epoch", json!(entry.epoch)),
            ("last_sequence", json!(entry.last.map(|last| last.last_sequence))),
            ("last_offset", json!(entry.last.map(|last| last.last_offset.0))),
            ("last_timestamp", json!(entry.last_timestamp)),
            ("coordinator_epoch", json!(entry.coordinator_epoch)),
            (
                "transaction_start",
                json!(entry.transaction_start.map(|start| start.0)),
            ),
            ("older_batches", json!(entry.older.len())),
        ];
        out.fields("producer", &fields);
    }
    Ok(())
}

/// Checkpoints, and small files of text.
fn small(path: &Path, name: &str, out: &Out) -> Result<(), Failure> {
    let bytes = content(path)?;
    let text = String::from_utf8_lossy(&bytes);
    match name {
        RECOVERY_POINT_FILE | LOG_START_FILE | HIGH_WATERMARK_FILE | CLEANER_OFFSET_FILE => {
            let found = offsets::parse(&text).map_err(|error| damaged(path, error))?;
            for (name, offset) in found {
                let fields = [
                    ("topic", json!(name.topic)),
                    ("partition", json!(name.partition)),
                    ("offset", json!(offset.0)),
                ];
                out.fields("offset", &fields);
            }
        }
        storage::layout::LEADER_EPOCH_FILE => {
            let found = LeaderEpochs::decode(&bytes).map_err(|error| damaged(path, error))?;
            for entry in found.entries() {
                let fields = [
                    ("epoch", json!(entry.epoch.0)),
                    ("start_offset", json!(entry.start_offset.0)),
                ];
                out.fields("epoch", &fields);
            }
        }
        storage::layout::PARTITION_METADATA_FILE => {
            let found = partition_metadata::parse(&text).map_err(|error| damaged(path, error))?;
            out.fields(
                "partition",
                &[("topic_id", json!(protocol::Uuid(found.0).to_string()))],
            );
        }
        META_PROPERTIES_FILE => {
            let found = meta_properties::parse(&text).map_err(|error| damaged(path, error))?;
            let fields = [
                ("cluster_id", json!(found.cluster_id)),
                ("node_id", json!(found.node_id)),
                ("directory_id", json!(found.directory_id.map(|id| id.to_string()))),
                ("other", json!(found.other)),
            ];
            out.fields("node", &fields);
        }
        _ if parent_name(path) == Some("checkpoints") => own_checkpoint(path, name, &bytes, out)?,
        _ => {
            let sentence = format!("{} has a name that no file of a log directory has", shown(path));
            return Err(Failure::new(Status::Usage, sentence));
        }
    }
    Ok(())
}

/// Ours, below `.penstock/checkpoints`.
fn own_checkpoint(path: &Path, name: &str, bytes: &[u8], out: &Out) -> Result<(), Failure> {
    if parse_manifest_name(name).is_some() {
        let found: Manifest = envelope::decode(bytes).map_err(|error| damaged(path, error))?;
        let fields = [
            ("run", json!(found.run)),
            ("files", json!(found.files)),
            ("file_bytes", json!(found.file_bytes)),
        ];
        out.fields("journal", &fields);
        return Ok(());
    }
    let found: DirectoryRecord = envelope::decode(bytes).map_err(|error| damaged(path, error))?;
    out.fields(
        "directory",
        &[
            ("run", json!(found.run)),
            ("covered_sequence", json!(found.covered_sequence)),
        ],
    );
    for log in &found.logs {
        let place = log.place.as_ref().map(
            |place| json!({"offset": place.offset, "segment": place.segment, "position": place.position}),
        );
        let fields = [
            ("directory", json!(log.directory)),
            ("topic_id", json!(protocol::Uuid(log.topic).to_string())),
            ("log_start", json!(log.log_start)),
            ("durable_end", json!(log.durable_end)),
            ("epochs", json!(log.epochs)),
            ("place", json!(place)),
            (
                "damage",
                json!(log.damage.as_ref().map(|damage| format!("{damage:?}"))),
            ),
        ];
        out.fields("log", &fields);
    }
    for (topic, partition) in &found.deleted {
        let topic = protocol::Uuid(*topic).to_string();
        out.fields(
            "deleted",
            &[("topic_id", json!(topic)), ("partition", json!(partition))],
        );
    }
    Ok(())
}
