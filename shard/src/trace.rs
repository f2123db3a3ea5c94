//! Where the time of a request goes. Of many requests a few are traced: a [`Trace`] goes along on the connection's shard, and the owner's
//! driver notes when it took the request's part, had handled it, and had its answer ([`TracedParts`]). Clocks are given in.
//!
//! ```text
//! first byte ─ receive ─ frame whole ─ queue ─ started ─ prepare ─ asked ─ hop ─► taken ─ handle ─ handled
//!                                                                                                    │ wait
//! with the kernel ◄─ send ─ its turn ◄─ turn ─ encoded ◄─ finish ─ answered ◄─ hop ─ ready ◄─────────┘
//! ```
//!
//! Of a request's parts the one whose answer came last counts. What a Fetch asks more than once has waited in between.
//!
//! Cost: nothing for a request that is not traced but a flag in its [`crate::message::ReplyTo`]; some 200 bytes and a dozen looks at the clock
//! for one that is.

use std::cell::Cell;
use std::time::Duration;

use crate::env::Instant;
use crate::message::ReplyTo;

/// Parts that an owner notes the times of at a moment; more are answered without them.
const TRACED_PARTS_MAX: usize = 1024;

/// A stretch of a request's life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// From the frame's first byte to its last.
    Receive,
    /// For the requests before it on the connection, and for memory.
    Queue,
    /// Reading, checking, splitting by shard. All there is of a request that asks no shard.
    Prepare,
    /// In mailboxes, there and back.
    Hop,
    /// In the owner's hands: batches are appended, or found.
    Handle,
    /// Until the answer may be given: the sync and the replicas of a Produce, the data of a Fetch.
    Wait,
    /// Parts become one answer, which is encoded.
    Finish,
    /// For the answers before it on the connection.
    Turn,
    /// Until the kernel has it.
    Send,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; STAGES] = [
        Self::Receive,
        Self::Queue,
        Self::Prepare,
        Self::Hop,
        Self::Handle,
        Self::Wait,
        Self::Finish,
        Self::Turn,
        Self::Send,
    ];

    /// Its name in metrics and traces; a produce's handling and waiting are called what they are.
    #[must_use]
    pub fn name(self, is_produce: bool) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Queue => "queue",
            Self::Prepare => "prepare",
            Self::Hop => "hop",
            Self::Handle if is_produce => "append",
            Self::Handle => "read",
            Self::Wait if is_produce => "sync",
            Self::Wait => "wait",
            Self::Finish => "finish",
            Self::Turn => "turn",
            Self::Send => "send",
        }
    }
}

/// How many stages there are.
pub const STAGES: usize = 9;

/// When the owner of a traced request's part did what. Goes back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartMoments {
    /// It came out of the owner's inbox.
    pub taken: Instant,
    /// The owner had handled it.
    pub handled: Instant,
    /// Its answer was given.
    pub ready: Instant,
    /// The answer came out of the asker's inbox.
    pub answered: Instant,
}

/// The moments of one traced request, on its connection's shard.
#[derive(Debug)]
pub struct Trace {
    first_byte: Instant,
    whole: Instant,
    started: Instant,
    /// The first and the latest time that shards were asked.
    asked: Cell<Option<(Instant, Instant)>>,
    last_part: Cell<Option<PartMoments>>,
    encoded: Cell<Option<Instant>>,
    turn: Cell<Option<Instant>>,
}

impl Trace {
    /// A request whose frame came from `first_byte` to `whole`, and which is being started.
    #[must_use]
    pub fn new(first_byte: Instant, whole: Instant, started: Instant) -> Self {
        Self {
            first_byte,
            whole,
            started,
            asked: Cell::new(None),
            last_part: Cell::new(None),
            encoded: Cell::new(None),
            turn: Cell::new(None),
        }
    }

    /// Shards are being asked.
    pub fn asked(&self, now: Instant) {
        let first = self.asked.get().map_or(now, |(first, _)| first);
        self.asked.set(Some((first, now)));
    }

    /// A shard has answered.
    pub fn answered(&self, part: PartMoments) {
        if self
            .last_part
            .get()
            .is_none_or(|last| last.answered <= part.answered)
        {
            self.last_part.set(Some(part));
        }
    }

    /// The answer is encoded.
    pub fn encoded(&self, now: Instant) {
        self.encoded.set(Some(now));
    }

    /// All answers before it have left.
    pub fn its_turn(&self, now: Instant) {
        self.turn.set(Some(now));
    }

