//! Runs the group cases, some at a time: nearly all of them wait, for a heartbeat, a session timeout, or for nothing to happen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::cases::{CASES, GroupCase, is_absent, not_played};
use super::history::{History, Told};
use super::stage::Stage;
use super::topic::GroupTopic;
use super::{CaseOutcome, GroupResult, GroupRuns, ROWS, Row, RowSkipped};
use crate::clients::run::{SetUp, cache_dir, in_parallel, set_up};
use crate::error::{Result, failed};

/// What to run.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// `HOST:PORT` of the broker.
    pub bootstrap: String,
    /// What the names of all topics and groups begin with.
    pub topic_prefix: String,
    /// Names of rows; empty means all.
    pub only: Vec<String>,
    /// Names of cases; empty means all.
    pub cases: Vec<String>,
    /// Cases at the same time.
    pub parallel: usize,
}

/// Runs the cases.
///
/// # Errors
/// An unknown name, or no cache directory can be made. What goes wrong with a client is its outcome.
pub fn run_groups(options: &GroupOptions) -> Result<GroupRuns> {
    let rows = wanted(&options.only, ROWS.iter(), |row| row.name)?;
    let cases = wanted(&options.cases, CASES.iter(), |case| case.name)?;
    let cache = cache_dir()?;
    let mut runs = GroupRuns::default();
    let mut scripts: BTreeMap<&str, PathBuf> = BTreeMap::new();
    for row in &rows {
        if scripts.contains_key(row.client) || runs.skipped.iter().any(|one| one.client == row.client) {
            continue;
        }
        let dir = cache.join(row.client);
        let mut skip = |unavailable, why| {
            runs.skipped.push(RowSkipped {
                client: row.client,
                unavailable,
                why,
            });
        };
        match set_up(row.client, &dir, &dir.with_extension("log"))? {
            SetUp::Ready(script) => drop(scripts.insert(row.client, script)),
            SetUp::Unavailable(why) => skip(true, why),
            SetUp::Failed(why) => skip(false, why),
        }
    }
    let mut queue = Vec::new();
    for case in &cases {
        let ready = rows
            .iter()
            .filter_map(|row| Some((*row, *case, scripts.get(row.client)?)));
        queue.extend(ready);
    }
    runs.results = in_parallel(queue, options.parallel, |(row, case, script)| {
        run_case(row, case, script, &cache, options)
    });
    Ok(runs)
}

fn wanted<T>(
    names: &[String],
    all: impl Iterator<Item = &'static T> + Clone,
    name_of: impl Fn(&T) -> &'static str,
) -> Result<Vec<&'static T>> {
    let known: Vec<_> = all.clone().map(&name_of).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return failed(format!("there is no {unknown}, only {}", known.join(", ")));
    }
    Ok(all
        .filter(|one| names.is_empty() || names.iter().any(|name| name == name_of(one)))
        .collect())
}

fn run_case(
    row: &'static Row,
    case: &'static GroupCase,
    script: &Path,
    cache: &Path,
    options: &GroupOptions,
) -> GroupResult {
    let started = Instant::now();
    let result = |version, outcome| GroupResult {
        row: row.name,
        case: case.name,
        version,
        outcome,
        seconds: started.elapsed().as_secs_f64(),
    };
    if let Some(why) = not_played(row, case) {
        return result(None, CaseOutcome::Absent(why.to_owned()));
    }
    let name = format!("{}-{}-{}", options.topic_prefix, row.name, case.name);
    let history = Arc::new(History::default());
    let log = cache.join(format!("{name}.log"));
    let played = GroupTopic::create(&options.bootstrap, &name, &format!("{name}-group")).and_then(|topic| {
        let mut stage = Stage {
            row,
            script,
            cache: &cache.join(row.client),
            bootstrap: &options.bootstrap,
            log: log.clone(),
            topic: Some(topic),
            history: Arc::clone(&history),
            members: Vec::new(),
        };
        (case.play)(&mut stage)
    });
    let absent = |told: &Told| told.members.iter().find_map(|member| member.absent.clone());
    let version = |told: &Told| told.members.iter().find_map(|member| member.version.clone());
    let outcome = match (history.look(absent), played) {
        (Some(why), Err(_)) if is_absent(row, case) => CaseOutcome::Absent(why),
        (_, Err(error)) => CaseOutcome::Failed(error.to_string()),
        (_, Ok(_)) if is_absent(row, case) => CaseOutcome::Failed("it has what it is said to lack".into()),
        (_, Ok(note)) => CaseOutcome::Ok(note),
    };
    if !matches!(outcome, CaseOutcome::Failed(_)) {
        // A log tells something where a case failed; there may be none.
        let _ = std::fs::remove_file(&log);
    }
    result(history.look(version), outcome)
}
