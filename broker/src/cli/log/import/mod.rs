//! `penstock log import`: takes over the data directories of a stopped single-node Apache Kafka 4.x as a directory of ours:
//! topics with ids and configs, partitions, groups with their offsets, transaction state, producer ids. Without `--write` it
//! reads everything and says what it would do.

mod copy;
mod metadata;
mod source;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shard::image::ResourceKind;

use self::copy::{Copied, space};
use self::source::{Source, SourcePartition, log_start, some};
use super::{human_bytes, shown};
use crate::cli::say;
use crate::client::clean;
use crate::exit::{Failure, Status};

/// What is kept free beside the copied segments: indexes, snapshots, our journal's first files.
const SPARE_BYTES: u64 = 256 << 20;

#[derive(Clone, Debug, Args)]
pub(super) struct ImportArgs {
    /// The data directories of the stopped node: all that its log.dirs names
    #[arg(value_name = "SOURCE", required = true)]
    pub(super) sources: Vec<PathBuf>,
    /// The new directory: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The directory with __cluster_metadata-0, if no source has it
    #[arg(long, value_name = "DIR")]
    pub(super) metadata: Option<PathBuf>,
    /// Do it; else only say what would be done
    #[arg(long)]
    write: bool,
    /// Link closed segments instead of copying them: no space, no time; the file system must be the same. The source stays
    /// whole, but what either side deletes stays on the disk until both have
    #[arg(long)]
    link: bool,
    /// The source was not stopped in order: check the tails and leave out what is torn
    #[arg(long)]
    pub(super) recover: bool,
    /// Go on although ACLs, SCRAM credentials, quotas or tokens stay behind
    #[arg(long)]
    leave_behind: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ImportArgs) -> Result<(), Failure> {
    check_destination(&args.to)?;
    let source = source::read(args)?;
    let needed = needed_bytes(&source, args.link);
    let available = space(&args.to);
    let mut copied = None;
    if args.write {
        check_left_behind(args, &source)?;
        check_space(&args.to, needed, available)?;
        std::fs::create_dir_all(&args.to).map_err(|error| {
            Failure::new(
                Status::Io,
                format!("{} cannot be created: {error}", shown(&args.to)),
            )
        })?;
        copied = Some(copy::write(&source, &args.to, args.link)?);
    }
    if args.json {
        say(&format!("{:#}\n", as_json(args, &source, needed, copied)));
    } else {
        say(&as_text(args, &source, needed, copied));
    }
    Ok(())
}

fn check_destination(to: &Path) -> Result<(), Failure> {
    let refuse = |what: String| Err(Failure::new(Status::Data, format!("{} {what}", shown(to))));
    match std::fs::read_dir(to) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => refuse("is not empty: name a new directory with --to".to_owned()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => refuse(format!("cannot be used: {error}")),
    }
}

/// Whoever counted on access rules must know that they are not here.
fn check_left_behind(args: &ImportArgs, source: &Source) -> Result<(), Failure> {
    let left: Vec<String> = source
        .taken
        .left_behind
        .iter()
        .map(|left| format!("{} {}", left.count, left.kind))
        .collect();
    if left.is_empty() || args.leave_behind {
        return Ok(());
    }
    let sentence = format!(
        "{} would stay behind, for this version has no place for them; say --leave-behind if that is what you want",
        left.join(", ")
    );
    Err(Failure::new(Status::Data, sentence))
}

fn needed_bytes(source: &Source, link: bool) -> u64 {
    let of_partition = |partition: &SourcePartition| match (link, partition.report.segments.last()) {
        (true, Some(last)) => last.valid_bytes,
        (true, None) => 0,
        (false, _) => partition.bytes(),
    };
    source.partitions.iter().map(of_partition).sum::<u64>() + SPARE_BYTES
}

fn check_space(to: &Path, needed: u64, available: Option<u64>) -> Result<(), Failure> {
    match available {
        Some(available) if available < needed => {
            let sentence = format!(
                "{} has {} free, {} are needed; --link takes almost none where the source is on the same file system",
                shown(to),
                human_bytes(available),
                human_bytes(needed)
            );
            Err(Failure::new(Status::Data, sentence))
        }
        _ => Ok(()),
    }
}

