//! What one call of a coordinator works with beside the group: the times, the settings, and where its effects go.

use std::collections::VecDeque;
use std::rc::Rc;

use protocol::{ErrorCode, Str};

use super::news::News;
use super::record::GroupRecord;
use super::request::{ByTopic, GroupOutput, GroupReply, GroupSettings};
use super::stats::GroupCounters;
use super::timers::Timers;
use super::writes::OpenWrites;
use crate::budget::Budget;
use crate::env::{Instant, WallMs};
use crate::message::ReplyTo;

/// What happens when an append is done.
#[derive(Debug)]
pub(super) enum Then {
    /// An OffsetCommit is answered.
    Committed {
        to: ReplyTo,
        results: ByTopic<ErrorCode>,
        /// By how many bytes it makes the group larger.
        growth: u64,
    },
    /// The assignment of a generation takes effect.
    Assigned { generation: i32 },
    /// An instance has its new member id, or gets the old one back.
    Renamed(Box<super::join::Rename>),
    /// An OffsetDelete is answered.
    OffsetsDeleted {
        to: ReplyTo,
        results: ByTopic<ErrorCode>,
    },
    /// A DeleteGroups is answered.
    Deleted { to: ReplyTo },
    /// A group that grew old is gone, or is one still.
    Ended,
    /// Nobody waits: offsets grew old.
    Expired,
    /// Nobody waits. An empty generation that is lost comes again when the members of the one before do not; offsets of topics that
    /// are gone are found by the next sweep.
    Nothing,
}

/// Where the effects of a coordinator's calls go.
#[derive(Debug)]
pub(super) struct Effects {
    pub outputs: VecDeque<GroupOutput>,
    pub timers: Timers,
    pub writes: OpenWrites,
    pub counters: GroupCounters,
    pub news: News,
    /// The first group of which something was refused for lack of memory, since somebody asked.
    pub short: Option<Str>,
}

impl Effects {
    pub(super) fn new(memory: &Budget) -> Self {
        Self {
            outputs: VecDeque::new(),
            timers: Timers::default(),
            writes: OpenWrites::new(memory),
            counters: GroupCounters::default(),
            news: News::default(),
            short: None,
        }
    }

    /// Something of a group is refused because the memory of coordinators is used up.
    pub(super) fn refuse_for_memory(&mut self, group: &Str) {
        self.counters.memory_refusals += 1;
        self.short.get_or_insert_with(|| group.detached());
    }
}

/// See the module.
pub(super) struct Turn<'a> {
    pub settings: &'a GroupSettings,
    pub memory: &'a Budget,
    pub effects: &'a mut Effects,
    pub now: Instant,
    pub wall: WallMs,
}

impl Turn<'_> {
    pub(super) fn reply(&mut self, to: ReplyTo, reply: GroupReply) {
        self.effects.outputs.push_back(GroupOutput::Reply { to, reply });
    }

    /// Whether a client may have something appended that adds nothing to what is kept.
    pub(super) fn may_append(&self) -> bool {
        self.effects.writes.have_room(self.memory, 0, false)
    }

    /// Appends records for a group, and remembers what to do then. They hold no frame of a request, which is charged no longer.
    pub(super) fn append(&mut self, group: &Str, records: Vec<GroupRecord>, then: Then) {
        let records: Rc<[GroupRecord]> = records.into();
        let write = self.effects.writes.push(group.clone(), Rc::clone(&records), then);
        self.effects
            .outputs
            .push_back(GroupOutput::Append { write, records });
    }
}
