//! Seeded interleavings of clients, timers, slow and failed appends, deletions and crashes. Clients follow the protocol, may be slow,
//! die and come back, ask again before they are answered; answers come late or get lost; two may hold one instance. Checked: one
//! owner for each partition in a generation, generations only grow, nobody waits for ever, nobody is thrown out without a reason,
//! what is committed is what the log says, nothing of it goes without a reason, and nothing stays whose topic is gone.

mod topics;

use std::collections::BTreeSet;

use storage::sim_rng::SimRng;

use self::topics::{TOPICS, Topics};
use super::member::NEW_MEMBER_TIMEOUT;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// As [`Fixture::join`] asks for.
const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

const RETENTION: Duration = Duration::from_secs(30);
const CHECK_INTERVAL: Duration = Duration::from_secs(7);

/// When nobody commits any more and the log takes all, the second sweep at the latest has found all that is left.
const LEFTOVERS_MAX_SECONDS: u64 = 2 * CHECK_INTERVAL.as_secs() + 1;

/// `group.max.size` as long as nobody has lowered it.
const SIZE_MAX: usize = i32::MAX as usize;

/// A bug to plant, to show that the checks see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Canary {
    None,
    /// An append that failed is taken for done.
    AcknowledgesWhatIsLost,
    /// A restart does not read the last record.
    ForgetsTheLastRecord,
    /// Heartbeats are answered and have no effect.
    IsDeafToHeartbeats,
    /// With a topic all others are taken for deleted.
    ForgetsAnotherTopic,
    /// The coordinator's metadata lacks topics that came later.
    OverlooksSuccessors,
    /// A sweep ends when others come between its turns.
    DropsTheRestOfASweep,
    /// A restart knows no topics.
    RestartsUntold,
}

#[derive(Clone, Debug, Default)]
struct Client {
    id: Str,
    instance: Option<Str>,
    generation: i32,
    owned: Option<Bytes>,
    waits: Option<Wait>,
    /// Another one has its instance, or there is no room for it: it ends.
    is_out: bool,
    /// Its session began at the latest then.
    contact: Instant,
    /// Nobody called for a rebalance before.
    calm: Instant,
    /// When its generation began.
    joined: Instant,
    /// When it got an id to join with, until it is a member.
    promised: Option<Instant>,
    /// It may be unknown: the number of the request that was the last one before that.
    excused: Option<u64>,
}

/// A request whose answer has not been heard.
#[derive(Clone, Copy, Debug)]
struct Wait {
    to: ReplyTo,
    what: What,
    since: Instant,
    number: u64,
    life: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Join,
    Sync,
    Commit(Commit),
}

/// A commit under way: of some partitions of a topic, for all of them the same offset, which no other commit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Commit {
    group: &'static str,
    topic: &'static str,
    first: i32,
    end: i32,
    offset: i64,
}

/// Group, topic and partition of an offset.
type Place = (&'static str, &'static str, i32);

/// What the log says of an offset.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Logged {
    offset: i64,
    topic_id: Uuid,
    committed_ms: i64,
}

impl Logged {
    fn of(offset: &CommittedOffset) -> Self {
        Self {
            offset: offset.offset,
            topic_id: offset.topic_id,
            committed_ms: offset.committed_ms,
        }
    }
}

/// The clients' group, and those of outsiders.
const GROUPS: [&str; 4] = ["g", "a", "simple", "z"];

const PARTITIONS: i32 = 4;

struct Model {
    f: Fixture,
    random: SimRng,
    canary: Canary,
    clients: Vec<Client>,
    /// Requests of clients, counted.
    number: u64,
    /// How often the group has ended: its generations begin anew then.
    life: u32,
    /// The newest generation that got its assignment. One that did not may come again after a crash, as in Kafka.
    last_assigned: i32,
    /// What each generation's assignment gave to whom.
    given: BTreeMap<(u32, i32, Bytes), Str>,
    /// The log, read by another than the coordinator.
    logged: BTreeMap<Place, Logged>,
    recorded: Option<protocol::messages::consumer_offsets::GroupMetadataValue>,
    acknowledged: BTreeMap<Place, i64>,
    /// Outsiders' commits.
    simple: Vec<(ReplyTo, Commit)>,
    topics: Topics,
    /// Whether `group.max.size` was ever lowered.
    was_bounded: bool,
    /// Appends that somebody asked for to delete.
    asked: BTreeSet<WriteId>,
    next_offset: i64,
}