    /// What each stage took of a request that ended at `end`; their sum is the time from its first byte to then.
    #[must_use]
    pub fn stages(&self, end: Instant) -> [Duration; STAGES] {
        let turn = self.turn.get().unwrap_or(end);
        let encoded = self.encoded.get().unwrap_or(turn);
        let mut stages = [Duration::ZERO; STAGES];
        let mut set = |stage: Stage, took: Duration| stages[stage as usize] = took;
        set(Stage::Receive, self.whole.since(self.first_byte));
        set(Stage::Queue, self.started.since(self.whole));
        match (self.asked.get(), self.last_part.get()) {
            (Some((first, latest)), Some(part)) => {
                let hop = part.taken.since(latest) + part.answered.since(part.ready);
                let handle = part.handled.since(part.taken);
                let away = part.answered.since(first);
                set(Stage::Prepare, first.since(self.started));
                set(Stage::Hop, hop);
                set(Stage::Handle, handle);
                set(Stage::Wait, away.saturating_sub(hop + handle));
                set(Stage::Finish, encoded.since(part.answered));
            }
            _ => set(Stage::Prepare, encoded.since(self.started)),
        }
        set(Stage::Turn, turn.since(encoded));
        set(Stage::Send, end.since(turn));
        stages
    }
}

/// The traced parts that an owner has taken and not answered. Few at a time, so they are looked through.
#[derive(Debug, Default)]
pub struct TracedParts(Vec<(ReplyTo, Instant, Instant)>);

impl TracedParts {
    /// A part was taken and handled.
    pub fn handled(&mut self, to: ReplyTo, taken: Instant, handled: Instant) {
        if self.0.len() < TRACED_PARTS_MAX {
            self.0.push((to, taken, handled));
        }
    }

    /// A part is answered now, or taken back; returns its moments if it is known.
    pub fn ended(&mut self, to: ReplyTo, now: Instant) -> Option<PartMoments> {
        let place = self.0.iter().position(|(known, ..)| *known == to)?;
        let (_, taken, handled) = self.0.swap_remove(place);
        Some(PartMoments {
            taken,
            handled,
            ready: now,
            answered: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;
    use crate::replies::Replies;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn part(taken: u64, handled: u64, ready: u64, answered: u64) -> PartMoments {
        PartMoments {
            taken: at(taken),
            handled: at(handled),
            ready: at(ready),
            answered: at(answered),
        }
    }

    fn micros(stages: [Duration; STAGES]) -> [u128; STAGES] {
        stages.map(|stage| stage.as_micros())
    }

    #[test]
    fn a_produce_is_taken_apart() {
        let trace = Trace::new(at(0), at(10), at(13));
        trace.asked(at(20));
        trace.answered(part(22, 25, 125, 130));
        trace.answered(part(21, 22, 90, 95)); // the faster of two shards
        trace.encoded(at(132));
        trace.its_turn(at(140));
        let stages = trace.stages(at(150));
        assert_eq!(micros(stages), [10, 3, 7, 7, 3, 100, 2, 8, 10]);
        assert_eq!(stages.iter().sum::<Duration>(), Duration::from_micros(150));
    }

    #[test]
    fn what_a_fetch_waits_between_two_reads_is_waiting() {
        let trace = Trace::new(at(0), at(0), at(1));
        trace.asked(at(2));
        trace.answered(part(3, 4, 4, 5));
        trace.asked(at(6));
        trace.answered(part(7, 8, 508, 509));
        trace.encoded(at(510));
        trace.its_turn(at(510));
        let stages = trace.stages(at(511));
        assert_eq!(micros(stages), [0, 1, 1, 2, 1, 504, 1, 0, 1]);
        assert_eq!(stages.iter().sum::<Duration>(), Duration::from_micros(511));
    }

    #[test]
    fn without_a_shard_all_is_preparation_and_without_an_answer_nothing_is_sent() {
        let trace = Trace::new(at(0), at(1), at(3));
        assert_eq!(micros(trace.stages(at(10))), [1, 2, 7, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn parts_are_known_until_they_end() {
        let replies = Replies::<()>::new(10);
        let to = |replies: &Replies<()>| ReplyTo {
            shard: ShardId(0),
            token: replies.register().expect("room").0,
            is_traced: true,
        };
        let (one, other) = (to(&replies), to(&replies));
        let mut parts = TracedParts::default();
        parts.handled(one, at(1), at(2));
        assert_eq!(parts.ended(other, at(3)), None);
        assert_eq!(parts.ended(one, at(3)), Some(part(1, 2, 3, 3)));
        assert_eq!(parts.ended(one, at(4)), None);
        for _ in 0..2 * TRACED_PARTS_MAX {
            parts.handled(other, at(1), at(2));
        }
        assert_eq!(parts.0.len(), TRACED_PARTS_MAX);
    }
}
