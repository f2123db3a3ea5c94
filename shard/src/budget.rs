//! The memory budget of one shard: every byte is charged to a class before it is allocated and given back when it is
//! freed. Each class has a reserve nobody else can take and a ceiling; between them lies a pool that all share. A
//! charge that does not fit waits, first come first served within its class; a connection that waits does not read its
//! socket. Nothing here runs on an executor. A charge stays on its shard: whoever sends bytes to another one keeps
//! their charge until the answer is back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What bytes are for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum BudgetClass {
    /// Received requests of clients, until their last batch has been copied or refused.
    Requests,
    /// Answers to clients without records, until they have left the socket.
    Responses,
    /// Recent batches kept for readers.
    BatchCache,
    /// Batches on their way to the journal and to segments.
    WriteBuffers,
    /// Offset maps and buffers of compaction.
    Compaction,
    /// Replication and quorum traffic. Reserved: a follower's fetch that is not read freezes the high watermark.
    InterBroker,
    /// What coordinators keep: groups, their members with metadata and assignments, committed offsets. Reserved: it stays for long,
    /// and what comes and goes must not wait for it.
    Coordinator,
    /// Records on their way to readers, from before they are read until they have left the socket. Apart from other answers:
    /// readers that do not read hold up readers only.
    Fetches,
    /// The smallest receive buffer of each connection: who asks little does not wait behind large requests.
    SmallRequests,
    /// Small answers: who is answered in a few bytes does not wait behind peers that do not read large answers.
    SmallResponses,
}

/// One charge takes at most this part of its class above the least it needs.
const GENEROUS_SHARE: u64 = 8;

/// How many classes there are.
pub const BUDGET_CLASSES: usize = 10;

impl BudgetClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; BUDGET_CLASSES] = [
        Self::Requests,
        Self::Responses,
        Self::BatchCache,
        Self::WriteBuffers,
        Self::Compaction,
        Self::InterBroker,
        Self::Coordinator,
        Self::Fetches,
        Self::SmallRequests,
        Self::SmallResponses,
    ];

    /// The name used in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Responses => "responses",
            Self::BatchCache => "batch_cache",
            Self::WriteBuffers => "write_buffers",
            Self::Compaction => "compaction",
            Self::InterBroker => "inter_broker",
            Self::Coordinator => "coordinator",
            Self::Fetches => "fetches",
            Self::SmallRequests => "small_requests",
            Self::SmallResponses => "small_responses",
        }
    }
}

/// The bounds of one class, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassLimits {
    /// What only this class may use.
    pub reserved_bytes: u64,
    /// What it may use at most, reserve included. A single charge above it never succeeds.
    pub max_bytes: u64,
}

/// The bounds of a shard, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetLimits {
    /// By [`BudgetClass`] number.
    pub classes: [ClassLimits; BUDGET_CLASSES],
    /// What all classes share above their reserves.
    pub shared_bytes: u64,
}

/// A charge larger than its class may ever hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{bytes} bytes are more than the {max_bytes} that {} may take on one shard", class.name())]
pub struct TooLarge {
    /// The class.
    pub class: BudgetClass,
    /// What was asked for.
    pub bytes: u64,
    /// The class's ceiling.
    pub max_bytes: u64,
}

/// The budget of one shard. Cheap to clone; not `Send`.
///
/// [`Budget::try_charge`] and [`Budget::charge`] take, dropping a [`Charge`] gives back.
#[derive(Clone)]
pub struct Budget(Rc<RefCell<Books>>);

/// The accounts. Invariants: what classes use above their reserves, up to their ceilings, sums to `shared_used`; no class is above
/// its ceiling and `shared_used` is within the pool, but for what was charged anyway.
struct Books {
    limits: BudgetLimits,
    accounts: [Account; BUDGET_CLASSES],
    shared_used: u64,
}

#[derive(Default)]
struct Account {
    used: u64,
    peak: u64,
    waits: u64,
    waiting: VecDeque<Rc<Waiter>>,
}

/// Somebody who waits: the charge is made for them when it fits, and they are woken to take it.
struct Waiter {
    bytes: u64,
    state: RefCell<WaiterState>,
}

enum WaiterState {
    Waiting(Option<Waker>),
    Granted,
    Taken,
}

