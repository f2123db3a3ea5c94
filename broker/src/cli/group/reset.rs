//! `penstock group reset-offsets`: asks what the plan needs, shows the plan, and writes it when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::super::remote::{Report, all_done, note};
use super::super::table::{counted, left, number, right};
use super::args::ResetArgs;
use super::plan::{Ends, Step, Target, plan, refuse_time};
use super::spec::{To, TopicSpec};
use crate::client::{Client, ClientError, EARLIEST, GroupView, Kind, LATEST, TopicPartition};
use crate::exit::{Failure, Status};

/// States of a group whose offsets nobody is about to commit.
const STATES_AT_REST: [&str; 2] = ["Empty", "Dead"];

/// What is to be shown, and whether everything was written.
pub(super) fn run(client: &mut Client, args: &ResetArgs) -> Result<(Report, Result<(), Failure>), Failure> {
    let group = args.group.name();
    let found = client.group(group);
    let exists = !matches!(found, Ok(None));
    let at_rest = found
        .map_err(Failure::from)
        .and_then(|found| refuse_active(group, found.as_ref()));
    // A plan is also of use while consumers run; writing it would be lost work.
    if args.execute {
        at_rest.clone()?;
    }
    let committed: BTreeMap<TopicPartition, i64> = client
        .committed(group)?
        .into_iter()
        .map(|(key, c)| (key, c.offset))
        .collect();
    let partitions = scope(client, args, &committed)?;
    let target = target(args)?;
    let logs = logs(client, &partitions, target)?;
    let steps =
        plan(target, &committed, &logs).map_err(|sentence| ClientError::new(Kind::Impossible, sentence))?;
    refuse_time(target, &steps).map_err(|sentence| Failure::new(Status::Usage, sentence))?;
    for remark in steps.iter().filter_map(|step| step.remark(target)) {
        note(&remark);
    }
    if args.execute {
        return write(client, group, steps);
    }
    if !exists {
        note(&format!("group '{group}' does not exist; --execute creates it"));
    }
    if at_rest.is_ok() {
        note("nothing was written; --execute does it");
    }
    Ok((report(group, &steps, false), at_rest))
}

/// Commits what is planned.
fn write(
    client: &mut Client,
    group: &str,
    steps: Vec<Step>,
) -> Result<(Report, Result<(), Failure>), Failure> {
    let wanted: BTreeMap<TopicPartition, i64> = steps.iter().map(|s| (s.partition.clone(), s.to)).collect();
    let outcomes = client.commit(group, &wanted)?;
    let done: BTreeSet<TopicPartition> = outcomes
        .iter()
        .filter(|(_, outcome)| outcome.is_ok())
        .map(|(key, _)| key.clone())
        .collect();
    let written: Vec<Step> = steps
        .into_iter()
        .filter(|s| done.contains(&s.partition))
        .collect();
    let outcome = all_done(
        outcomes
            .into_iter()
            .map(|(_, outcome)| outcome.map_err(|e| joined_since(group, e))),
    );
    Ok((report(group, &written, true), outcome))
}

/// A group with members would overwrite what is written, or refuse it.
fn refuse_active(group: &str, found: Option<&GroupView>) -> Result<(), Failure> {
    let Some(found) = found else {
        return Ok(());
    };
    if STATES_AT_REST.contains(&found.state.as_str()) && found.members.is_empty() {
        return Ok(());
    }
    let members = counted(found.members.len(), "member");
    Err(active(group, &format!("is {} with {members}", found.state)).into())
}

fn active(group: &str, what: &str) -> ClientError {
    let sentence = format!(
        "group '{group}' {what}, so its offsets cannot be reset; stop its consumers first, `penstock group describe {group}` names them"
    );
    ClientError::new(Kind::Busy, sentence)
}

/// The codes of a commit without a member id that mean that there are members.
fn joined_since(group: &str, error: ClientError) -> ClientError {
    use protocol::ErrorCode as Code;
    match error.kind {
        Kind::Answer(Code::UNKNOWN_MEMBER_ID | Code::ILLEGAL_GENERATION | Code::STALE_MEMBER_EPOCH) => {
            active(group, "has got members meanwhile")
        }
        _ => error,
    }
}

/// The partitions that are meant.
fn scope(
    client: &mut Client,
    args: &ResetArgs,
    committed: &BTreeMap<TopicPartition, i64>,
) -> Result<BTreeSet<TopicPartition>, Failure> {
    if args.all_topics {
        if committed.is_empty() {
            let sentence = format!(
                "group '{}' has nothing committed, so --all-topics means nothing; name topics with --topic",
                args.group.name()
            );
            return Err(ClientError::new(Kind::Impossible, sentence).into());
        }
        let all = TopicSpec::all_of(committed.keys());
        return Ok(partitions_of(client, &all)?);
    }
    Ok(partitions_of(client, &args.topics)?)
}

