//! Whether a peer gets on with what it has begun: the sending of a frame, or the reading of an answer. While memory is
//! short, who holds some and makes no progress is closed, so that others wait for seconds and not for the idle limit. A
//! state machine without I/O and clock.

use std::time::Duration;

use shard::env::Instant;

/// How often a connection that holds memory is looked at.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Who makes no progress for this long is closed while memory is short.
pub(super) const STALLED_MIN: Duration = Duration::from_secs(2);

/// Less than this in [`STALLED_MIN`] is no progress, bytes: 8 KB/s, a modem's speed.
const STRETCH_BYTES_MIN: usize = 16 << 10;

/// A frame that has begun is complete within this time, or the connection is closed (one byte a second is no client).
const FRAME_TIME_MIN: Duration = Duration::from_secs(60);

/// What a frame gets on top for each MiB that has arrived.
const FRAME_TIME_PER_MIB: Duration = Duration::from_secs(30);

/// What to do with a connection that has a part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may go on.
    GoOn,
    /// It holds memory that others wait for, and sends next to nothing.
    Stalled,
    /// The frame takes too long, or nothing more of it comes.
    Late,
}

/// The arrival of one frame. Events in: [`began`](Self::began), [`resumed`](Self::resumed). Output:
/// [`look`](Self::look), after each read or look interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameProgress {
    /// Silence for so long ends the connection, in a frame as between two.
    idle_max: Duration,
    frame_began: Instant,
    moved: Instant,
    moved_bytes: usize,
    stretch_began: Instant,
    stretch_bytes: usize,
}

impl FrameProgress {
    /// No frame has begun.
    pub(super) fn new(now: Instant, idle_max: Duration) -> Self {
        Self {
            idle_max,
            frame_began: now,
            moved: now,
            moved_bytes: 0,
            stretch_began: now,
            stretch_bytes: 0,
        }
    }

    /// A frame begins: nothing of it has arrived, or what came along with the one before.
    pub(super) fn began(&mut self, now: Instant) {
        *self = Self::new(now, self.idle_max);
    }

    /// It was we who did not read: the time does not count against the peer.
    pub(super) fn resumed(&mut self, now: Instant) {
        self.stretch_began = now;
        self.moved = now;
    }

    /// When the frame has to be complete, with `bytes` of it here.
    pub(super) fn deadline(&self, bytes: usize) -> Instant {
        let extra = FRAME_TIME_PER_MIB * u32::try_from(bytes >> 20).unwrap_or(u32::MAX / 30);
        self.frame_began.after(FRAME_TIME_MIN + extra)
    }

    /// `bytes` of the frame are here.
    pub(super) fn look(&mut self, now: Instant, bytes: usize, is_memory_short: bool) -> Verdict {
        if bytes > self.moved_bytes {
            (self.moved, self.moved_bytes) = (now, bytes);
        }
        if now >= self.deadline(bytes) || now.since(self.moved) >= self.idle_max {
            return Verdict::Late;
        }
        if bytes >= self.stretch_bytes + STRETCH_BYTES_MIN {
            self.stretch_bytes = bytes;
            self.stretch_began = now;
        }
        if is_memory_short && now.since(self.stretch_began) >= STALLED_MIN {
            return Verdict::Stalled;
        }
        Verdict::GoOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(progress: &FrameProgress, seconds: u64) -> Instant {
        progress.frame_began.after(Duration::from_secs(seconds))
    }

    fn begun() -> FrameProgress {
        FrameProgress::new(Instant::default(), Duration::from_secs(600))
    }

    #[test]
    fn half_a_frame_may_stand_while_there_is_memory_and_not_when_it_is_short() {
        let mut progress = begun();
        assert_eq!(progress.look(at(&begun(), 30), 14, false), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 30), 14, true), Verdict::Stalled);
        assert_eq!(progress.look(at(&begun(), 60), 14, false), Verdict::Late);
    }

    #[test]
    fn silence_in_a_frame_is_idleness() {
        let mut progress = FrameProgress::new(Instant::default(), Duration::from_secs(2));
        assert_eq!(progress.look(at(&begun(), 1), 14, false), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 2), 15, false), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 3), 15, false), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 4), 15, false), Verdict::Late);
    }

    #[test]
    fn a_slow_sender_gets_on_and_one_byte_a_second_does_not() {
        let mut progress = begun();
        for second in 1..50 {
            let now = at(&begun(), second);
            assert_eq!(progress.look(now, 45_000 * second as usize, true), Verdict::GoOn);
        }
        let mut progress = begun();
        assert_eq!(progress.look(at(&begun(), 1), 1, true), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 2), 2, true), Verdict::Stalled);
    }

    #[test]
    fn time_in_which_we_did_not_read_does_not_count() {
        let mut progress = begun();
        progress.resumed(at(&begun(), 9));
        assert_eq!(progress.look(at(&begun(), 10), 14, true), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 11), 14, true), Verdict::Stalled);
    }

    #[test]
    fn a_large_frame_gets_time_for_what_has_arrived() {
        let mut progress = begun();
        assert_eq!(progress.look(at(&begun(), 80), 1 << 20, false), Verdict::GoOn);
        assert_eq!(progress.look(at(&begun(), 90), 1 << 20, false), Verdict::Late);
    }
}
