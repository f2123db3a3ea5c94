//! A node's part in the quorum, running: takes commands, lets the controller decide, makes what it decided durable, applies
//! what is committed, publishes the image and answers. One task on the shard that runs the quorum; generic over executor and
//! log, so that the simulator runs it as it is.
//!
//! Commands are decided on the image with everything proposed before, so that many can be on their way in one write; an
//! answer goes out when its entry (or, if it changed nothing, what it looked at) is committed, applied and published.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::driver::{Proposal, ProposeError, QuorumDriver, QuorumOptions, QuorumOutput, Role};
use super::entry::{EntryPayload, LogEntry};
use super::log::{QuorumLog, Recovered, VoteState};
use super::snapshot::Snapshot;
use super::voters::{Voter, Voters};
use super::wire::PeerMessage;
use crate::config::{BrokerLayers, Overrides};
use crate::controller::{
    Context, ControllerCommand, ControllerResponse, Decision, MetadataRecord, RECORDS_MAX, decide,
    initial_records,
};
use crate::env::Env;
use crate::ids::BrokerId;
use crate::image::{ImageChanges, ImageDelta, ImagePosition, MetadataImage};
use storage::notify::Notify;

/// Commands that wait for the controller; one more is refused.
pub const COMMANDS_MAX: usize = 10_000;

/// Messages of peers that wait; raft bears the loss of one.
const MESSAGES_MAX: usize = 10_000;

/// Entries proposed in one turn: then what is proposed is written.
const PROPOSALS_PER_TURN: usize = 256;

/// Why a command was not carried out. It may be given to the controller again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefused {
    /// Another node is the controller now, if one is known. The command may have been carried out all the same.
    #[error("this node is not the controller")]
    NotController(Option<BrokerId>),
    /// The controller has too much to do.
    #[error("the controller has too much to do")]
    Overloaded,
}

/// Takes a command's answer.
pub type Answer = Box<dyn FnOnce(Result<ControllerResponse, CommandRefused>)>;

/// The way to the controller from the tasks of its shard. Cheap to clone.
#[derive(Clone, Default)]
pub struct CommandQueue(Rc<Queue>);

#[derive(Default)]
struct Queue {
    commands: RefCell<VecDeque<(ControllerCommand, Answer)>>,
    messages: RefCell<VecDeque<PeerMessage>>,
    stopping: Cell<bool>,
    changed: Notify,
}

impl CommandQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the controller a command. `answer` is called once: at once when the queue is full.
    pub fn push(&self, command: ControllerCommand, answer: Answer) {
        if self.0.commands.borrow().len() >= COMMANDS_MAX || self.0.stopping.get() {
            answer(Err(CommandRefused::Overloaded));
            return;
        }
        self.0.commands.borrow_mut().push_back((command, answer));
        self.0.changed.notify();
    }

    /// Gives the quorum a peer's message; dropped when too many wait.
    pub fn push_message(&self, message: PeerMessage) {
        let mut messages = self.0.messages.borrow_mut();
        if messages.len() < MESSAGES_MAX {
            messages.push_back(message);
        }
        drop(messages);
        self.0.changed.notify();
    }

    /// The node's task ends when what waits is answered; later commands are refused.
    pub fn stop(&self) {
        self.0.stopping.set(true);
        self.0.changed.notify();
    }

    fn has_work(&self) -> bool {
        !self.0.commands.borrow().is_empty() || !self.0.messages.borrow().is_empty()
    }
}

/// What the node does with new images and with messages for its peers.
#[allow(async_fn_in_trait)] // a shard's futures stay on its thread
pub trait NodeEffects {
    /// Every shard is to work with `image` from now on; ends when they do. Commands are answered after it, so that what
    /// was created can be used at once (BR-026).
    async fn publish(&mut self, image: &Arc<MetadataImage>, changes: &ImageChanges);

    /// An answer is about to leave; what it says happened has been published. It may say what came of that on this node.
    fn review(&mut self, _response: &mut ControllerResponse) {}

    /// Sends a message to a peer; it may get lost.
    fn send(&mut self, message: PeerMessage);
}

/// How a node runs its part.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Timing and identity in the quorum.
    pub quorum: QuorumOptions,
    /// The cluster's id.
    pub cluster_id: String,
    /// What the node was started with.
    pub fixed: Arc<Overrides>,
    /// This node as a voter; used when it is formatted.
    pub voter: Voter,
    /// Bytes of log after which a snapshot is taken (`metadata.log.max.record.bytes.between.snapshots`).
    pub snapshot_log_bytes: usize,
}

