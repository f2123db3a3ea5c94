//! A global allocator that counts, for asserting how much memory decoding takes.

#![allow(unsafe_code)] // a global allocator can be written in no other way; it only counts and forwards

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes allocated by this thread and not freed, and the most there were.
    static LIVE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn grow(bytes: usize) {
    LIVE.with(|live| {
        let (now, peak) = live.get();
        live.set((now + bytes, peak.max(now + bytes)));
    });
}

fn shrink(bytes: usize) {
    LIVE.with(|live| {
        let (now, peak) = live.get();
        live.set((now.saturating_sub(bytes), peak));
    });
}

// SAFETY: every call is forwarded to the system allocator unchanged; the counters are plain cells without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that `work` had allocated at a time beyond what was there before.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(|live| {
        let (now, _) = live.get();
        live.set((now, now));
        now
    });
    let result = work();
    (result, LIVE.with(|live| live.get().1).saturating_sub(before))
}
