//! What the members of one case have told so far, and the questions that cases ask of it: who owns which partition, what was read, and
//! whether a partition ever had two owners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::member::{Event, Line};
use super::topic::PARTITIONS;
use crate::error::{Error, Result};

/// Members tell a moment after the fact; what a tool prints is told by another process, when it comes to run. Two owners by a fault of the
/// coordinator stay that until the next rebalance, which is much longer.
const CLOCK_SLACK_MS: f64 = 500.0;

/// All that the members of a case have told.
#[derive(Debug, Default)]
pub(super) struct History {
    told: Mutex<Told>,
    changed: Condvar,
}

/// One member's part.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberTold {
    pub(super) version: Option<String>,
    pub(super) tells_owners: bool,
    pub(super) owned: BTreeSet<i32>,
    pub(super) generation: Option<i32>,
    /// Every partition that it was given or gave up, in order, with the time.
    pub(super) moves: Vec<(f64, bool, i32)>,
    /// (time, partition, offset), in the order read.
    pub(super) records: Vec<(f64, i32, i64)>,
    /// What its own producer wrote, as read: (partition, offset, value).
    pub(super) values: Vec<(i32, i64, String)>,
    pub(super) count: Option<u64>,
    pub(super) done: BTreeMap<String, usize>,
    pub(super) failures: Vec<(String, String)>,
    pub(super) absent: Option<String>,
    pub(super) ended: bool,
}

impl MemberTold {
    /// The partitions it owns; where it does not tell, those it has read from since that time.
    pub(super) fn covers(&self, since_ms: f64) -> BTreeSet<i32> {
        if self.tells_owners {
            return self.owned.clone();
        }
        let recent = self.records.iter().rev().take_while(|(at, ..)| *at > since_ms);
        recent.map(|&(_, partition, _)| partition).collect()
    }

    /// The first offset that it read of each partition.
    pub(super) fn first_offsets(&self) -> BTreeMap<i32, i64> {
        let records = self.records.iter().rev();
        records
            .map(|&(_, partition, offset)| (partition, offset))
            .collect()
    }

    /// The offset that it read last of each partition.
    pub(super) fn last_offsets(&self) -> BTreeMap<i32, i64> {
        let records = self.records.iter();
        records
            .map(|&(_, partition, offset)| (partition, offset))
            .collect()
    }

    /// Whether it was given a partition for a second time.
    pub(super) fn was_given_again(&self) -> bool {
        let mut given = BTreeSet::new();
        let mut moves = self.moves.iter().filter(|one| one.1);
        moves.any(|one| !given.insert(one.2))
    }
}

#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) members: Vec<MemberTold>,
}

impl Told {
    /// The offsets of each partition that some member has read.
    pub(super) fn read(&self) -> BTreeMap<i32, BTreeSet<i64>> {
        let mut read: BTreeMap<i32, BTreeSet<i64>> = BTreeMap::new();
        for member in &self.members {
            for &(_, partition, offset) in &member.records {
                read.entry(partition).or_default().insert(offset);
            }
        }
        read
    }

    /// Whether the members have read everything below these ends.
    pub(super) fn has_read_all(&self, ends: &[i64; PARTITIONS as usize]) -> bool {
        let read = self.read();
        (0..PARTITIONS).zip(ends).all(|(partition, &end)| {
            let offsets = read.get(&partition);
            end == 0
                || offsets
                    .is_some_and(|offsets| offsets.len() as i64 == end && offsets.last() == Some(&(end - 1)))
        })
    }