fn topic_id(n: u64) -> Uuid {
    Uuid::from_u128(n.into())
}

fn place(group: &str, topic: &str, partition: i32) -> Place {
    let known = |all: &[&'static str], name: &str| {
        *all.iter()
            .find(|known| **known == name)
            .expect("a name of the model")
    };
    (known(&GROUPS, group), known(&TOPICS, topic), partition)
}

impl Model {
    fn step(&mut self) {
        match self.random.below(1000) {
            0..=539 => {
                let which = self.random.index(self.clients.len());
                self.act(which);
            }
            540..=739 if !self.f.pending.is_empty() => {
                let fails = self.random.below(10) == 0;
                self.finish_write(fails);
            }
            540..=879 => {
                let ms = self.random.below(4_000);
                self.pass(Duration::from_millis(ms));
            }
            880..=889 => self.restart(),
            890..=939 => self.commit_simple(),
            940..=944 => {
                let group = GROUPS[self.random.index(GROUPS.len())];
                self.ask_to_delete(GroupRequest::Delete(group.into()));
            }
            945..=949 => {
                let topic = TOPICS[self.random.index(TOPICS.len())];
                let group = GROUPS[self.random.index(GROUPS.len())];
                self.ask_to_delete(GroupRequest::DeleteOffsets {
                    group: group.into(),
                    topics: vec![(topic.into(), (0..PARTITIONS).collect())],
                });
            }
            950..=964 => self.change_topic(),
            965..=974 => self.tell_topics(),
            _ => {
                let which = self.random.index(self.clients.len());
                let instance = self.clients[which].instance.clone();
                self.clients[which] = Client {
                    instance,
                    ..Client::default()
                };
            }
        }
        self.hear(false);
    }

    fn finish_write(&mut self, fails: bool) {
        let (write, records) = self.f.pending[0].clone();
        if fails {
            self.excuse_sweeps(&records);
        } else {
            self.note_written(write, &records);
        }
        match (fails, self.canary) {
            (true, Canary::AcknowledgesWhatIsLost) => {
                let log = self.f.log.len();
                self.f.finish_write(Ok(()));
                self.f.log.truncate(log);
            }
            (true, _) => self.f.finish_write(Err(ErrorCode::NOT_ENOUGH_REPLICAS)),
            (false, _) => self.f.finish_write(Ok(())),
        }
    }

    /// Reads what the log has taken; nothing may end there without a reason.
    fn note_written(&mut self, write: WriteId, records: &[GroupRecord]) {
        let is_asked = self.asked.remove(&write);
        for record in records {
            match record {
                GroupRecord::Offset {
                    group,
                    topic,
                    partition,
                    offset: Some(offset),
                } => {
                    self.logged
                        .insert(place(group, topic, *partition), Logged::of(offset));
                }
                GroupRecord::Offset {
                    group,
                    topic,
                    partition,
                    offset: None,
                } => {
                    let place = place(group, topic, *partition);
                    if let Some(was) = self.logged.remove(&place) {
                        let age = self.f.wall.0 - was.committed_ms;
                        let is_old = age >= RETENTION.as_millis() as i64;
                        let has_reason = is_asked || is_old || self.topics.are_without(was.topic_id);
                        assert!(has_reason, "{place:?} is deleted, which was {was:?}");
                    }
                    self.acknowledged.remove(&place);
                }
                GroupRecord::Group { group, value } if *group == "g" => {
                    self.recorded.clone_from(value);
                    if value.is_none() {
                        self.life += 1;
                        self.last_assigned = 0;
                        // Ids that were given out are gone with it.
                        self.excuse(|client| client.generation == 0);
                    }
                }
                GroupRecord::Group { .. } => {}
            }
        }
    }

