//! The two producers that run while the broker dies: VerifiableProducer and a librdkafka program. Both say on standard output which
//! records were acknowledged; a thread each gathers that.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use super::check::Acknowledged;
use crate::error::{Doing, Result, failed};
use crate::kafka::tool;

/// How long a producer may take to flush and end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
/// How long the librdkafka program may take to tell how many records wait.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Records a second of each producer.
pub(super) const RATE: u32 = 20_000;

/// What a producer has said so far.
#[derive(Debug, Default)]
struct Said {
    acknowledged: Mutex<Vec<Acknowledged>>,
    acknowledged_count: AtomicU64,
    failed: AtomicU64,
    /// The last `W` line of the librdkafka program.
    waiting: Mutex<Option<u64>>,
}

/// A running producer; killed when dropped.
#[derive(Debug)]
pub(super) struct Producer {
    name: &'static str,
    child: Child,
    reader: Option<JoinHandle<()>>,
    said: Arc<Said>,
    errors: PathBuf,
}

/// What a producer was told in all.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) acknowledged: Vec<Acknowledged>,
    pub(super) failed: u64,
}

impl Producer {
    /// `kafka-verifiable-producer --throughput 20000`; `acks` is `all` or `1`.
    pub(super) fn verifiable(bootstrap: &str, topic: &str, acks: &str, dir: &Path) -> Result<Self> {
        let config = dir.join(format!("verifiable-{acks}.properties"));
        // VerifiableProducer's own default of 0 retries turns idempotence off. With acks=1 there is no idempotence, and a retry
        // could write a record twice: there a lost answer stays a failed record.
        let settings = match acks {
            "all" => "enable.idempotence=true\nretries=2147483647\n",
            _ => "enable.idempotence=false\nretries=0\n",
        };
        std::fs::write(&config, format!("{settings}reconnect.backoff.max.ms=500\n"))
            .doing(config.display())?;
        let mut command = tool("org.apache.kafka.tools.VerifiableProducer");
        command.args([
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--throughput",
            &RATE.to_string(),
        ]);
        command
            .args([
                "--acks",
                if acks == "all" { "-1" } else { acks },
                "--command-config",
            ])
            .arg(&config);
        Self::spawn(
            "VerifiableProducer",
            command,
            dir.join(format!("verifiable-{acks}.stderr")),
            parse_verifiable,
        )
    }

    /// The librdkafka program of `bench/kill/`, run with the interpreter of the client matrix.
    pub(super) fn librdkafka(
        python: &Path,
        bootstrap: &str,
        topic: &str,
        partitions: u32,
        acks: &str,
        dir: &Path,
    ) -> Result<Self> {
        let mut command = driver(python);
        command.args([
            "produce",
            bootstrap,
            topic,
            &partitions.to_string(),
            acks,
            &RATE.to_string(),
        ]);
        Self::spawn(
            "librdkafka",
            command,
            dir.join(format!("librdkafka-{acks}.stderr")),
            parse_driver,
        )
    }