/// A class's account at one moment, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountImage {
    /// Which.
    pub class: BudgetClass,
    /// Bytes charged now.
    pub used_bytes: u64,
    /// The most ever charged at once.
    pub peak_bytes: u64,
    /// Its ceiling.
    pub max_bytes: u64,
    /// Charges that wait now.
    pub waiting: usize,
    /// Charges that ever had to wait.
    pub waits: u64,
}

impl Budget {
    /// A budget with these bounds.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        Self(Rc::new(RefCell::new(Books {
            limits,
            accounts: Default::default(),
            shared_used: 0,
        })))
    }

    /// Charges `bytes` if they fit now and nobody of the class waits already.
    #[must_use]
    pub fn try_charge(&self, class: BudgetClass, bytes: u64) -> Option<Charge> {
        let fits = self.0.borrow_mut().take_now(class, bytes);
        fits.then(|| self.charge_of(class, bytes))
    }

    /// Charges `bytes`, waiting until they fit.
    ///
    /// # Errors
    /// [`TooLarge`] at once when they never will.
    pub async fn charge(&self, class: BudgetClass, bytes: u64) -> Result<Charge, TooLarge> {
        if let Some(charge) = self.try_charge(class, bytes) {
            return Ok(charge);
        }
        let place = self.queue(class, bytes)?;
        poll_fn(|cx| place.poll(cx)).await;
        Ok(self.charge_of(class, bytes))
    }

    /// Charges `least` bytes, waiting until they fit, and up to `most` while half of the class is left to others: few get what
    /// they want, many get a little each.
    ///
    /// # Errors
    /// [`TooLarge`] when `least` never fits.
    pub async fn charge_between(
        &self,
        class: BudgetClass,
        least: u64,
        most: u64,
    ) -> Result<Charge, TooLarge> {
        let mut charge = self.charge(class, least).await?;
        let spare = {
            let books = self.0.borrow();
            let max = books.limits.max_of(class);
            (max / 2)
                .saturating_sub(books.accounts[class as usize].used)
                .min(max / GENEROUS_SHARE)
        };
        let more = most.saturating_sub(least).min(spare);
        // Refused when other classes use the pool: the least has to do then.
        let _ = more > 0 && charge.try_grow(more);
        Ok(charge)
    }

    /// Whether a charge of this class would have to wait behind another.
    #[must_use]
    pub fn is_pressed(&self, class: BudgetClass) -> bool {
        !self.0.borrow().accounts[class as usize].waiting.is_empty()
    }

    /// The most a single charge of this class may be.
    #[must_use]
    pub fn max_bytes(&self, class: BudgetClass) -> u64 {
        self.0.borrow().limits.max_of(class)
    }

    /// Whether `bytes` more could be charged now.
    #[must_use]
    pub fn has_room(&self, class: BudgetClass, bytes: u64) -> bool {
        let books = self.0.borrow();
        books.accounts[class as usize].waiting.is_empty() && books.after(class, bytes).is_some()
    }

    /// A charge of nothing yet, to grow.
    pub fn empty_charge(&self, class: BudgetClass) -> Charge {
        self.charge_of(class, 0)
    }

    /// Every class's account.
    #[must_use]
    pub fn read(&self) -> [AccountImage; BUDGET_CLASSES] {
        let books = self.0.borrow();
        BudgetClass::ALL.map(|class| {
            let account = &books.accounts[class as usize];
            AccountImage {
                class,
                used_bytes: account.used,
                peak_bytes: account.peak,
                max_bytes: books.limits.max_of(class),
                waiting: account.waiting.len(),
                waits: account.waits,
            }
        })
    }

    fn charge_of(&self, class: BudgetClass, bytes: u64) -> Charge {
        Charge {
            budget: self.clone(),
            class,
            bytes,
        }
    }

    fn queue(&self, class: BudgetClass, bytes: u64) -> Result<Place, TooLarge> {
        let waiter = Rc::new(Waiter {
            bytes,
            state: RefCell::new(WaiterState::Waiting(None)),
        });
        let mut books = self.0.borrow_mut();
        let max_bytes = books.limits.max_of(class);
        if bytes > max_bytes {
            return Err(TooLarge {
                class,
                bytes,
                max_bytes,
            });
        }
        let account = &mut books.accounts[class as usize];
        account.waits += 1;
        account.waiting.push_back(waiter.clone());
        Ok(Place {
            budget: self.clone(),
            class,
            waiter,
        })
    }

    fn give_back(&self, class: BudgetClass, bytes: u64) {
        self.0.borrow_mut().release(class, bytes);
        self.grant();
    }

    /// Makes the charges of those who waited longest and now fit.
    fn grant(&self) {
        let mut woken = Vec::new();
        {
            let mut books = self.0.borrow_mut();
            for class in BudgetClass::ALL {
                while let Some(first) = books.accounts[class as usize].waiting.front().cloned() {
                    if !books.take(class, first.bytes) {
                        break;
                    }
                    books.accounts[class as usize].waiting.pop_front();
                    let before = first.state.replace(WaiterState::Granted);
                    if let WaiterState::Waiting(Some(waker)) = before {
                        woken.push(waker);
                    }
                }
            }
        }
        for waker in woken {
            waker.wake();
        }
    }
}

