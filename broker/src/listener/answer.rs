//! What an encoded answer holds until the kernel has it, and what it is charged for that. Long strings and bytes are parts of what the
//! broker keeps (names and metadata of members, committed metadata): many answers may hold one, and it is charged once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use hashbrown::HashMap;
use shard::budget::{Budget, BudgetClass, Charge};

use crate::observe::stages::Traced;

/// An answer up to this size is a small one, bytes: it does not wait behind large ones that are not read.
const SMALL_BYTES_MAX: u64 = 4 << 10;

/// What a shared piece takes beside its bytes, bytes: its places in the answer, in the ledger and on the way to the kernel.
const PIECE_BYTES: u64 = 128;

/// An encoded answer, charged until the kernel has it.
pub(super) struct Answer {
    pub(super) chunks: Vec<Bytes>,
    pub(super) charge: AnswerCharge,
    pub(super) trace: Option<Traced>,
}

/// Where the frame of a request lies.
#[derive(Clone, Copy)]
pub(super) struct FramePlace {
    from: usize,
    to: usize,
}

/// What an answer is charged.
#[derive(Default)]
pub(super) struct AnswerCharge {
    /// What is its own. Above the ceiling of its class (a very small budget) it goes out uncharged: it exists already.
    _own: Option<Charge>,
    _shared: Option<HeldPieces>,
}

/// Pieces that an answer holds and others may hold too.
struct HeldPieces {
    pieces: Vec<usize>,
    ledger: Rc<SharedPieces>,
}

/// The pieces of a shard's answers that are not theirs alone, by address: how many answers hold each, and its charge.
#[derive(Default)]
pub(crate) struct SharedPieces(RefCell<HashMap<usize, Held, foldhash::fast::FixedState>>);

struct Held {
    answers: usize,
    /// Its address is nobody else's as long as it is here: answers let go of their pieces one by one as they are sent.
    _piece: Bytes,
    _charge: Charge,
}

impl FramePlace {
    pub(super) fn of(frame: &Bytes) -> Self {
        let from = address(frame);
        Self {
            from,
            to: from + frame.len(),
        }
    }

    /// Copies what an answer repeats of its request: a name of some kilobytes would keep megabytes that are not charged any more.
    pub(super) fn leave(self, chunks: &mut [Bytes]) {
        let is_of_frame = |chunk: &&mut Bytes| (self.from..self.to).contains(&address(chunk));
        for chunk in chunks.iter_mut().filter(is_of_frame) {
            *chunk = Bytes::copy_from_slice(chunk);
        }
    }
}

impl AnswerCharge {
    /// Of an answer that was charged before its data were read.
    pub(super) fn made_before(charge: Charge) -> Self {
        Self {
            _own: Some(charge),
            _shared: None,
        }
    }

    /// Charges an answer, waiting until it fits.
    pub(super) async fn of(budget: &Budget, ledger: &Rc<SharedPieces>, chunks: &[Bytes]) -> Self {
        let own = chunks.iter().filter(|chunk| chunk.is_unique());
        let own: u64 = own.map(|chunk| chunk.len() as u64).sum();
        if chunks.iter().all(Bytes::is_unique) {
            return Self {
                _own: charge(budget, own).await,
                _shared: None,
            };
        }
        let shared: Vec<_> = chunks.iter().filter(|chunk| !chunk.is_unique()).collect();
        let own = own + PIECE_BYTES * shared.len() as u64;
        let Some(mut all) = charge(budget, own + ledger.missing(&shared)).await else {
            return Self::default();
        };
        // Answers that held some of them may have left while this one waited.
        let all_bytes = own + ledger.missing(&shared);
        all.grow_anyway(all_bytes.saturating_sub(all.bytes()));
        let held = HeldPieces {
            pieces: ledger.hold(&shared, &mut all),
            ledger: ledger.clone(),
        };
        Self {
            _own: Some(all.split(own)),
            _shared: Some(held),
        }
    }
}

async fn charge(budget: &Budget, bytes: u64) -> Option<Charge> {
    if bytes <= SMALL_BYTES_MAX
        && let Some(charge) = budget.try_charge(BudgetClass::SmallResponses, bytes)
    {
        return Some(charge);
    }
    budget.charge(BudgetClass::Responses, bytes).await.ok()
}

impl SharedPieces {
    /// The bytes of those that no answer holds yet.
    fn missing(&self, pieces: &[&Bytes]) -> u64 {
        let held = self.0.borrow();
        let mut seen = BTreeSet::new();
        let new = pieces
            .iter()
            .filter(|piece| !held.contains_key(&address(piece)) && seen.insert(address(piece)));
        new.map(|piece| piece.len() as u64).sum()
    }

    /// Another answer holds them; what is new takes its charge from `all`. Returns their addresses, each once.
    fn hold(&self, pieces: &[&Bytes], all: &mut Charge) -> Vec<usize> {
        let mut held = self.0.borrow_mut();
        let mut seen = BTreeSet::new();
        for piece in pieces {
            if seen.insert(address(piece)) {
                let entry = held.entry(address(piece)).or_insert_with(|| Held {
                    answers: 0,
                    _piece: Bytes::clone(piece),
                    _charge: all.split(piece.len() as u64),
                });
                entry.answers += 1;
            }
        }
        seen.into_iter().collect()
    }

