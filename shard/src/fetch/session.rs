//! Incremental fetch sessions (KIP-227, FE-20…25). A session lives on the shard of the connection that opened it, and its id
//! says which that is ([`holder`]): a client that comes back on another shard goes on with it there.
//!
//! Cost: about 150 bytes for each partition of each session, at most `slots` sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use storage::types::{Offset, TopicId};

use crate::env::Instant;
use crate::ids::ShardId;

/// A session that was used within this time is not pushed out by another consumer's.
pub const EVICTION_AGE: Duration = Duration::from_secs(120);

/// Partitions of one session; a request that names more is served without one.
pub const SESSION_PARTITIONS_MAX: usize = 100_000;

/// How a request names a topic: by name up to Fetch v12, by id from v13.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicKey {
    /// Versions up to 12.
    Name(Arc<str>),
    /// Versions from 13.
    Id(TopicId),
}

/// A partition as a fetch names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicKey,
    /// The partition index.
    pub partition: i32,
}

/// Where and how much a fetch reads of one partition; the fields are Fetch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPosition {
    /// The first offset wanted.
    pub offset: Offset,
    /// The partition's byte limit.
    pub bytes_max: i32,
    /// The leader epoch the client knows, −1 for none.
    pub current_leader_epoch: i32,
    /// The epoch of the last record fetched, −1 for none (v12+).
    pub last_fetched_epoch: i32,
    /// A follower's log start offset, −1 from consumers.
    pub log_start_offset: i64,
}

/// What of an answer decides whether an incremental response lists the partition (FE-22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFacts {
    /// The answer's high watermark.
    pub high_watermark: i64,
    /// The answer's log start offset.
    pub log_start_offset: i64,
    /// Whether it carries records.
    pub has_records: bool,
    /// Whether it carries an error code.
    pub is_error: bool,
    /// Whether it carries a preferred replica or a diverging epoch.
    pub redirects: bool,
}

/// How this request stands to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    /// Every partition is answered, session id 0.
    None,
    /// A session is to be opened with the answer, if there is room.
    Open,
    /// The next step of an open session.
    Incremental(i32),
}

/// Why a request's session cannot be used; top-level error, empty body (FE-21, FE-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// FETCH_SESSION_ID_NOT_FOUND (70).
    #[error("fetch session is not known here")]
    NotFound,
    /// INVALID_FETCH_SESSION_EPOCH (71).
    #[error("fetch session epoch is not the next one")]
    InvalidEpoch,
    /// FETCH_SESSION_TOPIC_ID_ERROR (106).
    #[error("fetch session was opened with topic names and is used with ids, or the reverse")]
    TopicId,
}

/// What to read for a request, in order, and how its session is used.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// To be handed to [`FetchSessions::finish`] with the answers.
    pub session: SessionUse,
    /// The partitions to read, first first.
    pub partitions: Vec<(PartitionKey, FetchPosition)>,
}

/// A fetch as far as its session goes.
#[derive(Debug)]
pub struct SessionRequest {
    /// The request's session id, 0 for none.
    pub id: i32,
    /// The request's session epoch: 0 opens, −1 closes, others continue.
    pub epoch: i32,
    /// Whether topics are named by id (v13+).
    pub by_id: bool,
    /// Whether a replica asks: its sessions push out consumers'.
    pub from_follower: bool,
    /// Partitions named in the request, in order.
    pub wanted: Vec<(PartitionKey, FetchPosition)>,
    /// Partitions to drop from the session.
    pub forgotten: Vec<PartitionKey>,
}

impl SessionRequest {
    /// Whether it names everything it wants, and closes the session it names, if any (FE-20, FE-23).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.epoch == EPOCH_OPEN || self.epoch == EPOCH_CLOSE
    }
}

/// The shard that holds the session of this id, on a node of so many.
#[must_use]
pub fn holder(id: i32, shards: u16) -> ShardId {
    let shard = id.unsigned_abs() % u32::from(shards.max(1));
    ShardId(u16::try_from(shard).expect("below a number of 16 bits"))
}

/// The fetch sessions of one shard.
///
/// Commands: [`begin`](Self::begin) with a request, then [`finish`](Self::finish) with its answers.
#[derive(Debug)]
pub struct FetchSessions {
    shard: ShardId,
    shards: u16,
    slots: usize,
    sessions: BTreeMap<i32, Session>,
    evictions: u64,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    from_follower: bool,
    created: Instant,
    used: Instant,
    /// Read order: a partition that returned data goes to the back (FE-1).
    order: BTreeMap<u64, PartitionKey>,
    next_turn: u64,
    partitions: HashMap<PartitionKey, Cached, foldhash::fast::FixedState>,
}

