//! Signals: the first SIGTERM or SIGINT asks for a graceful stop, a later one ends the process at once. A side thread
//! waits for them; the rest of the process sees one message.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Signals so soon after the first mean the same: `timeout` of coreutils and some shells signal a process and then its group.
const ECHO_MAX: Duration = Duration::from_secs(1);

/// The name of the first signal that asked for the stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopSignal(pub &'static str);

/// Takes SIGTERM and SIGINT over. The receiver gets one message, at the first of them; at one that comes more than a
/// second later the process exits with 128 plus the signal's number, as a shell reports a process that died of it. Called once, before shards start.
///
/// # Errors
/// When the signals cannot be taken over or no thread can be started.
pub fn watch() -> io::Result<flume::Receiver<StopSignal>> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (tx, rx) = flume::bounded(1);
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked: Option<Instant> = None;
        for signal in signals.forever() {
            if let Some(asked) = asked {
                if asked.elapsed() < ECHO_MAX {
                    continue;
                }
                tracing::warn!("a second signal: the process ends at once");
                signal_hook::low_level::exit(128 + signal);
            }
            asked = Some(Instant::now());
            let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
            // Nobody listening means that the process is ending already.
            let _ = tx.send(StopSignal(name));
        }
    })?;
    Ok(rx)
}
