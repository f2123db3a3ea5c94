//! The quorum as golden scripts: elections, entries, votes and messages of nodes that are driven by hand
//! (`tests/scripts/quorum.txt`). What is persisted is durable at once unless the script holds it back.

mod metadata;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use metadata::script;
use protocol::messages::cluster_metadata::NoOpRecord;
use shard::env::{Instant, WallMs};
use shard::ids::BrokerId;
use shard::image::MetadataImage;
use shard::quorum::{
    EntryPayload, LogEntry, PeerMessage, QuorumDriver, QuorumOptions, QuorumOutput, Recovered, Snapshot,
    VoteState, Voter, Voters,
};

#[test]
fn nodes_elect_commit_and_change_voters_as_the_script_says() {
    let mut table = Table::default();
    script::run("quorum.txt", |line| table.step(line));
}

#[derive(Default)]
struct Table {
    nodes: BTreeMap<i32, QuorumDriver>,
    mail: Vec<PeerMessage>,
    held: Vec<(i32, QuorumOutput)>,
    holding: bool,
    ms: u64,
}

impl Table {
    fn step(&mut self, line: &str) -> String {
        let words = script::words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let number = |at: usize| -> i32 { words[at].parse().expect("a number") };
        let mut out = String::new();
        match words[0] {
            "quorum" => self.start(&words[1..]),
            "pass" => self.pass(u64::from(number(1).unsigned_abs())),
            "propose" => self.propose(number(1), &mut out),
            "voters" => self.change_voters(number(1), &words[2..], &mut out),
            "deliver" => self.deliver(words.get(1).map(|node| node.parse().expect("a node")), &mut out),
            "lose" => self.mail.clear(),
            "hold" => self.holding = true,
            "release" => self.release(&mut out),
            "state" => {}
            other => panic!("unknown command {other}"),
        }
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in ids {
            self.drain(id, &mut out);
        }
        if words[0] == "state" {
            self.show(&mut out);
        }
        out
    }

    /// `quorum ID ...`: these nodes, formatted, with one another as voters.
    fn start(&mut self, ids: &[&str]) {
        *self = Self::default();
        let ids: Vec<i32> = ids.iter().map(|id| id.parse().expect("an id")).collect();
        for id in &ids {
            let recovered = Recovered {
                snapshot: Snapshot {
                    image: MetadataImage::empty(""),
                    voters: voters(&ids),
                    timestamp_ms: 0,
                },
                entries: Vec::new(),
                vote: VoteState::default(),
            };
            let options = QuorumOptions::new(BrokerId(*id), u64::from(id.unsigned_abs()));
            self.nodes
                .insert(*id, QuorumDriver::new(options, &recovered, Instant(0)));
        }
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        for node in self.nodes.values_mut() {
            node.handle_time(Instant(self.ms * 1_000_000));
        }
    }

    fn propose(&mut self, id: i32, out: &mut String) {
        let node = self.nodes.get_mut(&id).expect("a node");
        match node.propose(vec![NoOpRecord::default().into()], WallMs(1)) {
            Ok(proposal) => writeln!(out, "proposed {} in term {}", proposal.index, proposal.term),
            Err(error) => writeln!(out, "refused: {error}"),
        }
        .expect("a string takes text");
    }

    fn change_voters(&mut self, id: i32, ids: &[&str], out: &mut String) {
        let ids: Vec<i32> = ids.iter().map(|id| id.parse().expect("an id")).collect();
        let node = self.nodes.get_mut(&id).expect("a node");
        match node.propose_voters(voters(&ids), WallMs(1)) {
            Ok(proposal) => writeln!(out, "proposed {} in term {}", proposal.index, proposal.term),
            Err(error) => writeln!(out, "refused: {error}"),
        }
        .expect("a string takes text");
    }

    /// Delivers what is under way, to one node or to all; what that causes waits for the next delivery.
    fn deliver(&mut self, to: Option<i32>, out: &mut String) {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.mail)
            .into_iter()
            .partition(|message| to.is_none_or(|to| message.to() == Some(BrokerId(to))));
        self.mail = later;
        writeln!(out, "{} messages", now.len()).expect("a string takes text");
        for message in now {
            let to = message.to().expect("a node").0;
            let message = PeerMessage::from_bytes(message.to_bytes()).expect("our own");
            if let Some(node) = self.nodes.get_mut(&to) {
                node.handle_message(message);
            }
        }
    }

    fn drain(&mut self, id: i32, out: &mut String) {
        while let Some(output) = self
            .nodes
            .get_mut(&id)
            .and_then(|node| node.poll_output(WallMs(1)))
        {
            self.mail.extend(output.messages.iter().cloned());
            if let Some(vote) = output.vote {
                let whom = vote
                    .voted_for
                    .map_or_else(|| "nobody".to_owned(), |node| node.to_string());
                writeln!(out, "{id} saves term {} vote {whom}", vote.term).expect("a string takes text");
            }
            shown(out, id, "appends", &output.entries);
            if self.holding {
                self.held.push((id, output));
            } else {
                self.persisted(id, output, out);
            }
        }
    }

    fn persisted(&mut self, id: i32, output: QuorumOutput, out: &mut String) {
        self.mail.extend(output.messages_after);
        let node = self.nodes.get_mut(&id).expect("a node");
        node.handle_persisted(output.number);
        shown(out, id, "applies", &output.committed);
        if let Some(last) = output.committed.last() {
            node.handle_applied(last.index);
        }
    }

    fn release(&mut self, out: &mut String) {
        self.holding = false;
        for (id, output) in std::mem::take(&mut self.held) {
            self.persisted(id, output, out);
        }
    }

    fn show(&self, out: &mut String) {
        for (id, node) in &self.nodes {
            let voters: Vec<String> = node.voters().iter().map(|(node, _)| node.to_string()).collect();
            writeln!(
                out,
                "{id}: {:?} term {} leader {} last {} committed {} voters {}",
                node.role(),
                node.term(),
                node.leader()
                    .map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
                node.last_index(),
                node.committed_index(),
                voters.join(",")
            )
            .expect("a string takes text");
        }
    }
}

fn voters(ids: &[i32]) -> Voters {
    let first = Voters::alone(BrokerId(ids[0]), Voter::default());
    ids[1..]
        .iter()
        .fold(first, |voters, id| voters.with(BrokerId(*id), Voter::default()))
}

fn shown(out: &mut String, id: i32, what: &str, entries: &[LogEntry]) {
    for entry in entries {
        let payload = match &entry.payload {
            EntryPayload::LeaderChange(leader) => format!("leader {leader}"),
            EntryPayload::Records(records) => format!("{} records", records.len()),
            EntryPayload::Voters(voters) => format!("{} voters", voters.len()),
        };
        writeln!(out, "{id} {what} {}/{} {payload}", entry.index, entry.term).expect("a string takes text");
    }
}
