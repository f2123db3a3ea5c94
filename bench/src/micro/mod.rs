//! The steps of a request, one at a time: what `benches/micro.rs` times and `tests/micro.rs` counts the allocations of.
//! Times on a shared machine say little; allocations are the same on each run, so that a test can hold them.
//!
//! An operation is set up once and then repeated; what it needs lies in its closure.

mod append;
mod batches;
mod fetch;
mod mailbox;
mod wire;

use std::fmt;

/// Something that is done for each request, or each batch, of a client.
pub struct Operation {
    /// Its name in tables and in the baseline: `group/what`.
    pub name: &'static str,
    /// Record or frame bytes that one run goes through, 0 where that says nothing.
    pub bytes: u64,
    /// One run.
    pub run: Box<dyn FnMut()>,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.name)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Operation {
    fn new(name: &'static str, bytes: usize, run: impl FnMut() + 'static) -> Self {
        Self {
            name,
            bytes: bytes as u64,
            run: Box::new(run),
        }
    }
}

/// All operations, in the order in which a produce and then a fetch meet them.
#[must_use]
pub fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    all.extend(wire::decoding());
    all.extend(batches::operations());
    all.extend(mailbox::operations());
    all.extend(append::operations());
    all.extend(fetch::operations());
    all.extend(wire::encoding());
    all
}
