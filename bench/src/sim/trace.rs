//! What happened in one simulation: every event goes into a running hash (equal seeds give equal hashes) and into a short
//! tail that is shown when something is wrong. The first violation is kept, and ends the run.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

use storage::notify::Notify;
use storage::sim_executor::SimHandle;

/// Events of the tail that a failure shows.
pub const TAIL_EVENTS_MAX: usize = 60;

/// The trace of one run. Shared by all that take part in it.
pub struct Trace {
    clock: SimHandle,
    hash: Cell<u64>,
    events: Cell<u64>,
    tail: RefCell<VecDeque<String>>,
    violation: RefCell<Option<String>>,
    violated: Notify,
    /// The broker has reason to complain.
    allows_errors: Cell<bool>,
    is_verbose: bool,
}

impl Trace {
    /// An empty trace on the clock of `clock`; `is_verbose` keeps the whole of it instead of a tail.
    #[must_use]
    pub fn new(clock: SimHandle, is_verbose: bool) -> Self {
        Self {
            clock,
            // FNV-1a's start.
            hash: Cell::new(0xcbf2_9ce4_8422_2325),
            events: Cell::new(0),
            tail: RefCell::default(),
            violation: RefCell::default(),
            violated: Notify::new(),
            allows_errors: Cell::new(false),
            is_verbose,
        }
    }

    /// Adds an event.
    pub fn event(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>13.6} {what}", self.clock.now().as_secs_f64());
        self.mix(line.as_bytes());
        self.events.set(self.events.get() + 1);
        let mut tail = self.tail.borrow_mut();
        if !self.is_verbose && tail.len() == TAIL_EVENTS_MAX {
            tail.pop_front();
        }
        tail.push_back(line);
    }

    /// Adds to the hash only: what is too much for a reader.
    pub fn mix(&self, bytes: &[u8]) {
        let mut hash = self.hash.get();
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.hash.set(hash);
    }

    /// Whether the broker may log errors from now on.
    pub fn allow_errors(&self, allow: bool) {
        self.allows_errors.set(allow);
    }

    /// Whether the broker may log errors.
    #[must_use]
    pub fn allows_errors(&self) -> bool {
        self.allows_errors.get()
    }

    /// An invariant does not hold. The first one counts.
    pub fn violation(&self, what: fmt::Arguments<'_>) {
        let what = what.to_string();
        self.event(format_args!("VIOLATION {what}"));
        self.violation.borrow_mut().get_or_insert(what);
        self.violated.notify();
    }

    /// The first violation so far.
    #[must_use]
    pub fn first_violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Ends when there is a violation.
    pub async fn violated(&self) {
        self.violated
            .until(|| self.violation.borrow().is_some().then_some(()))
            .await;
    }

    /// The hash over all events so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// How many events there were.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.get()
    }

    /// The last events, oldest first.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.tail.borrow().iter().cloned().collect()
    }
}
