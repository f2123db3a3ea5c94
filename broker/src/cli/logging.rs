//! The log: to standard error by a thread of its own, so that a slow reader never holds a shard. When the thread cannot
//! keep up, lines are dropped and counted. One line is one event, whatever a client puts into a name.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::exit::{Failure, Status};

/// Lines that wait for the writing thread; more are dropped.
const LINES_MAX: usize = 16_384;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Keeps the log's thread; what was logged is written when it is dropped.
#[derive(Debug)]
pub struct LogGuard {
    _worker: WorkerGuard,
}

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Log lines dropped since the start because they came faster than standard error takes them.
#[must_use]
pub fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |counter| counter.dropped_lines() as u64)
}

/// Starts logging. `filter` and `format` are the options; the environment comes after them.
pub(super) fn start(filter: Option<String>, format: Option<LogFormat>) -> Result<LogGuard, Failure> {
    let usage = |what: String| Failure::new(Status::Usage, what);
    let filter = filter
        .or_else(|| std::env::var("PENSTOCK_LOG").ok())
        .unwrap_or_default();
    let text = if filter.trim().is_empty() {
        "info"
    } else {
        filter.trim()
    };
    let filter = EnvFilter::builder().parse(text).map_err(|e| {
        usage(format!(
            "the log filter '{text}' is none: {e}; write error, warn, info, debug or info,broker=debug"
        ))
    })?;
    let format = match (format, std::env::var("PENSTOCK_LOG_FORMAT")) {
        (Some(format), _) => format,
        (None, Ok(name)) if name == "json" => LogFormat::Json,
        (None, Ok(name)) if name.is_empty() || name == "text" => LogFormat::Text,
        (None, Ok(name)) => {
            return Err(usage(format!(
                "PENSTOCK_LOG_FORMAT is '{name}'; write text or json"
            )));
        }
        (None, Err(_)) => LogFormat::Text,
    };
    let (writer, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log")
        .finish(io::stderr());
    let _ = DROPPED.set(writer.error_counter());
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let writer = OneLine {
        inner: writer,
        colours,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    let started = match format {
        LogFormat::Text => builder.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::new(Status::Software, format!("the log cannot be started: {e}")))?;
    Ok(LogGuard { _worker: worker })
}

/// Escapes control characters within an event, which reaches it in one piece: a topic or client name cannot start a
/// line of its own or talk to the terminal.
#[derive(Clone)]
struct OneLine<W> {
    inner: W,
    /// Escape sequences are ours: the subscriber has escaped those of others.
    colours: bool,
}

impl<'a> MakeWriter<'a> for OneLine<NonBlocking> {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (text, end) = match event.strip_suffix(b"\n") {
            Some(text) => (text, &b"\n"[..]),
            None => (event, &b""[..]),
        };
        let is_bad = |b: &u8| (*b < 0x20 && *b != b'\t' && !(self.colours && *b == 0x1b)) || *b == 0x7f;
        if !text.iter().any(is_bad) {
            self.inner.write_all(event)?;
            return Ok(event.len());
        }
        let mut clean = Vec::with_capacity(event.len() + 16);
        for byte in text {
            if is_bad(byte) {
                clean.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            } else {
                clean.push(*byte);
            }
        }
        clean.extend_from_slice(end);
        self.inner.write_all(&clean)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str, colours: bool) -> String {
        let mut out = OneLine {
            inner: Vec::new(),
            colours,
        };
        out.write_all(event.as_bytes()).expect("memory takes everything");
        String::from_utf8(out.inner).expect("what went in was text")
    }

    #[test]
    fn an_event_stays_one_line_whatever_a_client_sends() {
        assert_eq!(written("a topic=x\ty\n", false), "a topic=x\ty\n");
        assert_eq!(
            written("a topic=x\nERROR forged\r\u{7f}\n", false),
            "a topic=x\\x0aERROR forged\\x0d\\x7f\n"
        );
        assert_eq!(written("\u{1b}[2Jgone\n", false), "\\x1b[2Jgone\n");
        assert_eq!(
            written("\u{1b}[32mINFO\u{1b}[0m ü\n", true),
            "\u{1b}[32mINFO\u{1b}[0m ü\n"
        );
    }
}