    /// The coordinator dies: whoever waits gets no answer and asks again. The log may have taken what nobody heard of.
    fn restart(&mut self) {
        let taken = self.random.below(1 + self.f.pending.len() as u64);
        for (write, records) in self.f.pending.drain(..).take(taken as usize).collect::<Vec<_>>() {
            self.f.log.extend(records.iter().cloned());
            self.note_written(write, &records);
        }
        self.asked.clear();
        self.simple.clear();
        let last = match self.canary {
            Canary::ForgetsTheLastRecord => self.f.log.pop(),
            _ => None,
        };
        match self.random.below(4) {
            0 => {
                self.f.coordinator.settings.size_max = 1 + self.random.index(4);
                self.was_bounded = true;
            }
            1 => self.f.coordinator.settings.size_max = SIZE_MAX,
            _ => {}
        }
        self.restart_with_topics();
        self.f.log.extend(last);
        for client in &mut self.clients {
            client.waits = None;
        }
        let recorded = self.recorded.clone();
        let knows = |id: &Str| {
            recorded
                .iter()
                .flat_map(|r| &r.members)
                .any(|m| m.member_id == *id)
        };
        self.excuse(|client| !knows(&client.id));
        self.compare_members();
    }

    /// What a coordinator that has just begun knows of the members is what the log says.
    fn compare_members(&self) {
        let classic = self.f.coordinator.groups.get("g").map(|group| &group.classic);
        let known: Vec<(Str, Bytes)> = classic
            .into_iter()
            .flat_map(|c| c.members().map(|m| (m.id.clone(), m.assignment.clone())))
            .collect();
        let mut recorded: Vec<(Str, Bytes)> = self
            .recorded
            .iter()
            .flat_map(|r| &r.members)
            .map(|m| (m.member_id.clone(), m.assignment.clone()))
            .collect();
        recorded.sort();
        assert_eq!(known, recorded, "after a restart");
        let generation = classic.map_or(0, |classic| classic.generation);
        let recorded = self.recorded.as_ref().map_or(0, |r| r.generation);
        assert_eq!(generation, recorded, "after a restart");
    }

    /// These clients may be unknown from now on.
    fn excuse(&mut self, which: impl Fn(&Client) -> bool) {
        let number = self.number;
        for client in self.clients.iter_mut().filter(|client| which(client)) {
            client.excused = Some(number);
        }
    }

    fn ask_to_delete(&mut self, request: GroupRequest) {
        let before = self.f.pending.len();
        self.f.send(request);
        let asked = self.f.pending[before..].iter().map(|(write, _)| *write);
        self.asked.extend(asked);
    }

    fn commit_of(&mut self, group: &'static str) -> (Commit, OffsetCommit) {
        self.next_offset += 1;
        let which = self.random.index(TOPICS.len());
        let is_late = self.random.below(8) == 0;
        let first = self.random.below(PARTITIONS as u64) as i32;
        let commit = Commit {
            group,
            topic: TOPICS[which],
            first,
            end: first + 1 + self.random.below((PARTITIONS - first) as u64) as i32,
            offset: self.next_offset,
        };
        let partitions = (commit.first..commit.end).map(|p| (p, commit.offset, -1, Str::new()));
        let request = OffsetCommit {
            group: group.into(),
            generation: -1,
            version: 8,
            topics: vec![CommitTopic {
                name: commit.topic.into(),
                id: self.topics.id_for_commit(which, is_late),
                partitions: partitions.collect(),
            }],
            ..OffsetCommit::default()
        };
        (commit, request)
    }

    /// Somebody without a group commits.
    fn commit_simple(&mut self) {
        let group = GROUPS[1 + self.random.index(GROUPS.len() - 1)];
        let (commit, request) = self.commit_of(group);
        let to = self.f.send(GroupRequest::Commit(request));
        self.simple.push((to, commit));
    }

