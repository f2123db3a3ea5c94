//! Which disk work of a store goes first: produce, then tail reads, cold reads, replicas that catch up, compaction, scrub. The
//! first two never wait. The others share what may be under way at a time, which is little while producers want the disk, in
//! proportion to their shares, and each may have a rate. A state machine without I/O and clock: events are
//! [`IoClasses::wants`], [`IoClasses::ended`], [`IoClasses::gives_up`], [`IoClasses::produce_begins`] and
//! [`IoClasses::produce_ends`]; outputs are [`IoClasses::is_granted`] and [`IoClasses::next_deadline_ns`]. [`gate`] puts
//! tasks behind it. One per shard and log directory.

pub mod gate;

use std::collections::{BTreeSet, VecDeque};

/// What a read or write is for. In the order of their importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// Commits, and writing behind them.
    Produce,
    /// Reads close to the end of a log: consumers that keep up but for a moment.
    TailRead,
    /// Reads of anything older, also ahead of their readers.
    ColdRead,
    /// Reads for replicas that are behind.
    CatchUp,
    /// Reads and writes of compaction.
    Compaction,
    /// Reads of the scrub.
    Scrub,
}

/// The number of classes.
pub const IO_CLASSES: usize = 6;

/// Producers want the disk still, so long after a commit ended: under a steady load the next one comes sooner.
const BUSY_NS: u64 = 20_000_000;

/// What a class with a rate may save up while it does nothing, as a part of a second.
const BURST_PART: u64 = 8;

/// The least of that, bytes: one small read.
const BURST_BYTES_MIN: u64 = 64 << 10;

const NANOS: u64 = 1_000_000_000;

impl IoClass {
    /// All of them, the most important first.
    pub const ALL: [Self; IO_CLASSES] = [
        Self::Produce,
        Self::TailRead,
        Self::ColdRead,
        Self::CatchUp,
        Self::Compaction,
        Self::Scrub,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::TailRead => "tail-read",
            Self::ColdRead => "cold-read",
            Self::CatchUp => "catch-up",
            Self::Compaction => "compaction",
            Self::Scrub => "scrub",
        }
    }

    /// Its share when several wait. Even the least gets on.
    const fn share(self) -> u64 {
        match self {
            Self::Produce | Self::TailRead => 1000,
            Self::ColdRead => 800,
            Self::CatchUp => 400,
            Self::Compaction => 200,
            Self::Scrub => 50,
        }
    }

    /// Whether it never waits.
    const fn is_urgent(self) -> bool {
        matches!(self, Self::Produce | Self::TailRead)
    }
}

/// Bounds of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// Bytes under way at a time of the classes that wait, while producers want the disk. A larger single request goes alone.
    pub busy_bytes_max: u64,
    /// The same while no producer does.
    pub idle_bytes_max: u64,
    /// Bytes a second of each class, by its place in [`IoClass::ALL`]; 0 is no bound. Those of the urgent classes do not count.
    pub bytes_per_second: [u64; IO_CLASSES],
}

impl Default for IoLimits {
    fn default() -> Self {
        Self {
            busy_bytes_max: 2 << 20,
            idle_bytes_max: 32 << 20,
            bytes_per_second: [0; IO_CLASSES],
        }
    }
}

impl IoLimits {
    /// The same with a rate for `class`, bytes a second; 0 is none.
    #[must_use]
    pub const fn with_rate(mut self, class: IoClass, bytes_per_second: u64) -> Self {
        self.bytes_per_second[class as usize] = bytes_per_second;
        self
    }
}

/// What a class has done and what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Reads and writes that were let go.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them had to wait.
    pub waits: u64,
    /// How long they waited, nanoseconds.
    pub wait_ns: u64,
    /// Waiting now.
    pub waiting: usize,
}

