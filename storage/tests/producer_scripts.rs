//! Runs `scripts/producer_*.txt` against producer state: each command is followed by what it answers, on lines that start
//! with `>`. `UPDATE_SCRIPTS=1` writes the answers into the files; the difference is then to be read, not believed.
//!
//! ```text
//! produce ID EPOCH SEQUENCE COUNT [txn] [v2] [replication|coordinator]      appended at the log end if it may be
//! marker ID EPOCH COORDINATOR_EPOCH commit|abort [v2]                       from the coordinator
//! clock MS                     the time goes on
//! expire MS                    everyone who was silent for so long
//! restart MS                   through a snapshot, with that expiration
//! high-watermark OFFSET        moves it, answers the last stable offset
//! log-start OFFSET
//! producer ID
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use storage::producer_state::{
    AppendOrigin, BatchFacts, BatchKind, Marker, Outcome, PRODUCERS_MAX, ProducerError, ProducerState,
};
use storage::types::{Offset, ProducerId};

struct Script {
    state: ProducerState,
    end: i64,
    log_start: i64,
    now: i64,
}

/// The words of a command behind its name.
struct Words<'a>(Vec<&'a str>);

impl Words<'_> {
    fn number<N: std::str::FromStr>(&self, at: usize) -> N {
        let word = self
            .0
            .get(at)
            .unwrap_or_else(|| panic!("a number is missing in {:?}", self.0));
        word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
}

impl Script {
    fn new() -> Self {
        Self {
            state: ProducerState::new(Offset::ZERO, PRODUCERS_MAX),
            end: 0,
            log_start: 0,
            now: 1_000_000,
        }
    }

    fn run(&mut self, command: &str, words: &Words<'_>) -> String {
        match command {
            "produce" => self.produce(words),
            "marker" => self.marker(words),
            "clock" => {
                self.now += words.number::<i64>(0);
                String::new()
            }
            "expire" => {
                format!(
                    "{} forgotten",
                    self.state.expire(self.now, words.number(0), usize::MAX)
                )
            }
            "restart" => {
                let file = self.state.encode_snapshot();
                self.state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
                let loaded = self
                    .state
                    .load_snapshot(Offset(self.end), &file, self.now, words.number(0));
                loaded.expect("we read what we write");
                format!("{} producers", self.state.len())
            }
            "high-watermark" => {
                let high_watermark = Offset(words.number(0));
                self.state.on_high_watermark(high_watermark);
                format!(
                    "stable {}",
                    self.state
                        .last_stable_offset(Offset(self.log_start), high_watermark)
                )
            }
            "log-start" => {
                self.log_start = words.number(0);
                self.state.on_log_start(Offset(self.log_start));
                format!("{} producers", self.state.len())
            }
            "producer" => self.producer(ProducerId(words.number(0))),
            unknown => panic!("unknown command {unknown}"),
        }
    }

    fn producer(&self, producer_id: ProducerId) -> String {
        let Some(producer) = self.state.producer(producer_id) else {
            return "unknown".into();
        };
        let mut text = format!(
            "epoch {} last sequence {}",
            producer.epoch, producer.last_sequence
        );
        if let Some(start) = producer.transaction_start {
            let _ = write!(text, " transaction from {start}");
        }
        for batch in self.state.batches(producer_id) {
            let _ = write!(text, " [{}..{}]", batch.first_sequence(), batch.last_sequence);
        }
        text
    }