/// Entries on their way, and who waits for them.
struct Proposed {
    proposal: Proposal,
    /// The image after this entry.
    image: Arc<MetadataImage>,
    changes: ImageChanges,
    waiting: Vec<(ControllerResponse, Answer)>,
}

/// See the module.
pub struct QuorumNode<E: Env, L: QuorumLog> {
    env: E,
    log: L,
    options: NodeOptions,
    driver: QuorumDriver,
    committed: Arc<MetadataImage>,
    committed_ms: i64,
    proposed: VecDeque<Proposed>,
    /// Since the last publication.
    changes: ImageChanges,
    ready_answers: Vec<(ControllerResponse, Answer)>,
}

impl<E: Env, L: QuorumLog> QuorumNode<E, L> {
    /// Loads the node's log, formatting it when there is none: a new quorum of this node alone. Commands are served by
    /// [`Self::run`].
    ///
    /// # Errors
    /// From the log.
    pub async fn open(env: E, mut log: L, options: NodeOptions) -> Result<Self, L::Error> {
        let recovered = match log.load(&options.cluster_id).await? {
            Some(recovered) => recovered,
            None => format(&mut log, &options).await?,
        };
        let driver = QuorumDriver::new(options.quorum, &recovered, env.now());
        Ok(Self {
            env,
            log,
            driver,
            committed_ms: recovered.snapshot.timestamp_ms,
            committed: Arc::new(recovered.snapshot.image),
            options,
            proposed: VecDeque::new(),
            changes: ImageChanges::default(),
            ready_answers: Vec::new(),
        })
    }

    /// The metadata as committed and applied.
    #[must_use]
    pub const fn image(&self) -> &Arc<MetadataImage> {
        &self.committed
    }

    /// The quorum's state machine, for questions.
    #[must_use]
    pub const fn driver(&self) -> &QuorumDriver {
        &self.driver
    }

    /// Carries out what needs nobody's command: a quorum of one leads, has applied its log and written a new cluster's
    /// first records after this. The image it leads to is not published: whoever calls this hands it out.
    ///
    /// # Errors
    /// From the log.
    pub async fn settle(&mut self) -> Result<(), L::Error> {
        let mut quiet = Quiet;
        loop {
            self.write_first_records();
            if !self.turn(&mut quiet).await? {
                return Ok(());
            }
        }
    }