fn as_text(args: &ImportArgs, source: &Source, needed: u64, copied: Option<Copied>) -> String {
    let taken = &source.taken;
    let (topics, partitions) = taken.counts();
    let configs = |kind| taken.configs(kind);
    let mut text = format!(
        "{} node {} of cluster {}: {topics} topics, {partitions} partitions, {} segments, {} batches, {}\n",
        if copied.is_some() {
            "imported"
        } else {
            "would import"
        },
        source.identity.node_id,
        clean(&source.identity.cluster_id),
        sum(source, |partition| partition.report.segments.len() as u64),
        sum(source, |partition| partition.report.batches),
        human_bytes(sum(source, SourcePartition::bytes)),
    );
    let mut line = |what: String| text.push_str(&format!("  {what}\n"));
    line(format!(
        "metadata up to offset {} in epoch {}; metadata.version {}",
        taken.end, taken.snapshot.image.position.term, taken.metadata_version
    ));
    line(format!(
        "configs: {} of topics, {} of brokers, {} of groups, {} of client metrics; next producer id {}",
        configs(ResourceKind::Topic),
        configs(ResourceKind::Broker),
        configs(ResourceKind::Group),
        configs(ResourceKind::ClientMetrics),
        taken.snapshot.image.next_producer_id
    ));
    remarks(source).into_iter().for_each(&mut line);
    match copied {
        Some(copied) => {
            line(format!(
                "{} files copied ({}), {} segments linked",
                copied.files,
                human_bytes(copied.bytes),
                copied.linked
            ));
            text.push_str(&format!(
                "\nStart with the same settings: node.id={}, log.dirs={}, and what server.properties said of topics.\n\
                 Keep the source until you have seen that all is well; never start Apache Kafka on the new directory.\n",
                source.identity.node_id,
                shown(&args.to)
            ));
        }
        None => {
            line(format!(
                "{} would be needed on {}",
                human_bytes(needed),
                shown(&args.to)
            ));
            text.push_str("\nNothing was written: say --write to do it.\n");
        }
    }
    text
}

fn sum(source: &Source, of: impl Fn(&SourcePartition) -> u64) -> u64 {
    source.partitions.iter().map(of).sum()
}

/// What an operator should know.
fn remarks(source: &Source) -> Vec<String> {
    let taken = &source.taken;
    let mut lines = Vec::new();
    for left in &taken.left_behind {
        lines.push(format!(
            "stays behind: {} {} ({})",
            left.count,
            left.kind,
            clean(&some(&left.some))
        ));
    }
    if !taken.features_off.is_empty() {
        let off: Vec<String> = taken
            .features_off
            .iter()
            .map(|(name, level)| format!("{name} {level}"))
            .collect();
        lines.push(format!(
            "features that are off from now on: {}",
            clean(&off.join(", "))
        ));
    }
    let names = |of: &dyn Fn(&SourcePartition) -> bool| -> Vec<String> {
        source
            .partitions
            .iter()
            .filter(|p| of(p))
            .map(|p| p.name.to_string())
            .collect()
    };
    let open = names(&|partition| partition.report.open_transactions > 0);
    if !open.is_empty() {
        lines.push(format!(
            "open transactions, which hold read_committed consumers back: {}",
            some(&open)
        ));
    }
    let cut = names(&|partition| partition.cut_bytes() > 0);
    if !cut.is_empty() {
        let bytes = human_bytes(sum(source, SourcePartition::cut_bytes));
        lines.push(format!(
            "{bytes} behind the last whole batch are left out: {}",
            some(&cut)
        ));
    }
    let rebuilt = names(&|partition| {
        partition.report.worst() == Some(storage::offline::finding::Severity::Rebuildable)
    });
    if !rebuilt.is_empty() {
        lines.push(format!(
            "indexes or snapshots are wrong and made anew at the first start: {}",
            some(&rebuilt)
        ));
    }
    for (name, why) in &source.skipped {
        lines.push(format!("left out: {} ({why})", clean(name)));
    }
    lines
}

fn as_json(args: &ImportArgs, source: &Source, needed: u64, copied: Option<Copied>) -> Value {
    let taken = &source.taken;
    let partition = |partition: &SourcePartition| {
        json!({
            "topic": partition.name.topic,
            "partition": partition.name.partition,
            "segments": partition.report.segments.len(),
            "batches": partition.report.batches,
            "bytes": partition.bytes(),
            "cut_bytes": partition.cut_bytes(),
            "log_start_offset": log_start(source, partition).unwrap_or(partition.report.log_start).0,
            "log_end_offset": partition.report.end_offset.0,
            "open_transactions": partition.report.open_transactions,
        })
    };
    let left = taken
        .left_behind
        .iter()
        .map(|left| json!({"kind": left.kind, "count": left.count, "some": left.some}));
    json!({
        "written": copied.is_some(),
        "to": args.to.display().to_string(),
        "cluster_id": source.identity.cluster_id,
        "node_id": source.identity.node_id,
        "clean_stop": source.is_clean,
        "metadata_end_offset": taken.end.0,
        "metadata_version": taken.metadata_version,
        "features_off": taken.features_off,
        "left_behind": left.collect::<Vec<_>>(),
        "left_out": source.skipped,
        "needed_bytes": needed,
        "copied_files": copied.map(|copied| copied.files),
        "copied_bytes": copied.map(|copied| copied.bytes),
        "linked_segments": copied.map(|copied| copied.linked),
        "partitions": source.partitions.iter().map(partition).collect::<Vec<_>>(),
    })
}