impl IoTotals {
    /// The sum with those of another directory.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
            waits: self.waits + other.waits,
            wait_ns: self.wait_ns + other.wait_ns,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// See the module. Memory: under a kilobyte, and 32 bytes for each who waits.
#[derive(Debug)]
pub struct IoClasses {
    limits: IoLimits,
    classes: [ClassState; IO_CLASSES],
    /// Bytes under way of the classes that wait.
    flight_bytes: u64,
    produce_flights: u32,
    produce_ended_ns: Option<u64>,
    /// What the class that went last has had for its share: one that was idle does not catch up on more.
    served: u64,
    granted: BTreeSet<u64>,
    ticket_next: u64,
}

#[derive(Debug, Default)]
struct ClassState {
    waiting: VecDeque<Waiting>,
    bucket: Bucket,
    /// Bytes it has had, divided by its share.
    served: u64,
    totals: IoTotals,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: u64,
    bytes: u64,
    since_ns: u64,
}

/// A token bucket that may be overdrawn once: whoever comes while something is in it gets all it wants, so that a request
/// larger than the bucket is possible, and the next one waits for the debt.
#[derive(Debug, Default)]
struct Bucket {
    /// Bytes a second; 0 is no bound.
    rate: u64,
    tokens: i64,
    filled_ns: u64,
}

impl Bucket {
    fn new(rate: u64) -> Self {
        Self {
            rate,
            tokens: Self::burst(rate),
            filled_ns: 0,
        }
    }

    fn burst(rate: u64) -> i64 {
        i64::try_from((rate / BURST_PART).max(BURST_BYTES_MIN)).unwrap_or(i64::MAX)
    }

    fn fill(&mut self, now_ns: u64) {
        let passed_ns = u128::from(now_ns.saturating_sub(self.filled_ns));
        let earned = passed_ns * u128::from(self.rate) / u128::from(NANOS);
        if earned == 0 {
            return; // the time counts with the next look
        }
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_add(earned).min(Self::burst(self.rate));
        self.filled_ns = now_ns;
    }

    const fn is_open(&self) -> bool {
        self.rate == 0 || self.tokens > 0
    }

    fn take(&mut self, bytes: u64) {
        if self.rate > 0 {
            self.tokens = self.tokens.saturating_sub_unsigned(bytes);
        }
    }

    /// When it is open again.
    fn opens_ns(&self) -> u64 {
        let missing = u128::from(self.tokens.min(0).unsigned_abs()) + 1;
        let wait_ns = (missing * u128::from(NANOS)).div_ceil(u128::from(self.rate.max(1)));
        self.filled_ns
            .saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }
}

impl IoClasses {
    /// Nothing is under way.
    #[must_use]
    pub fn new(limits: IoLimits) -> Self {
        let mut classes: [ClassState; IO_CLASSES] = Default::default();
        for (class, rate) in classes.iter_mut().zip(limits.bytes_per_second) {
            class.bucket = Bucket::new(rate);
        }
        Self {
            limits,
            classes,
            flight_bytes: 0,
            produce_flights: 0,
            produce_ended_ns: None,
            served: 0,
            granted: BTreeSet::new(),
            ticket_next: 0,
        }
    }

    /// A read or write of `bytes` is wanted. Returns its ticket: it may begin when [`Self::is_granted`] says so, which may be
    /// at once, and ends with [`Self::ended`].
    pub fn wants(&mut self, class: IoClass, bytes: u64, now_ns: u64) -> u64 {
        let ticket = self.ticket_next;
        self.ticket_next += 1;
        if class.is_urgent() {
            self.state(class).count(bytes);
            self.granted.insert(ticket);
            return ticket;
        }
        let served = self.served;
        let state = self.state(class);
        if state.waiting.is_empty() {
            state.served = state.served.max(served);
        }
        state.waiting.push_back(Waiting {
            ticket,
            bytes,
            since_ns: now_ns,
        });
        self.let_go(now_ns);
        if !self.granted.contains(&ticket) {
            self.state(class).totals.waits += 1;
        }
        ticket
    }

