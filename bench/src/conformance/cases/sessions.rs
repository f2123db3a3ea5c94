//! Fetch sessions (KIP-227): FE-20 to FE-25.

use protocol::Uuid;
use protocol::messages::fetch::{FetchRequest, FetchRequestForgottenTopic};

use super::super::Case;
use super::super::dialogue::{Dialogue, Topic, fetch_of};
use crate::error::Result;

pub(super) const CASES: &[Case] = &[
    Case::new("FE-20 how a session begins, and fetches without one", begins)
        .differs("a session over no partitions is not kept: no id is given for it"),
    Case::new("FE-21 wrong epochs and unknown sessions", wrong_epochs),
    Case::new("FE-22 what an incremental answer lists", incremental),
    Case::new("FE-22 partitions with errors are listed each time", errors),
    Case::new("FE-23 how a session ends", ends),
    Case::new("FE-24 sessions by name and by id", by_name_or_id),
    Case::new(
        "FE-25 another connection goes on with a session",
        other_connection,
    ),
];

fn request(parts: &[(&Topic, i32, i64)], session_id: i32, session_epoch: i32) -> FetchRequest {
    FetchRequest {
        session_id,
        session_epoch,
        ..fetch_of(parts.iter().copied(), 0)
    }
}

fn forgotten(topic: &Topic, partitions: &[i32]) -> FetchRequestForgottenTopic {
    FetchRequestForgottenTopic {
        topic: topic.name.clone(),
        topic_id: topic.id,
        partitions: partitions.to_vec(),
    }
}

fn begins(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let batch = d.batch(&["x"]);
    d.written(&topic, 0, batch)?;
    for version in [7, 12, 13] {
        d.ask("no session", version, &request(&[(&topic, 0, 0)], 0, -1))?;
        d.ask(
            "a new session",
            version,
            &request(&[(&topic, 0, 0), (&topic, 1, 0)], 0, 0),
        )?;
        d.ask("a new session without partitions", version, &request(&[], 0, 0))?;
        d.ask("id 0 with epoch 5", version, &request(&[(&topic, 0, 0)], 0, 5))?;
    }
    Ok(())
}

fn wrong_epochs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in [7, 12, 13] {
        let id = d
            .ask("new", version, &request(&[(&topic, 0, 0)], 0, 0))?
            .session_id;
        d.ask("epoch 2 where 1 is next", version, &request(&[], id, 2))?;
        d.ask("epoch 1", version, &request(&[], id, 1))?;
        d.ask("epoch 1 again", version, &request(&[], id, 1))?;
        d.ask("epoch 2", version, &request(&[], id, 2))?;
        d.ask("a session nobody has", version, &request(&[], 12345, 1))?;
        d.ask(
            "a session nobody has, with partitions",
            version,
            &request(&[(&topic, 0, 0)], 12345, 1),
        )?;
    }
    Ok(())
}

fn incremental(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 3, &[])?;
    for version in [7, 13] {
        let start = d.quiet(version, &request(&[(&topic, 0, 0)], 0, -1))?;
        let base = start.responses[0].partitions[0].high_watermark;
        let parts = [(&topic, 0, base), (&topic, 1, base), (&topic, 2, base)];
        let id = d
            .ask("three partitions at their ends", version, &request(&parts, 0, 0))?
            .session_id;
        d.ask("nothing changed", version, &request(&[], id, 1))?;
        let batch = d.batch(&["x"]);
        d.written(&topic, 1, batch)?;
        d.ask("one has a record", version, &request(&[], id, 2))?;
        d.ask("it was not moved on", version, &request(&[], id, 3))?;
        d.ask(
            "it is moved on",
            version,
            &request(&[(&topic, 1, base + 1)], id, 4),
        )?;
        d.ask("nothing changed", version, &request(&[], id, 5))?;
        let mut forget = request(&[], id, 6);
        forget.forgotten_topics_data = vec![forgotten(&topic, &[1, 2])];
        d.ask("two are forgotten", version, &forget)?;
        for partition in 0..3 {
            let batch = d.batch(&["y"]);
            d.written(&topic, partition, batch)?;
            if partition != 1 {
                let batch = d.batch(&["z"]);
                d.written(&topic, partition, batch)?;
            }
        }
        d.ask("all have records, one is left", version, &request(&[], id, 7))?;
        d.ask(
            "a forgotten one comes back",
            version,
            &request(&[(&topic, 0, base + 2), (&topic, 2, base)], id, 8),
        )?;
    }
    Ok(())
}

fn errors(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d
        .ask(
            "one is not there",
            12,
            &request(&[(&topic, 0, 0), (&topic, 7, 0)], 0, 0),
        )?
        .session_id;
    d.ask("again", 12, &request(&[], id, 1))?;
    d.ask("out of range", 12, &request(&[(&topic, 0, 9)], id, 2))?;
    d.ask("again", 12, &request(&[], id, 3))?;
    d.ask("back in range", 12, &request(&[(&topic, 0, 0)], id, 4))?;
    d.ask("again", 12, &request(&[], id, 5))?;
    Ok(())
}

fn ends(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.ask("new", 12, &request(&[(&topic, 0, 0)], 0, 0))?.session_id;
    d.ask("closed by epoch -1", 12, &request(&[(&topic, 0, 0)], id, -1))?;
    d.ask("it is gone", 12, &request(&[], id, 1))?;
    let id = d.ask("new", 12, &request(&[(&topic, 0, 0)], 0, 0))?.session_id;
    d.ask("replaced by epoch 0", 12, &request(&[(&topic, 0, 0)], id, 0))?;
    d.ask("it is gone", 12, &request(&[], id, 1))?;
    let id = d.ask("new", 12, &request(&[(&topic, 0, 0)], 0, 0))?.session_id;
    let mut forget = request(&[], id, 1);
    forget.forgotten_topics_data = vec![forgotten(&topic, &[0])];
    d.ask("its only partition is forgotten", 12, &forget)?;
    d.ask("after that", 12, &request(&[], id, 2))?;
    Ok(())
}

fn by_name_or_id(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d
        .ask("by name", 12, &request(&[(&topic, 0, 0)], 0, 0))?
        .session_id;
    d.ask("goes on by id", 13, &request(&[(&topic, 0, 0)], id, 1))?;
    d.ask("goes on by id, nothing named", 13, &request(&[], id, 1))?;
    let id = d.ask("by id", 13, &request(&[(&topic, 0, 0)], 0, 0))?.session_id;
    d.ask("goes on by name", 12, &request(&[(&topic, 0, 0)], id, 1))?;
    let unknown = Topic {
        name: topic.name.clone(),
        id: Uuid([7; 16]),
    };
    let id = d
        .ask("an unknown id", 13, &request(&[(&unknown, 0, 0)], 0, 0))?
        .session_id;
    d.ask("again", 13, &request(&[], id, 1))?;
    Ok(())
}

fn other_connection(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&["x"]);
    d.written(&topic, 0, batch)?;
    let id = d.ask("new", 12, &request(&[(&topic, 0, 1)], 0, 0))?.session_id;
    // Every other connection is on another shard of ours, where there are two.
    for epoch in 1..5 {
        d.hang_up();
        d.ask("on a new connection", 12, &request(&[], id, epoch))?;
    }
    d.ask("a wrong epoch", 12, &request(&[], id, 9))?;
    d.hang_up();
    d.ask(
        "all anew closes the old one",
        12,
        &request(&[(&topic, 0, 1)], id, 0),
    )?;
    d.hang_up();
    d.ask("the old one", 12, &request(&[], id, 5))?;
    Ok(())
}
