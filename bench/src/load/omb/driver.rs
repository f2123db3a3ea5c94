//! A driver file of the OpenMessaging benchmark for Kafka: replication, topic configs and the properties of clients, of which those
//! that mean nothing here are known by name and passed over.

use std::path::Path;
use std::time::Duration;

use broker::client::Address;
use broker::exit::Failure;
use protocol::compression::Codec;

use super::yaml::{self, Entry};
use super::{read, wrong};

/// Keys of the file.
const KNOWN: [&str; 8] = [
    "name",
    "driverClass",
    "replicationFactor",
    "topicConfig",
    "commonConfig",
    "producerConfig",
    "consumerConfig",
    "reset",
];

/// Properties of clients that this program acts on.
const PROPERTIES: [&str; 17] = [
    "bootstrap.servers",
    "acks",
    "linger.ms",
    "batch.size",
    "compression.type",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "buffer.memory",
    "auto.offset.reset",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.max.wait.ms",
    "isolation.level",
    "check.crcs",
    "security.protocol",
];

/// Properties that change nothing for a client without groups, retries and serializers.
const PASSED_OVER: [&str; 17] = [
    "client.id",
    "group.id",
    "retries",
    "request.timeout.ms",
    "delivery.timeout.ms",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "max.poll.records",
    "max.poll.interval.ms",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "metadata.max.age.ms",
];

/// A driver. `None` is Kafka's client's own default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Driver {
    /// Name.
    pub name: Option<String>,
    /// Replicas of topics.
    pub replication_factor: Option<i16>,
    /// Configs of topics.
    pub topic_configs: Vec<(String, String)>,
    /// Brokers to begin with.
    pub bootstrap: Vec<Address>,
    /// -1 (all), 0 or 1.
    pub acks: Option<i16>,
    /// How long a batch waits.
    pub linger: Option<Duration>,
    /// Bytes of a batch.
    pub batch_bytes: Option<usize>,
    /// Codec.
    pub codec: Option<Codec>,
    /// With producer id and sequence numbers.
    pub idempotent: Option<bool>,
    /// Requests in flight.
    pub in_flight_max: Option<usize>,
    /// Bytes of a request.
    pub request_bytes_max: Option<usize>,
    /// Bytes that a producer holds.
    pub buffer_bytes: Option<usize>,
    /// Whether consumers begin at the first offset.
    pub from_earliest: Option<bool>,
    /// Bytes of a partition in an answer to a fetch.
    pub partition_bytes_max: Option<i32>,
    /// Bytes of an answer to a fetch.
    pub fetch_bytes_max: Option<i32>,
    /// Bytes below which the broker waits.
    pub fetch_bytes_min: Option<i32>,
    /// How long, in milliseconds.
    pub fetch_wait_ms: Option<i32>,
    /// 1 for committed records only.
    pub isolation: Option<i8>,
    /// Whether checksums are checked.
    pub check_crcs: Option<bool>,
}