    fn act(&mut self, which: usize) {
        let client = self.clients[which].clone();
        if client.is_out {
            return;
        }
        if let Some(wait) = client.waits {
            // Some have no patience and ask again.
            if self.random.below(20) == 0 {
                match wait.what {
                    What::Join => self.join(which),
                    What::Sync => self.sync(which),
                    What::Commit(..) => self.clients[which].waits = None,
                }
            }
            return;
        }
        if client.generation == 0 {
            return self.join(which);
        }
        if client.owned.is_none() {
            return self.sync(which);
        }
        match self.random.below(12) {
            0 if client.instance.is_none() => {
                self.f.leave(&client.id, None);
                self.clients[which] = Client::default();
            }
            1 => self.join(which),
            2..=4 => {
                let (commit, mut request) = self.commit_of("g");
                request.member = client.id.clone();
                request.instance = client.instance.clone();
                request.generation = client.generation;
                let to = self.f.send(GroupRequest::Commit(request));
                self.wait(which, to, What::Commit(commit));
            }
            _ => self.beat(which),
        }
    }

    fn beat(&mut self, which: usize) {
        if self.canary == Canary::IsDeafToHeartbeats && self.random.below(10) > 0 {
            self.clients[which].contact = self.f.now;
            return;
        }
        let client = self.clients[which].clone();
        let to = self.f.send(GroupRequest::Heartbeat(HeartbeatRequest {
            group_id: "g".into(),
            generation_id: client.generation,
            member_id: client.id,
            group_instance_id: client.instance,
        }));
        let Some(GroupReply::Heartbeat(error)) = self.f.take(to) else {
            panic!("a heartbeat waits");
        };
        let client = &mut self.clients[which];
        if matches!(error, ErrorCode::NONE | ErrorCode::REBALANCE_IN_PROGRESS) {
            client.contact = self.f.now;
        }
        if error == ErrorCode::NONE {
            client.calm = self.f.now;
        }
        self.told(which, error, self.f.now, false);
    }

    fn join(&mut self, which: usize) {
        let Client { id, instance, .. } = self.clients[which].clone();
        if instance.is_some() {
            // Whoever else has the instance may be fenced, and be unknown when its successor has gone.
            let number = self.number;
            let mates = self.clients.iter_mut().enumerate();
            for (_, mate) in mates.filter(|(n, mate)| *n != which && mate.instance == instance) {
                mate.excused = Some(number);
            }
        }
        let to = self.f.join_with(&id, |r| r.group_instance_id = instance);
        self.wait(which, to, What::Join);
        if let Some(GroupReply::Join(answer)) = self.f.answers.get(&to)
            && answer.error_code == ErrorCode::GROUP_MAX_SIZE_REACHED
        {
            // It is no member any more, whether it hears of it or not.
            self.clients[which].excused = Some(self.number);
        }
    }

    fn sync(&mut self, which: usize) {
        let client = self.clients[which].clone();
        let group = &self.f.coordinator.groups.get("g");
        let ids = group
            .filter(|g| g.classic.is_leader(&client.id))
            .map(|g| g.classic.ids())
            .unwrap_or_default();
        let to = self
            .f
            .sync_as(&client.id, client.instance, client.generation, &ids);
        self.wait(which, to, What::Sync);
    }

    fn wait(&mut self, which: usize, to: ReplyTo, what: What) {
        self.number += 1;
        self.clients[which].waits = Some(Wait {
            to,
            what,
            since: self.f.now,
            number: self.number,
            life: self.life,
        });
    }

