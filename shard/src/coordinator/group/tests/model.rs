//! Seeded interleavings of clients, timers, slow and failed appends, deletions and crashes. Clients follow the protocol, may be slow,
//! die and come back, ask again before they are answered; answers come late or get lost; two may hold one instance. Checked: one
//! owner for each partition in a generation, generations only grow, nobody waits for ever, nobody is thrown out without a reason,
//! what is committed is what the log says, nothing of it goes without a reason.

use std::collections::BTreeSet;

use storage::sim_rng::SimRng;

use super::member::NEW_MEMBER_TIMEOUT;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// As [`Fixture::join`] asks for.
const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

const RETENTION: Duration = Duration::from_secs(30);

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
    /// With a topic another one is taken for deleted.
    ForgetsAnotherTopic,
}

#[derive(Clone, Debug, Default)]
struct Client {
    id: Str,
    instance: Option<Str>,
    generation: i32,
    owned: Option<Bytes>,
    waits: Option<Wait>,
    /// Another one has its instance: it ends.
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
    Commit(Place, i64),
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

const TOPICS: [&str; 2] = ["t", "u"];

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
    simple: Vec<(ReplyTo, Place, i64)>,
    /// The topics' ids, and those of deleted ones.
    ids: [u64; 2],
    gone: BTreeSet<Uuid>,
    /// Appends that somebody asked for to delete.
    asked: BTreeSet<WriteId>,
    next_offset: i64,
}

fn topic_id(n: u64) -> Uuid {
    Uuid::from_u128(n.into())
}

fn place(group: &str, topic: &str, partition: i32) -> Place {
    let group = if group == "g" { "g" } else { "simple" };
    let topic = if topic == "t" { "t" } else { "u" };
    (group, topic, partition)
}

impl Model {
    fn step(&mut self) {
        match self.random.below(1000) {
            0..=579 => {
                let which = self.random.index(self.clients.len());
                self.act(which);
            }
            580..=779 if !self.f.pending.is_empty() => {
                let fails = self.random.below(10) == 0;
                self.finish_write(fails);
            }
            580..=929 => {
                let ms = self.random.below(4_000);
                self.f.pass(Duration::from_millis(ms));
            }
            930..=939 => self.restart(),
            940..=959 => self.commit_simple(),
            960..=964 => {
                let group = if self.random.below(2) == 0 { "g" } else { "simple" };
                self.ask_to_delete(GroupRequest::Delete(group.into()));
            }
            965..=969 => {
                let topic = TOPICS[self.random.index(2)];
                let group = if self.random.below(2) == 0 { "g" } else { "simple" };
                self.ask_to_delete(GroupRequest::DeleteOffsets {
                    group: group.into(),
                    topics: vec![(topic.into(), vec![0, 1])],
                });
            }
            970..=974 => self.recreate_topic(),
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
        if !fails {
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
                    let logged = Logged {
                        offset: offset.offset,
                        topic_id: offset.topic_id,
                        committed_ms: offset.committed_ms,
                    };
                    self.logged.insert(place(group, topic, *partition), logged);
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
                        let has_reason = is_asked || is_old || self.gone.contains(&was.topic_id);
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
        self.f.restart();
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
        assert_eq!(generation, self.recorded.as_ref().map_or(0, |r| r.generation));
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

    /// A topic is deleted and created again at once.
    fn recreate_topic(&mut self) {
        let which = self.random.index(2);
        let id = topic_id(self.ids[which]);
        self.gone.insert(id);
        self.ids[which] += 10;
        let mut gone = vec![(Str::from_static(TOPICS[which]), id)];
        if self.canary == Canary::ForgetsAnotherTopic {
            gone.push((TOPICS[1 - which].into(), topic_id(self.ids[1 - which])));
        }
        self.f.coordinator.forget_topics(&gone, self.f.now, self.f.wall);
        self.f.collect();
    }

    fn commit_of(&mut self, group: &'static str) -> (Place, i64, OffsetCommit) {
        self.next_offset += 1;
        let which = self.random.index(2);
        let partition = self.random.below(2) as i32;
        let commit = OffsetCommit {
            group: group.into(),
            generation: -1,
            version: 8,
            topics: vec![CommitTopic {
                name: TOPICS[which].into(),
                id: topic_id(self.ids[which]),
                partitions: vec![(partition, self.next_offset, -1, Str::new())],
            }],
            ..OffsetCommit::default()
        };
        ((group, TOPICS[which], partition), self.next_offset, commit)
    }

    /// Somebody without a group commits.
    fn commit_simple(&mut self) {
        let (place, offset, commit) = self.commit_of("simple");
        let to = self.f.send(GroupRequest::Commit(commit));
        self.simple.push((to, place, offset));
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
                let (place, offset, mut commit) = self.commit_of("g");
                commit.member = client.id.clone();
                commit.instance = client.instance.clone();
                commit.generation = client.generation;
                let to = self.f.send(GroupRequest::Commit(commit));
                self.wait(which, to, What::Commit(place, offset));
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
                    if let (ErrorCode::NONE, What::Commit(place, offset)) = (error, wait.what) {
                        self.acknowledge(place, offset);
                        self.clients[which].contact = self.clients[which].contact.max(wait.since);
                    }
                    self.told(which, error, at, at > wait.since);
                }
                other => panic!("{other:?}"),
            }
        }
        for (to, place, offset) in std::mem::take(&mut self.simple) {
            match self.f.take(to) {
                Some(GroupReply::Commit(results)) if results[0].1[0].1 == ErrorCode::NONE => {
                    self.acknowledge(place, offset);
                }
                Some(_) => {}
                None => self.simple.push((to, place, offset)),
            }
        }
        self.check();
    }

