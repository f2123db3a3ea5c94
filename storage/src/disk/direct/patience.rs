//! What a shard does when the process or the host has no file descriptor left: that is no failure of the disk, and it passes.
//! Whatever needs one waits for a while, all of a shard's operations together. One per shard.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use glommio::timer::sleep;

/// How long in a row there may be no descriptor before operations fail. A client's request waits 30 s for its answer.
const EXHAUSTED_MAX: Duration = Duration::from_secs(15);

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// Without a failed attempt for so long, a lack of descriptors is over.
const GAP_MAX: Duration = Duration::from_secs(1);

/// When the present lack of descriptors began, and its last failed attempt.
#[derive(Default)]
pub(super) struct Patience(Cell<Option<(Instant, Instant)>>);

impl Patience {
    /// Runs `attempt` until it ends with anything but a lack of descriptors, or that has lasted too long.
    pub(super) async fn with<T>(&self, attempt: impl AsyncFn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt().await {
                Err(error) if is_exhausted(&error) => {
                    if self.is_over(&error) {
                        return Err(error);
                    }
                    sleep(PAUSE).await;
                }
                ended => return ended,
            }
        }
    }

    /// There was a descriptor.
    pub(super) fn recovered(&self) {
        self.0.set(None);
    }

    fn is_over(&self, error: &io::Error) -> bool {
        let now = Instant::now();
        let present = self.0.get().filter(|(_, last)| now - *last < GAP_MAX);
        let since = present.map_or_else(
            || {
                tracing::warn!(%error, "the disk waits for a file descriptor");
                now
            },
            |(since, _)| since,
        );
        self.0.set(Some((since, now)));
        now - since >= EXHAUSTED_MAX
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