    fn produce(&mut self, words: &Words<'_>) -> String {
        let kind = if words.has("txn") {
            BatchKind::Transactional
        } else {
            BatchKind::Plain
        };
        let origin = match () {
            () if words.has("replication") => AppendOrigin::Replication,
            () if words.has("coordinator") => AppendOrigin::Coordinator,
            () => AppendOrigin::Client,
        };
        let batch = BatchFacts {
            producer_id: ProducerId(words.number(0)),
            producer_epoch: words.number(1),
            base_sequence: words.number(2),
            base_offset: Offset(self.end),
            last_offset: Offset(self.end + words.number::<i64>(3) - 1),
            max_timestamp: self.now,
            kind,
        };
        match self
            .state
            .check(&batch, origin, if words.has("v2") { 2 } else { 0 })
        {
            Ok(Outcome::Append) => {
                self.state.apply(&batch, self.now);
                self.end = batch.last_offset.0 + 1;
                format!("offsets {}..{}", batch.base_offset, batch.last_offset)
            }
            Ok(Outcome::Duplicate(original)) => {
                format!("duplicate of {}..{}", original.first_offset, original.last_offset)
            }
            Err(error) => error_text(error),
        }
    }

    fn marker(&mut self, words: &Words<'_>) -> String {
        let marker = Marker {
            aborted: words.has("abort"),
            coordinator_epoch: words.number(2),
        };
        let batch = BatchFacts {
            producer_id: ProducerId(words.number(0)),
            producer_epoch: words.number(1),
            base_sequence: -1,
            base_offset: Offset(self.end),
            last_offset: Offset(self.end),
            max_timestamp: self.now,
            kind: BatchKind::Marker(marker),
        };
        let version = if words.has("v2") { 2 } else { 0 };
        if let Err(error) = self.state.check(&batch, AppendOrigin::Coordinator, version) {
            return error_text(error);
        }
        let completed = self.state.apply(&batch, self.now);
        self.end += 1;
        match completed {
            None => format!("offset {}, ends nothing", batch.base_offset),
            Some(txn) => format!(
                "offset {}, {} from {}, then stable {}",
                txn.last_offset,
                if txn.aborted { "aborts" } else { "commits" },
                txn.first_offset,
                txn.last_stable_offset
            ),
        }
    }
}

fn error_text(error: ProducerError) -> String {
    match error {
        ProducerError::OutOfOrderSequence { expected, .. } => {
            format!("OUT_OF_ORDER_SEQUENCE_NUMBER, expected {expected}")
        }
        ProducerError::InvalidProducerEpoch { current, .. } => {
            format!("INVALID_PRODUCER_EPOCH, current {current}")
        }
        ProducerError::InvalidTxnState(_) => "INVALID_TXN_STATE".into(),
        ProducerError::CoordinatorFenced { current, .. } => {
            format!("TRANSACTION_COORDINATOR_FENCED, current {current}")
        }
        ProducerError::TooManyProducers { .. } => "too many producers".into(),
    }
}

/// The script with the answers it really gets. A `---` starts a new log.
fn answered(script: &str) -> String {
    let mut text = String::new();
    let mut log = Script::new();
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        text.push_str(line);
        text.push('\n');
        let mut words = line.split_whitespace();
        match words.next() {
            None => {}
            Some(word) if word.starts_with('#') => {}
            Some("---") => log = Script::new(),
            Some(command) => {
                let answer = log.run(command, &Words(words.collect()));
                if !answer.is_empty() {
                    let _ = writeln!(text, "> {answer}");
                }
            }
        }
    }
    text
}

#[test]
fn producer_scripts_get_the_answers_written_in_them() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts = 0;
    for entry in fs::read_dir(&dir).expect("the scripts are in the repository") {
        let path = entry.expect("a readable directory").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with("producer_") {
            continue;
        }
        scripts += 1;
        let script = fs::read_to_string(&path).expect("a readable script");
        let answered = answered(&script);
        if std::env::var_os("UPDATE_SCRIPTS").is_some() {
            fs::write(&path, &answered).expect("a writable script");
            continue;
        }
        for (number, (written, real)) in script.lines().zip(answered.lines()).enumerate() {
            assert_eq!(real, written, "{name}, line {}", number + 1);
        }
        assert_eq!(script.lines().count(), answered.lines().count(), "{name}");
    }
    assert!(scripts >= 4, "{scripts} scripts found");
}
