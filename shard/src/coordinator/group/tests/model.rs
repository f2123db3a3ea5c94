//! Seeded interleavings of clients, timers, slow and failed appends and crashes. Clients follow the protocol, may be slow,
//! die and come back; answers get lost. Checked: one owner for each partition in a generation, generations only grow, nobody
//! waits for ever, a commit that was acknowledged is found.

use std::collections::BTreeSet;

use storage::sim_rng::SimRng;

use super::*;

#[derive(Clone, Debug, Default)]
struct Client {
    id: Str,
    instance: Option<Str>,
    generation: i32,
    owned: Option<Bytes>,
    waits: Option<(ReplyTo, What)>,
    /// When the wait began.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Join,
    Sync,
    Commit(i64),
}

struct Model {
    f: Fixture,
    random: SimRng,
    clients: Vec<Client>,
    /// The newest generation that got its assignment. One that did not may come again after a crash, as in Kafka.
    last_assigned: i32,
    /// What each generation's assignment gave to whom.
    given: BTreeMap<(i32, Bytes), Str>,
    acknowledged: Option<i64>,
    next_offset: i64,
}

impl Model {
    fn step(&mut self) {
        match self.random.below(100) {
            0..=59 => {
                let which = self.random.index(self.clients.len());
                self.act(which);
            }
            60..=79 if !self.f.pending.is_empty() => {
                let fails = self.random.below(10) == 0;
                let outcome = if fails {
                    Err(ErrorCode::NOT_ENOUGH_REPLICAS)
                } else {
                    Ok(())
                };
                self.f.finish_write(outcome);
            }
            60..=94 => {
                let ms = self.random.below(4_000);
                self.f.pass(Duration::from_millis(ms));
            }
            95..=96 => {
                // The coordinator dies: whoever waits gets no answer and asks again.
                self.f.restart();
                for client in &mut self.clients {
                    client.waits = None;
                }
            }
            _ => {
                let which = self.random.index(self.clients.len());
                let instance = self.clients[which].instance.clone();
                self.clients[which] = Client {
                    instance,
                    ..Client::default()
                };
            }
        }
        self.hear();
    }

    fn act(&mut self, which: usize) {
        let client = self.clients[which].clone();
        if client.waits.is_some() {
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
                self.next_offset += 1;
                let to = self.f.send(GroupRequest::Commit(OffsetCommit {
                    group: "g".into(),
                    member: client.id.clone(),
                    instance: client.instance.clone(),
                    generation: client.generation,
                    version: 8,
                    retention: None,
                    topics: vec![CommitTopic {
                        name: "t".into(),
                        id: Uuid::ONE,
                        partitions: vec![(0, self.next_offset, -1, Str::new())],
                    }],
                }));
                self.wait(which, to, What::Commit(self.next_offset));
            }
            _ => {
                let error = self.f.heartbeat(&client.id, client.generation);
                self.told(which, error);
            }
        }
    }

    fn join(&mut self, which: usize) {
        let Client { id, instance, .. } = self.clients[which].clone();
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
        let to = self.f.sync(&client.id, client.generation, &ids);
        self.wait(which, to, What::Sync);
    }

    fn wait(&mut self, which: usize, to: ReplyTo, what: What) {
        self.clients[which].waits = Some((to, what));
        self.clients[which].since = self.f.now;
    }

    fn told(&mut self, which: usize, error: ErrorCode) {
        let client = &mut self.clients[which];
        match error {
            ErrorCode::NONE | ErrorCode::COORDINATOR_NOT_AVAILABLE => {}
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID => {
                *client = Client {
                    instance: client.instance.clone(),
                    ..Client::default()
                };
            }
            _ => {
                client.generation = 0;
                client.owned = None;
            }
        }
    }

    fn hear(&mut self) {
        for which in 0..self.clients.len() {
            let Some((to, what)) = self.clients[which].waits else {
                continue;
            };
            let Some(answer) = self.f.take(to) else { continue };
            self.clients[which].waits = None;
            match answer {
                GroupReply::Join(answer) => {
                    if answer.error_code == ErrorCode::MEMBER_ID_REQUIRED {
                        self.clients[which].id = answer.member_id;
                    } else if answer.error_code != ErrorCode::NONE {
                        self.told(which, answer.error_code);
                    } else {
                        self.clients[which].id = answer.member_id;
                        self.clients[which].generation = answer.generation_id;
                        self.clients[which].owned = None;
                    }
                }
                GroupReply::Sync(answer) if answer.error_code == ErrorCode::NONE => {
                    let client = &mut self.clients[which];
                    self.last_assigned = self.last_assigned.max(client.generation);
                    if !answer.assignment.is_empty() {
                        let key = (client.generation, answer.assignment.clone());
                        // An instance's new member goes on with what the old one owned.
                        let who = client.instance.clone().unwrap_or_else(|| client.id.clone());
                        let owner = self.given.entry(key).or_insert_with(|| who.clone());
                        assert_eq!(*owner, who, "two owners in generation {}", client.generation);
                    }
                    client.owned = Some(answer.assignment);
                }
                GroupReply::Sync(answer) => self.told(which, answer.error_code),
                GroupReply::Commit(results) => {
                    let error = results[0].1[0].1;
                    if let (ErrorCode::NONE, What::Commit(offset)) = (error, what) {
                        self.acknowledged = self.acknowledged.max(Some(offset));
                    }
                    self.told(which, error);
                }
                other => panic!("{other:?}"),
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let group = self.f.coordinator.groups.get("g");
        if let Some(group) = group {
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
        // An acknowledged commit is found, or a later one.
        let found = group.and_then(|g| g.offsets.get("t", 0)).map(|o| o.offset);
        assert!(
            found >= self.acknowledged,
            "{found:?} after {:?} was acknowledged",
            self.acknowledged
        );
    }

    /// Everybody behaves from now on: after a while nobody waits, and all are members of one generation.
    fn settle(&mut self) {
        for _ in 0..400 {
            for which in 0..self.clients.len() {
                let idle = self.clients[which].owned.is_some();
                if idle {
                    let client = self.clients[which].clone();
                    if client.waits.is_none() {
                        let error = self.f.heartbeat(&client.id, client.generation);
                        self.told(which, error);
                    }
                } else {
                    self.act(which);
                }
            }
            self.f.finish_writes();
            self.f.pass(Duration::from_millis(1_000));
            self.hear();
        }
        for client in &self.clients {
            let waited = self.f.now.since(client.since);
            assert!(client.waits.is_none(), "{client:?} waits since {waited:?}");
            assert_eq!(client.generation, self.last_assigned, "{client:?}");
            assert!(client.owned.is_some());
        }
        assert_eq!(self.f.state(), "Stable");
    }
}

fn run(seed: u64) {
    let mut random = SimRng::new(seed, "groups");
    let clients = 1 + random.below(6) as usize;
    let clients = (0..clients)
        .map(|n| Client {
            instance: (random.below(3) == 0).then(|| Str::from(format!("i{n}"))),
            ..Client::default()
        })
        .collect();
    let mut model = Model {
        f: Fixture::new(),
        random,
        clients,
        last_assigned: 0,
        given: BTreeMap::new(),
        acknowledged: None,
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
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
