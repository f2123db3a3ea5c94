//! The metadata quorum as a state machine without I/O: raft-rs, fed with what is ours. Methods come in four kinds:
//! getters; `handle_*` for what happens (time, messages, what became durable or applied); commands (`propose*`); and
//! [`QuorumDriver::poll_output`], to be called until it gives nothing after any of the others.
//!
//! What keeps it deterministic and safe where raft-rs alone would not be (DESIGN §7): election timeouts come from a seed,
//! set again after every call that may have drawn one from the thread's generator; voter changes are entries of our own
//! encoding; proposals that a peer forwards are refused; nothing from the network is parsed by protobuf (`wire`).

use std::time::Duration;

use raft::eraftpb::{Entry, MessageType};
use raft::prelude::HardState;
use raft::{Config, RawNode, StateRole};

use super::entry::{ENTRY_BYTES_MAX, EntryPayload, LogEntry};
use super::log::{Recovered, VoteState};
use super::logging;
use super::snapshot::Snapshot;
use super::view::LogView;
use super::voters::{VOTERS_MAX, VoterChange, Voters, node_of, raft_id};
use super::wire::PeerMessage;
use crate::controller::MetadataRecord;
use crate::env::{Instant, WallMs};
use crate::ids::BrokerId;
use crate::image::ImagePosition;

/// Proposed and not committed bytes beyond which proposals are refused.
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;

/// Messages on their way to one follower.
const INFLIGHT_MAX: usize = 256;

/// How a node takes part in the quorum.
#[derive(Clone, Copy, Debug)]
pub struct QuorumOptions {
    /// This node.
    pub node: BrokerId,
    /// Where election timeouts come from.
    pub seed: u64,
    /// The length of one tick.
    pub tick: Duration,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
    /// A follower that hears nothing for this many ticks to twice as many holds an election.
    pub election_ticks: usize,
}

impl QuorumOptions {
    /// A node's options with Kafka's `controller.quorum.fetch.timeout.ms` of two seconds to find a leader dead.
    #[must_use]
    pub const fn new(node: BrokerId, seed: u64) -> Self {
        Self {
            node,
            seed,
            tick: Duration::from_millis(100),
            heartbeat_ticks: 3,
            election_ticks: 10,
        }
    }
}

/// What the host of a driver has to do, in the order of the fields. Outputs may be carried out one after the other only.
#[derive(Debug, Default)]
pub struct QuorumOutput {
    /// To be given to [`QuorumDriver::handle_persisted`] when all that is to be persisted is.
    pub number: u64,
    /// Messages that may go out at once.
    pub messages: Vec<PeerMessage>,
    /// To be made durable first.
    pub vote: Option<VoteState>,
    /// To be made durable next, and applied instead of all that was: a leader sent it, this node was too far behind.
    pub snapshot: Option<Box<Snapshot>>,
    /// To be made durable next; they replace what is there from the first one's index on.
    pub entries: Vec<LogEntry>,
    /// Messages that may go out only when all above is durable.
    pub messages_after: Vec<PeerMessage>,
    /// Committed and durable here, to be applied in order; then [`QuorumDriver::handle_applied`].
    pub committed: Vec<LogEntry>,
}

/// Where a proposal will stand in the log, if it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proposal {
    /// Its index.
    pub index: u64,
    /// The term it was proposed in: another entry at the index means that it is lost.
    pub term: u64,
}

/// Why nothing was proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, if any is known to.
    #[error("this node does not lead the quorum")]
    NotLeader(Option<BrokerId>),
    /// Too much is waiting to be committed, or the proposal is too large.
    #[error("too much is waiting to be committed")]
    Backlog,
    /// A change of voters is under way.
    #[error("a change of voters is under way")]
    ChangeUnderWay,
    /// Voters may only change one at a time.
    #[error("the voters cannot become those in one step")]
    NotOneStep,
}

/// This node's part in the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows, or waits for a leader.
    Follower,
    /// It wants to lead.
    Candidate,
}

