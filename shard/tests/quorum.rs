//! The quorum without I/O: three nodes with a lossy network and crashes, from a seed. What was committed anywhere is the same
//! everywhere and stays; a term has one leader; a seed is one run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;
use protocol::messages::cluster_metadata::{FeatureLevelRecord, ProducerIdsRecord};
use protocol::{Str, Uuid};
use shard::controller::MetadataRecord;
use shard::env::{Instant, WallMs};
use shard::ids::BrokerId;
use shard::image::{ImageDelta, ImagePosition, MetadataImage};
use shard::quorum::{
    EntryPayload, LogEntry, PeerMessage, ProposeError, QuorumDriver, QuorumOptions, QuorumOutput, Recovered,
    Role, Snapshot, VoteState, Voter, Voters,
};

const TICK_MS: u64 = 100;

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn record(number: i64) -> MetadataRecord {
    ProducerIdsRecord {
        broker_id: 1,
        broker_epoch: 1,
        next_producer_id: number,
    }
    .into()
}

fn voters(nodes: &[i32]) -> Voters {
    let first = Voters::alone(BrokerId(nodes[0]), Voter::default());
    nodes[1..].iter().fold(first, |voters, node| {
        voters.with(BrokerId(*node), Voter::default())
    })
}

fn formatted(nodes: &[i32]) -> Recovered {
    Recovered {
        snapshot: Snapshot {
            image: MetadataImage::empty(""),
            voters: voters(nodes),
            timestamp_ms: 0,
        },
        entries: Vec::new(),
        vote: VoteState::default(),
    }
}

/// What of a node survives its crash.
#[derive(Clone)]
struct Durable {
    recovered: Recovered,
}

impl Durable {
    fn persist(&mut self, output: &QuorumOutput) {
        if let Some(vote) = output.vote {
            self.recovered.vote = vote;
        }
        if let Some(snapshot) = &output.snapshot {
            let index = snapshot.image.position.index;
            self.recovered.snapshot = (**snapshot).clone();
            self.recovered.entries.retain(|entry| entry.index > index);
        }
        if let Some(first) = output.entries.first() {
            self.recovered.entries.retain(|entry| entry.index < first.index);
            // Through bytes, as a disk would keep them.
            let stored = output
                .entries
                .iter()
                .map(|entry| LogEntry::from_batch(&entry.to_batch()).expect("ours"));
            self.recovered.entries.extend(stored);
        }
    }
}

struct Node {
    driver: QuorumDriver,
    durable: Durable,
    image: MetadataImage,
    /// Outputs whose persistence is not finished, with their writes.
    pending: VecDeque<QuorumOutput>,
}

impl Node {
    fn start(options: QuorumOptions, durable: Durable, now: Instant) -> Self {
        Self {
            driver: QuorumDriver::new(options, &durable.recovered, now),
            image: durable.recovered.snapshot.image.clone(),
            durable,
            pending: VecDeque::new(),
        }
    }