    /// What a client was told at that time, at once or when it had waited for it.
    fn told(&mut self, which: usize, error: ErrorCode, at: Instant, has_waited: bool) {
        let client = &mut self.clients[which];
        match error {
            ErrorCode::NONE | ErrorCode::COORDINATOR_NOT_AVAILABLE => {}
            ErrorCode::UNKNOWN_MEMBER_ID => {
                let over = |since: Instant, timeout: Duration| at >= since.after(timeout);
                let is_member_over = || {
                    let is_unsynced = client.generation != 0 && client.owned.is_none();
                    over(client.contact, SESSION)
                        || over(client.calm, REBALANCE)
                        || (is_unsynced && over(client.joined, REBALANCE))
                };
                let has_reason = client.excused.is_some()
                    || match client.promised {
                        Some(promised) if has_waited => over(promised, NEW_MEMBER_TIMEOUT),
                        Some(promised) => over(promised, SESSION),
                        None => is_member_over(),
                    };
                assert!(has_reason, "{client:?} is unknown at {at:?}");
                *client = Client {
                    instance: client.instance.clone(),
                    ..Client::default()
                };
            }
            ErrorCode::FENCED_INSTANCE_ID => client.is_out = true,
            ErrorCode::GROUP_MAX_SIZE_REACHED => {
                assert!(
                    self.was_bounded,
                    "{client:?} finds no room in a group without a bound"
                );
                client.is_out = true;
            }
            _ => {
                client.generation = 0;
                client.owned = None;
            }
        }
    }

    /// Clients hear what they have been answered; some of it they hear later.
    fn hear(&mut self, all: bool) {
        for which in 0..self.clients.len() {
            let Some(wait) = self.clients[which].waits else {
                continue;
            };
            if !self.f.answers.contains_key(&wait.to) || (!all && self.random.below(4) == 0) {
                continue;
            }
            let at = self.f.answered[&wait.to];
            let answer = self.f.take(wait.to).expect("it is there");
            self.clients[which].waits = None;
            match answer {
                GroupReply::Join(answer) => self.hear_join(which, wait, &answer, at),
                GroupReply::Sync(answer) => self.hear_sync(which, wait, &answer, at),
                GroupReply::Commit(results) => {
                    let error = results[0].1[0].1;
                    if let (ErrorCode::NONE, What::Commit(commit)) = (error, wait.what) {
                        self.acknowledge(commit);
                        self.clients[which].contact = self.clients[which].contact.max(wait.since);
                    }
                    self.told(which, error, at, at > wait.since);
                }
                other => panic!("{other:?}"),
            }
        }
        for (to, commit) in std::mem::take(&mut self.simple) {
            match self.f.take(to) {
                Some(GroupReply::Commit(results)) if results[0].1[0].1 == ErrorCode::NONE => {
                    self.acknowledge(commit);
                }
                Some(_) => {}
                None => self.simple.push((to, commit)),
            }
        }
        self.check();
    }

    /// A commit was acknowledged. It may be heard of after the next one, or after it was deleted.
    fn acknowledge(&mut self, commit: Commit) {
        let offset = commit.offset;
        let is_it = |record: &&GroupRecord| matches!(record, GroupRecord::Offset { offset: Some(found), .. } if found.offset == offset);
        let written = self.f.log.iter().filter(is_it).count();
        let all = (commit.end - commit.first) as usize;
        assert_eq!(written, all, "{commit:?} was acknowledged and is not in the log");
        for partition in commit.first..commit.end {
            let place = (commit.group, commit.topic, partition);
            let is_newest = self
                .logged
                .get(&place)
                .is_some_and(|logged| logged.offset == offset);
            if is_newest {
                self.acknowledged.insert(place, offset);
            }
        }
    }

    fn hear_join(&mut self, which: usize, wait: Wait, answer: &JoinGroupResponse, at: Instant) {
        let client = &mut self.clients[which];
        match answer.error_code {
            ErrorCode::MEMBER_ID_REQUIRED => {
                client.id = answer.member_id.clone();
                client.promised = Some(at);
                client.excused = client.excused.filter(|number| *number >= wait.number);
            }
            ErrorCode::NONE => {
                client.excused = client.excused.filter(|number| *number >= wait.number);
                client.id = answer.member_id.clone();
                client.generation = answer.generation_id;
                client.owned = None;
                client.promised = None;
                client.calm = at;
                client.joined = at;
                // Who is answered at once has not been waited for: its session is as it was.
                if at > wait.since {
                    client.contact = at;
                }
            }
            error => self.told(which, error, at, at > wait.since),
        }
    }