    /// The first partition that two members owned at one time.
    fn owned_twice(&self) -> Option<String> {
        let mut moves: Vec<_> = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            moves.extend(
                member
                    .moves
                    .iter()
                    .map(|&(at, given, partition)| (at, given, partition, index)),
            );
        }
        moves.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut owners: BTreeMap<i32, usize> = BTreeMap::new();
        for (position, &(at, given, partition, index)) in moves.iter().enumerate() {
            if !given {
                if owners.get(&partition) == Some(&index) {
                    owners.remove(&partition);
                }
                continue;
            }
            if let Some(&owner) = owners.get(&partition).filter(|&&owner| owner != index) {
                let given_up =
                    |later: &&(f64, bool, i32, usize)| !later.1 && later.2 == partition && later.3 == owner;
                let at_once = moves[position..].iter().find(given_up);
                if at_once.is_none_or(|later| later.0 - at > CLOCK_SLACK_MS) {
                    return Some(format!(
                        "member {index} got partition {partition} while member {owner} owned it"
                    ));
                }
            }
            owners.insert(partition, index);
        }
        None
    }
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("nobody panics with the history")
    }

    /// Room for another member; its number.
    pub(super) fn join(&self) -> usize {
        let mut told = self.lock();
        told.members.push(MemberTold::default());
        told.members.len() - 1
    }

    /// Takes a member's line up.
    pub(super) fn tell(&self, index: usize, line: Line) {
        let mut told = self.lock();
        let member = &mut told.members[index];
        match line.event {
            Event::Hello { version, owners } => {
                member.version = Some(version);
                member.tells_owners = owners;
            }
            Event::Assigned {
                partitions,
                generation,
            } => {
                member.generation = generation.or(member.generation);
                member
                    .moves
                    .extend(partitions.iter().map(|&one| (line.at, true, one)));
                member.owned.extend(partitions);
            }
            Event::Revoked { partitions } => {
                member
                    .moves
                    .extend(partitions.iter().map(|&one| (line.at, false, one)));
                member.owned.retain(|one| !partitions.contains(one));
            }
            Event::Record {
                partition,
                offset,
                value,
            } => {
                if value.contains('/') {
                    member.values.push((partition, offset, value));
                } else if value != format!("{partition}:{offset}") {
                    let words = format!("partition {partition} offset {offset} has the value {value:?}");
                    member.failures.push(("record".into(), words));
                }
                member.records.push((line.at, partition, offset));
            }
            Event::Count { records } => member.count = Some(records),
            Event::Done { command } => *member.done.entry(command).or_default() += 1,
            Event::Failed { command, error } => member.failures.push((command, error)),
            Event::Absent { why } => member.absent = Some(why),
        }
        self.changed.notify_all();
    }

    /// A member did something that it must not do.
    pub(super) fn fail(&self, index: usize, words: &str) {
        self.lock().members[index]
            .failures
            .push(("output".into(), words.to_owned()));
        self.changed.notify_all();
    }

    /// A member's client does not have what the case needs.
    pub(super) fn absent(&self, index: usize, why: &str) {
        self.lock().members[index].absent = Some(why.to_owned());
    }

    /// A member's process has ended: it owns nothing any more.
    pub(super) fn ended(&self, index: usize) {
        let now = super::now_ms();
        let mut told = self.lock();
        let member = &mut told.members[index];
        member.ended = true;
        let owned = std::mem::take(&mut member.owned);
        member.moves.extend(owned.iter().map(|&one| (now, false, one)));
        self.changed.notify_all();
    }

    /// Looks at everything told so far.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Told) -> T) -> T {
        at(&self.lock())
    }

    /// Waits until `holds`.
    ///
    /// # Errors
    /// The client does not have it, or it does not hold within `limit`; the words say what was waited for and what the members own and have read.
    pub(super) fn wait(&self, what: &str, limit: Duration, holds: impl Fn(&Told) -> bool) -> Result<()> {
        let started = Instant::now();
        let mut told = self.lock();
        loop {
            if holds(&told) {
                return Ok(());
            }
            if let Some(why) = told.members.iter().find_map(|member| member.absent.as_ref()) {
                return Err(Error::Failed(format!("absent: {why}")));
            }
            if told.members.iter().any(|member| !member.failures.is_empty()) {
                return Err(Error::Failed(format!(
                    "while waiting for {what}: {}",
                    state(&told)
                )));
            }
            let left = limit.checked_sub(started.elapsed());
            let Some(left) = left else {
                return Err(Error::Failed(format!(
                    "not within {limit:?}: {what}; {}",
                    state(&told)
                )));
            };
            told = self
                .changed
                .wait_timeout(told, left)
                .expect("nobody panics with the history")
                .0;
        }
    }

    /// # Errors
    /// A partition had two owners at one time.
    pub(super) fn check_owners(&self) -> Result<()> {
        self.look(Told::owned_twice)
            .map_or(Ok(()), |words| Err(Error::Failed(words)))
    }
}

fn state(told: &Told) -> String {
    let one = |(index, member): (usize, &MemberTold)| {
        let mut read: BTreeMap<i32, (usize, i64)> = BTreeMap::new();
        for &(_, partition, offset) in &member.records {
            let seen = read.entry(partition).or_default();
            *seen = (seen.0 + 1, offset);
        }
        let given = member.moves.iter().filter(|one| one.1).count();
        format!(
            "member {index}: owns {:?} in generation {:?}, was given {given} partitions and gave up {}, read {read:?} (records, last \
             offset), failures {:?}{}",
            member.owned,
            member.generation,
            member.moves.len() - given,
            member.failures,
            if member.ended { ", ended" } else { "" }
        )
    };
    let all: Vec<_> = told.members.iter().enumerate().map(one).collect();
    all.join("; ")
}