    fn release(&self, pieces: &[usize]) {
        let mut held = self.0.borrow_mut();
        let mut gone = Vec::new();
        for piece in pieces {
            if let Some(entry) = held.get_mut(piece) {
                entry.answers -= 1;
                if entry.answers == 0 {
                    gone.extend(held.remove(piece));
                }
            }
        }
        // A charge that is given back may wake somebody: outside of the borrow.
        drop(held);
        drop(gone);
    }
}

/// What a piece is known by. Pieces of one buffer that begin at the same place count as one; the longer one is charged if it comes first.
fn address(piece: &Bytes) -> usize {
    piece.as_ptr() as usize
}

impl Drop for HeldPieces {
    fn drop(&mut self) {
        self.ledger.release(&self.pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_lite::future::{block_on, poll_once};
    use shard::budget::{BUDGET_CLASSES, BudgetLimits, ClassLimits};

    fn budget(responses: u64, small: u64) -> Budget {
        let mut classes = [ClassLimits::default(); BUDGET_CLASSES];
        classes[BudgetClass::Responses as usize].max_bytes = responses;
        classes[BudgetClass::SmallResponses as usize].max_bytes = small;
        Budget::new(BudgetLimits {
            classes,
            shared_bytes: responses + small,
        })
    }

    fn used(budget: &Budget, class: BudgetClass) -> u64 {
        budget.read()[class as usize].used_bytes
    }

    #[test]
    fn what_many_answers_hold_is_charged_once_and_as_long_as_one_holds_it() {
        let (budget, ledger) = (budget(1 << 20, 0), Rc::default());
        let kept = Bytes::from(vec![1; 900_000]);
        let answer = || [Bytes::from(vec![0; 100]), kept.clone(), kept.clone()];
        let one = 100 + 2 * PIECE_BYTES;
        let chunks: Vec<_> = (0..3).map(|_| answer()).collect();
        let charges: Vec<_> = chunks
            .iter()
            .map(|chunks| block_on(AnswerCharge::of(&budget, &ledger, chunks)))
            .collect();
        assert_eq!(used(&budget, BudgetClass::Responses), 900_000 + 3 * one);
        let mut charges = charges.into_iter();
        drop(charges.next());
        drop(charges.next());
        assert_eq!(used(&budget, BudgetClass::Responses), 900_000 + one);
        drop(charges.next());
        assert_eq!(used(&budget, BudgetClass::Responses), 0);
        assert!(ledger.0.borrow().is_empty());
    }

    #[test]
    fn what_leaves_while_another_answer_waits_is_charged_to_that_one() {
        let (budget, ledger) = (budget(1 << 20, 0), Rc::default());
        let kept = Bytes::from(vec![1; 900_000]);
        let first = [Bytes::from(vec![0; 10]), kept.clone()];
        let second = [Bytes::from(vec![0; 200_000]), kept.clone()];
        let held = block_on(AnswerCharge::of(&budget, &ledger, &first));
        let mut waits = Box::pin(AnswerCharge::of(&budget, &ledger, &second));
        assert!(block_on(poll_once(&mut waits)).is_none());
        drop(held);
        let charge = block_on(waits);
        assert_eq!(used(&budget, BudgetClass::Responses), 1_100_000 + PIECE_BYTES);
        drop(charge);
        assert_eq!(used(&budget, BudgetClass::Responses), 0);
    }

    #[test]
    fn an_answer_keeps_nothing_of_its_request() {
        let frame = Bytes::from(vec![7; 1 << 20]);
        let kept = Bytes::from(vec![1; 5_000]);
        let mut chunks = [frame.slice(100..5_000), kept.clone(), Bytes::from(vec![0; 10])];
        let place = FramePlace::of(&frame);
        place.leave(&mut chunks);
        assert!(frame.is_unique(), "the answer holds a part of the frame");
        assert_eq!(chunks[0], vec![7; 4_900]);
        assert_eq!(
            chunks[1].as_ptr(),
            kept.as_ptr(),
            "what the broker keeps is not copied"
        );
    }

    #[test]
    fn a_small_answer_does_not_wait_behind_large_ones() {
        let (budget, ledger) = (budget(1 << 20, 8 << 10), Rc::default());
        let large = [Bytes::from(vec![0; 1 << 20])];
        let held = block_on(AnswerCharge::of(&budget, &ledger, &large));
        let waits = block_on(poll_once(AnswerCharge::of(&budget, &ledger, &large)));
        assert!(waits.is_none());
        let small = [Bytes::from(vec![0; 4 << 10])];
        let first = block_on(poll_once(AnswerCharge::of(&budget, &ledger, &small)));
        let second = block_on(poll_once(AnswerCharge::of(&budget, &ledger, &small)));
        assert!(first.is_some() && second.is_some());
        let third = block_on(poll_once(AnswerCharge::of(&budget, &ledger, &small)));
        assert!(third.is_none(), "small ones are bounded as well");
        drop(held);
    }
}
