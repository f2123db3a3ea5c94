//! Where the time of requests goes, of those that are traced: histograms by stage, Kafka's times by request, and `GET /requests`, the
//! newest traced requests one by one.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use protocol::ApiKey;
use serde_json::{Map, Value, json};
use shard::histogram::Histogram;
use shard::trace::Stage;

use super::exposition::{Exposition, Kind};
use super::families::{each_name, histogram_seconds, summary_ms};
use super::scrape::ask_all;
use super::{Admin, Phase};
use crate::node::NodeMessage;
use crate::observe::stages::{ApiTimes, StageTimes, TracedRequest};

/// One of Kafka's times of a request.
type KafkaTime = (&'static str, &'static str, fn(&ApiTimes) -> &Histogram);

const KAFKA_TIMES: [KafkaTime; 5] = [
    ("requestqueue", "Waiting for its turn and for memory", |times| {
        &times.stages[Stage::Queue as usize]
    }),
    ("local", "At work, and on the way between shards", |times| {
        &times.local
    }),
    ("remote", "Waiting for syncs, replicas or data", |times| {
        &times.stages[Stage::Wait as usize]
    }),
    ("responsequeue", "Waiting for the answers before it", |times| {
        &times.stages[Stage::Turn as usize]
    }),
    ("responsesend", "Until the kernel has the answer", |times| {
        &times.stages[Stage::Send as usize]
    }),
];

/// Writes the families.
pub(super) fn write(text: &mut Exposition, times: &StageTimes) {
    let name = "penstock_request_stage_seconds";
    let help = "What the stages of traced requests took (penstock.request.trace.interval).";
    let mut family = text.family(name, Kind::Histogram, help);
    for (api, times) in times {
        let request = format!("{api:?}");
        for (stage, histogram) in Stage::ALL.into_iter().zip(&times.stages) {
            let labels = [("request", request.as_str()), ("stage", name_of(*api, stage))];
            histogram_seconds(&mut family, &labels, histogram);
        }
    }
    for (time, help, of) in KAFKA_TIMES {
        let name = format!("kafka_network_requestmetrics_{time}timems");
        let help = format!("{help}, milliseconds, of traced requests since the start.");
        let mut family = text.family(&name, Kind::Summary, &help);
        for (api, times) in times {
            each_name(*api, |request| summary_ms(&mut family, request, of(times)));
        }
    }
}

fn name_of(api: ApiKey, stage: Stage) -> &'static str {
    stage.name(api == ApiKey::Produce)
}

/// The newest traced requests of all shards as lines of JSON, the oldest first. 503 while clients are not served.
pub(super) async fn requests(
    State(admin): State<Admin>,
) -> (StatusCode, [(HeaderName, &'static str); 1], String) {
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    let running = admin.0.running.get().filter(|_| admin.phase() == Phase::Serving);
    let Some(running) = running else {
        let body = json!({"status": admin.phase().word()});
        return (StatusCode::SERVICE_UNAVAILABLE, kind, format!("{body}\n"));
    };
    let answers = ask_all(running, NodeMessage::Requests).await;
    let of_shard = |(shard, answer): (usize, _)| match answer {
        Ok(requests) => requests,
        Err(_) => {
            tracing::warn!(shard, "the shard did not tell its traced requests in time");
            Vec::new()
        }
    };
    let of_shards = answers.into_iter().enumerate().map(of_shard).enumerate();
    let mut all: Vec<(usize, TracedRequest)> = of_shards
        .flat_map(|(shard, requests)| requests.into_iter().map(move |request| (shard, request)))
        .collect();
    all.sort_by_key(|(_, request)| request.at.0);
    let mut body = String::new();
    for (shard, request) in &all {
        let _ = writeln!(body, "{}", line(*shard, request));
    }
    (StatusCode::OK, kind, body)
}

fn line(shard: usize, request: &TracedRequest) -> Value {
    let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let stages = Stage::ALL.into_iter().zip(request.stages);
    let stages: Map<String, Value> = stages
        .map(|(stage, took)| (name_of(request.api, stage).to_owned(), micros(took).into()))
        .collect();
    json!({
        "ended_ms": request.at.0,
        "shard": shard,
        "request": format!("{:?}", request.api),
        "bytes": request.bytes,
        "total_us": micros(request.stages.iter().sum()),
        "stages_us": stages,
    })
}