#[derive(Debug)]
struct Cached {
    turn: u64,
    position: FetchPosition,
    high_watermark: i64,
    log_start_offset: i64,
}

const EPOCH_OPEN: i32 = 0;
const EPOCH_CLOSE: i32 = -1;

impl FetchSessions {
    /// The cache of `shard`, one of `shards`, for at most `slots` sessions (`max.incremental.fetch.session.cache.slots` over
    /// the shards).
    #[must_use]
    pub fn new(shard: ShardId, shards: u16, slots: usize) -> Self {
        assert!(shard.0 < shards, "a shard is one of all");
        Self {
            shard,
            shards,
            slots,
            sessions: BTreeMap::new(),
            evictions: 0,
        }
    }

    /// Open sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Partitions in all sessions.
    #[must_use]
    pub fn partitions_cached(&self) -> usize {
        self.sessions.values().map(|s| s.partitions.len()).sum()
    }

    /// Sessions pushed out by others since the start.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Closes a session, if it is open.
    pub fn close(&mut self, id: i32) {
        self.sessions.remove(&id);
    }

    /// Takes a request in: which partitions to read, and how the session stands.
    pub fn begin(&mut self, request: SessionRequest, now: Instant) -> Result<Plan, SessionError> {
        if request.is_full() {
            self.sessions.remove(&request.id);
            let session = if request.epoch == EPOCH_OPEN {
                SessionUse::Open
            } else {
                SessionUse::None
            };
            return Ok(Plan {
                session,
                partitions: request.wanted,
            });
        }
        let session = self.sessions.get_mut(&request.id).ok_or(SessionError::NotFound)?;
        if session.epoch != request.epoch {
            return Err(SessionError::InvalidEpoch);
        }
        if session.by_id != request.by_id {
            return Err(SessionError::TopicId);
        }
        session.update(request.wanted, &request.forgotten);
        session.epoch = next_epoch(session.epoch);
        session.used = now;
        if session.partitions.is_empty() {
            self.sessions.remove(&request.id);
            return Ok(Plan {
                session: SessionUse::None,
                partitions: Vec::new(),
            });
        }
        Ok(Plan {
            session: SessionUse::Incremental(request.id),
            partitions: session.in_order(),
        })
    }

    /// Takes the answers of a planned request, in plan order: the session id of the response, and which answers it
    /// lists. `random` seeds the id of a new session; `by_id` and `from_follower` are the request's.
    pub fn finish(
        &mut self,
        plan: &Plan,
        answers: &[AnswerFacts],
        by_id: bool,
        from_follower: bool,
        random: u64,
        now: Instant,
    ) -> (i32, Vec<bool>) {
        assert_eq!(
            plan.partitions.len(),
            answers.len(),
            "each planned partition has an answer"
        );
        match plan.session {
            SessionUse::None => (0, vec![true; answers.len()]),
            SessionUse::Open => {
                let size = plan.partitions.len();
                if size == 0 || size > SESSION_PARTITIONS_MAX || !self.make_room(size, from_follower, now) {
                    return (0, vec![true; size]);
                }
                let id = self.new_id(random);
                let mut session = Session::new(by_id, from_follower, now);
                session.update(plan.partitions.clone(), &[]);
                session.remember(&plan.partitions, answers);
                self.sessions.insert(id, session);
                (id, vec![true; size])
            }
            SessionUse::Incremental(id) => match self.sessions.get_mut(&id) {
                Some(session) => (id, session.remember(&plan.partitions, answers)),
                None => (0, vec![true; answers.len()]),
            },
        }
    }

    /// FE-24: an idle session goes, a follower's beats a consumer's, a larger one beats a smaller one that had its time.
    fn make_room(&mut self, size: usize, from_follower: bool, now: Instant) -> bool {
        if self.sessions.len() < self.slots {
            return true;
        }
        let rank = |s: &Session| (s.from_follower, s.partitions.len(), s.used);
        let idle = self.sessions.iter().min_by_key(|(_, s)| s.used);
        let victim = match idle {
            Some((id, s)) if now.since(s.used) > EVICTION_AGE => Some(*id),
            _ => self
                .sessions
                .iter()
                .min_by_key(|(_, s)| rank(s))
                .and_then(|(id, s)| {
                    let aged = now.since(s.created) > EVICTION_AGE;
                    let weaker = (!s.from_follower && from_follower)
                        || (s.from_follower == from_follower && aged && s.partitions.len() < size);
                    weaker.then_some(*id)
                }),
        };
        match victim {
            Some(id) => {
                self.sessions.remove(&id);
                self.evictions += 1;
                true
            }
            None => false,
        }
    }