impl BudgetLimits {
    /// What one class can hold at most: its ceiling, or less if reserve and pool are smaller.
    fn max_of(&self, class: BudgetClass) -> u64 {
        let limits = &self.classes[class as usize];
        limits
            .max_bytes
            .min(limits.reserved_bytes.saturating_add(self.shared_bytes))
    }
}

impl ClassLimits {
    /// How much of `used` bytes the pool has given. What was charged above the ceiling ([`Charge::grow_anyway`]) is nobody's.
    fn of_pool(&self, used: u64) -> u64 {
        used.min(self.max_bytes).saturating_sub(self.reserved_bytes)
    }
}

impl Account {
    fn set(&mut self, used: u64) {
        self.used = used;
        self.peak = self.peak.max(used);
    }
}

impl Books {
    fn take_now(&mut self, class: BudgetClass, bytes: u64) -> bool {
        self.accounts[class as usize].waiting.is_empty() && self.take(class, bytes)
    }

    fn take(&mut self, class: BudgetClass, bytes: u64) -> bool {
        let Some((after, from_pool)) = self.after(class, bytes) else {
            return false;
        };
        self.shared_used += from_pool;
        self.accounts[class as usize].set(after);
        true
    }

    /// What a class would use with `bytes` more, and how much of these the pool would give; `None` if they do not fit.
    fn after(&self, class: BudgetClass, bytes: u64) -> Option<(u64, u64)> {
        let limits = self.limits.classes[class as usize];
        let used = self.accounts[class as usize].used;
        let after = used
            .checked_add(bytes)
            .filter(|after| *after <= limits.max_bytes)?;
        let from_pool = limits.of_pool(after) - limits.of_pool(used);
        (from_pool <= self.limits.shared_bytes.saturating_sub(self.shared_used)).then_some((after, from_pool))
    }

    fn take_anyway(&mut self, class: BudgetClass, bytes: u64) {
        let limits = self.limits.classes[class as usize];
        let used = self.accounts[class as usize].used;
        let after = used.saturating_add(bytes);
        self.shared_used += limits.of_pool(after) - limits.of_pool(used);
        self.accounts[class as usize].set(after);
    }

    fn release(&mut self, class: BudgetClass, bytes: u64) {
        let limits = self.limits.classes[class as usize];
        let used = self.accounts[class as usize].used;
        let after = used
            .checked_sub(bytes)
            .expect("no more is given back than was charged");
        let to_pool = limits.of_pool(used) - limits.of_pool(after);
        self.shared_used = self
            .shared_used
            .checked_sub(to_pool)
            .expect("the pool holds what classes took from it");
        self.accounts[class as usize].used = after;
    }
}

/// A place in the queue of a class; left when dropped.
struct Place {
    budget: Budget,
    class: BudgetClass,
    waiter: Rc<Waiter>,
}

impl Place {
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.waiter.state.borrow_mut();
        match &mut *state {
            WaiterState::Granted => {
                *state = WaiterState::Taken;
                Poll::Ready(())
            }
            WaiterState::Waiting(waker) => {
                if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            WaiterState::Taken => unreachable!("a place is polled until it has been granted"),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let state = self.waiter.state.replace(WaiterState::Taken);
        match state {
            WaiterState::Taken => {}
            // Granted to somebody who has stopped waiting.
            WaiterState::Granted => self.budget.give_back(self.class, self.waiter.bytes),
            WaiterState::Waiting(_) => {
                let mut books = self.budget.0.borrow_mut();
                books.accounts[self.class as usize]
                    .waiting
                    .retain(|w| !Rc::ptr_eq(w, &self.waiter));
                drop(books);
                // Who waited behind may fit.
                self.budget.grant();
            }
        }
    }
}

/// Bytes charged to a class, given back when dropped. Stays on its shard; [`Charge::detach`] makes it travel.
#[must_use = "a dropped charge is given back"]
pub struct Charge {
    budget: Budget,
    class: BudgetClass,
    bytes: u64,
}

impl Charge {
    /// How much.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The class it is charged to.
    #[must_use]
    pub fn class(&self) -> BudgetClass {
        self.class
    }

