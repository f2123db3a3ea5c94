//! One scrape: a message to each shard, the answers put together, the text written on the admin thread.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use shard::ids::ShardId;
use shard::router::ShardMessage;
use shard::runtime::port::{PortError, PortReply};

use super::exposition::{Exposition, Kind};
use super::{
    Admin, Phase, Running, SHARD_ANSWER_MAX, cleaner, families, groups, moves, node_families, process,
    retention, stages,
};
use crate::node::NodeMessage;
use crate::observe::metrics::Snapshot;
use crate::observe::shard::ShardSnapshot;

/// The whole text. Shards that do not answer in time are left out and counted.
pub(super) async fn scrape(admin: &Admin) -> String {
    let began = Instant::now();
    let mut text = Exposition::default();
    process::write(&mut text);
    let settings = &admin.0.facts.settings;
    let (mut ledger, mut answers) = (None, Vec::new());
    // Before the shards serve their inboxes nobody answers, and a scrape should not wait for recovery.
    if let Some(running) = admin.0.running.get()
        && admin.phase() != Phase::Starting
    {
        if settings.group_series_max > 0 {
            ledger = Some(groups::read(running, settings.group_series_max).await);
        }
        answers = ask_all(running, NodeMessage::Snapshot).await;
    }
    let silent = answers.iter().filter(|answer| answer.is_err()).count();
    let shards: Vec<ShardSnapshot> = answers.into_iter().filter_map(Result::ok).collect();
    let mut requests = Snapshot::default();
    for shard in &shards {
        requests.merge(&shard.requests);
    }
    node_families::write(&mut text, admin, &shards, &requests);
    families::write(&mut text, settings.node_id, &shards, &requests);
    stages::write(&mut text, &requests.stages);
    retention::write(&mut text, &shards);
    cleaner::write(&mut text, &shards, wall_ms());
    moves::write(&mut text, &shards);
    groups::counts(&mut text, &shards);
    if let (Some(ledger), Some(image)) = (&ledger, families::newest_image(&shards)) {
        groups::write(&mut text, ledger, &image, &shards).await;
    }
    let help = "Shards that did not answer this scrape.";
    text.single("penstock_scrape_silent_shards", Kind::Gauge, help, silent);
    let help = "How long this scrape took.";
    text.single(
        "penstock_scrape_seconds",
        Kind::Gauge,
        help,
        began.elapsed().as_secs_f64(),
    );
    text.finish()
}

/// Asks every shard the same; waits for all of them together, within bounds.
pub(super) async fn ask_all<R: Send>(
    running: &Running,
    question: fn(PortReply<R>) -> NodeMessage,
) -> Vec<Result<R, PortError>> {
    let deadline = tokio::time::Instant::now() + SHARD_ANSWER_MAX;
    let calls: Vec<_> = (0..running.port.shards())
        .map(|shard| {
            running
                .port
                .call(ShardId(shard), |reply| ShardMessage::Node(question(reply)))
        })
        .collect();
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let answer = match call {
            Ok(call) => tokio::time::timeout_at(deadline, call.answer())
                .await
                .unwrap_or(Err(PortError::TimedOut)),
            Err(error) => Err(error),
        };
        answers.push(answer);
    }
    answers
}

/// Wall-clock time, milliseconds since 1970.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