    /// An unused id above 0 that leads to this shard.
    fn new_id(&self, random: u64) -> i32 {
        let (shard, step) = (i32::from(self.shard.0), i32::from(self.shards));
        let start = (random & 0x7fff_ffff) as i32;
        let mut id = (start - start % step).checked_add(shard).unwrap_or(shard);
        while id <= 0 || self.sessions.contains_key(&id) {
            id = id.checked_add(step).unwrap_or(shard);
        }
        id
    }
}

impl Session {
    fn new(by_id: bool, from_follower: bool, now: Instant) -> Self {
        Self {
            epoch: 1,
            by_id,
            from_follower,
            created: now,
            used: now,
            order: BTreeMap::new(),
            next_turn: 0,
            partitions: HashMap::default(),
        }
    }

    fn update(&mut self, wanted: Vec<(PartitionKey, FetchPosition)>, forgotten: &[PartitionKey]) {
        for (key, position) in wanted {
            if let Some(cached) = self.partitions.get_mut(&key) {
                cached.position = position;
            } else if self.partitions.len() < SESSION_PARTITIONS_MAX {
                let turn = self.next_turn;
                self.next_turn += 1;
                self.order.insert(turn, key.clone());
                self.partitions.insert(
                    key,
                    Cached {
                        turn,
                        position,
                        high_watermark: -1,
                        log_start_offset: -1,
                    },
                );
            }
        }
        for key in forgotten {
            if let Some(cached) = self.partitions.remove(key) {
                self.order.remove(&cached.turn);
            }
        }
    }

    fn in_order(&self) -> Vec<(PartitionKey, FetchPosition)> {
        let position = |key: &PartitionKey| self.partitions.get(key).map(|c| (key.clone(), c.position));
        self.order.values().filter_map(position).collect()
    }

    /// Notes the answers and tells which of them an incremental response lists.
    fn remember(
        &mut self,
        partitions: &[(PartitionKey, FetchPosition)],
        answers: &[AnswerFacts],
    ) -> Vec<bool> {
        let mut listed = Vec::with_capacity(answers.len());
        for ((key, _), facts) in partitions.iter().zip(answers) {
            let Some(cached) = self.partitions.get_mut(key) else {
                listed.push(true);
                continue;
            };
            let changed = cached.high_watermark != facts.high_watermark
                || cached.log_start_offset != facts.log_start_offset;
            listed.push(facts.has_records || facts.is_error || facts.redirects || changed);
            // After an error the partition is listed again when the error goes away, whatever its watermark.
            cached.high_watermark = if facts.is_error { -1 } else { facts.high_watermark };
            cached.log_start_offset = facts.log_start_offset;
            if facts.has_records {
                self.order.remove(&cached.turn);
                cached.turn = self.next_turn;
                self.order.insert(self.next_turn, key.clone());
                self.next_turn += 1;
            }
        }
        listed
    }
}

