//! `/health/live` and `/health/ready`. Live: every shard's executor turns, however much work waits in it; a broker that is not live has to be restarted. Ready:
//! clients are served; what is not at its best is said, and is no reason to send clients away.

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde_json::{Value, json};
use shard::runtime::port::PortError;

use super::scrape::ask_all;
use super::{Admin, Phase, SHARD_ANSWER_MAX};
use crate::node::NodeMessage;
use crate::observe::progress::Progress;
use crate::observe::shard::Vitals;

/// How often the shards' pulses are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A status with a JSON body.
type Answer = (StatusCode, [(HeaderName, &'static str); 1], String);

fn answer(status: StatusCode, body: &Value) -> Answer {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{body:#}\n"))
}

/// 200 while every shard that runs turns, 503 with their numbers when some do not.
pub(super) async fn live(State(admin): State<Admin>) -> Answer {
    let phase = admin.phase();
    // Shards answer once their storage is open, and no more when they have stopped; both take the time they need.
    let silent = match phase {
        Phase::Serving => still_shards(&admin).await,
        Phase::Starting | Phase::Stopping => Vec::new(),
    };
    if silent.is_empty() {
        return answer(StatusCode::OK, &json!({"status": "live", "phase": phase.word()}));
    }
    let waited = SHARD_ANSWER_MAX.as_secs();
    let body =
        json!({"status": "dead", "phase": phase.word(), "silent_shards": silent, "waited_seconds": waited});
    answer(StatusCode::SERVICE_UNAVAILABLE, &body)
}

/// 200 while clients are served: `ready`, or `degraded` with the reasons. 503 with a `reason` before, after, and when storage
/// or a shard is lost.
pub(super) async fn ready(State(admin): State<Admin>) -> Answer {
    let facts = &admin.0.facts;
    let phase = admin.phase();
    let answers = match phase {
        Phase::Serving => vitals(&admin).await,
        Phase::Starting | Phase::Stopping => Vec::new(),
    };
    let known: Vec<Vitals> = answers.iter().filter_map(|answer| answer.clone().ok()).collect();
    let offline: usize = known.iter().map(|v| v.offline_partitions).sum();
    let damaged: usize = known.iter().map(|v| v.damaged_places).sum();
    let silent = silent_shards(&answers);
    let is_full = known
        .iter()
        .flat_map(|v| &v.spaces)
        .any(|(_, space)| space.refuses_writes);
    let offline_dirs = known.first().map_or(&[][..], |v| &v.offline_dirs);
    let is_storage_lost = known.iter().any(|v| v.is_storage_offline);
    let findings: Vec<Value> = facts
        .host
        .troubles()
        .iter()
        .map(|f| json!({"subject": f.subject, "verdict": f.verdict.word(), "sentence": f.sentence, "advice": f.advice}))
        .collect();

    let is_served = phase == Phase::Serving && silent.is_empty() && !is_storage_lost;
    let status = match phase {
        Phase::Starting | Phase::Stopping => phase.word(),
        Phase::Serving if !is_served => "failed",
        Phase::Serving if is_full || offline > 0 || damaged > 0 => "degraded",
        Phase::Serving if !offline_dirs.is_empty() || !findings.is_empty() => "degraded",
        Phase::Serving => "ready",
    };
    let (journal_done, journal_bytes) = facts.progress.journal_bytes();
    let (logs_done, logs) = facts.progress.logs();
    let body = json!({
        "status": status,
        "reason": reason(phase, &facts.progress, &silent, is_storage_lost),
        "node_id": facts.settings.node_id.0,
        "version": env!("CARGO_PKG_VERSION"),
        "up_seconds": facts.began.elapsed().as_secs(),
        "offline_partitions": offline,
        "damaged_places": damaged,
        "storage_offline": is_storage_lost,
        "offline_log_dirs": offline_dirs,
        "disk": disk(&known, is_full),
        "silent_shards": silent,
        "recovery": {
            "journal_bytes_done": journal_done,
            "journal_bytes": journal_bytes,
            "logs_done": logs_done,
            "logs": logs,
            "logs_to_open": known.iter().map(|v| v.logs_to_open).sum::<usize>(),
        },
        "host": findings,
    });
    let code = if is_served {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    answer(code, &body)
}

/// The free space, of the directory that is full or has least, as the shard sees it that has most waiting for it.
fn disk(known: &[Vitals], is_full: bool) -> Value {
    let spaces = || known.iter().flat_map(|v| &v.spaces).map(|(_, space)| *space);
    let worst = spaces().min_by_key(|space| (!space.refuses_writes, space.usable_bytes));
    let Some(worst) = worst else { return Value::Null };
    let sentence = "producers are refused until there is more free space than the reserve; reads and deletions go on, and offset \
                    commits until a quarter of it is left. Free some space, lower retention, or delete topics";
    json!({
        "full": is_full,
        "sentence": is_full.then_some(sentence),
        "usable_bytes": worst.usable_bytes,
        "reserve_bytes": worst.reserve_bytes,
        "needed_bytes": worst.needed_bytes,
        "total_bytes": worst.total_bytes,
        "seconds_to_full": spaces().filter_map(|space| space.seconds_to_full()).min(),
    })
}

/// Why clients are not served, in one sentence; `None` while they are.
fn reason(phase: Phase, progress: &Progress, silent: &[usize], is_storage_lost: bool) -> Option<String> {
    let (journal, logs) = (progress.journal_bytes(), progress.logs());
    match phase {
        Phase::Starting if journal.0 < journal.1 => Some(format!(
            "the journals of the run before are being replayed: {} of {} bytes",
            journal.0, journal.1
        )),
        Phase::Starting => Some(format!(
            "the broker is starting: {} of {} logs are open",
            logs.0, logs.1
        )),
        Phase::Stopping => Some("the broker was asked to stop".to_owned()),
        Phase::Serving if is_storage_lost => {
            Some("the log directory is offline after a failed write or sync; the log says which".to_owned())
        }
        Phase::Serving if !silent.is_empty() => Some(format!(
            "shards {silent:?} did not answer within {} seconds",
            SHARD_ANSWER_MAX.as_secs()
        )),
        Phase::Serving => None,
    }
}

/// The shards whose executors have not polled a task in [`SHARD_ANSWER_MAX`] although each was sent a message. Whether the
/// message's turn came is another matter: a queue is load.
async fn still_shards(admin: &Admin) -> Vec<usize> {
    let Some(running) = admin.0.running.get() else {
        return Vec::new();
    };
    let polls = || -> Vec<u64> { running.pulses.read().iter().map(|pulse| pulse.polls).collect() };
    let before = polls();
    let still = |now: &[u64]| -> Vec<usize> {
        let pairs = before.iter().zip(now).enumerate();
        pairs
            .filter(|(_, (b, n))| b == n)
            .map(|(shard, _)| shard)
            .collect()
    };
    let mut asked = pin!(async {
        vitals(admin).await;
        // Answered or refused, a shard that turns is seen by its pulse.
        std::future::pending::<()>().await;
    });
    let began = tokio::time::Instant::now();
    loop {
        let _ = tokio::time::timeout(LOOK_INTERVAL, &mut asked).await;
        let left = still(&polls());
        if left.is_empty() || began.elapsed() >= SHARD_ANSWER_MAX {
            return left;
        }
    }
}

async fn vitals(admin: &Admin) -> Vec<Result<Vitals, PortError>> {
    match admin.0.running.get() {
        Some(running) => ask_all(running, NodeMessage::Vitals).await,
        None => Vec::new(),
    }
}

/// A full inbox is a busy shard, not a silent one.
fn silent_shards(answers: &[Result<Vitals, PortError>]) -> Vec<usize> {
    answers
        .iter()
        .enumerate()
        .filter(|(_, answer)| matches!(answer, Err(PortError::TimedOut)))
        .map(|(shard, _)| shard)
        .collect()
}