    /// Charges `more` bytes in addition if they fit now. Does not queue behind others: what is held already must be able to
    /// finish, or two half-read requests would wait for each other.
    #[must_use]
    pub fn try_grow(&mut self, more: u64) -> bool {
        let fits = self.budget.0.borrow_mut().take(self.class, more);
        if fits {
            self.bytes += more;
        }
        fits
    }

    /// Charges `more` bytes also when they do not fit: for what must not be refused, as what a log is replayed into, and for what its
    /// caller bounds before ([`Budget::has_room`] for what is only counted afterwards). Nothing else of the class fits then; other
    /// classes with a reserve have it.
    pub fn grow_anyway(&mut self, more: u64) {
        self.budget.0.borrow_mut().take_anyway(self.class, more);
        self.bytes += more;
    }

    /// Part of what is charged took `before` bytes and takes `after` now: [`Self::grow_anyway`] or [`Self::shrink_by`].
    pub fn change_anyway(&mut self, before: u64, after: u64) {
        if after >= before {
            self.grow_anyway(after - before);
        } else {
            self.shrink_by(before - after);
        }
    }

    /// Gives back so many, at most all.
    pub fn shrink_by(&mut self, bytes: u64) {
        self.shrink_to(self.bytes.saturating_sub(bytes));
    }