/// The epoch after `epoch`; it wraps to 1, since 0 opens a session.
fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(partition: i32) -> PartitionKey {
        PartitionKey {
            topic: TopicKey::Name("t".into()),
            partition,
        }
    }

    fn at(offset: i64) -> FetchPosition {
        FetchPosition {
            offset: Offset(offset),
            bytes_max: 1000,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            log_start_offset: -1,
        }
    }

    fn facts(high_watermark: i64, has_records: bool) -> AnswerFacts {
        AnswerFacts {
            high_watermark,
            log_start_offset: 0,
            has_records,
            is_error: false,
            redirects: false,
        }
    }

    fn request(id: i32, epoch: i32, wanted: Vec<(PartitionKey, FetchPosition)>) -> SessionRequest {
        SessionRequest {
            id,
            epoch,
            by_id: false,
            from_follower: false,
            wanted,
            forgotten: Vec::new(),
        }
    }

    fn open(sessions: &mut FetchSessions, partitions: i32, random: u64, now: Instant) -> i32 {
        let wanted = (0..partitions).map(|p| (key(p), at(0))).collect();
        let plan = sessions.begin(request(0, 0, wanted), now).expect("a new session");
        let answers = vec![facts(0, false); usize::try_from(partitions).expect("few")];
        sessions.finish(&plan, &answers, false, false, random, now).0
    }

    #[test]
    fn every_id_leads_to_its_shard_and_is_used_once() {
        for shards in [1, 2, 3, 64] {
            for shard in (0..shards).map(ShardId) {
                let mut sessions = FetchSessions::new(shard, shards, 100);
                let mut ids = std::collections::BTreeSet::new();
                for random in [0, 0, 1, 7, 7, 7, 1000, u64::MAX, u64::MAX, 1 << 31, 0x7fff_fffe] {
                    let id = open(&mut sessions, 1, random, Instant(0));
                    assert!(id > 0, "{id} of {random}");
                    assert_eq!(holder(id, shards), shard);
                    assert!(ids.insert(id), "{id} twice");
                }
            }
        }
        // What clients make up leads somewhere, too.
        assert_eq!(holder(i32::MIN, 3).0, 2);
        assert_eq!(holder(-1, 1).0, 0);
    }

    #[test]
    fn an_incremental_response_lists_only_what_changed() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 10);
        let id = open(&mut sessions, 3, 7, Instant(0));
        let plan = sessions
            .begin(request(id, 1, vec![]), Instant(1))
            .expect("epoch 1 is next");
        assert_eq!(plan.session, SessionUse::Incremental(id));
        let answers = [facts(0, false), facts(5, true), facts(1, false)];
        let (same, listed) = sessions.finish(&plan, &answers, false, false, 0, Instant(1));
        assert_eq!((same, listed), (id, vec![false, true, true]));
        // The partition with data is now read last (FE-1).
        let plan = sessions
            .begin(request(id, 2, vec![(key(1), at(5))]), Instant(2))
            .expect("epoch 2 is next");
        let order: Vec<_> = plan
            .partitions
            .iter()
            .map(|(k, p)| (k.partition, p.offset.0))
            .collect();
        assert_eq!(order, [(0, 0), (2, 0), (1, 5)]);
    }

    #[test]
    fn a_partition_is_listed_again_when_its_error_goes_away() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 10);
        let id = open(&mut sessions, 1, 7, Instant(0));
        let plan = sessions.begin(request(id, 1, vec![]), Instant(0)).expect("next");
        let error = AnswerFacts {
            is_error: true,
            ..facts(0, false)
        };
        assert_eq!(
            sessions.finish(&plan, &[error], false, false, 0, Instant(0)).1,
            [true]
        );
        let plan = sessions.begin(request(id, 2, vec![]), Instant(0)).expect("next");
        assert_eq!(
            sessions
                .finish(&plan, &[facts(0, false)], false, false, 0, Instant(0))
                .1,
            [true]
        );
    }

    #[test]
    fn wrong_epochs_and_unknown_ids_are_refused_and_the_session_stays() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 10);
        let id = open(&mut sessions, 1, 7, Instant(0));
        assert_eq!(
            sessions.begin(request(id, 5, vec![]), Instant(0)),
            Err(SessionError::InvalidEpoch)
        );
        assert_eq!(
            sessions.begin(request(id + 1, 1, vec![]), Instant(0)),
            Err(SessionError::NotFound)
        );
        let by_id = SessionRequest {
            by_id: true,
            ..request(id, 1, vec![])
        };
        assert_eq!(sessions.begin(by_id, Instant(0)), Err(SessionError::TopicId));
        assert!(sessions.begin(request(id, 1, vec![]), Instant(0)).is_ok());
    }

    #[test]
    fn removing_the_last_partition_and_a_full_request_close_the_session() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 10);
        let id = open(&mut sessions, 1, 7, Instant(0));
        let forget = SessionRequest {
            forgotten: vec![key(0)],
            ..request(id, 1, vec![])
        };
        let plan = sessions.begin(forget, Instant(0)).expect("next");
        assert_eq!(
            plan,
            Plan {
                session: SessionUse::None,
                partitions: vec![]
            }
        );
        assert!(sessions.is_empty());
        let id = open(&mut sessions, 1, 7, Instant(0));
        sessions
            .begin(request(id, -1, vec![]), Instant(0))
            .expect("closing is fine");
        assert!(sessions.is_empty());
    }

    #[test]
    fn a_full_cache_grants_none_until_a_session_is_idle_or_smaller_and_aged() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 1);
        let aged = Instant(0).after(EVICTION_AGE).after(Duration::from_nanos(1));
        let first = open(&mut sessions, 2, 7, Instant(0));
        assert_ne!(first, 0);
        assert_eq!(
            open(&mut sessions, 3, 8, Instant(1)),
            0,
            "the first is neither idle nor aged"
        );
        sessions
            .begin(request(first, 1, vec![]), aged)
            .expect("still used");
        assert_eq!(open(&mut sessions, 2, 8, aged), 0, "not larger");
        assert_ne!(
            open(&mut sessions, 3, 8, aged),
            0,
            "larger than one that had its time"
        );
        assert_eq!(sessions.evictions(), 1);
    }

    #[test]
    fn epochs_wrap_to_one() {
        assert_eq!(next_epoch(i32::MAX), 1);
        assert_eq!(next_epoch(1), 2);
    }
}