    /// A commit was acknowledged. It may be heard of after the next one, or after it was deleted.
    fn acknowledge(&mut self, place: Place, offset: i64) {
        let was = self.f.log.iter().any(|record| {
            matches!(record, GroupRecord::Offset { offset: Some(found), .. } if found.offset == offset)
        });
        assert!(was, "{place:?} {offset} was acknowledged and is not in the log");
        let is_newest = self
            .logged
            .get(&place)
            .is_some_and(|logged| logged.offset == offset);
        if is_newest {
            self.acknowledged.insert(place, offset);
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
        assert_eq!(known, logged);
        for (place, offset) in &self.acknowledged {
            let found = known.get(place);
            assert!(found >= Some(offset), "{place:?}: {found:?} after {offset}");
        }
    }

    /// Everybody behaves from now on: after a while nobody waits, and all are members of one generation.
    fn settle(&mut self) {
        for _ in 0..400 {
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
        offsets_check_interval: Duration::from_secs(7),
        ..GroupSettings::default()
    };
    let mut model = Model {
        f: Fixture::with(settings),
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
        ids: [1, 2],
        gone: BTreeSet::new(),
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
    let seeds = std::env::var("PENSTOCK_GROUP_SEEDS").map_or(300, |n| n.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(seed, Canary::None));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// The first seed that shows a planted bug, and what it says.
fn found(canary: Canary) -> String {
    for seed in 0..100 {
        if let Err(why) = std::panic::catch_unwind(|| run(seed, canary)) {
            return why.downcast_ref::<String>().cloned().unwrap_or_default();
        }
    }
    panic!("a hundred seeds do not show the planted bug");
}

#[test]
fn a_commit_that_is_lost_would_be_seen() {
    found(Canary::AcknowledgesWhatIsLost);
}

#[test]
fn a_record_that_is_not_replayed_would_be_seen() {
    found(Canary::ForgetsTheLastRecord);
}

#[test]
fn a_member_that_is_thrown_out_without_a_reason_would_be_seen() {
    let why = found(Canary::IsDeafToHeartbeats);
    assert!(why.contains("is unknown"), "seen for another reason: {why}");
}

#[test]
fn offsets_that_go_with_another_topic_would_be_seen() {
    let why = found(Canary::ForgetsAnotherTopic);
    assert!(why.contains("is deleted"), "seen for another reason: {why}");
}
