//! The tasks' side of [`IoClasses`]: whoever reads or writes awaits a permit and holds it until the disk has answered. Time is
//! the driver's, given once with [`IoGate::set_clock`]; without it no rate holds and no time is counted. Single-threaded.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use super::{IO_CLASSES, IoClass, IoClasses, IoLimits, IoTotals};
use crate::notify::Notify;

/// Nanoseconds of a clock that only goes forward.
pub type Clock = Rc<dyn Fn() -> u64>;

/// The gate of one store. Cheap to clone.
#[derive(Clone)]
pub struct IoGate(Rc<Inner>);

struct Inner {
    classes: RefCell<IoClasses>,
    clock: RefCell<Option<Clock>>,
    /// The bounds as they hold once there is a clock.
    limits: Cell<IoLimits>,
    granted: Notify,
    /// Somebody waits for a rate: the driver's timer is to be set.
    moved: Notify,
    /// Syncs under way and since when; and the time in which there was one.
    syncs: Cell<(u32, u64)>,
    synced_ns: Cell<u64>,
}

/// The right to one read or write, until it is dropped.
#[must_use = "it ends when it is dropped"]
pub struct IoPermit {
    gate: IoGate,
    class: IoClass,
    bytes: u64,
}

/// A commit, or a write behind one, under way.
#[must_use = "it ends when it is dropped"]
pub struct ProduceFlight(IoGate);

impl IoGate {
    /// A gate with these bounds.
    #[must_use]
    pub fn new(limits: IoLimits) -> Self {
        let unclocked = IoLimits {
            bytes_per_second: [0; IO_CLASSES],
            ..limits
        };
        Self(Rc::new(Inner {
            classes: RefCell::new(IoClasses::new(unclocked)),
            clock: RefCell::default(),
            limits: Cell::new(limits),
            granted: Notify::new(),
            moved: Notify::new(),
            syncs: Cell::default(),
            synced_ns: Cell::default(),
        }))
    }

    /// From now on rates hold, and times are counted. Whoever gives the clock also runs [`Self::due`] in time.
    pub fn set_clock(&self, clock: Clock) {
        *self.0.clock.borrow_mut() = Some(clock);
        self.set_limits(self.0.limits.get());
    }

    /// Other bounds from now on.
    pub fn set_limits(&self, limits: IoLimits) {
        self.0.limits.set(limits);
        let has_clock = self.0.clock.borrow().is_some();
        let in_force = IoLimits {
            bytes_per_second: if has_clock {
                limits.bytes_per_second
            } else {
                [0; IO_CLASSES]
            },
            ..limits
        };
        let now_ns = self.now_ns();
        self.0.classes.borrow_mut().set_limits(in_force, now_ns);
        self.tell();
    }

    /// Waits until `bytes` of `class` may be read or written. The wait may be dropped.
    pub async fn permit(&self, class: IoClass, bytes: u64) -> IoPermit {
        let ticket = self.0.classes.borrow_mut().wants(class, bytes, self.now_ns());
        let mut wait = Wait {
            gate: self,
            class,
            bytes,
            ticket: Some(ticket),
        };
        let is_granted = || {
            let is_granted = self.0.classes.borrow_mut().is_granted(ticket);
            is_granted.then_some(())
        };
        if is_granted().is_none() {
            self.0.moved.notify();
            self.0.granted.until(is_granted).await;
        }
        wait.ticket = None;
        IoPermit {
            gate: self.clone(),
            class,
            bytes,
        }
    }

    /// A commit, or a write behind one, of `bytes` begins.
    pub fn produce(&self, bytes: u64) -> ProduceFlight {
        self.0.classes.borrow_mut().produce_begins(bytes);
        ProduceFlight(self.clone())
    }

    /// Runs a sync, or a write that is durable when it ends, and counts the time.
    pub async fn synced<T>(&self, sync: impl Future<Output = T>) -> T {
        let (under_way, since) = self.0.syncs.get();
        let since = if under_way == 0 { self.now_ns() } else { since };
        self.0.syncs.set((under_way + 1, since));
        let result = sync.await;
        let (under_way, since) = self.0.syncs.get();
        self.0.syncs.set((under_way - 1, since));
        if under_way == 1 {
            let took_ns = self.now_ns().saturating_sub(since);
            self.0.synced_ns.set(self.0.synced_ns.get() + took_ns);
        }
        result
    }

    /// The time in which a sync of a commit was under way, nanoseconds.
    #[must_use]
    pub fn synced_ns(&self) -> u64 {
        self.0.synced_ns.get()
    }