    fn hear_sync(&mut self, which: usize, wait: Wait, answer: &SyncGroupResponse, at: Instant) {
        if answer.error_code != ErrorCode::NONE {
            return self.told(which, answer.error_code, at, at > wait.since);
        }
        let client = &mut self.clients[which];
        (client.contact, client.calm) = (at, at);
        client.owned = Some(answer.assignment.clone());
        if wait.life == self.life {
            self.last_assigned = self.last_assigned.max(client.generation);
        }
        if !answer.assignment.is_empty() {
            let key = (wait.life, client.generation, answer.assignment.clone());
            // An instance's new member goes on with what the old one owned.
            let who = client.instance.clone().unwrap_or_else(|| client.id.clone());
            let owner = self.given.entry(key).or_insert_with(|| who.clone());
            assert_eq!(*owner, who, "two owners in generation {}", client.generation);
        }
    }

    fn check(&mut self) {
        if let Some(group) = self.f.coordinator.groups.get("g") {
            let classic = &group.classic;
            assert!(classic.generation >= self.last_assigned, "generations only grow");
            let joined = classic.members().filter(|m| m.join.is_some()).count();
            assert_eq!(
                classic.all_have_joined(),
                classic.pending.is_empty() && joined == classic.len()
            );
            let ids: BTreeSet<Str> = classic.ids().into_iter().collect();
            assert!(classic.leader.iter().all(|id| ids.contains(id)) || ids.is_empty());
            assert!(classic.unsynced.is_subset(&ids));
            assert_eq!(
                classic.state == GroupState::Empty,
                ids.is_empty() && classic.join_deadline.is_none()
            );
            for member in classic.members() {
                assert!(member.timer <= member.session_end, "a session would end late");
            }
            // Instances that do not join again keep their places beside those that do.
            let dynamic = classic.members().filter(|m| m.instance.is_none()).count();
            let is_joining = classic.state == GroupState::PreparingRebalance;
            assert!(
                is_joining || dynamic <= self.f.coordinator.settings.size_max,
                "the group is larger than it may be"
            );
        }
        assert_eq!(
            self.f.memory.read()[BudgetClass::Coordinator as usize].used_bytes,
            memory::recount(&self.f.coordinator)
        );
        // What is committed is what the log says, to the offset; and what was acknowledged is in it.
        let mut known = BTreeMap::new();
        for (id, group) in &self.f.coordinator.groups {
            for (topic, partition, found) in group.offsets.behind::<()>(None, None) {
                known.insert(place(id, topic, partition), found.offset);
            }
        }
        let logged: BTreeMap<Place, i64> = self.logged.iter().map(|(p, l)| (*p, l.offset)).collect();
        assert_eq!(known, logged, "what is committed is not what the log says");
        for (place, offset) in &self.acknowledged {
            let found = known.get(place);
            assert!(found >= Some(offset), "{place:?}: {found:?} after {offset}");
        }
        self.check_sweeps();
    }

    /// Everybody behaves from now on: after a while nobody waits, and all are members of one generation.
    fn settle(&mut self) {
        self.f.pass(Duration::from_millis(1));
        self.tell_topics();
        for round in 0..400 {
            if round == LEFTOVERS_MAX_SECONDS {
                self.check_nothing_is_left();
            }
            for which in 0..self.clients.len() {
                let client = &self.clients[which];
                match (client.owned.is_some(), client.waits.is_some()) {
                    _ if client.is_out => {}
                    (true, false) => self.beat(which),
                    (false, false) => self.act(which),
                    (_, true) => {}
                }
            }
            while !self.f.pending.is_empty() {
                self.finish_write(false);
            }
            self.f.pass(SECOND);
            self.hear(true);
        }
        let live: Vec<&Client> = self.clients.iter().filter(|client| !client.is_out).collect();
        for client in &live {
            assert!(client.waits.is_none(), "{client:?} waits at {:?}", self.f.now);
            assert_eq!(client.generation, self.last_assigned, "{client:?}");
            assert!(client.owned.is_some());
        }
        let is_empty = live.is_empty();
        if !is_empty {
            assert_eq!(self.f.state(), "Stable");
        }
    }
}

