//! A well-behaved client that works on while others misbehave: produces a record and fetches, again and again, and keeps count.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::probe::{Answer, connect, read_frame, verdict};
use super::wire::{Batch, create_by_metadata, fetch, produce};
use crate::error::{Error, Result};

/// The witness has a topic of its own.
const TOPIC: &str = "witness";
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(20);

/// What the witness saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Rounds of one produce and one fetch that went well.
    pub rounds: u64,
    /// Rounds that failed.
    pub failures: u64,
    /// The longest round.
    pub longest: Duration,
    /// Why the first failed round failed.
    pub first_failure: Option<String>,
}

/// The running witness.
pub(super) struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Witness {
    /// Makes its topic and begins.
    pub(super) fn start(bootstrap: &str) -> Result<Self> {
        ready(bootstrap, TOPIC)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, bootstrap) = (Arc::clone(&stop), bootstrap.to_owned());
        let thread = std::thread::spawn(move || watch(&bootstrap, &stopped));
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the witness does not panic")
    }
}

fn watch(bootstrap: &str, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        match round(bootstrap, &mut connection) {
            Ok(()) => seen.rounds += 1,
            Err(why) => {
                seen.failures += 1;
                seen.first_failure.get_or_insert(why);
                connection = None;
            }
        }
        seen.longest = seen.longest.max(started.elapsed());
        std::thread::sleep(PAUSE);
    }
    seen
}

/// One connection for all rounds, as a client has; it must never break.
fn round(bootstrap: &str, connection: &mut Option<TcpStream>) -> std::result::Result<(), String> {
    let stream = match connection {
        Some(stream) => stream,
        None => connection.insert(connect(bootstrap).map_err(|error| error.to_string())?),
    };
    let mut ask = |bytes: &[u8]| {
        stream
            .write_all(bytes)
            .map_err(|error| format!("sending: {error}"))?;
        read_frame(stream).map_err(|error| format!("waiting for the answer: {error}"))
    };
    let produced = ask(&produce(TOPIC, &Batch::of(b"still here").bytes()))?;
    let said = verdict(&produced, Answer::Produce);
    if said != "ok" {
        return Err(format!("produce answered {said}"));
    }
    let fetched = ask(&fetch(TOPIC, 1000))?;
    if fetched.windows(10).any(|window| window == b"still here") {
        Ok(())
    } else {
        Err("fetch without the records".into())
    }
}

/// Makes a topic of one partition and waits until it takes records.
pub(super) fn ready(bootstrap: &str, topic: &str) -> Result<()> {
    let mut last = String::new();
    for _ in 0..100 {
        let mut stream = connect(bootstrap)?;
        let created = stream
            .write_all(&create_by_metadata(topic))
            .and_then(|()| read_frame(&mut stream));
        let produced = created
            .and_then(|_| stream.write_all(&produce(topic, &Batch::of(b"still here").bytes())))
            .and_then(|()| read_frame(&mut stream));
        match produced.map(|answer| verdict(&answer, Answer::Produce)) {
            Ok(said) if said == "ok" => return Ok(()),
            Ok(said) => last = format!("produce answered {said}"),
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(Error::Failed(format!("topic {topic} takes no records: {last}")))
}
