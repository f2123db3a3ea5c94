//! Logs that the replayed journals saw closed or deleted. Their bytes are in the segments; of their frames count where they start
//! and that they were deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::record::LogRecord;
use crate::journal::frame::{FrameKind, OpenPayload};
use crate::journal::{FrameHeader, Incarnation};
use crate::types::{LogId, Offset};

/// Those of all shards, each by the replay's number of its shard and its incarnation there.
pub(super) struct RestedLogs {
    logs: BTreeMap<(usize, Incarnation), Rested>,
    deleted: BTreeSet<LogId>,
}

struct Rested {
    id: LogId,
    name: String,
    /// [`Offset::NONE`] if no frame moved it.
    log_start: Offset,
}

impl RestedLogs {
    pub(super) const fn new() -> Self {
        Self {
            logs: BTreeMap::new(),
            deleted: BTreeSet::new(),
        }
    }

    /// A frame names one; each file names its logs again.
    pub(super) fn open(&mut self, key: (usize, Incarnation), opened: OpenPayload) {
        self.logs.entry(key).or_insert(Rested {
            id: opened.id,
            name: opened.directory,
            log_start: Offset::NONE,
        });
    }

    /// A frame of one. Returns whether a frame before has named it.
    pub(super) fn apply(&mut self, key: (usize, Incarnation), header: &FrameHeader) -> bool {
        let Some(rested) = self.logs.get_mut(&key) else {
            return false;
        };
        match header.kind {
            FrameKind::Start => rested.log_start = rested.log_start.max(header.base_offset),
            FrameKind::Delete => {
                self.deleted.insert(rested.id);
            }
            _ => {}
        }
        true
    }

    /// Whether a frame says that the log was deleted.
    pub(super) fn has_deleted(&self, id: LogId) -> bool {
        self.deleted.contains(&id)
    }

    /// They start where they did, also one that no checkpoint knows yet, and one that was opened again.
    pub(super) fn keep_starts(&self, records: &mut BTreeMap<String, LogRecord>) {
        let moved = self
            .logs
            .values()
            .filter(|rested| rested.log_start > Offset::ZERO);
        for rested in moved.filter(|rested| !self.has_deleted(rested.id)) {
            let record = records
                .entry(rested.name.clone())
                .or_insert_with(|| LogRecord::new(rested.id, &rested.name));
            if record.id() != rested.id {
                *record = LogRecord::new(rested.id, &rested.name); // the topic that the checkpoint knows was deleted, and created anew
            }
            record.log_start = record.log_start.max(rested.log_start.0);
        }
    }
}
