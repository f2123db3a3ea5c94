//! Hostile input: what a broker does with bytes that no client should send, beside what Apache Kafka does with them, while a
//! well-behaved client works on and memory stays bounded.

mod batches;
mod crowd;
mod frames;
mod probe;
mod table;
mod wire;
mod witness;

pub use table::{Expected, expected, judge, markdown};
pub use witness::Seen;

use crate::error::Result;
use crate::resources::usage;
use probe::{Answer, Step, probe};
use witness::Witness;

/// One thing to send.
struct Input {
    name: String,
    steps: Vec<Step>,
    answer: Answer,
}

impl Input {
    fn new(name: &str, steps: Vec<Step>) -> Self {
        Self {
            name: name.to_owned(),
            steps,
            answer: Answer::Any,
        }
    }

    fn raw(name: &str, bytes: Vec<u8>) -> Self {
        Self::new(name, vec![Step::Send(bytes)])
    }

    fn answer(mut self, answer: Answer) -> Self {
        self.answer = answer;
        self
    }
}

/// What one broker did with one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the input.
    pub input: String,
    /// `closed`, `silent`, `ok`, `error N NAME`, or a sentence for a crowd.
    pub did: String,
    /// Growth of the broker's resident memory with the input, in MB.
    pub grown_megabytes: i64,
}

/// All inputs on one broker.
#[derive(Clone, Debug)]
pub struct Trial {
    /// One for each input, in a fixed order.
    pub rows: Vec<Row>,
    /// What the well-behaved client saw meanwhile.
    pub seen: Seen,
    /// Resident memory before the first and after the last input, and the most at any time, in MB.
    pub resident_megabytes: [u64; 3],
}

/// Runs every input against the broker whose process is `pid`.
///
/// # Errors
/// The broker no longer accepts connections, or is gone.
pub fn run(bootstrap: &str, pid: u32) -> Result<Trial> {
    witness::ready(bootstrap, wire::TOPIC)?;
    let witness = Witness::start(bootstrap)?;
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let before = usage(pid)?.resident_bytes;
    let mut rows = Vec::new();
    let mut last = before;
    for input in frames::inputs().into_iter().chain(batches::inputs()) {
        let did = probe(bootstrap, &input.steps, input.answer)?;
        let now = usage(pid)?.resident_bytes;
        rows.push(row(input.name, did, last, now));
        last = now;
    }
    type Crowd = fn(&str, &mut dyn FnMut()) -> crowd::Outcome;
    let crowds: [(&str, Crowd); 5] = [
        ("10,000 idle connections", crowd::idle_connections),
        (
            "16 readers that ask for 300 MB each and do not read",
            crowd::slow_readers,
        ),
        ("8 requests of 100 MiB begun and never ended", crowd::large_claims),
        (
            "500 claims of 50 MB, and a producer of 900 kB among them",
            crowd::many_claims,
        ),
        (
            "500 readers that ask for 50 MB each and do not read, and one that does",
            crowd::many_slow_readers,
        ),
    ];
    for (name, crowd) in crowds {
        let mut now = last;
        let did = crowd(bootstrap, &mut || {
            now = usage(pid).map_or(0, |usage| usage.resident_bytes)
        })?;
        rows.push(row(name.to_owned(), did, last, now));
        last = usage(pid)?.resident_bytes;
    }
    let seen = witness.stop();
    let after = usage(pid)?;
    let resident_megabytes = [before, after.resident_bytes, after.resident_peak_bytes].map(megabytes);
    Ok(Trial {
        rows,
        seen,
        resident_megabytes,
    })
}

fn row(input: String, did: String, before: u64, after: u64) -> Row {
    let megabytes = |bytes: u64| i64::try_from(bytes / 1_000_000).unwrap_or(i64::MAX);
    Row {
        input,
        did,
        grown_megabytes: megabytes(after) - megabytes(before),
    }
}