fn partitions_of(client: &mut Client, specs: &[TopicSpec]) -> Result<BTreeSet<TopicPartition>, ClientError> {
    let mut partitions = BTreeSet::new();
    for spec in specs {
        let topic = client.topic(&spec.topic)?;
        let wrong = spec
            .partitions
            .iter()
            .flatten()
            .find(|n| !topic.partitions.contains_key(n));
        if let Some(index) = wrong {
            let last = topic.partitions.keys().next_back().copied().unwrap_or(-1);
            let sentence = format!(
                "there is no partition {index} of topic '{0}'; it has 0 to {last}",
                spec.topic
            );
            return Err(ClientError::new(Kind::Impossible, sentence));
        }
        let is_meant = |n: &&i32| spec.partitions.as_ref().is_none_or(|p| p.contains(n));
        partitions.extend(
            topic
                .partitions
                .keys()
                .filter(is_meant)
                .map(|&n| (spec.topic.clone(), n)),
        );
    }
    Ok(partitions)
}

fn target(args: &ResetArgs) -> Result<Target, Failure> {
    Ok(match (args.to(), args.shift) {
        (Some(To::Earliest), _) => Target::Earliest,
        (Some(To::Latest), _) => Target::Latest,
        (Some(To::Current), _) => Target::Current,
        (Some(To::Offset(offset)), _) => Target::Offset(offset),
        (Some(To::Datetime(ms)), _) => Target::Time(in_the_past(ms)?),
        (Some(To::Duration(ms)), _) => Target::Time(in_the_past(now_ms().saturating_sub(ms))?),
        (None, Some(by)) => Target::Shift(by),
        (None, None) => return Err(Failure::new(Status::Usage, "say --to or --shift")),
    })
}

/// Times before 1970 would be taken for the ends of the log.
fn in_the_past(ms: i64) -> Result<i64, Failure> {
    if ms < 0 {
        return Err(Failure::new(
            Status::Usage,
            "the time lies before 1970; say --to earliest",
        ));
    }
    Ok(ms)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn logs(
    client: &mut Client,
    partitions: &BTreeSet<TopicPartition>,
    target: Target,
) -> Result<BTreeMap<TopicPartition, Ends>, ClientError> {
    let earliest = client.offsets(partitions, EARLIEST)?;
    let latest = client.offsets(partitions, LATEST)?;
    let at_time = match target {
        Target::Time(ms) => client.offsets(partitions, ms)?,
        _ => BTreeMap::new(),
    };
    let ends = |key: &TopicPartition| {
        Some(Ends {
            earliest: *earliest.get(key)?,
            latest: *latest.get(key)?,
            at_time: at_time.get(key).copied().filter(|&offset| offset >= 0),
        })
    };
    Ok(partitions
        .iter()
        .filter_map(|key| Some((key.clone(), ends(key)?)))
        .collect())
}

fn report(group: &str, steps: &[Step], executed: bool) -> Report {
    let columns = [
        left("TOPIC"),
        right("PARTITION"),
        right("OFFSET"),
        right("NEW-OFFSET"),
    ];
    let row = |step: &Step| {
        let (topic, index) = &step.partition;
        let cells = [
            topic.clone(),
            index.to_string(),
            number(step.from),
            step.to.to_string(),
        ];
        let json = json!({
            "topic": topic,
            "partition": index,
            "offset": step.from,
            "new_offset": step.to,
        });
        (cells, json)
    };
    let Report { text, json: offsets } = Report::listing(columns, steps.iter().map(row));
    Report {
        text,
        json: json!({"group": group, "executed": executed, "offsets": offsets}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_shown_beside_what_is_committed() {
        let step = |index, from| Step {
            partition: ("t".to_owned(), index),
            from,
            to: 7,
            moved_from: None,
            ends: Ends {
                earliest: 0,
                latest: 20,
                at_time: None,
            },
        };
        let report = report("g", &[step(0, Some(12)), step(1, None)], false);
        assert_eq!(
            report.text,
            "TOPIC  PARTITION  OFFSET  NEW-OFFSET\nt              0      12           7\nt              1       -           7\n"
        );
        assert_eq!(report.json["executed"], false);
        assert!(report.json["offsets"][1]["offset"].is_null());
    }

    #[test]
    fn a_group_that_has_members_is_worth_another_try_later() {
        use protocol::ErrorCode as Code;
        let refused = joined_since("g", ClientError::answer("x", Code::UNKNOWN_MEMBER_ID, None));
        assert_eq!(Failure::from(refused).status, Status::TempFail);
        let other = ClientError::answer("x", Code::OFFSET_METADATA_TOO_LARGE, None);
        assert_eq!(joined_since("g", other.clone()), other);
    }
}