fn run(seed: u64, canary: Canary) {
    let mut random = SimRng::new(seed, "groups");
    let count = 1 + random.below(6);
    let instances = 1 + random.below(4);
    let clients = (0..count)
        .map(|_| Client {
            instance: (random.below(3) == 0).then(|| Str::from(format!("i{}", random.below(instances)))),
            ..Client::default()
        })
        .collect();
    let settings = GroupSettings {
        offsets_retention: RETENTION,
        offsets_check_interval: CHECK_INTERVAL,
        ..GroupSettings::default()
    };
    let mut f = Fixture::with(settings);
    f.coordinator.sweep_entries_max = 1 + random.index(8);
    let mut model = Model {
        topics: Topics::new(f.wall),
        f,
        random,
        canary,
        clients,
        number: 0,
        life: 0,
        last_assigned: 0,
        given: BTreeMap::new(),
        logged: BTreeMap::new(),
        recorded: None,
        acknowledged: BTreeMap::new(),
        simple: Vec::new(),
        was_bounded: false,
        asked: BTreeSet::new(),
        next_offset: 0,
    };
    for _ in 0..400 {
        model.step();
    }
    model.settle();
}

#[test]
fn whatever_the_interleaving_the_group_holds_its_promises() {
    let seeds = std::env::var("PENSTOCK_GROUP_SEEDS").map_or(600, |n| n.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(seed, Canary::None));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.expect("a panic says why").to_owned()
}

/// A planted bug is seen by the invariant with these words, by some seeds perhaps earlier by one of the others, and by no other.
fn is_seen(canary: Canary, by: &str, or: &[&str]) {
    const SEEN: usize = 10;
    let panics = (0..100).filter_map(|seed| std::panic::catch_unwind(|| run(seed, canary)).err());
    let seen: Vec<String> = panics.map(|panic| words(&*panic)).take(SEEN).collect();
    assert_eq!(seen.len(), SEEN, "a hundred seeds hardly show the planted bug");
    for why in &seen {
        let is_known = why.contains(by) || or.iter().any(|or| why.contains(or));
        assert!(is_known, "seen for another reason: {why}");
    }
    assert!(seen.iter().any(|why| why.contains(by)), "never seen by: {by}");
}

const DIFFERS: &str = "what is committed is not what the log says";

const OUTLASTS: &str = "outlasts its topic and the sweep for it";

#[test]
fn a_commit_that_is_lost_would_be_seen() {
    let or = [DIFFERS, "generations only grow"];
    is_seen(
        Canary::AcknowledgesWhatIsLost,
        "was acknowledged and is not in the log",
        &or,
    );
}

#[test]
fn a_record_that_is_not_replayed_would_be_seen() {
    is_seen(Canary::ForgetsTheLastRecord, DIFFERS, &["after a restart"]);
}

#[test]
fn a_member_that_is_thrown_out_without_a_reason_would_be_seen() {
    is_seen(Canary::IsDeafToHeartbeats, "is unknown", &[]);
}

#[test]
fn offsets_that_go_with_another_topic_would_be_seen() {
    is_seen(Canary::ForgetsAnotherTopic, "is deleted, which was", &[]);
}

#[test]
fn offsets_of_a_new_topic_that_are_taken_for_those_of_the_one_before_would_be_seen() {
    is_seen(Canary::OverlooksSuccessors, "is deleted, which was", &[]);
}

#[test]
fn a_sweep_that_does_not_come_to_its_end_would_be_seen() {
    is_seen(Canary::DropsTheRestOfASweep, OUTLASTS, &[]);
}

#[test]
fn offsets_of_topics_that_went_before_a_restart_would_be_seen() {
    is_seen(Canary::RestartsUntold, OUTLASTS, &[]);
}
