//! The cases, one file per area.

mod batches;
mod compaction;
mod configs;
mod connections;
mod fetch;
mod group_offsets;
mod groups;
mod idempotence;
mod listeners;
mod log_dirs;
mod member_bytes;
mod member_reports;
mod metadata;
mod offset_reports;
mod offsets;
mod order;
mod produce;
mod retention;
mod sessions;
mod stored;
mod topics;
mod unserved;
mod versions;
mod waits;

use super::Case;

/// Every case.
pub fn cases() -> Vec<Case> {
    [
        connections::CASES,
        listeners::CASES,
        versions::CASES,
        produce::CASES,
        batches::CASES,
        stored::CASES,
        idempotence::CASES,
        fetch::CASES,
        waits::CASES,
        sessions::CASES,
        offsets::CASES,
        metadata::CASES,
        log_dirs::CASES,
        topics::CASES,
        configs::CASES,
        retention::CASES,
        compaction::CASES,
        unserved::CASES,
        groups::CASES,
        group_offsets::CASES,
        member_reports::CASES,
        member_bytes::CASES,
        offset_reports::CASES,
        order::CASES,
    ]
    .concat()
}