    /// Whether the ticket's work may begin; says so once.
    pub fn is_granted(&mut self, ticket: u64) -> bool {
        self.granted.remove(&ticket)
    }

    /// Work that had been granted has ended.
    pub fn ended(&mut self, class: IoClass, bytes: u64, now_ns: u64) {
        if !class.is_urgent() {
            self.flight_bytes -= bytes;
            self.let_go(now_ns);
        }
    }

    /// Whoever has the ticket wants it no longer and has not begun.
    pub fn gives_up(&mut self, class: IoClass, bytes: u64, ticket: u64, now_ns: u64) {
        if self.granted.remove(&ticket) {
            self.ended(class, bytes, now_ns);
        } else {
            self.state(class)
                .waiting
                .retain(|waiting| waiting.ticket != ticket);
            self.let_go(now_ns);
        }
    }

    /// A commit, or a write behind one, of `bytes` begins; it never waits.
    pub fn produce_begins(&mut self, bytes: u64) {
        self.produce_flights += 1;
        self.state(IoClass::Produce).count(bytes);
    }

    /// It has ended.
    pub fn produce_ends(&mut self, now_ns: u64) {
        self.produce_flights -= 1;
        self.produce_ended_ns = Some(now_ns);
    }

    /// Time has passed: lets go what may go now, and returns when to look again.
    pub fn next_deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        self.let_go(now_ns);
        let closed = self
            .classes
            .iter()
            .filter(|class| !class.waiting.is_empty() && !class.bucket.is_open());
        // Who waits for room instead has somebody under way before it, whose end is an event.
        closed.map(|class| class.bucket.opens_ns()).min()
    }

    /// Other bounds from now on.
    pub fn set_limits(&mut self, limits: IoLimits, now_ns: u64) {
        self.limits = limits;
        for (class, rate) in self.classes.iter_mut().zip(limits.bytes_per_second) {
            if class.bucket.rate != rate {
                class.bucket = Bucket::new(rate);
                class.bucket.filled_ns = now_ns;
            }
        }
        self.let_go(now_ns);
    }

    /// The bounds.
    #[must_use]
    pub const fn limits(&self) -> IoLimits {
        self.limits
    }

    /// Whether somebody may begin who has not been told yet.
    #[must_use]
    pub fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// What each class has done, by its place in [`IoClass::ALL`].
    #[must_use]
    pub fn totals(&self) -> [IoTotals; IO_CLASSES] {
        std::array::from_fn(|index| {
            let class = &self.classes[index];
            IoTotals {
                waiting: class.waiting.len(),
                ..class.totals
            }
        })
    }

    fn state(&mut self, class: IoClass) -> &mut ClassState {
        &mut self.classes[class as usize]
    }

    fn room(&self, now_ns: u64) -> u64 {
        let lately = self
            .produce_ended_ns
            .is_some_and(|ended| now_ns.saturating_sub(ended) < BUSY_NS);
        if self.produce_flights > 0 || lately {
            self.limits.busy_bytes_max
        } else {
            self.limits.idle_bytes_max
        }
    }

    fn let_go(&mut self, now_ns: u64) {
        let room = self.room(now_ns);
        loop {
            for class in &mut self.classes {
                class.bucket.fill(now_ns);
            }
            let first = self
                .classes
                .iter()
                .enumerate()
                .filter(|(_, class)| !class.waiting.is_empty() && class.bucket.is_open())
                .min_by_key(|(_, class)| class.served)
                .map(|(index, _)| index);
            let Some(index) = first else { return };
            let share = IoClass::ALL[index].share();
            let class = &mut self.classes[index];
            let Some(next) = class.waiting.front().copied() else {
                return;
            };
            // Nobody slips past: a smaller request of another class would keep a large one waiting for ever.
            if self.flight_bytes > 0 && self.flight_bytes + next.bytes > room {
                return;
            }
            class.waiting.pop_front();
            class.bucket.take(next.bytes);
            class.served += (next.bytes * 1000).div_ceil(share);
            class.totals.wait_ns += now_ns.saturating_sub(next.since_ns);
            class.count(next.bytes);
            self.served = class.served;
            self.flight_bytes += next.bytes;
            self.granted.insert(next.ticket);
        }
    }
}

