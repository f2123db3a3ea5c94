//! The cases, one file per area.

mod batches;
mod connections;
mod fetch;
mod idempotence;
mod produce;
mod stored;
mod versions;
mod waits;

use super::Case;

/// Every case.
pub fn cases() -> Vec<Case> {
    [
        connections::CASES,
        versions::CASES,
        produce::CASES,
        batches::CASES,
        stored::CASES,
        idempotence::CASES,
        fetch::CASES,
        waits::CASES,
    ]
    .concat()
}
