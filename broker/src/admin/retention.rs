//! Retention for the operator: its metric families, and `POST /retention`, which has every shard look for old segments now.

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde_json::json;
use shard::retention::RetentionPass;
use storage::stats::RemovalTotals;

use super::exposition::{Exposition, Kind};
use super::scrape::ask_all;
use super::{Admin, Phase};
use crate::node::NodeMessage;
use crate::observe::shard::ShardSnapshot;

/// Runs a pass on every shard and says what it removed. 200 when all have ended; 202 when some go on by themselves, because
/// they have much to remove; 503 while clients are not served.
pub(super) async fn run(State(admin): State<Admin>) -> (StatusCode, [(HeaderName, &'static str); 1], String) {
    let answer = |status, body: serde_json::Value| {
        let kind = [(header::CONTENT_TYPE, "application/json")];
        (status, kind, format!("{body:#}\n"))
    };
    let running = admin.0.running.get().filter(|_| admin.phase() == Phase::Serving);
    let Some(running) = running else {
        let body = json!({"status": admin.phase().word()});
        return answer(StatusCode::SERVICE_UNAVAILABLE, body);
    };
    let answers = ask_all(running, NodeMessage::Retain).await;
    let passes: Vec<RetentionPass> = answers.iter().filter_map(|pass| pass.ok()).collect();
    let going_on = answers.len() - passes.len();
    let sum = |of: fn(&RetentionPass) -> u64| passes.iter().map(of).sum::<u64>();
    let seconds = passes
        .iter()
        .map(|pass| pass.took.as_secs_f64())
        .fold(0.0, f64::max);
    let body = json!({
        "status": if going_on == 0 { "done" } else { "going on" },
        "shards_going_on": going_on,
        "logs": sum(|pass| pass.logs),
        "logs_failed": sum(|pass| pass.failed),
        "segments_removed": sum(|pass| pass.segments),
        "bytes_removed": sum(|pass| pass.bytes),
        "seconds": seconds,
    });
    let status = if going_on == 0 {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    answer(status, body)
}

/// Segments removed, by reason.
type ByReason = (&'static str, fn(&RemovalTotals) -> u64);

const REASONS: [ByReason; 3] = [
    ("log_start", |totals| totals.segments_by_log_start),
    ("size", |totals| totals.segments_by_size),
    ("age", |totals| totals.segments_by_age),
];

/// One number of a shard.
type OfShard = (&'static str, Kind, &'static str, fn(&ShardSnapshot) -> f64);

const OF_SHARDS: [OfShard; 6] = [
    (
        "penstock_retention_removed_bytes_total",
        Kind::Counter,
        "Bytes of segments removed.",
        |s| s.storage.removals.segment_bytes as f64,
    ),
    (
        "penstock_removal_waiting_bytes",
        Kind::Gauge,
        "Bytes of removed segments and deleted topics whose files wait for file.delete.delay.ms.",
        |s| s.storage.removals.waiting_bytes as f64,
    ),
    (
        "penstock_retention_passes_total",
        Kind::Counter,
        "Times all logs were looked at for old segments.",
        |s| s.retention.passes as f64,
    ),
    (
        "penstock_retention_failures_total",
        Kind::Counter,
        "Logs of which something was to be removed and could not.",
        |s| s.retention.failed as f64,
    ),
    (
        "penstock_retention_last_pass_seconds",
        Kind::Gauge,
        "How long the last pass took.",
        |s| s.retention.last.took.as_secs_f64(),
    ),
    (
        "penstock_retention_last_pass_timestamp_seconds",
        Kind::Gauge,
        "When the last pass ended, seconds since 1970; 0 before the first.",
        |s| s.retention.last.ended.0 as f64 / 1e3,
    ),
];

/// Writes the families.
pub(super) fn write(text: &mut Exposition, shards: &[ShardSnapshot]) {
    let name = "penstock_retention_removed_segments_total";
    let help = "Segments removed, because the log starts above them, by retention.bytes, by retention.ms.";
    let mut family = text.family(name, Kind::Counter, help);
    for shard in shards {
        let number = shard.shard.to_string();
        for (reason, of) in REASONS {
            let labels = [("shard", number.as_str()), ("reason", reason)];
            family.sample(&labels, of(&shard.storage.removals));
        }
    }
    for (name, kind, help, of) in OF_SHARDS {
        let mut family = text.family(name, kind, help);
        for shard in shards {
            family.sample(&[("shard", &shard.shard.to_string())], of(shard));
        }
    }
}
