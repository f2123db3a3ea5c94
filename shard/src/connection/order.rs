//! The order of requests and answers on one connection. Kafka handles one request of a connection at a time (CN-2);
//! we let only a Produce overtake a Produce: it may start once the one before it has been handed to its owner shards in
//! order. Anything else starts when all before it is answered, and nothing starts while it runs. Answers leave in
//! request order from reply slots. On the connection's shard; no I/O, no clock.
//!
//! Cost: one slot of `size_of::<R>() + 16` bytes for each request in flight, at most [`IN_FLIGHT_MAX`].

use std::collections::VecDeque;

/// Requests of one connection that may be in flight; clients keep 5 for a producer, benchmarks up to 100 or so.
pub const IN_FLIGHT_MAX: usize = 128;

/// What a request is, as far as order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Produce: may follow unanswered Produces.
    Produce,
    /// Anything else: alone.
    Exclusive,
}

/// Names the reply slot of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotId(u64);

/// Admission and answer order of one connection.
///
/// Getters: [`may_start`](Self::may_start), [`in_flight`](Self::in_flight). Events in: [`start`](Self::start),
/// [`answer`](Self::answer). Output: [`poll_answer`](Self::poll_answer), to be polled after each event.
#[derive(Debug)]
pub struct ConnectionOrder<R> {
    slots: VecDeque<Slot<R>>,
    /// The id of the front slot.
    front: u64,
}

#[derive(Debug)]
struct Slot<R> {
    kind: Kind,
    state: SlotState<R>,
}

#[derive(Debug)]
enum SlotState<R> {
    Running,
    /// `None`: the request has no answer (acks=0).
    Answered(Option<R>),
}

impl<R> Default for ConnectionOrder<R> {
    fn default() -> Self {
        Self {
            slots: VecDeque::new(),
            front: 0,
        }
    }
}

impl<R> ConnectionOrder<R> {
    /// Whether a request of this kind may start now.
    #[must_use]
    pub fn may_start(&self, kind: Kind) -> bool {
        match kind {
            Kind::Produce => {
                self.slots.len() < IN_FLIGHT_MAX && self.slots.back().is_none_or(|s| s.kind == Kind::Produce)
            }
            Kind::Exclusive => self.slots.is_empty(),
        }
    }

    /// Requests that have started and whose answers have not left.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// A request starts: for a Produce, it is being handed to its owner shards now.
    ///
    /// # Panics
    /// If it may not start: the caller asks [`may_start`](Self::may_start) first.
    pub fn start(&mut self, kind: Kind) -> SlotId {
        assert!(self.may_start(kind), "a request started out of turn");
        self.slots.push_back(Slot {
            kind,
            state: SlotState::Running,
        });
        SlotId(self.front + self.slots.len() as u64 - 1)
    }

    /// The request of `slot` is done; `None` if it has no answer.
    ///
    /// # Panics
    /// If it was answered before.
    pub fn answer(&mut self, slot: SlotId, answer: Option<R>) {
        let index = slot
            .0
            .checked_sub(self.front)
            .expect("a slot is answered before it leaves");
        let index = usize::try_from(index).expect("slots are few");
        let slot = self.slots.get_mut(index).expect("an answered slot was started");
        assert!(
            matches!(slot.state, SlotState::Running),
            "a request is answered once"
        );
        slot.state = SlotState::Answered(answer);
        // What has no answer leaves at once: the writer may never look, and the next request waits for these slots.
        while let Some(Slot {
            state: SlotState::Answered(None),
            ..
        }) = self.slots.front()
        {
            self.slots.pop_front();
            self.front += 1;
        }
    }

    /// The next answer that may leave, in request order.
    pub fn poll_answer(&mut self) -> Option<R> {
        while let Some(Slot {
            state: SlotState::Answered(_),
            ..
        }) = self.slots.front()
        {
            let slot = self.slots.pop_front();
            self.front += 1;
            if let Some(Slot {
                state: SlotState::Answered(Some(answer)),
                ..
            }) = slot
            {
                return Some(answer);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_produce_may_follow_produces_but_not_a_fetch() {
        let mut order = ConnectionOrder::default();
        let first = order.start(Kind::Produce);
        assert!(order.may_start(Kind::Produce));
        assert!(!order.may_start(Kind::Exclusive));
        order.answer(first, Some(1));
        assert!(!order.may_start(Kind::Exclusive), "the answer has not left yet");
        assert_eq!(order.poll_answer(), Some(1));
        order.start(Kind::Exclusive);
        assert!(!order.may_start(Kind::Produce));
    }

    #[test]
    fn answers_leave_in_request_order_and_acks_zero_leaves_none() {
        let mut order = ConnectionOrder::default();
        let slots: Vec<_> = (0..3).map(|_| order.start(Kind::Produce)).collect();
        order.answer(slots[2], Some(2));
        order.answer(slots[1], None);
        assert_eq!(order.poll_answer(), None);
        order.answer(slots[0], Some(0));
        assert_eq!(order.poll_answer(), Some(0));
        assert_eq!(order.poll_answer(), Some(2));
        assert_eq!(order.in_flight(), 0);
    }

    #[test]
    fn after_produces_without_answers_the_next_request_starts_though_nobody_polls() {
        let mut order: ConnectionOrder<()> = ConnectionOrder::default();
        let slots: Vec<_> = (0..2).map(|_| order.start(Kind::Produce)).collect();
        order.answer(slots[1], None);
        assert!(!order.may_start(Kind::Exclusive));
        order.answer(slots[0], None);
        assert!(order.may_start(Kind::Exclusive));
    }

    #[test]
    fn in_flight_requests_are_bounded() {
        let mut order: ConnectionOrder<()> = ConnectionOrder::default();
        for _ in 0..IN_FLIGHT_MAX {
            order.start(Kind::Produce);
        }
        assert!(!order.may_start(Kind::Produce));
    }

    proptest! {
        /// Whatever order the answers come in, they leave in the order of their requests, each once.
        #[test]
        fn any_completion_order_gives_request_order(completion in Just((0..20usize).collect::<Vec<_>>()).prop_shuffle()) {
            let mut order = ConnectionOrder::default();
            let slots: Vec<_> = (0..20).map(|_| order.start(Kind::Produce)).collect();
            let mut out = Vec::new();
            for index in completion {
                order.answer(slots[index], Some(index));
                while let Some(answer) = order.poll_answer() {
                    out.push(answer);
                }
            }
            prop_assert_eq!(out, (0..20).collect::<Vec<_>>());
        }
    }
}
