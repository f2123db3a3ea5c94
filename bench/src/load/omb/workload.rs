//! A workload file of the OpenMessaging benchmark.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use broker::exit::Failure;

use super::yaml::{self, Entry};
use super::{read, wrong};

/// Keys that are known.
const KNOWN: [&str; 17] = [
    "name",
    "topics",
    "partitionsPerTopic",
    "keyDistributor",
    "messageSize",
    "useRandomizedPayloads",
    "randomBytesRatio",
    "randomizedPayloadPoolSize",
    "payloadFile",
    "subscriptionsPerTopic",
    "producersPerTopic",
    "consumerPerSubscription",
    "producerRate",
    "consumerBacklogSizeGB",
    "backlogDrainRatio",
    "testDurationMinutes",
    "warmupDurationMinutes",
];

/// Which keys messages have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyDistributor {
    /// None.
    #[default]
    NoKey,
    /// One after the other of a set.
    KeyRoundRobin,
    /// Any of the set.
    RandomNano,
}

/// A workload. What a file leaves out is as the benchmark has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name.
    pub name: String,
    /// Topics.
    pub topics: usize,
    /// Partitions of each.
    pub partitions_per_topic: u32,
    /// Keys.
    pub key_distributor: KeyDistributor,
    /// Bytes of a message.
    pub message_size: usize,
    /// Whether values are made, with this random share and so many different ones.
    pub randomized: Option<(f64, usize)>,
    /// The file of the one value otherwise.
    pub payload_file: Option<PathBuf>,
    /// Groups of consumers of each topic.
    pub subscriptions_per_topic: usize,
    /// Producers of each topic.
    pub producers_per_topic: usize,
    /// Consumers of a topic in a group.
    pub consumers_per_subscription: usize,
    /// Messages a second of all producers; 0 to look for the highest rate.
    pub producer_rate: f64,
    /// GiB of a backlog; 0 for none.
    pub consumer_backlog_gib: f64,
    /// The share of it to drain.
    pub backlog_drain_ratio: f64,
    /// Minutes that count.
    pub test_minutes: f64,
    /// Minutes before.
    pub warmup_minutes: f64,
}

impl Workload {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or has a key or value that is not known.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        Self::parse(path, &read(path)?)
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let entries = yaml::parse(text).map_err(|fault| wrong(path, fault.line, fault.what))?;
        for entry in &entries {
            if !KNOWN.contains(&entry.key.as_str()) {
                let what = format!(
                    "'{}' is no key of a workload; known are {}",
                    entry.key,
                    KNOWN.join(", ")
                );
                return Err(wrong(path, entry.line, what));
            }
        }
        let keys = Keys {
            path,
            entries: &entries,
        };
        let randomized = keys.value("useRandomizedPayloads", false)?;
        let share = keys.value("randomBytesRatio", 0.0)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(keys.refuse("randomBytesRatio", "a number from 0 to 1"));
        }
        let pool = keys.value("randomizedPayloadPoolSize", 0)?;
        let key_distributor = match keys.text("keyDistributor") {
            None | Some("" | "NO_KEY") => KeyDistributor::NoKey,
            Some("KEY_ROUND_ROBIN") => KeyDistributor::KeyRoundRobin,
            Some("RANDOM_NANO") => KeyDistributor::RandomNano,
            Some(_) => return Err(keys.refuse("keyDistributor", "NO_KEY, KEY_ROUND_ROBIN or RANDOM_NANO")),
        };
        Ok(Self {
            name: keys.text("name").unwrap_or("workload").to_owned(),
            topics: keys.value("topics", 0)?,
            partitions_per_topic: keys.value("partitionsPerTopic", 0)?,
            key_distributor,
            message_size: keys.value("messageSize", 0)?,
            randomized: randomized.then_some((share, pool)),
            payload_file: keys
                .text("payloadFile")
                .filter(|file| !file.is_empty())
                .map(PathBuf::from),
            subscriptions_per_topic: keys.value("subscriptionsPerTopic", 0)?,
            producers_per_topic: keys.value("producersPerTopic", 0)?,
            consumers_per_subscription: keys.value("consumerPerSubscription", 0)?,
            producer_rate: keys.value("producerRate", 0.0)?,
            consumer_backlog_gib: keys.value("consumerBacklogSizeGB", 0.0)?,
            backlog_drain_ratio: keys.value("backlogDrainRatio", 1.0)?,
            test_minutes: keys.value("testDurationMinutes", 0.0)?,
            warmup_minutes: keys.value("warmupDurationMinutes", 1.0)?,
        })
    }
}