    fn spawn(
        name: &'static str,
        mut command: Command,
        errors: PathBuf,
        parse: fn(&str, &Said),
    ) -> Result<Self> {
        let stderr = File::create(&errors).doing(errors.display())?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .doing(name)?;
        let stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let said = Arc::new(Said::default());
        let told = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in stdout.lines().map_while(std::io::Result::ok) {
                parse(&line, &told);
            }
        });
        Ok(Self {
            name,
            child,
            reader: Some(reader),
            said,
            errors,
        })
    }

    /// Acknowledged records so far.
    pub(super) fn acknowledged(&self) -> u64 {
        self.said.acknowledged_count.load(Ordering::Relaxed)
    }

    /// Fails when the process has ended by itself.
    pub(super) fn expect_running(&mut self) -> Result<()> {
        match self.child.try_wait().doing(self.name)? {
            None => Ok(()),
            Some(status) => failed(format!(
                "{} ended with {status}: {}",
                self.name,
                self.last_words()
            )),
        }
    }

    /// How many records wait for an answer (the librdkafka program only).
    pub(super) fn waiting(&self) -> Result<u64> {
        *self.said.waiting.lock().expect("the reader does not panic") = None;
        self.signal(Signal::SIGUSR1)?;
        let asked = Instant::now();
        while asked.elapsed() < ASK_TIMEOUT {
            if let Some(count) = *self.said.waiting.lock().expect("the reader does not panic") {
                return Ok(count);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        failed(format!("{} did not say how many records wait", self.name))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids fit 32 bits"));
        kill(pid, signal).map_err(std::io::Error::from).doing(self.name)
    }

    /// Lets the producer flush and end, and returns everything that it was told.
    pub(super) fn stop(mut self) -> Result<Told> {
        self.signal(Signal::SIGTERM)?;
        let asked = Instant::now();
        while self.child.try_wait().doing(self.name)?.is_none() {
            if asked.elapsed() > STOP_TIMEOUT {
                return failed(format!(
                    "{} did not end within {STOP_TIMEOUT:?}: {}",
                    self.name,
                    self.last_words()
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        let acknowledged =
            std::mem::take(&mut *self.said.acknowledged.lock().expect("the reader does not panic"));
        Ok(Told {
            acknowledged,
            failed: self.said.failed.load(Ordering::Relaxed),
        })
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(1000)..]).into_owned()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of `bench/kill/`, to be given its arguments.
pub(super) fn driver(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("kill/driver.py"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A line of VerifiableProducer.
#[derive(Deserialize)]
struct Line {
    name: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    partition: Option<u32>,
    #[serde(default)]
    offset: Option<i64>,
}

fn parse_verifiable(line: &str, said: &Said) {
    let Ok(line) = serde_json::from_str::<Line>(line) else {
        return;
    };
    match line.name.as_str() {
        "producer_send_success" => {
            let value = line.value.and_then(|value| value.parse().ok());
            if let (Some(value), Some(partition)) = (value, line.partition) {
                acknowledge(said, value, partition, line.offset.unwrap_or(-1));
            }
        }
        "producer_send_error" => {
            said.failed.fetch_add(1, Ordering::Relaxed);
        }
        _ => {}
    }
}

fn parse_driver(line: &str, said: &Said) {
    let fields: Vec<_> = line.split(' ').collect();
    match fields.as_slice() {
        ["A", value, partition, offset] => {
            if let (Ok(value), Ok(partition), Ok(offset)) = (value.parse(), partition.parse(), offset.parse())
            {
                acknowledge(said, value, partition, offset);
            }
        }
        ["F", ..] => {
            said.failed.fetch_add(1, Ordering::Relaxed);
        }
        ["W", count] => *said.waiting.lock().expect("the asker does not panic") = count.parse().ok(),
        _ => {}
    }
}

fn acknowledge(said: &Said, value: u64, partition: u32, offset: i64) {
    let answer = Acknowledged {
        value,
        partition,
        offset: u64::try_from(offset).ok(),
    };
    said.acknowledged
        .lock()
        .expect("the asker does not panic")
        .push(answer);
    said.acknowledged_count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_producers_are_understood() {
        let said = Said::default();
        parse_verifiable(
            r#"{"timestamp":1,"key":null,"name":"producer_send_success","value":"12","offset":5,"partition":3,"topic":"t"}"#,
            &said,
        );
        parse_verifiable(
            r#"{"timestamp":1,"name":"producer_send_error","value":"13","exception":"x"}"#,
            &said,
        );
        parse_verifiable(r#"{"timestamp":1,"name":"startup_complete"}"#, &said);
        parse_driver("A 7 2 -1", &said);
        parse_driver("F 8 _TRANSPORT", &said);
        parse_driver("W 40", &said);
        let expected = [
            Acknowledged {
                value: 12,
                partition: 3,
                offset: Some(5),
            },
            Acknowledged {
                value: 7,
                partition: 2,
                offset: None,
            },
        ];
        assert_eq!(*said.acknowledged.lock().expect("alone"), expected);
        assert_eq!(said.failed.load(Ordering::Relaxed), 2);
        assert_eq!(*said.waiting.lock().expect("alone"), Some(40));
    }
}