/// See the module.
pub struct QuorumDriver {
    raw: RawNode<LogView>,
    options: QuorumOptions,
    /// SplitMix64.
    random: u64,
    /// The election timeout in force, ticks, and what raft looked like when it was drawn.
    election_timeout: usize,
    drawn_at: (u64, StateRole, u64, bool),
    /// Who votes by the last applied entry.
    voters: Voters,
    /// The index of a proposed change of voters that is not applied.
    voter_change: Option<u64>,
    /// The output that brought a leader's snapshot, and its index, until it is durable.
    installing: Option<(u64, u64)>,
    /// The end of the last tick.
    ticked: Option<Instant>,
}

impl QuorumDriver {
    /// A driver on what the node found at its start. A quorum of one elects itself at once.
    ///
    /// # Panics
    /// When what was found contradicts itself: [`super::QuorumLog::load`] gives nothing that does.
    #[must_use]
    pub fn new(options: QuorumOptions, recovered: &Recovered, now: Instant) -> Self {
        let position = recovered.snapshot.image.position;
        let last_term = recovered.entries.last().map_or(position.term, |entry| entry.term);
        let hard_state = HardState {
            term: recovered.vote.term.max(last_term),
            vote: recovered.vote.voted_for.map_or(0, raft_id),
            commit: position.index,
            ..HardState::default()
        };
        let voters = recovered.snapshot.voters.clone();
        let mut view = LogView::new(position.index, position.term, voters.clone(), hard_state);
        view.append(&recovered.entries.iter().map(raft_entry).collect::<Vec<_>>());
        let config = Config {
            id: raft_id(options.node),
            election_tick: options.election_ticks,
            heartbeat_tick: options.heartbeat_ticks,
            applied: position.index,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: INFLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            ..Config::default()
        };
        let raw = RawNode::new(&config, view, &logging::logger()).expect("the options and the log are whole");
        let mut driver = Self {
            raw,
            options,
            random: options.seed,
            election_timeout: 0,
            drawn_at: (0, StateRole::Follower, 0, false),
            voters,
            voter_change: None,
            installing: None,
            ticked: Some(now),
        };
        driver.draw_election_timeout();
        if driver.is_alone() {
            driver.campaign();
        }
        driver
    }