    /// Gives back what is above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        if over > 0 {
            self.bytes = bytes;
            self.budget.give_back(self.class, over);
        }
    }

    /// Takes `bytes` of it into a charge of their own, at most all.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.charge_of(self.class, bytes)
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.read()).finish()
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.class.name())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.class, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use BudgetClass::{BatchCache, Coordinator, Requests, Responses};
    use proptest::prelude::*;

    fn limits(shared_bytes: u64) -> BudgetLimits {
        let mut classes = [ClassLimits {
            reserved_bytes: 0,
            max_bytes: u64::MAX,
        }; BUDGET_CLASSES];
        classes[Coordinator as usize].reserved_bytes = 50;
        classes[Responses as usize].max_bytes = 40;
        BudgetLimits {
            classes,
            shared_bytes,
        }
    }

    fn used(budget: &Budget, class: BudgetClass) -> u64 {
        budget.read()[class as usize].used_bytes
    }

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    type Pending = Pin<Box<dyn Future<Output = Result<Charge, TooLarge>>>>;

    fn waiting(budget: &Budget, class: BudgetClass, bytes: u64) -> Pending {
        let budget = budget.clone();
        Box::pin(async move { budget.charge(class, bytes).await })
    }

    fn poll(pending: &mut Pending, count: &Arc<Count>) -> Poll<Result<Charge, TooLarge>> {
        let waker = Waker::from(count.clone());
        pending.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn count() -> Arc<Count> {
        Arc::new(Count(AtomicUsize::new(0)))
    }

    #[test]
    fn few_get_what_they_want_and_many_get_a_little_each() {
        let mut bounds = limits(1 << 20);
        bounds.classes[Responses as usize].max_bytes = 800;
        let budget = Budget::new(bounds);
        let granted: Vec<u64> = {
            let held: Vec<Charge> = (0..9)
                .map(|_| {
                    let mut pending: Pending = {
                        let budget = budget.clone();
                        Box::pin(async move { budget.charge_between(Responses, 20, 1000).await })
                    };
                    let Poll::Ready(Ok(charge)) = poll(&mut pending, &count()) else {
                        panic!("the least fits")
                    };
                    charge
                })
                .collect();
            held.iter().map(Charge::bytes).collect()
        };
        assert_eq!(granted, [120, 120, 120, 40, 20, 20, 20, 20, 20]);
        assert_eq!(used(&budget, Responses), 0);
    }

    #[test]
    fn a_reserve_is_there_when_the_pool_is_used_up() {
        let budget = Budget::new(limits(100));
        let all = budget.try_charge(Requests, 100).unwrap();
        assert!(budget.try_charge(BatchCache, 1).is_none());
        let reserved = budget.try_charge(Coordinator, 50).unwrap();
        assert!(
            budget.try_charge(Coordinator, 1).is_none(),
            "above its reserve it shares the pool"
        );
        drop(all);
        let mut both = budget.try_charge(Coordinator, 20).unwrap();
        assert!(budget.try_charge(Requests, 81).is_none());
        assert!(budget.try_charge(Requests, 80).is_some());
        assert!(both.try_grow(80));
        drop(reserved);
        assert_eq!(used(&budget, Coordinator), 100);
        assert!(
            budget.try_charge(Requests, 50).is_some(),
            "the pool gets back what was above the reserve"
        );
    }

    #[test]
    fn a_class_stays_below_its_ceiling() {
        let budget = Budget::new(limits(100));
        let charge = budget.try_charge(Responses, 40).unwrap();
        assert!(budget.try_charge(Responses, 1).is_none());
        drop(charge);
        let Poll::Ready(Err(error)) = poll(&mut waiting(&budget, Responses, 41), &count()) else {
            panic!("a charge that never fits must not wait");
        };
        assert_eq!((error.bytes, error.max_bytes), (41, 40));
        assert_eq!(budget.max_bytes(Coordinator), 150);
    }

    #[test]
    fn who_waits_is_served_in_order_and_small_ones_do_not_overtake() {
        let budget = Budget::new(limits(100));
        let mut held = budget.try_charge(Requests, 100).unwrap();
        let (wakes_large, wakes_small) = (count(), count());
        let (mut large, mut small) = (waiting(&budget, Requests, 60), waiting(&budget, Requests, 10));
        assert!(poll(&mut large, &wakes_large).is_pending());
        assert!(poll(&mut small, &wakes_small).is_pending());
        assert!(budget.is_pressed(Requests));
        held.shrink_to(70);
        assert!(
            budget.try_charge(Requests, 1).is_none(),
            "a newcomer does not overtake"
        );
        assert!(budget.try_charge(BatchCache, 1).is_some(), "another class may");
        assert_eq!(wakes_large.0.load(Ordering::SeqCst), 0);
        held.shrink_to(40);
        assert_eq!(wakes_large.0.load(Ordering::SeqCst), 1);
        assert_eq!(wakes_small.0.load(Ordering::SeqCst), 0);
        let Poll::Ready(Ok(got)) = poll(&mut large, &wakes_large) else {
            panic!("granted")
        };
        drop(got);
        assert!(matches!(poll(&mut small, &wakes_small), Poll::Ready(Ok(_))));
        assert_eq!(budget.read()[Requests as usize].waits, 2);
    }

    #[test]
    fn who_stops_waiting_lets_the_next_one_through_and_keeps_nothing() {
        let budget = Budget::new(limits(100));
        let mut held = budget.try_charge(Requests, 100).unwrap();
        let wakes = count();
        let (mut first, mut second) = (waiting(&budget, Requests, 60), waiting(&budget, Requests, 50));
        assert!(poll(&mut first, &wakes).is_pending());
        assert!(poll(&mut second, &wakes).is_pending());
        held.shrink_to(50);
        drop(first);
        assert!(matches!(poll(&mut second, &wakes), Poll::Ready(Ok(_))));
        // Granted, then dropped before it was taken.
        let mut third = waiting(&budget, Requests, 100);
        assert!(poll(&mut third, &wakes).is_pending());
        drop(held);
        drop(third);
        assert_eq!(used(&budget, Requests), 0);
    }

    #[test]
    fn what_is_charged_anyway_is_given_back_and_keeps_others_of_its_class_out() {
        let mut bounds = limits(100);
        bounds.classes[Coordinator as usize].max_bytes = 60;
        let budget = Budget::new(bounds);
        let mut charge = budget.empty_charge(Coordinator);
        assert!(budget.has_room(Coordinator, 60) && !budget.has_room(Coordinator, 61));
        charge.grow_anyway(1000);
        assert_eq!(used(&budget, Coordinator), 1000);
        assert!(!budget.has_room(Coordinator, 1));
        assert!(
            budget.try_charge(Requests, 91).is_none(),
            "10 of the pool are taken"
        );
        assert!(budget.try_charge(Requests, 90).is_some(), "and no more than that");
        charge.shrink_by(945);
        assert!(budget.has_room(Coordinator, 5));
        assert!(budget.try_charge(Requests, 95).is_some());
        drop(charge);
        assert_eq!(used(&budget, Coordinator), 0);
        assert!(budget.try_charge(Requests, 100).is_some());
    }

    proptest! {
        /// Whatever is charged, split, grown, grown anyway, shrunk and dropped, in whatever order, the accounts are the sum of what
        /// is held, nothing that may be refused takes a class or the pool above its bounds, and nobody waits who would fit.
        #[test]
        fn the_accounts_are_the_sum_of_what_is_held(
            steps in proptest::collection::vec((0..8_u8, 0..BUDGET_CLASSES, 0..60_u64, any::<prop::sample::Index>()), 1..200)
        ) {
            let budget = Budget::new(limits(100));
            let mut held: Vec<Charge> = Vec::new();
            let mut pending: Vec<(BudgetClass, Pending)> = Vec::new();
            let wakes = count();
            // By class, what was charged whether it fitted or not.
            let mut anyway = [0; BUDGET_CLASSES];
            for (step, class, bytes, which) in steps {
                let class = BudgetClass::ALL[class];
                match step {
                    0 => {
                        let charge = budget.try_charge(class, bytes);
                        let account = budget.read()[class as usize];
                        prop_assert!(bytes == 0 || charge.is_none() || account.used_bytes <= account.max_bytes);
                        held.extend(charge);
                    }
                    1 => {
                        let mut waiting = waiting(&budget, class, bytes);
                        if let Poll::Ready(done) = poll(&mut waiting, &wakes) {
                            held.extend(done.ok());
                        } else {
                            pending.push((class, waiting));
                        }
                    }
                    2 if !held.is_empty() => drop(held.swap_remove(which.index(held.len()))),
                    3 if !held.is_empty() => {
                        let index = which.index(held.len());
                        let part = held[index].split(bytes);
                        held.push(part);
                    }
                    4 if !held.is_empty() => {
                        let index = which.index(held.len());
                        let grown = held[index].try_grow(bytes);
                        let account = budget.read()[held[index].class() as usize];
                        prop_assert!(bytes == 0 || !grown || account.used_bytes <= account.max_bytes);
                    }
                    5 if !pending.is_empty() => drop(pending.swap_remove(which.index(pending.len()))),
                    6 if !held.is_empty() => {
                        let index = which.index(held.len());
                        held[index].grow_anyway(bytes);
                        anyway[held[index].class() as usize] += bytes;
                    }
                    7 if !held.is_empty() => {
                        let index = which.index(held.len());
                        let before = held[index].bytes();
                        held[index].shrink_by(bytes);
                        prop_assert_eq!(held[index].bytes(), before.saturating_sub(bytes));
                    }
                    _ => {}
                }
                pending.retain_mut(|(_, waiting)| match poll(waiting, &wakes) {
                    Poll::Ready(done) => { held.extend(done.ok()); false }
                    Poll::Pending => true,
                });
                let limits = limits(100);
                let mut pool = 0;
                for account in budget.read() {
                    let class = limits.classes[account.class as usize];
                    let sum: u64 = held.iter().filter(|c| c.class() == account.class).map(Charge::bytes).sum();
                    prop_assert_eq!(account.used_bytes, sum);
                    prop_assert!(sum <= account.max_bytes.saturating_add(anyway[account.class as usize]));
                    prop_assert_eq!(account.waiting, pending.iter().filter(|(c, _)| *c == account.class).count());
                    // What is above a ceiling is nobody's.
                    pool += sum.min(class.max_bytes).saturating_sub(class.reserved_bytes);
                    let first = budget.0.borrow().accounts[account.class as usize].waiting.front().map(|w| w.bytes);
                    let fits = first.is_some_and(|bytes| budget.0.borrow().after(account.class, bytes).is_some());
                    prop_assert!(!fits, "somebody of {:?} waits who would fit", account.class);
                }
                prop_assert_eq!(budget.0.borrow().shared_used, pool);
                prop_assert!(pool <= 100 + anyway.iter().sum::<u64>());
            }
            drop(pending);
            held.clear();
            for account in budget.read() {
                prop_assert_eq!(account.used_bytes, 0);
            }
        }
    }
}