impl Driver {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or has a key, property or value that is not known.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        Self::parse(path, &read(path)?)
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let entries = yaml::parse(text).map_err(|fault| wrong(path, fault.line, fault.what))?;
        let mut driver = Self::default();
        for entry in &entries {
            let refuse = |wanted: &str| {
                wrong(
                    path,
                    entry.line,
                    format!("{} is '{}'; it has to be {wanted}", entry.key, entry.value),
                )
            };
            match entry.key.as_str() {
                "name" => driver.name = Some(entry.value.clone()),
                // Redpanda's fork removes topics of earlier runs; those of ours have names of their own.
                "reset" => {}
                "driverClass" if entry.value.contains(".kafka.") || entry.value.contains(".redpanda.") => {}
                "driverClass" => {
                    return Err(refuse(
                        "the class of a Kafka driver, as io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver",
                    ));
                }
                "replicationFactor" => {
                    let factor = entry.value.parse().map_err(|_| refuse("a whole number"))?;
                    driver.replication_factor = Some(factor);
                }
                "topicConfig" => {
                    driver.topic_configs = properties(path, entry)?
                        .into_iter()
                        .map(|(name, value, _)| (name, value))
                        .collect()
                }
                "commonConfig" | "producerConfig" | "consumerConfig" => {
                    for (name, value, line) in properties(path, entry)? {
                        driver
                            .set(&name, &value)
                            .map_err(|what| wrong(path, line, what))?;
                    }
                }
                key => {
                    let what = format!(
                        "'{key}' is no key of a driver for Kafka; known are {}",
                        KNOWN.join(", ")
                    );
                    return Err(wrong(path, entry.line, what));
                }
            }
        }
        Ok(driver)
    }

    /// Takes one property of a client.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let refuse = |wanted: &str| format!("{name} is '{value}'; it has to be {wanted}");
        let bytes = || {
            value
                .parse::<usize>()
                .ok()
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| refuse("a number of bytes above 0"))
        };
        let bytes_i32 = || {
            value
                .parse::<i32>()
                .ok()
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| refuse("a number of bytes from 1 to 2147483647"))
        };
        let truth = || value.parse::<bool>().map_err(|_| refuse("true or false"));
        match name {
            "bootstrap.servers" => {
                let addresses = value.split(',').map(|one| Address::parse(one.trim()));
                self.bootstrap = addresses
                    .collect::<Option<_>>()
                    .ok_or_else(|| refuse("HOST:PORT, several with commas"))?;
            }
            "acks" => self.acks = Some(acks(value).ok_or_else(|| refuse("all, 1 or 0"))?),
            "linger.ms" => {
                let ms = value.parse().map_err(|_| refuse("a number of milliseconds"))?;
                self.linger = Some(Duration::from_millis(ms));
            }
            "batch.size" => self.batch_bytes = Some(bytes()?),
            "compression.type" => {
                let codec = Codec::ALL.into_iter().find(|codec| codec.name() == value);
                self.codec = Some(codec.ok_or_else(|| refuse("none, gzip, snappy, lz4 or zstd"))?);
            }
            "enable.idempotence" => self.idempotent = Some(truth()?),
            "max.in.flight.requests.per.connection" => {
                let count = value.parse().ok().filter(|count| *count > 0);
                self.in_flight_max = Some(count.ok_or_else(|| refuse("a number above 0"))?);
            }
            "max.request.size" => self.request_bytes_max = Some(bytes()?),
            "buffer.memory" => self.buffer_bytes = Some(bytes()?),
            "auto.offset.reset" => {
                self.from_earliest = Some(
                    one_of(value, ["latest", "earliest"]).ok_or_else(|| refuse("earliest or latest"))? == 1,
                );
            }
            "max.partition.fetch.bytes" => self.partition_bytes_max = Some(bytes_i32()?),
            "fetch.max.bytes" => self.fetch_bytes_max = Some(bytes_i32()?),
            "fetch.min.bytes" => self.fetch_bytes_min = Some(bytes_i32()?),
            "fetch.max.wait.ms" => {
                self.fetch_wait_ms = Some(value.parse().map_err(|_| refuse("a number of milliseconds"))?);
            }
            "isolation.level" => {
                let level = one_of(value, ["read_uncommitted", "read_committed"]);
                self.isolation = Some(level.ok_or_else(|| refuse("read_uncommitted or read_committed"))?);
            }
            "check.crcs" => self.check_crcs = Some(truth()?),
            "security.protocol" if value == "PLAINTEXT" => {}
            "security.protocol" => return Err(refuse("PLAINTEXT: this program speaks neither TLS nor SASL")),
            name if PASSED_OVER.contains(&name) => {}
            name => {
                return Err(format!(
                    "'{name}' is no property that this program knows; it acts on {}, and passes over {}",
                    PROPERTIES.join(", "),
                    PASSED_OVER.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// The place of a word among two.
fn one_of(word: &str, words: [&str; 2]) -> Option<i8> {
    (0..)
        .zip(words)
        .find(|(_, known)| *known == word)
        .map(|(place, _)| place)
}

/// The acks of a property or flag.
pub(crate) fn acks(text: &str) -> Option<i16> {
    match text {
        "all" | "-1" => Some(-1),
        "1" => Some(1),
        "0" => Some(0),
        _ => None,
    }
}

/// Lines `name=value` of a block, each with its line in the file.
fn properties(path: &Path, entry: &Entry) -> Result<Vec<(String, String, usize)>, Failure> {
    let mut found = Vec::new();
    for (text, line) in entry.value.lines().zip(entry.line + 1..) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((name, value)) = text.split_once('=') else {
            return Err(wrong(
                path,
                line,
                format!("'{text}' in {} is no 'name=value'", entry.key),
            ));
        };
        found.push((name.trim().to_owned(), value.trim().to_owned(), line));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\nreplicationFactor: 3\n\ntopicConfig: |\n  min.insync.replicas=2\n  flush.messages=1\n\ncommonConfig: |\n  bootstrap.servers=localhost:9092,other:9093\n  default.api.timeout.ms=1200000\n\nproducerConfig: |\n  acks=all\n  linger.ms=1\n  batch.size=131072\n  compression.type=lz4\n  enable.idempotence=true\n  max.in.flight.requests.per.connection=1\n  retries=2147483647\n\nconsumerConfig: |\n  auto.offset.reset=earliest\n  enable.auto.commit=false\n  max.partition.fetch.bytes=10485760\n";

    #[test]
    fn all_that_the_benchmark_s_own_drivers_have_is_read() {
        let driver = Driver::parse(Path::new("d.yaml"), FILE).expect("it is right");
        let address = |host: &str, port| Address {
            host: host.into(),
            port,
        };
        assert_eq!(
            driver,
            Driver {
                name: Some("Kafka".into()),
                replication_factor: Some(3),
                topic_configs: vec![
                    ("min.insync.replicas".into(), "2".into()),
                    ("flush.messages".into(), "1".into())
                ],
                bootstrap: vec![address("localhost", 9092), address("other", 9093)],
                acks: Some(-1),
                linger: Some(Duration::from_millis(1)),
                batch_bytes: Some(131_072),
                codec: Some(Codec::Lz4),
                idempotent: Some(true),
                in_flight_max: Some(1),
                from_earliest: Some(true),
                partition_bytes_max: Some(10_485_760),
                ..Driver::default()
            }
        );
    }

    #[test]
    fn a_wrong_property_is_named_with_file_line_and_what_is_known() {
        for (text, place, words) in [
            (
                "producerConfig: |\n  acks=all\n  linger=1\n",
                "d.yaml:3: ",
                "'linger' is no property that this program knows; it acts on bootstrap.servers, acks, linger.ms",
            ),
            ("producerConfig: |\n  acks=2\n", "d.yaml:2: ", "all, 1 or 0"),
            ("producerConfig: |\n  acks\n", "d.yaml:2: ", "no 'name=value'"),
            (
                "commonConfig: |\n  security.protocol=SSL\n",
                "d.yaml:2: ",
                "PLAINTEXT",
            ),
            ("producerConfig: |\n  batch.size=0\n", "d.yaml:2: ", "above 0"),
            (
                "name: x\nrese: true\n",
                "d.yaml:2: ",
                "'rese' is no key of a driver for Kafka; known are name",
            ),
            (
                "driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver\n",
                "d.yaml:1: ",
                "KafkaBenchmarkDriver",
            ),
        ] {
            let failure = Driver::parse(Path::new("d.yaml"), text).expect_err(text);
            assert!(
                failure.sentence.starts_with(place) && failure.sentence.contains(words),
                "{failure}"
            );
        }
    }
}