    /// This node's part.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// Who leads, as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<BrokerId> {
        node_of(self.raw.raft.leader_id)
    }

    /// The term this node is in.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// Who votes by the last applied entry.
    #[must_use]
    pub const fn voters(&self) -> &Voters {
        &self.voters
    }

    /// The index of the last entry here, durable or not.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// The last position known to be committed.
    #[must_use]
    pub fn committed_index(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Bytes of the entries since the last snapshot.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        self.raw.store().bytes()
    }

    /// Whether a follower is so far behind that it needs a snapshot and there is none here: the host is to take one now
    /// ([`Self::handle_snapshot_saved`]).
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        self.raw.store().snapshot_wanted()
    }

    /// Of the leader: how far each voter's log is known to reach (DescribeQuorum).
    #[must_use]
    pub fn progress(&self) -> Vec<(BrokerId, u64)> {
        let progress = self.raw.raft.prs().iter();
        let mut progress: Vec<_> = progress
            .filter_map(|(id, progress)| Some((node_of(*id)?, progress.matched)))
            .collect();
        progress.sort_unstable();
        progress
    }

    /// When [`Self::handle_time`] has something to do; `None` for a quorum of one, which has nobody to watch.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.is_alone() && self.raw.raft.state == StateRole::Leader {
            return None;
        }
        self.ticked.map(|ticked| ticked.after(self.options.tick))
    }

    /// Time passed.
    pub fn handle_time(&mut self, now: Instant) {
        let mut ticked = self.ticked.unwrap_or(now);
        let mut ticks = 0;
        while ticked.after(self.options.tick) <= now && ticks < TICKS_AT_ONCE_MAX {
            ticked = ticked.after(self.options.tick);
            ticks += 1;
            self.raw.tick();
            self.draw_election_timeout();
        }
        // A node that slept for long does not make up for it: its peers' silence was its own.
        self.ticked = Some(if ticks == TICKS_AT_ONCE_MAX { now } else { ticked });
    }

    /// A peer said something.
    pub fn handle_message(&mut self, message: PeerMessage) {
        let message = message.into_raft();
        // What only this node may tell itself, and proposals: a client's command goes to the leader, not through a follower.
        if matches!(message.get_msg_type(), MessageType::MsgPropose)
            || message.to != raft_id(self.options.node)
        {
            return;
        }
        // An error means that the sender is no peer, or the message is out of date: nothing changed.
        let _ = self.raw.step(message);
        self.draw_election_timeout();
    }

    /// All that the output of this number, and those before it, asked to persist is durable.
    pub fn handle_persisted(&mut self, number: u64) {
        self.raw.on_persist_ready(number);
        if let Some((of, index)) = self.installing
            && of <= number
        {
            self.installing = None;
            self.raw.advance_apply_to(index);
        }
    }

    /// All committed entries up to `index` are applied.
    pub fn handle_applied(&mut self, index: u64) {
        self.raw.advance_apply_to(index);
    }

    /// A durable snapshot of what is applied: entries up to it are forgotten.
    pub fn handle_snapshot_saved(&mut self, position: ImagePosition, voters: Voters, bytes: bytes::Bytes) {
        assert!(
            position.index <= self.raw.raft.raft_log.applied,
            "a snapshot is of what is applied"
        );
        self.raw.mut_store().compact(position.index, voters, bytes);
    }

    /// Proposes records as one entry.
    ///
    /// # Errors
    /// [`ProposeError`]; nothing is proposed then.
    pub fn propose(&mut self, records: Vec<MetadataRecord>, wall: WallMs) -> Result<Proposal, ProposeError> {
        self.propose_payload(EntryPayload::Records(records), wall)
    }

    /// Proposes other voters: one more, one fewer, or the same with other endpoints.
    ///
    /// # Errors
    /// [`ProposeError`]; nothing is proposed then.
    pub fn propose_voters(&mut self, voters: Voters, wall: WallMs) -> Result<Proposal, ProposeError> {
        if self.voter_change.is_some() {
            return Err(ProposeError::ChangeUnderWay);
        }
        let is_step = self.voters.change_to(&voters) != VoterChange::TooMuch;
        if !is_step || voters.is_empty() || voters.len() > VOTERS_MAX {
            return Err(ProposeError::NotOneStep);
        }
        let proposal = self.propose_payload(EntryPayload::Voters(voters), wall)?;
        self.voter_change = Some(proposal.index);
        Ok(proposal)
    }

    fn propose_payload(&mut self, payload: EntryPayload, wall: WallMs) -> Result<Proposal, ProposeError> {
        if self.raw.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader(self.leader()));
        }
        let proposal = Proposal {
            index: self.last_index() + 1,
            term: self.term(),
        };
        let entry = LogEntry {
            index: proposal.index,
            term: proposal.term,
            timestamp_ms: wall.0,
            payload,
        };
        let batch = entry.to_batch();
        if batch.len() > ENTRY_BYTES_MAX {
            return Err(ProposeError::Backlog);
        }
        self.raw
            .propose(Vec::new(), batch.to_vec())
            .map_err(|_| ProposeError::Backlog)?;
        assert_eq!(
            self.last_index(),
            proposal.index,
            "a leader's proposal is its next entry"
        );
        Ok(proposal)
    }

    /// The next thing to do; `None` when there is nothing. `wall` becomes the time of a leader's first entry.
    pub fn poll_output(&mut self, wall: WallMs) -> Option<QuorumOutput> {
        if !self.raw.has_ready() {
            return None;
        }
        let mut ready = self.raw.ready();
        let mut output = QuorumOutput {
            number: ready.number(),
            messages: self.outgoing(ready.take_messages()),
            messages_after: self.outgoing(ready.take_persisted_messages()),
            ..QuorumOutput::default()
        };
        if let Some(hard_state) = ready.hs() {
            output.vote = self.changed_vote(hard_state);
            self.raw.mut_store().set_hard_state(hard_state.clone());
        }
        if !ready.snapshot().is_empty() {
            self.installing = Some((output.number, ready.snapshot().get_metadata().index));
            output.snapshot = Some(Box::new(self.install(ready.snapshot())));
        }
        output.entries = ready
            .entries()
            .iter()
            .map(|entry| self.log_entry(entry, wall))
            .collect();
        self.raw.mut_store().append(ready.entries());
        let committed = ready.take_committed_entries();
        self.raw.advance_append_async(ready);
        for entry in &committed {
            let entry = self.log_entry(entry, wall);
            self.note_committed(&entry);
            output.committed.push(entry);
        }
        self.draw_election_timeout();
        Some(output)
    }

    fn changed_vote(&self, next: &HardState) -> Option<VoteState> {
        let former = self.raw.store().hard_state();
        (former.term != next.term || former.vote != next.vote).then(|| VoteState {
            term: next.term,
            voted_for: node_of(next.vote),
        })
    }

    fn install(&mut self, snapshot: &raft::eraftpb::Snapshot) -> Snapshot {
        // The wire has parsed it already, so that a bad one never got here; the cluster's name is put in by the host.
        let parsed =
            Snapshot::from_bytes(&snapshot.data, "").expect("a snapshot message was checked when it came");
        let metadata = snapshot.get_metadata();
        self.voters.clone_from(&parsed.voters);
        let (voters, bytes) = (parsed.voters.clone(), snapshot.data.clone());
        self.raw
            .mut_store()
            .install(metadata.index, metadata.term, voters, bytes);
        parsed
    }

    /// A committed change of voters takes effect. A leader that is no longer one of them leaves at once: raft-rs would let it
    /// go on without a vote.
    fn note_committed(&mut self, entry: &LogEntry) {
        if self.voter_change.is_some_and(|index| index <= entry.index) {
            self.voter_change = None;
        }
        let EntryPayload::Voters(next) = &entry.payload else {
            return;
        };
        if let Some(change) = self.voters.change_to(next).conf_change() {
            self.raw.apply_conf_change(&change).expect("one voter at a time");
            if next.get(self.options.node).is_none() && self.raw.raft.state == StateRole::Leader {
                let term = self.raw.raft.term;
                self.raw.raft.become_follower(term, raft::INVALID_ID);
            }
        }
        self.voters.clone_from(next);
    }

    /// What a raft entry says. raft's own empty one is its leader's first; it has no bytes to hold a time.
    fn log_entry(&self, entry: &Entry, wall: WallMs) -> LogEntry {
        if entry.data.is_empty() {
            let leader = self.leader().unwrap_or(self.options.node);
            return LogEntry {
                index: entry.index,
                term: entry.term,
                timestamp_ms: wall.0,
                payload: EntryPayload::LeaderChange(leader),
            };
        }
        let mut read = LogEntry::from_batch(&entry.data).expect("an entry was checked when it came");
        assert_eq!(read.index, entry.index, "an entry says where it stands");
        read.term = entry.term;
        read
    }

    fn outgoing(&self, messages: Vec<raft::eraftpb::Message>) -> Vec<PeerMessage> {
        messages.into_iter().filter_map(PeerMessage::from_raft).collect()
    }

    fn is_alone(&self) -> bool {
        self.voters.len() == 1 && self.voters.get(self.options.node).is_some()
    }

    fn campaign(&mut self) {
        self.raw.campaign().expect("a voter may campaign");
        self.draw_election_timeout();
    }

    /// Draws the next election timeout from the seed when raft has begun to count anew, and sets it in any case: raft may
    /// have drawn one of its own.
    fn draw_election_timeout(&mut self) {
        let raft = &mut self.raw.raft;
        let now = (raft.term, raft.state, raft.leader_id, raft.election_elapsed == 0);
        if now != self.drawn_at || self.election_timeout == 0 {
            self.drawn_at = now;
            if now.3 || self.election_timeout == 0 {
                let spread = u64::try_from(self.options.election_ticks).unwrap_or(1).max(1);
                let extra = splitmix(&mut self.random) % spread;
                self.election_timeout = self.options.election_ticks + usize::try_from(extra).unwrap_or(0);
            }
        }
        raft.set_randomized_election_timeout(self.election_timeout);
    }
}

/// Ticks made up for after a pause.
const TICKS_AT_ONCE_MAX: u32 = 5;

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn raft_entry(entry: &LogEntry) -> Entry {
    let data = match &entry.payload {
        EntryPayload::LeaderChange(_) => bytes::Bytes::new(),
        EntryPayload::Records(_) | EntryPayload::Voters(_) => entry.to_batch(),
    };
    Entry {
        term: entry.term,
        index: entry.index,
        data,
        ..Entry::default()
    }
}
