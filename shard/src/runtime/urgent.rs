//! Scheduling of the ticker's thread: it runs for microseconds and must not wait for its turn, or a shard that sleeps on its
//! work (trap D1) sleeps on while the host is busy.
#![allow(unsafe_code)] // three system calls that nix has no function for

/// `SCHED_FLAG_KEEP_ALL`-free `sched_attr` of version 0 (sched_setattr(2)).
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// A time slice of 0.1 ms, the shortest there is: a thread that asks for less at a time is served sooner (EEVDF, Linux 6.12).
const SLICE_NS: u64 = 100_000;

/// Makes the calling thread as urgent as this process may: real-time, else the highest priority, else short slices.
pub(super) fn make_urgent() {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the thread id 0 is the caller, and `param` outlives the call.
    let real_time = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } == 0;
    if real_time {
        return;
    }
    // SAFETY: no pointers. On Linux a `who` of 0 is the calling thread, not its process.
    let first = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0;
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: if first { -20 } else { 0 },
        priority: 0,
        runtime_ns: SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: `attr` is a whole sched_attr of the size that it names, and outlives the call.
    let sliced = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0;
    tracing::debug!(
        first,
        sliced,
        "the ticker is not real-time; on a busy host it may tick late"
    );
}