    /// Carries out one command before anybody is served: a node registers itself and takes up its partitions in this way, so
    /// that the first image it hands out has it all. The image is not published.
    ///
    /// # Errors
    /// From the log.
    pub async fn ask(
        &mut self,
        command: &ControllerCommand,
    ) -> Result<Result<ControllerResponse, CommandRefused>, L::Error> {
        let answer = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&answer);
        self.take_command(
            command,
            Box::new(move |outcome| *slot.borrow_mut() = Some(outcome)),
        );
        let mut quiet = Quiet;
        while self.turn(&mut quiet).await? {}
        let outcome = answer.borrow_mut().take();
        // Without an answer the entry waits for other voters: whoever asks is not alone and comes again.
        Ok(outcome.unwrap_or(Err(CommandRefused::Overloaded)))
    }

    /// Serves commands until the queue is stopped and empty.
    ///
    /// # Errors
    /// From the log; everything that waits is refused then.
    pub async fn run<P: NodeEffects>(
        &mut self,
        queue: &CommandQueue,
        effects: &mut P,
    ) -> Result<(), L::Error> {
        loop {
            let outcome = self.serve(queue, effects).await;
            if outcome.is_err() {
                self.refuse_all(CommandRefused::NotController(None));
            }
            if outcome? {
                return Ok(());
            }
            self.wait(queue).await;
        }
    }

    /// One round over everything that is there; whether the node is to end.
    async fn serve<P: NodeEffects>(
        &mut self,
        queue: &CommandQueue,
        effects: &mut P,
    ) -> Result<bool, L::Error> {
        loop {
            self.driver.handle_time(self.env.now());
            while let Some(message) = pop(&queue.0.messages) {
                self.driver.handle_message(message);
            }
            self.write_first_records();
            for _ in 0..PROPOSALS_PER_TURN {
                let Some((command, answer)) = pop(&queue.0.commands) else {
                    break;
                };
                self.take_command(&command, answer);
            }
            let moved = self.turn(effects).await?;
            if !moved && !queue.has_work() {
                return Ok(queue.0.stopping.get() && self.proposed.is_empty());
            }
        }
    }

    async fn wait(&self, queue: &CommandQueue) {
        let work = queue.0.changed.until(|| {
            let ends = queue.0.stopping.get() && self.proposed.is_empty();
            (queue.has_work() || ends).then_some(())
        });
        match self.driver.next_deadline() {
            None => work.await,
            Some(deadline) => {
                let left = deadline.since(self.env.now());
                futures_lite::future::or(work, self.env.sleep(left)).await;
            }
        }
    }

    /// Carries out all outputs, then publishes and answers; whether there was anything.
    async fn turn<P: NodeEffects>(&mut self, effects: &mut P) -> Result<bool, L::Error> {
        let mut moved = false;
        while let Some(output) = self.driver.poll_output(self.env.wall()) {
            moved = true;
            self.carry_out(output, effects).await?;
        }
        if self.driver.role() != Role::Leader && !self.proposed.is_empty() {
            self.refuse_all(CommandRefused::NotController(self.driver.leader()));
        }
        if !self.changes.is_empty() {
            let changes = std::mem::take(&mut self.changes);
            let image = Arc::clone(&self.committed);
            effects.publish(&image, &changes).await;
        }
        for (mut response, answer) in std::mem::take(&mut self.ready_answers) {
            effects.review(&mut response);
            answer(Ok(response));
        }
        if self.driver.log_bytes() >= self.options.snapshot_log_bytes || self.driver.wants_snapshot() {
            self.take_snapshot().await?;
        }
        Ok(moved)
    }

    async fn carry_out<P: NodeEffects>(
        &mut self,
        output: QuorumOutput,
        effects: &mut P,
    ) -> Result<(), L::Error> {
        output
            .messages
            .into_iter()
            .for_each(|message| effects.send(message));
        if let Some(vote) = output.vote {
            self.log.save_vote(vote).await?;
        }
        if let Some(snapshot) = output.snapshot {
            self.install(*snapshot).await?;
        }
        if !output.entries.is_empty() {
            self.log.append(&output.entries).await?;
        }
        output
            .messages_after
            .into_iter()
            .for_each(|message| effects.send(message));
        self.driver.handle_persisted(output.number);
        for entry in &output.committed {
            self.apply(entry);
        }
        if let Some(last) = output.committed.last() {
            self.driver.handle_applied(last.index);
        }
        Ok(())
    }

    fn apply(&mut self, entry: &LogEntry) {
        self.committed_ms = self.committed_ms.max(entry.timestamp_ms);
        let position = ImagePosition {
            index: entry.index,
            term: entry.term,
        };
        if let Some(proposed) = self
            .proposed
            .pop_front_if(|proposed| proposed.proposal.index == entry.index)
        {
            if proposed.proposal.term == entry.term {
                self.committed = proposed.image;
                self.changes.merge(proposed.changes);
                self.ready_answers.extend(proposed.waiting);
                return;
            }
            // Another leader's entry stands where ours was to be: everything proposed is lost.
            self.proposed.push_front(proposed);
            self.refuse_all(CommandRefused::NotController(self.driver.leader()));
        }
        let mut delta = ImageDelta::new(&self.committed);
        if let EntryPayload::Records(records) = &entry.payload
            && let Err(error) = delta.apply_all(records)
        {
            panic!(
                "a committed entry cannot be applied: {error} (index {}, term {})",
                entry.index, entry.term
            );
        }
        let (image, changes) = delta.finish(position);
        self.committed = Arc::new(image);
        self.changes.merge(changes);
    }

    /// A leader sent a snapshot: it replaces everything.
    async fn install(&mut self, mut snapshot: Snapshot) -> Result<(), L::Error> {
        snapshot.image.cluster_id = Arc::from(self.options.cluster_id.as_str());
        let bytes = snapshot.to_bytes();
        self.log.save_snapshot(&snapshot, &bytes).await?;
        self.changes
            .merge(ImageChanges::between(&self.committed, &snapshot.image));
        self.committed_ms = snapshot.timestamp_ms;
        self.committed = Arc::new(snapshot.image);
        Ok(())
    }

    async fn take_snapshot(&mut self) -> Result<(), L::Error> {
        let snapshot = Snapshot {
            image: (*self.committed).clone(),
            voters: self.driver.voters().clone(),
            timestamp_ms: self.committed_ms,
        };
        let bytes = snapshot.to_bytes();
        match self.log.save_snapshot(&snapshot, &bytes).await {
            // The entries stay where they are, and the next one asks for a snapshot again.
            Err(error) if L::may_retry(&error) => {
                tracing::warn!(%error, "a metadata snapshot has to wait");
                return Ok(());
            }
            saved => saved?,
        }
        self.driver
            .handle_snapshot_saved(snapshot.image.position, snapshot.voters, bytes);
        Ok(())
    }

    /// The image with everything proposed.
    fn latest(&self) -> &Arc<MetadataImage> {
        self.proposed
            .back()
            .map_or(&self.committed, |proposed| &proposed.image)
    }

    /// The first leader of a new cluster gives it features and defaults.
    fn write_first_records(&mut self) {
        let is_new = self.latest().features.is_empty() && self.driver.role() == Role::Leader;
        if !is_new || self.driver.committed_index() < self.driver.last_index() {
            return;
        }
        let records = initial_records(&BrokerLayers::of_file(&self.options.fixed));
        // A refusal is no loss: the next turn tries again.
        self.propose(records, None);
    }

    fn take_command(&mut self, command: &ControllerCommand, answer: Answer) {
        if self.driver.role() != Role::Leader {
            answer(Err(CommandRefused::NotController(self.driver.leader())));
            return;
        }
        let image = Arc::clone(self.latest());
        let env = &self.env;
        let Decision { records, response } = decide(
            &mut Context {
                image: &image,
                node: self.options.quorum.node,
                fixed: &self.options.fixed,
                next_index: self.driver.last_index() + 1,
                random: &mut || env.random(),
            },
            command,
        );
        if !records.is_empty() {
            self.propose(records, Some((response, answer)));
        } else if let Some(last) = self.proposed.back_mut() {
            // It changes nothing, but may tell of what is not committed yet.
            last.waiting.push((response, answer));
        } else {
            self.ready_answers.push((response, answer));
        }
    }

    /// Proposes what was decided: one entry, or several where one does not hold it. Requests of clients are refused before; what
    /// follows from the coming and going of a broker with many partitions is as much as there are, and each part of it is true
    /// by itself. Whoever asked is answered with the last.
    fn propose(&mut self, mut records: Vec<MetadataRecord>, waiting: Option<(ControllerResponse, Answer)>) {
        let proposed = loop {
            let rest = records.split_off(records.len().min(RECORDS_MAX));
            match self.propose_entry(records) {
                Ok(()) if !rest.is_empty() => records = rest,
                outcome => break outcome,
            }
        };
        let Some((response, answer)) = waiting else {
            return;
        };
        match (proposed, self.proposed.back_mut()) {
            (Ok(()), Some(last)) => last.waiting.push((response, answer)),
            (Ok(()), None) => unreachable!("the entry that was just proposed waits"),
            (Err(refused), _) => answer(Err(refused)),
        }
    }

    fn propose_entry(&mut self, records: Vec<MetadataRecord>) -> Result<(), CommandRefused> {
        let mut delta = ImageDelta::new(self.latest());
        delta
            .apply_all(&records)
            .expect("a decision's records fit the image it was made on");
        let proposal = self
            .driver
            .propose(records, self.env.wall())
            .map_err(|error| match error {
                ProposeError::NotLeader(leader) => CommandRefused::NotController(leader),
                ProposeError::Backlog | ProposeError::ChangeUnderWay | ProposeError::NotOneStep => {
                    CommandRefused::Overloaded
                }
            })?;
        let (image, changes) = delta.finish(ImagePosition {
            index: proposal.index,
            term: proposal.term,
        });
        self.proposed.push_back(Proposed {
            proposal,
            image: Arc::new(image),
            changes,
            waiting: Vec::new(),
        });
        Ok(())
    }

    fn refuse_all(&mut self, refused: CommandRefused) {
        for proposed in std::mem::take(&mut self.proposed) {
            for (_, answer) in proposed.waiting {
                answer(Err(refused));
            }
        }
    }
}

/// Formats a node: a snapshot of nothing, with this node as the only voter.
async fn format<L: QuorumLog>(log: &mut L, options: &NodeOptions) -> Result<Recovered, L::Error> {
    let snapshot = Snapshot {
        image: MetadataImage::empty(&options.cluster_id),
        voters: Voters::alone(options.quorum.node, options.voter.clone()),
        timestamp_ms: 0,
    };
    log.save_snapshot(&snapshot, &snapshot.to_bytes()).await?;
    Ok(Recovered {
        snapshot,
        entries: Vec::new(),
        vote: VoteState::default(),
    })
}

fn pop<T>(queue: &RefCell<VecDeque<T>>) -> Option<T> {
    queue.borrow_mut().pop_front()
}

/// Effects before anybody listens.
struct Quiet;

impl NodeEffects for Quiet {
    async fn publish(&mut self, _image: &Arc<MetadataImage>, _changes: &ImageChanges) {}

    fn send(&mut self, _message: PeerMessage) {}
}