impl ClassState {
    fn count(&mut self, bytes: u64) {
        self.totals.operations += 1;
        self.totals.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn limits(busy: u64, idle: u64) -> IoLimits {
        IoLimits {
            busy_bytes_max: busy,
            idle_bytes_max: idle,
            ..IoLimits::default()
        }
    }

    #[test]
    fn produce_and_tail_reads_never_wait() {
        let mut classes = IoClasses::new(limits(1, 1));
        for class in [IoClass::Produce, IoClass::TailRead] {
            for _ in 0..100 {
                let ticket = classes.wants(class, 10 * MIB, 0);
                assert!(classes.is_granted(ticket));
            }
            assert_eq!(classes.totals()[class as usize].waits, 0);
            assert_eq!(classes.totals()[class as usize].bytes, 1000 * MIB);
        }
    }

    #[test]
    fn little_is_under_way_while_producers_want_the_disk_and_more_a_while_after() {
        let mut classes = IoClasses::new(limits(2 * MIB, 8 * MIB));
        classes.produce_begins(4096);
        let tickets: Vec<_> = (0..8).map(|_| classes.wants(IoClass::ColdRead, MIB, 0)).collect();
        let granted = |classes: &mut IoClasses| tickets.iter().filter(|t| classes.is_granted(**t)).count();
        assert_eq!(granted(&mut classes), 2);
        classes.produce_ends(MS);
        classes.ended(IoClass::ColdRead, MIB, 2 * MS);
        assert_eq!(granted(&mut classes), 1, "a commit ended a moment ago");
        classes.ended(IoClass::ColdRead, MIB, 2 * MS + BUSY_NS);
        assert_eq!(granted(&mut classes), 5, "all the others");
        let totals = classes.totals()[IoClass::ColdRead as usize];
        assert_eq!((totals.operations, totals.waits, totals.waiting), (8, 6, 0));
        assert_eq!(totals.wait_ns, 2 * MS + 5 * (2 * MS + BUSY_NS));
    }

    #[test]
    fn a_request_larger_than_the_room_goes_alone_and_nobody_slips_past_it() {
        let mut classes = IoClasses::new(limits(2 * MIB, 2 * MIB));
        let small = classes.wants(IoClass::ColdRead, MIB, 0);
        assert!(classes.is_granted(small));
        let large = classes.wants(IoClass::ColdRead, 10 * MIB, 0);
        let later = classes.wants(IoClass::ColdRead, 1, 0);
        assert!(!classes.is_granted(large) && !classes.is_granted(later));
        classes.ended(IoClass::ColdRead, MIB, 0);
        assert!(classes.is_granted(large) && !classes.is_granted(later));
        classes.ended(IoClass::ColdRead, 10 * MIB, 0);
        assert!(classes.is_granted(later));
    }

    /// Classes that always have one more request waiting, for `rounds` grants; bytes that each got.
    fn contend(classes: &mut IoClasses, wanting: &[IoClass], rounds: usize) -> Vec<u64> {
        let want = |classes: &mut IoClasses, class| (classes.wants(class, MIB, 0), class);
        let mut waiting: Vec<_> = wanting.iter().map(|class| want(classes, *class)).collect();
        for _ in 0..rounds {
            let index = waiting
                .iter()
                .position(|(ticket, _)| classes.is_granted(*ticket))
                .expect("somebody may go");
            let (_, class) = waiting.remove(index);
            waiting.push(want(classes, class));
            classes.ended(class, MIB, 0);
        }
        let totals = classes.totals();
        for (ticket, class) in waiting {
            classes.gives_up(class, MIB, ticket, 0);
        }
        wanting
            .iter()
            .map(|class| totals[*class as usize].bytes / MIB)
            .collect()
    }

    #[test]
    fn who_waits_goes_in_proportion_to_the_shares() {
        let mut classes = IoClasses::new(limits(MIB, MIB));
        let wanting = [
            IoClass::ColdRead,
            IoClass::CatchUp,
            IoClass::Compaction,
            IoClass::Scrub,
        ];
        let got = contend(&mut classes, &wanting, 1450);
        for (got, share) in got.iter().zip([800u64, 400, 200, 50]) {
            assert!(got.abs_diff(share) <= share / 20 + 2, "{got} of {share}");
        }
    }

    #[test]
    fn a_class_that_was_idle_does_not_catch_up() {
        let mut classes = IoClasses::new(limits(MIB, MIB));
        contend(&mut classes, &[IoClass::ColdRead], 1000);
        let before = classes.totals()[IoClass::ColdRead as usize].bytes / MIB;
        let got = contend(&mut classes, &[IoClass::ColdRead, IoClass::Scrub], 85);
        assert!(got[0] - before >= 75, "cold reads got {} of 85", got[0] - before);
    }

    #[test]
    fn a_rate_holds_over_time_and_one_request_may_overdraw_it() {
        let rate = 10 * MIB;
        let mut classes = IoClasses::new(limits(64 * MIB, 64 * MIB).with_rate(IoClass::Scrub, rate));
        let (mut now, mut done) = (0, 0);
        while now < 20_000 * MS {
            let ticket = classes.wants(IoClass::Scrub, 3 * MIB, now);
            while !classes.is_granted(ticket) {
                let next = classes.next_deadline_ns(now).expect("it waits for its rate");
                assert!(next >= now, "time goes forward");
                now = next.max(now + 1);
                classes.next_deadline_ns(now);
            }
            classes.ended(IoClass::Scrub, 3 * MIB, now);
            done += 3 * MIB;
        }
        let expected = rate * 20;
        assert!(done.abs_diff(expected) <= expected / 20, "{done} of {expected}");
        assert_eq!(classes.next_deadline_ns(now), None, "nobody waits");
    }

    #[test]
    fn a_class_without_tokens_does_not_hold_up_another() {
        let mut classes = IoClasses::new(limits(64 * MIB, 64 * MIB).with_rate(IoClass::Compaction, MIB));
        let first = classes.wants(IoClass::Compaction, 2 * MIB, 0);
        let second = classes.wants(IoClass::Compaction, 1, 0);
        let read = classes.wants(IoClass::ColdRead, MIB, 0);
        assert!(classes.is_granted(first) && classes.is_granted(read));
        assert!(!classes.is_granted(second));
        assert!(classes.next_deadline_ns(MS).is_some());
        let mut faster = classes.limits();
        faster.bytes_per_second = [0; IO_CLASSES];
        classes.set_limits(faster, 2 * MS);
        assert!(classes.is_granted(second), "without a rate it may go");
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        let mut classes = IoClasses::new(limits(MIB, MIB));
        let a = classes.wants(IoClass::ColdRead, MIB, 0);
        let b = classes.wants(IoClass::ColdRead, MIB, 0);
        let c = classes.wants(IoClass::ColdRead, MIB, 0);
        classes.gives_up(IoClass::ColdRead, MIB, b, 0);
        classes.gives_up(IoClass::ColdRead, MIB, a, 0); // granted and not begun
        assert!(classes.is_granted(c) && !classes.is_granted(a) && !classes.is_granted(b));
        classes.ended(IoClass::ColdRead, MIB, 0);
        assert!(!classes.has_granted());
        assert_eq!(classes.flight_bytes, 0);
    }
}
