//! Numbered lines at a steady rate, into a file or a program's standard input.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Doing, Result};

/// Lines a second.
const RATE: u64 = 2000;
/// How often some are written.
const TURN: Duration = Duration::from_millis(10);
/// Digits of a line's number.
const DIGITS: usize = 10;
/// Bytes of each line with its end.
pub(super) const LINE_BYTES: u64 = 100;

/// A thread that writes the lines 0, 1, 2 and so on until it is stopped.
pub(super) struct Feed {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Feed {
    /// Starts writing. `keys` puts a key and a tab in front of each line.
    pub(super) fn start(mut into: impl Write + Send + 'static, keys: Option<u64>) -> Self {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count) = (Arc::clone(&stop), Arc::clone(&written));
        let thread = std::thread::spawn(move || {
            let started = Instant::now();
            let mut next = 0;
            while !until.load(Ordering::Relaxed) {
                let due = RATE * u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX) / 1000;
                let mut text = String::new();
                while next < due {
                    if let Some(keys) = keys {
                        text.push_str(&format!("key-{}\t", next % keys));
                    }
                    text.push_str(&line(next));
                    next += 1;
                }
                into.write_all(text.as_bytes()).doing("writing lines")?;
                into.flush().doing("writing lines")?;
                count.store(next, Ordering::Release);
                std::thread::sleep(TURN);
            }
            Ok(())
        });
        Self {
            stop,
            written,
            thread: Some(thread),
        }
    }

    /// Stops, and tells how many lines there are.
    ///
    /// # Errors
    /// They could not be written.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only this takes it");
        thread.join().expect("writing lines does not panic")?;
        Ok(self.written.load(Ordering::Acquire))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A line with its number, as long as all others.
fn line(number: u64) -> String {
    let mut line = format!("{number:0DIGITS$} ");
    line.extend("abcdefghijklmnopqrstuvwxyz ".chars().cycle().take(98 - DIGITS));
    line.push('\n');
    line
}

/// The number of a line.
pub(super) fn number(line: &str) -> Option<u64> {
    line.get(..DIGITS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_number_and_length() {
        assert_eq!(line(4711).len() as u64, LINE_BYTES);
        assert_eq!(number(&line(4711)), Some(4711));
        assert_eq!(number("12"), None);
    }
}