    fn take_snapshot(&mut self) {
        let snapshot = Snapshot {
            image: self.image.clone(),
            voters: self.driver.voters().clone(),
            timestamp_ms: 0,
        };
        let bytes = snapshot.to_bytes();
        assert_eq!(
            Snapshot::from_bytes(&bytes, "").expect("our own snapshot"),
            snapshot
        );
        let position = snapshot.image.position;
        self.durable
            .recovered
            .entries
            .retain(|entry| entry.index > position.index);
        self.driver
            .handle_snapshot_saved(position, snapshot.voters.clone(), bytes);
        self.durable.recovered.snapshot = snapshot;
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

struct Net {
    nodes: BTreeMap<i32, Option<Node>>,
    down: BTreeMap<i32, Durable>,
    messages: Vec<(i32, Bytes)>,
    random: Random,
    ms: u64,
    /// What was committed anywhere, by index.
    committed: BTreeMap<u64, LogEntry>,
    leaders: BTreeMap<u64, i32>,
    proposed: i64,
    trace: u64,
    loss_percent: u64,
}

impl Net {
    fn new(seed: u64, nodes: &[i32], loss_percent: u64) -> Self {
        let mut net = Self {
            nodes: BTreeMap::new(),
            down: BTreeMap::new(),
            messages: Vec::new(),
            random: Random(seed),
            ms: 0,
            committed: BTreeMap::new(),
            leaders: BTreeMap::new(),
            proposed: 0,
            trace: 0,
            loss_percent,
        };
        for node in nodes {
            net.down.insert(
                *node,
                Durable {
                    recovered: formatted(nodes),
                },
            );
            net.start(*node);
        }
        net
    }

    fn start(&mut self, id: i32) {
        if let Some(durable) = self.down.remove(&id) {
            let options = QuorumOptions::new(BrokerId(id), self.random.next());
            self.nodes
                .insert(id, Some(Node::start(options, durable, at(self.ms))));
        }
    }

    fn crash(&mut self, id: i32) {
        if let Some(Some(node)) = self.nodes.insert(id, None) {
            self.down.insert(id, node.durable);
        }
    }

    fn step(&mut self, chaos: bool) {
        match self.random.below(if chaos { 100 } else { 60 }) {
            0..20 => self.pass_time(),
            20..50 if chaos => self.deliver(),
            20..50 => (0..8).for_each(|_| self.deliver()),
            50..60 => self.propose(),
            60..62 => {
                let id = self.any_node();
                self.crash(id);
            }
            62..70 => {
                let id = self.any_node();
                self.start(id);
            }
            70..74 => self.snapshot(),
            _ => self.persist_one(),
        }
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in ids {
            self.drain(id, !chaos);
        }
    }

    fn any_node(&mut self) -> i32 {
        let count = self.nodes.len() as u64;
        let at = usize::try_from(self.random.below(count)).expect("small");
        *self.nodes.keys().nth(at).expect("within")
    }

    fn pass_time(&mut self) {
        self.ms += TICK_MS / 2;
        let now = at(self.ms);
        for node in self.nodes.values_mut().flatten() {
            node.driver.handle_time(now);
        }
    }

    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let count = self.messages.len() as u64;
        let at = usize::try_from(self.random.below(count)).expect("small");
        let (to, bytes) = self.messages.swap_remove(at);
        if self.random.below(100) < self.loss_percent {
            return;
        }
        let message = PeerMessage::from_bytes(bytes.clone()).expect("our own message");
        assert_eq!(message.to_bytes(), bytes, "a message comes back from its bytes");
        if let Some(Some(node)) = self.nodes.get_mut(&to) {
            node.driver.handle_message(message);
        }
    }

    fn propose(&mut self) {
        let id = self.any_node();
        let number = self.proposed + 1;
        if let Some(Some(node)) = self.nodes.get_mut(&id) {
            let wall = WallMs(i64::try_from(self.ms).expect("small"));
            match node.driver.propose(vec![record(number)], wall) {
                Ok(proposal) => {
                    assert_eq!(node.driver.role(), Role::Leader);
                    assert_eq!(proposal.term, node.driver.term());
                    self.proposed = number;
                }
                Err(ProposeError::NotLeader(_)) => assert_ne!(node.driver.role(), Role::Leader),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn snapshot(&mut self) {
        let id = self.any_node();
        let Some(Some(node)) = self.nodes.get_mut(&id) else {
            return;
        };
        if node.image.position > node.durable.recovered.snapshot.image.position {
            node.take_snapshot();
        }
    }

    /// Takes what a driver puts out; its writes end later, in order.
    fn drain(&mut self, id: i32, at_once: bool) {
        loop {
            let Some(Some(node)) = self.nodes.get_mut(&id) else {
                return;
            };
            if let Some(output) = node.driver.poll_output(WallMs(0)) {
                self.send(&output.messages);
                let Some(Some(node)) = self.nodes.get_mut(&id) else {
                    return;
                };
                node.pending.push_back(output);
            } else if at_once && !node.pending.is_empty() {
                self.finish_write(id);
            } else {
                break;
            }
        }
        self.check_leader(id);
        if let Some(Some(node)) = self.nodes.get_mut(&id)
            && node.driver.wants_snapshot()
            && node.pending.is_empty()
            && node.image.position.index > 0
        {
            node.take_snapshot();
        }
    }

    fn persist_one(&mut self) {
        let id = self.any_node();
        self.finish_write(id);
    }

    fn finish_write(&mut self, id: i32) {
        let Some(Some(node)) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(output) = node.pending.pop_front() else {
            return;
        };
        node.durable.persist(&output);
        if let Some(snapshot) = &output.snapshot {
            node.image = snapshot.image.clone();
        }
        node.driver.handle_persisted(output.number);
        for entry in &output.committed {
            node.image = applied(&node.image, entry);
            let known = self.committed.entry(entry.index).or_insert_with(|| entry.clone());
            // A leader's first entry has the time and leader of whoever stored it.
            match (&known.payload, &entry.payload) {
                (EntryPayload::LeaderChange(_), EntryPayload::LeaderChange(_)) => {
                    assert_eq!(known.term, entry.term)
                }
                _ => assert_eq!(known, entry, "two nodes committed different entries"),
            }
            self.trace = self
                .trace
                .wrapping_mul(31)
                .wrapping_add(entry.index * 7 + entry.term);
        }
        if let Some(last) = output.committed.last() {
            node.driver.handle_applied(last.index);
        }
        let messages = output.messages_after;
        self.send(&messages);
    }

    fn send(&mut self, messages: &[PeerMessage]) {
        for message in messages {
            let to = message.to().expect("a node").0;
            self.messages.push((to, message.to_bytes()));
            if self.random.below(100) < 3 {
                self.messages.push((to, message.to_bytes())); // the network may repeat
            }
        }
    }

    fn check_leader(&mut self, id: i32) {
        if let Some(Some(node)) = self.nodes.get(&id)
            && node.driver.role() == Role::Leader
        {
            let leader = *self.leaders.entry(node.driver.term()).or_insert(id);
            assert_eq!(leader, id, "two leaders in term {}", node.driver.term());
        }
    }

    /// Everybody up, nothing lost: they agree on everything.
    fn heal(&mut self) {
        self.loss_percent = 0;
        self.messages.clear(); // what was on its way for so long is lost
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in &ids {
            self.start(*id);
        }
        for _ in 0..6_000 {
            self.step(false);
        }
    }
}

fn applied(image: &MetadataImage, entry: &LogEntry) -> MetadataImage {
    let mut delta = ImageDelta::new(image);
    if let EntryPayload::Records(records) = &entry.payload {
        // Proposals of a leader that lost its office may be numbered out of order: they would not pass a controller.
        for record in records {
            let _ = delta.apply(record);
        }
    }
    assert_eq!(
        entry.index,
        image.position.index + 1,
        "entries are applied in order, each once"
    );
    let position = ImagePosition {
        index: entry.index,
        term: entry.term,
    };
    delta.finish(position).0
}

fn run(seed: u64) -> (u64, usize, usize) {
    let mut net = Net::new(seed, &[1, 2, 3], seed % 20);
    for _ in 0..12_000 {
        net.step(true);
    }
    let committed_in_chaos = net.committed.len();
    net.heal();
    let images: Vec<&MetadataImage> = net.nodes.values().flatten().map(|node| &node.image).collect();
    assert_eq!(images.len(), 3);
    assert!(
        net.committed.len() > committed_in_chaos,
        "seed {seed}: nothing is committed in peace"
    );
    for pair in images.windows(2) {
        let (a, b) = (pair[0].position.index, pair[1].position.index);
        assert!(
            a.abs_diff(b) < 50,
            "seed {seed}: a node stays behind: {a} and {b}"
        );
    }
    (net.trace, net.committed.len(), net.leaders.len())
}

#[test]
fn three_nodes_agree_through_loss_and_crashes() {
    let mut committed = 0;
    let mut terms = 0;
    for seed in 0..12 {
        let (_, entries, leaders) = run(seed);
        committed += entries;
        terms += leaders;
    }
    assert!(
        committed > 1_000 && terms > 24,
        "{committed} entries, {terms} terms: too quiet to show anything"
    );
}

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 4] {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_quorum_of_one_leads_at_once_and_needs_no_clock() {
    let options = QuorumOptions::new(BrokerId(0), 1);
    let mut node = Node::start(
        options,
        Durable {
            recovered: formatted(&[0]),
        },
        at(0),
    );
    assert_eq!(node.driver.role(), Role::Leader);
    assert_eq!(node.driver.next_deadline(), None);
    let proposal = node.driver.propose(vec![record(5)], WallMs(9)).expect("it leads");
    let mut committed = Vec::new();
    while let Some(output) = node.driver.poll_output(WallMs(9)) {
        assert!(output.messages.is_empty() && output.messages_after.is_empty());
        node.durable.persist(&output);
        node.driver.handle_persisted(output.number);
        committed.extend(output.committed);
    }
    assert_eq!(
        committed.last().map(|entry| (entry.index, entry.term)),
        Some((proposal.index, proposal.term))
    );
    assert_eq!(node.durable.recovered.vote.voted_for, Some(BrokerId(0)));

    // Nothing is committed before it is durable.
    node.driver.handle_applied(proposal.index);
    node.driver.propose(vec![record(6)], WallMs(9)).expect("it leads");
    let output = node.driver.poll_output(WallMs(9)).expect("an entry to persist");
    assert_eq!(output.entries.len(), 1);
    assert!(output.committed.is_empty());
    assert!(node.driver.poll_output(WallMs(9)).is_none());
    node.driver.handle_persisted(output.number);
    let output = node.driver.poll_output(WallMs(9)).expect("a committed entry");
    assert_eq!(output.committed.len(), 1);
}

#[test]
fn a_quorum_grows_and_shrinks_one_voter_at_a_time() {
    let mut net = Net::new(11, &[1], 0);
    for _ in 0..50 {
        net.step(false);
    }
    let wall = WallMs(0);
    let leader = |net: &mut Net| -> i32 {
        let found = net
            .nodes
            .iter()
            .find(|(_, n)| n.as_ref().is_some_and(|n| n.driver.role() == Role::Leader));
        *found.expect("a leader").0
    };
    let propose = |net: &mut Net, next: &[i32]| {
        let id = leader(net);
        let node = net.nodes.get_mut(&id).and_then(Option::as_mut).expect("it is up");
        node.driver.propose_voters(voters(next), wall)
    };
    assert_eq!(propose(&mut net, &[1, 2, 3]), Err(ProposeError::NotOneStep));
    for (id, set) in [(2, vec![1, 2]), (3, vec![1, 2, 3])] {
        // A new node knows the quorum it joins and has an empty log.
        net.down.insert(
            id,
            Durable {
                recovered: formatted(&[1]),
            },
        );
        net.start(id);
        propose(&mut net, &set).expect("one more");
        assert_eq!(propose(&mut net, &set), Err(ProposeError::ChangeUnderWay));
        for _ in 0..4_000 {
            net.step(false);
        }
    }
    let seen: BTreeSet<usize> = net
        .nodes
        .values()
        .flatten()
        .map(|node| node.driver.voters().len())
        .collect();
    assert_eq!(seen, BTreeSet::from([3]));
    propose(&mut net, &[2, 3]).expect("one fewer, though it leads");
    for _ in 0..6_000 {
        net.step(false);
    }
    assert_ne!(leader(&mut net), 1);
    let id = leader(&mut net);
    let node = net.nodes[&id].as_ref().expect("it is up");
    assert_eq!(node.driver.voters(), &voters(&[2, 3]));
    assert!(node.driver.progress().iter().all(|(node, _)| node.0 != 1));
}

#[test]
fn a_node_far_behind_is_sent_a_snapshot() {
    let mut net = Net::new(21, &[1, 2, 3], 0);
    for _ in 0..1_500 {
        net.step(false);
    }
    net.crash(3);
    for _ in 0..3_000 {
        net.step(false);
    }
    for id in [1, 2] {
        let node = net.nodes.get_mut(&id).and_then(Option::as_mut).expect("it is up");
        let snapshot = Snapshot {
            image: node.image.clone(),
            voters: node.driver.voters().clone(),
            timestamp_ms: 0,
        };
        let bytes = snapshot.to_bytes();
        node.driver
            .handle_snapshot_saved(snapshot.image.position, snapshot.voters.clone(), bytes);
        assert!(node.driver.log_bytes() < 100_000);
    }
    net.start(3);
    for _ in 0..6_000 {
        net.step(false);
    }
    let positions: Vec<u64> = net
        .nodes
        .values()
        .flatten()
        .map(|node| node.image.position.index)
        .collect();
    assert!(
        positions
            .iter()
            .all(|position| position.abs_diff(positions[0]) < 50),
        "{positions:?}"
    );
    let third = net.nodes[&3].as_ref().expect("it is up");
    assert!(
        third.durable.recovered.snapshot.image.position.index > 0,
        "no snapshot came"
    );
}

#[test]
fn snapshots_hold_an_image_and_are_refused_when_damaged() {
    let mut delta = ImageDelta::new(&MetadataImage::empty("the-cluster"));
    let feature = FeatureLevelRecord {
        name: Str::from_static("metadata.version"),
        feature_level: 30,
    };
    delta.apply(&feature.into()).expect("it fits");
    delta.apply(&record(3_000)).expect("it fits");
    let voter = Voter {
        directory: Uuid::from_u128(5),
        endpoints: Vec::new(),
    };
    let snapshot = Snapshot {
        image: delta.finish(ImagePosition { index: 7, term: 3 }).0,
        voters: Voters::alone(BrokerId(1), voter),
        timestamp_ms: 55,
    };
    let bytes = snapshot.to_bytes();
    assert_eq!(
        Snapshot::from_bytes(&bytes, "the-cluster").expect("ours"),
        snapshot
    );
    for end in 0..bytes.len() {
        assert!(
            Snapshot::from_bytes(&bytes.slice(..end), "the-cluster").is_err(),
            "cut at {end}"
        );
    }
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(&bytes[..80]);
    assert!(Snapshot::from_bytes(&longer.into(), "the-cluster").is_err());
}

proptest! {
    #[test]
    fn hostile_messages_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), framed in any::<bool>()) {
        if framed && bytes.len() >= 75 {
            bytes[0] = 1;
            bytes[1] = bytes[1] % 12 + 1;
            for number in 0..9 {
                bytes[2 + number * 8..2 + number * 8 + 6].fill(0);
            }
        }
        if let Ok(message) = PeerMessage::from_bytes(Bytes::from(bytes)) {
            prop_assert!(message.from().is_some() && message.to().is_some());
            // Whatever it says, a node survives it.
            let mut node = Node::start(QuorumOptions::new(BrokerId(1), 5), Durable { recovered: formatted(&[1, 2, 3]) }, at(0));
            node.driver.handle_message(message);
            while let Some(output) = node.driver.poll_output(WallMs(0)) {
                node.driver.handle_persisted(output.number);
            }
        }
    }
}