struct Keys<'a> {
    path: &'a Path,
    entries: &'a [Entry],
}

impl Keys<'_> {
    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.entry(key).map(|entry| entry.value.as_str())
    }

    fn value<T: FromStr>(&self, key: &str, absent: T) -> Result<T, Failure> {
        let kind = std::any::type_name::<T>();
        let kind = match kind {
            "bool" => "true or false",
            "f64" => "a number",
            _ => "a whole number, not negative",
        };
        match self.text(key).filter(|text| !text.is_empty()) {
            None => Ok(absent),
            Some(text) => text.parse().map_err(|_| self.refuse(key, kind)),
        }
    }

    fn refuse(&self, key: &str, wanted: &str) -> Failure {
        let entry = self.entry(key);
        let found = entry.map_or("", |entry| entry.value.as_str());
        let line = entry.map_or(0, |entry| entry.line);
        wrong(
            self.path,
            line,
            format!("{key} is '{found}'; it has to be {wanted}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name: 1 topic / 16 partitions / 1Kb\n\ntopics: 1\npartitionsPerTopic: 16\nkeyDistributor: \"KEY_ROUND_ROBIN\"\nmessageSize: 1024\npayloadFile: \"payload/payload-1Kb.data\"\nuseRandomizedPayloads: true\nrandomBytesRatio: 0.5\nrandomizedPayloadPoolSize: 1000\nsubscriptionsPerTopic: 2\nconsumerPerSubscription: 4\nproducersPerTopic: 3\nproducerRate: 50000\nconsumerBacklogSizeGB: 100\nbacklogDrainRatio: 0.9\ntestDurationMinutes: 15\n";

    #[test]
    fn all_keys_are_read() {
        let workload = Workload::parse(Path::new("w.yaml"), FILE).expect("it is right");
        assert_eq!(
            workload,
            Workload {
                name: "1 topic / 16 partitions / 1Kb".into(),
                topics: 1,
                partitions_per_topic: 16,
                key_distributor: KeyDistributor::KeyRoundRobin,
                message_size: 1024,
                randomized: Some((0.5, 1000)),
                payload_file: Some("payload/payload-1Kb.data".into()),
                subscriptions_per_topic: 2,
                producers_per_topic: 3,
                consumers_per_subscription: 4,
                producer_rate: 50_000.0,
                consumer_backlog_gib: 100.0,
                backlog_drain_ratio: 0.9,
                test_minutes: 15.0,
                warmup_minutes: 1.0,
            }
        );
    }

    #[test]
    fn a_wrong_key_or_value_is_named_with_file_line_and_what_would_be_right() {
        for (text, place, words) in [
            (
                "topics: 1\nproducerRat: 5\n",
                "w.yaml:2: ",
                "'producerRat' is no key of a workload; known are name, topics",
            ),
            (
                "topics: many\n",
                "w.yaml:1: ",
                "topics is 'many'; it has to be a whole number",
            ),
            ("producerRate: fast\n", "w.yaml:1: ", "a number"),
            ("useRandomizedPayloads: yes\n", "w.yaml:1: ", "true or false"),
            ("randomBytesRatio: 2\n", "w.yaml:1: ", "from 0 to 1"),
            (
                "name: x\nkeyDistributor: ANY\n",
                "w.yaml:2: ",
                "NO_KEY, KEY_ROUND_ROBIN or RANDOM_NANO",
            ),
            ("name: [x]\n", "w.yaml:1: ", "'['"),
        ] {
            let failure = Workload::parse(Path::new("w.yaml"), text).expect_err(text);
            assert!(failure.sentence.starts_with(place), "{failure}");
            assert!(failure.sentence.contains(words), "{failure}");
        }
        let failure = Workload::read(Path::new("/nowhere/w.yaml")).expect_err("it is not there");
        assert!(
            failure.sentence.starts_with("/nowhere/w.yaml: cannot be read"),
            "{failure}"
        );
    }
}
