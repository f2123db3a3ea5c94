//! `penstock log repair`: checks, says what can be done about what is wrong and exactly what is lost, and with `--write` does
//! it. Nothing is deleted: what is replaced lies in each partition's `quarantine` afterwards.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use storage::layout::PartitionName;
use storage::offline::directory::{Survey, note_repairs, replay_journals, survey};
use storage::offline::repair::{Plan, QUARANTINE_DIR, Step, carry_out, plan};
use storage::offline::verify::partition;
use storage::types::Offset;

use super::meter::Meter;
use super::verify::{log_bytes, sentence};
use super::{Target, each_locked, failed, shown};
use crate::cli::say;
use crate::exit::{Failure, Status};

#[derive(Clone, Debug, Args)]
pub(super) struct RepairArgs {
    /// A log directory, or partition directories of one
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Do it; else only say what would be done
    #[arg(long)]
    write: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// One partition with something to do.
struct Repair {
    name: PartitionName,
    plan: Plan,
    /// What was found, as sentences.
    found: String,
}

pub(super) fn run(args: &RepairArgs) -> Result<(), Failure> {
    let outcomes = each_locked(&args.dirs, |target| repair(target, args.write))?;
    if args.json {
        let directories: Vec<Value> = outcomes.iter().map(|outcome| outcome.json(args.write)).collect();
        say(&format!(
            "{:#}\n",
            json!({ "written": args.write, "directories": directories })
        ));
    } else {
        outcomes.iter().for_each(|outcome| say(&outcome.text(args.write)));
    }
    let left = outcomes
        .iter()
        .map(|outcome| outcome.repairs.len())
        .sum::<usize>();
    if args.write || left == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Status::Data,
        format!("{left} partitions to be repaired; nothing was written, say --write to do it"),
    ))
}

struct Outcome {
    survey: Survey,
    replays: bool,
    repairs: Vec<Repair>,
}

fn repair(target: &Target, write: bool) -> Result<Outcome, Failure> {
    let dir = target.directory();
    let mut before = survey(dir).map_err(|error| failed(&error))?;
    if let Some(blocker) = before.blocker() {
        let sentence = format!(
            "{}; without it nobody knows what the logs held: put the file back from a copy, nothing is repaired before",
            crate::client::clean(&blocker.place.to_string())
        );
        return Err(Failure::new(Status::Data, sentence));
    }
    // What a start would write first belongs to the logs; it is there before they are judged, or after they were.
    let replays = before.run > 0 && before.journals.files > 0;
    if write && replays && !before.is_clean {
        replay_journals(dir).map_err(|error| failed(&error))?;
        before = survey(dir).map_err(|error| failed(&error))?;
    }
    let repairs = plans(&before, target)?;
    if write {
        if before.run > 0 && before.is_clean && !repairs.is_empty() {
            replay_journals(dir).map_err(|error| failed(&error))?;
        }
        for repair in &repairs {
            let text = format!("{}{}", repair.found, steps_text(&repair.plan));
            carry_out(&repair.plan, &text).map_err(|error| failed(&error))?;
        }
        let done: Vec<(PartitionName, Plan)> = repairs
            .iter()
            .map(|repair| (repair.name.clone(), repair.plan.clone()))
            .collect();
        if !done.is_empty() {
            note_repairs(dir, &done).map_err(|error| failed(&error))?;
        }
    }
    Ok(Outcome {
        survey: before,
        replays,
        repairs,
    })
}

fn plans(survey: &Survey, target: &Target) -> Result<Vec<Repair>, Failure> {
    let names = match target {
        Target::Directory(_) => survey.partitions.clone(),
        Target::Partition(_, name) => vec![name.clone()],
    };
    let mut meter = Meter::new("checked", names.iter().map(|name| log_bytes(survey, name)).sum());
    let mut repairs = Vec::new();
    for name in names {
        let dir = name.dir(&survey.dir);
        let report = partition(&dir, &survey.expectation(&name), &mut |bytes| meter.add(bytes));
        let report = report.map_err(|error| failed(&error))?;
        let plan = plan(&report, survey.durable_end(&name));
        if !plan.steps.is_empty() {
            let found = report.findings.iter().map(sentence).collect();
            repairs.push(Repair { name, plan, found });
        }
    }
    Ok(repairs)
}

fn steps_text(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        text.push_str(&format!("  {}\n", step_text(step)));
    }
    for (first, end) in &plan.lost {
        text.push_str(&match *end {
            Offset::NONE => format!("  lost: offsets from {first} on, nobody knows how many\n"),
            end => format!("  lost: offsets {first} to {}\n", end.0 - 1),
        });
    }
    text.push_str(&format!("  the log is then {} to {}\n", plan.log_start, plan.end));
    text
}

fn step_text(step: &Step) -> String {
    match step {
        Step::Salvage { segment, spans } => {
            let bytes: u64 = spans.iter().map(|span| span.end - span.position).sum();
            format!(
                "segment {segment}: written anew without {bytes} bytes in {} places; the old file goes to {QUARANTINE_DIR}/",
                spans.len()
            )
        }
        Step::KeepEnd { end } => format!("an empty segment at {end}, so that no offset is given out twice"),
        Step::Reindex { segment } => format!("segment {segment}: indexes made anew"),
        Step::Epochs => "leader epochs made anew from the batches".to_owned(),
        Step::Reopen => "the note of damage that keeps the partition offline is taken back".to_owned(),
        Step::SetAside { file } => format!("{file} goes to {QUARANTINE_DIR}/"),
    }
}

impl Outcome {
    fn text(&self, write: bool) -> String {
        let mut text = format!("{}:\n", shown(&self.survey.dir));
        if self.replays {
            let verb = if write { "were" } else { "would be" };
            text.push_str(&format!("the journals {verb} replayed first, as by a start\n"));
        }
        for repair in &self.repairs {
            let verb = if write { "repaired" } else { "would repair" };
            text.push_str(&format!(
                "{verb} {}\n{}{}",
                repair.name,
                repair.found,
                steps_text(&repair.plan)
            ));
        }
        if self.repairs.is_empty() {
            text.push_str("nothing to repair\n");
        }
        text
    }

    fn json(&self, write: bool) -> Value {
        let repairs = self.repairs.iter().map(|repair| {
            let lost = repair.plan.lost.iter().map(|(first, end)| {
                json!({"first_offset": first.0, "end_offset": (*end != Offset::NONE).then_some(end.0)})
            });
            json!({
                "topic": repair.name.topic,
                "partition": repair.name.partition,
                "steps": repair.plan.steps.iter().map(step_text).collect::<Vec<_>>(),
                "lost": lost.collect::<Vec<_>>(),
                "log_start_offset": repair.plan.log_start.0,
                "log_end_offset": repair.plan.end.0,
            })
        });
        json!({
            "dir": self.survey.dir.display().to_string(),
            "journals_replayed": write && self.replays,
            "partitions": repairs.collect::<Vec<_>>(),
        })
    }
}
