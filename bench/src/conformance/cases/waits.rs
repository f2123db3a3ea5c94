//! Fetches that wait: what ends the wait and what does not (FE-4, FE-5, BR-077).

use std::time::{Duration, Instant};

use protocol::Uuid;
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use protocol::messages::fetch::FetchRequest;
use protocol::messages::produce::ProduceRequest;

use super::super::Case;
use super::super::dialogue::{Dialogue, fetch_of, produce_of};
use super::fetch::filled;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[
    Case::new("FE-4 what is answered at once", at_once),
    Case::new("FE-4 what waits for max_wait (BR-077)", waits),
    Case::new("FE-5 a wait ends when records come", woken),
    Case::new("FE-5 a wait ends when its topic is deleted", woken_by_deletion),
];

fn timed(d: &mut Dialogue<'_>, label: &str, request: &FetchRequest, wait_ms: i32) -> Result<()> {
    let request = FetchRequest {
        max_wait_ms: wait_ms,
        ..request.clone()
    };
    let began = Instant::now();
    let answer = d.quiet(12, &request)?;
    let parts: Vec<_> = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|part| {
            format!(
                "{} {}",
                part.error_code,
                part.records.as_ref().is_some_and(|r| !r.is_empty())
            )
        })
        .collect();
    d.note(&format!(
        "{label}: error and whether there are records: {}",
        parts.join(", ")
    ));
    d.took(began, u64::try_from(wait_ms).unwrap_or(0).max(1500));
    Ok(())
}

fn at_once(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&topic, 0, bytes)?;
    let empty = fetch_of([(&topic, 1, 0)], 0);
    let full = fetch_of([(&topic, 0, 0)], 0);
    timed(d, "records are there", &full, 3000)?;
    timed(d, "max_wait 0 on an empty partition", &empty, 0)?;
    timed(d, "max_wait -1 on an empty partition", &empty, -1)?;
    let mut no_minimum = empty.clone();
    no_minimum.min_bytes = 0;
    timed(d, "min_bytes 0 on an empty partition", &no_minimum, 3000)?;
    timed(d, "nothing asked for", &fetch_of([], 0), 3000)?;
    timed(
        d,
        "an empty partition and an unknown one",
        &fetch_of([(&topic, 1, 0), (&topic, 9, 0)], 0),
        3000,
    )?;
    timed(
        d,
        "an empty partition and an offset out of range",
        &fetch_of([(&topic, 1, 0), (&topic, 0, 7)], 0),
        3000,
    )?;
    timed(
        d,
        "an empty partition and one with records",
        &fetch_of([(&topic, 1, 0), (&topic, 0, 0)], 0),
        3000,
    )?;
    let mut fenced = empty.clone();
    fenced.topics[0].partitions[0].current_leader_epoch = 9;
    timed(d, "a leader epoch of the future", &fenced, 3000)?;
    Ok(())
}

fn waits(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = filled(d, "a", 2, 5)?;
    let empty = d.topic("b", 1, &[])?;
    timed(d, "an empty partition", &fetch_of([(&empty, 0, 0)], 0), 1500)?;
    timed(d, "the end of a partition", &fetch_of([(&topic, 0, 5)], 0), 1500)?;
    let minimum = |bytes, max_bytes| FetchRequest {
        min_bytes: bytes,
        max_bytes,
        ..fetch_of([(&topic, 0, 0), (&topic, 1, 0)], 0)
    };
    timed(d, "10 batches, min_bytes of 9", &minimum(9 * 998, 1 << 20), 1500)?;
    timed(
        d,
        "10 batches, min_bytes of 11",
        &minimum(11 * 998, 1 << 20),
        1500,
    )?;
    timed(
        d,
        "10 batches, min_bytes above max_bytes",
        &minimum(1 << 20, 6 * 998),
        1500,
    )?;
    timed(
        d,
        "10 batches, min_bytes above max_bytes above all",
        &minimum(1 << 22, 1 << 21),
        1500,
    )?;
    Ok(())
}

fn woken(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    for (label, request) in [
        ("one partition", fetch_of([(&topic, 0, 0)], 8000)),
        (
            "two partitions, the second gets records",
            fetch_of([(&topic, 0, 1), (&topic, 1, 0)], 8000),
        ),
    ] {
        let partition = i32::from(label.starts_with("two"));
        let mut writer = d.connect()?;
        let id = d.wire()?.send(12, &request)?;
        std::thread::sleep(Duration::from_millis(400));
        let began = Instant::now();
        let bytes = d.batch(&["x"]);
        let produce = writer.send(9, &produce_of(&topic, partition, Some(bytes), 1))?;
        let answer = d.wire()?.receive::<FetchRequest>(12, id)?;
        writer.receive::<ProduceRequest>(9, produce)?;
        d.note(label);
        d.answered(&answer);
        d.took(began, 3000);
    }
    // Enough bytes only after the third batch.
    let third = d.topic("b", 1, &[])?;
    let mut request = fetch_of([(&third, 0, 0)], 8000);
    let size = i32::try_from(d.batch(&["x"]).len()).unwrap_or(0);
    request.min_bytes = 3 * size;
    let mut writer = d.connect()?;
    let id = d.wire()?.send(12, &request)?;
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(150));
        let bytes = d.batch(&["x"]);
        let produce = writer.send(9, &produce_of(&third, 0, Some(bytes), -1))?;
        writer.receive::<ProduceRequest>(9, produce)?;
    }
    let began = Instant::now();
    let answer = d.wire()?.receive::<FetchRequest>(12, id)?;
    d.note("min_bytes of three batches");
    d.answered(&answer);
    d.took(began, 3000);
    Ok(())
}

fn woken_by_deletion(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let mut admin = d.connect()?;
    let id = d.wire()?.send(12, &fetch_of([(&topic, 0, 0)], 9000))?;
    std::thread::sleep(Duration::from_millis(400));
    let began = Instant::now();
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(topic.name.clone()),
            topic_id: Uuid::default(),
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    admin.send(6, &request)?;
    let answer = d.wire()?.receive::<FetchRequest>(12, id)?;
    let codes: Vec<_> = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        // Kafka says one or the other, by what it notices first.
        .map(|part| matches!(part.error_code.0, 3 | 6))
        .collect();
    d.note(&format!("unknown or not the leader: {codes:?}"));
    d.took(began, 5000);
    Ok(())
}
