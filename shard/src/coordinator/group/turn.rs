//! What one call of a coordinator works with beside the group: the times, the settings, and where its effects go.

use std::collections::VecDeque;
use std::rc::Rc;

use protocol::{ErrorCode, Str};

use super::record::GroupRecord;
use super::request::{ByTopic, GroupOutput, GroupReply, GroupSettings, WriteId};
use super::stats::GroupCounters;
use super::timers::Timers;
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
        /// Bytes that were charged for it beforehand.
        held: u64,
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
    /// Nobody waits: an empty generation, or offsets of topics that are gone. Lost, it is found again.
    Nothing,
}

/// An append under way.
#[derive(Debug)]
pub(super) struct Write {
    pub id: WriteId,
    pub group: Str,
    pub records: Rc<[GroupRecord]>,
    pub then: Then,
}

/// Where the effects of a coordinator's calls go.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub outputs: VecDeque<GroupOutput>,
    pub timers: Timers,
    pub writes: VecDeque<Write>,
    pub next_write: u64,
    pub counters: GroupCounters,
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

    /// Appends records for a group, and remembers what to do then.
    pub(super) fn append(&mut self, group: &Str, records: Vec<GroupRecord>, then: Then) {
        let id = WriteId(self.effects.next_write);
        let records: Rc<[GroupRecord]> = records.into();
        self.effects.next_write += 1;
        self.effects.outputs.push_back(GroupOutput::Append {
            write: id,
            records: Rc::clone(&records),
        });
        self.effects.writes.push_back(Write {
            id,
            group: group.clone(),
            records,
            then,
        });
    }
}
