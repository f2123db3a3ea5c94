//! The appends of one coordinator that are under way, in their order, and the memory that their records hold until they are done:
//! also for clients that have gone meanwhile, whose requests are charged no longer.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use protocol::Str;
use protocol::messages::join_group::JoinGroupResponseMember;

use super::offsets::CommittedOffset;
use super::record::GroupRecord;
use super::request::{ByTopic, WriteId};
use super::turn::Then;
use crate::budget::{Budget, BudgetClass, Charge};

/// As long as the appends of a coordinator hold less, what is there already can be written anew, also when the memory of
/// coordinators is used up.
pub(super) const WRITES_OPEN_BYTES_MAX: u64 = 1 << 20;

/// As long as they hold less, a sweep appends more: most of the above is left to clients.
const SWEPT_BYTES_MAX: u64 = WRITES_OPEN_BYTES_MAX / 4;

/// What an append takes beside its records, bytes: itself here and in the writer's queue.
const WRITE_BYTES: u64 = size_of::<Write>() as u64 + 128;

/// What appends under way make of a group's offsets, one after the other: any of them may fail.
pub(super) type Pending = BTreeMap<(Str, i32), Vec<Option<CommittedOffset>>>;

/// An append under way.
#[derive(Debug)]
pub(super) struct Write {
    pub id: WriteId,
    pub group: Str,
    pub records: Rc<[GroupRecord]>,
    pub then: Then,
}

/// See the module.
#[derive(Debug)]
pub(super) struct OpenWrites {
    writes: VecDeque<Write>,
    next: u64,
    /// The sum of [`Write::bytes`].
    charge: Charge,
}

impl OpenWrites {
    /// None yet; they are charged to `memory`.
    pub(super) fn new(memory: &Budget) -> Self {
        Self {
            writes: VecDeque::new(),
            next: 0,
            charge: memory.empty_charge(BudgetClass::Coordinator),
        }
    }

    /// An append begins. It is charged whatever it takes: whoever lets clients begin one asks [`Self::have_room`].
    pub(super) fn push(&mut self, group: Str, records: Rc<[GroupRecord]>, then: Then) -> WriteId {
        let id = WriteId(self.next);
        self.next += 1;
        let write = Write {
            id,
            group,
            records,
            then,
        };
        self.charge.grow_anyway(write.bytes());
        self.writes.push_back(write);
        id
    }

    /// An append is done; what it held is given back.
    ///
    /// # Panics
    /// When it is not the oldest one.
    pub(super) fn pop(&mut self, id: WriteId) -> Write {
        let done = self
            .writes
            .pop_front_if(|write| write.id == id)
            .expect("appends are done in their order");
        self.charge.shrink_by(done.bytes());
        done
    }

    /// Whether an append of `bytes` may begin. One that adds nothing to what is kept may as long as others of it hold little.
    pub(super) fn have_room(&self, memory: &Budget, bytes: u64, adds: bool) -> bool {
        memory.has_room(BudgetClass::Coordinator, bytes)
            || (!adds && self.charge.bytes() < WRITES_OPEN_BYTES_MAX)
    }

    /// Whether they hold so little that what nobody waits for may be appended, too.
    pub(super) fn are_few(&self) -> bool {
        self.charge.bytes() < SWEPT_BYTES_MAX
    }

    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// What they make of a group's offsets.
    pub(super) fn pending_offsets(&self, group: &Str) -> Pending {
        let mut pending = Pending::new();
        for write in self.writes.iter().filter(|write| write.group == *group) {
            for record in write.records.iter() {
                if let GroupRecord::Offset {
                    topic,
                    partition,
                    offset,
                    ..
                } = record
                {
                    let values = pending.entry((topic.clone(), *partition)).or_default();
                    values.push(offset.clone());
                }
            }
        }
        pending
    }

    /// What they hold, counted anew.
    #[cfg(test)]
    pub(super) fn recount(&self) -> u64 {
        self.writes.iter().map(Write::bytes).sum()
    }

    /// All of them, the oldest first: they will not be done.
    pub(super) fn into_all(self) -> impl Iterator<Item = Write> {
        self.writes.into_iter()
    }
}

impl Write {
    /// What it holds until it is done.
    pub(super) fn bytes(&self) -> u64 {
        held_bytes(&self.records, &self.then)
    }
}

/// What an append of these records holds. A commit holds at least what it adds to the group, for which there has to be room then.
pub(super) fn held_bytes(records: &[GroupRecord], then: &Then) -> u64 {
    let bytes = WRITE_BYTES + records.iter().map(GroupRecord::bytes).sum::<u64>();
    match then {
        Then::Committed { results, growth, .. } => (bytes + results_bytes(results)).max(*growth),
        Then::OffsetsDeleted { results, .. } => bytes + results_bytes(results),
        Then::Renamed(rename) => {
            let listed = rename.answer.members.len() * size_of::<JoinGroupResponseMember>();
            bytes + rename.before.bytes() + listed as u64
        }
        Then::Assigned { .. } | Then::Deleted { .. } | Then::Ended | Then::Expired | Then::Nothing => bytes,
    }
}

/// What an answer by topic takes.
fn results_bytes<T>(results: &ByTopic<T>) -> u64 {
    let of_topic = |(name, partitions): &(Str, Vec<(i32, T)>)| {
        size_of::<(Str, Vec<(i32, T)>)>() + name.len() + partitions.len() * size_of::<(i32, T)>()
    };
    results.iter().map(of_topic).sum::<usize>() as u64
}