    /// Lets go whose time has come, and returns when the next's will have, on the clock that was given. To be called in a loop
    /// by one task, which then waits for that time or for [`Self::moved`].
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let next = self.0.classes.borrow_mut().next_deadline_ns(self.now_ns());
        self.tell();
        next
    }

    /// Ends when [`Self::due`] is to be asked again although its time has not come.
    pub fn moved(&self) -> impl Future<Output = ()> {
        self.0.moved.next()
    }

    /// What each class has done, by its place in [`IoClass::ALL`].
    #[must_use]
    pub fn totals(&self) -> [IoTotals; IO_CLASSES] {
        self.0.classes.borrow().totals()
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.borrow().as_ref().map_or(0, |clock| clock())
    }

    fn tell(&self) {
        if self.0.classes.borrow().has_granted() {
            self.0.granted.notify();
        }
    }
}

impl Drop for IoPermit {
    fn drop(&mut self) {
        let now_ns = self.gate.now_ns();
        let inner = &self.gate.0;
        inner.classes.borrow_mut().ended(self.class, self.bytes, now_ns);
        self.gate.tell();
    }
}

impl Drop for ProduceFlight {
    fn drop(&mut self) {
        let now_ns = self.0.now_ns();
        self.0.0.classes.borrow_mut().produce_ends(now_ns);
    }
}

/// Gives the place in the queue back when whoever waits is dropped.
struct Wait<'a> {
    gate: &'a IoGate,
    class: IoClass,
    bytes: u64,
    ticket: Option<u64>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let now_ns = self.gate.now_ns();
            let mut classes = self.gate.0.classes.borrow_mut();
            classes.gives_up(self.class, self.bytes, ticket, now_ns);
            drop(classes);
            self.gate.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const MIB: u64 = 1 << 20;

    fn gate(bytes: u64) -> IoGate {
        IoGate::new(IoLimits {
            busy_bytes_max: bytes,
            idle_bytes_max: bytes,
            ..IoLimits::default()
        })
    }

    #[test]
    fn a_permit_lasts_until_it_is_dropped_and_a_dropped_wait_leaves_nothing() {
        let gate = gate(MIB);
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(held) = pin!(gate.permit(IoClass::ColdRead, MIB)).poll(&mut cx) else {
            panic!("nothing is under way");
        };
        let mut second = pin!(gate.permit(IoClass::ColdRead, MIB));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        {
            let mut dropped = pin!(gate.permit(IoClass::ColdRead, MIB));
            assert!(dropped.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(gate.totals()[IoClass::ColdRead as usize].waiting, 1);
        drop(held);
        let Poll::Ready(held) = second.as_mut().poll(&mut cx) else {
            panic!("it is its turn");
        };
        drop(held);
        assert!(!gate.0.classes.borrow().has_granted());
    }

    #[test]
    fn rates_hold_from_the_clock_on() {
        let limits = IoLimits::default().with_rate(IoClass::Scrub, MIB);
        let gate = IoGate::new(limits);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            assert!(pin!(gate.permit(IoClass::Scrub, MIB)).poll(&mut cx).is_ready());
        }
        let now = Rc::new(Cell::new(5_000_000_000));
        let clock = Rc::clone(&now);
        gate.set_clock(Rc::new(move || clock.get()));
        assert!(pin!(gate.permit(IoClass::Scrub, MIB)).poll(&mut cx).is_ready());
        let mut late = pin!(gate.permit(IoClass::Scrub, MIB));
        assert!(late.as_mut().poll(&mut cx).is_pending());
        let at = gate.due().expect("it waits for its rate");
        assert!(at > now.get() && at < now.get() + 1_000_000_000, "{at}");
        now.set(at);
        assert_eq!(gate.due(), None);
        assert!(late.as_mut().poll(&mut cx).is_ready());
        assert_eq!(gate.totals()[IoClass::Scrub as usize].wait_ns, at - 5_000_000_000);
    }

    #[test]
    fn the_time_of_syncs_side_by_side_counts_once() {
        let gate = gate(MIB);
        let now = Rc::new(Cell::new(100));
        let clock = Rc::clone(&now);
        gate.set_clock(Rc::new(move || clock.get()));
        let mut cx = Context::from_waker(Waker::noop());
        let done = Cell::new(false);
        let wait = || {
            std::future::poll_fn(|_| {
                if done.get() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
        };
        let (mut a, mut b) = (pin!(gate.synced(wait())), pin!(gate.synced(wait())));
        assert!(a.as_mut().poll(&mut cx).is_pending());
        now.set(150);
        assert!(b.as_mut().poll(&mut cx).is_pending());
        now.set(200);
        done.set(true);
        assert!(a.as_mut().poll(&mut cx).is_ready());
        assert_eq!(gate.synced_ns(), 0, "one is under way still");
        now.set(260);
        assert!(b.as_mut().poll(&mut cx).is_ready());
        assert_eq!(gate.synced_ns(), 160);
    }
}
