//! The broker that is loaded, its topics, and what it and the client used meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use broker::client::frame;
use protocol::DecodeLimits;
use protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use protocol::{ErrorCode, Str};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::producers::Produced;
use crate::compare::Kind;
use crate::error::{Doing, Error, Result, failed};
use crate::kafka::{Kafka, KafkaOptions};
use crate::process::{Broker, Profile};
use crate::report::percentile;
use crate::resources::usage;

/// How long a graceful stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const CREATE_VERSION: i16 = 5;

/// A broker that runs.
pub(super) enum Host {
    Ours(Box<Broker>),
    Kafkas(Kafka),
}

impl Host {
    /// Starts one with empty data below `dir`.
    pub(super) fn start(kind: Kind, dir: &Path, overrides: &[&str]) -> Result<Self> {
        if dir.exists() {
            std::fs::remove_dir_all(dir).doing(dir.display())?;
        }
        std::fs::create_dir_all(dir).doing(dir.display())?;
        match kind {
            Kind::Penstock => {
                let mut broker = Broker::new(Profile::Release, dir, overrides)?;
                broker.start(None)?;
                Ok(Self::Ours(Box::new(broker)))
            }
            Kind::Kafka => {
                let ours = |setting: &&&str| !setting.starts_with("penstock.");
                let overrides: Vec<&str> = overrides.iter().filter(ours).copied().collect();
                Ok(Self::Kafkas(Kafka::start(&KafkaOptions::new(
                    dir, "1g", &overrides,
                )?)?))
            }
        }
    }

    /// Stops it and removes the data.
    pub(super) fn end(self, dir: &Path) -> Result<()> {
        if let Self::Ours(mut broker) = self {
            broker.terminate(STOP_LIMIT)?;
        }
        std::fs::remove_dir_all(dir).doing(dir.display())
    }

    pub(super) fn bootstrap(&self) -> String {
        match self {
            Self::Ours(broker) => broker.bootstrap(),
            Self::Kafkas(kafka) => kafka.bootstrap(),
        }
    }

    fn pid(&self) -> Result<u32> {
        match self {
            Self::Ours(broker) => broker
                .pid()
                .ok_or_else(|| Error::Failed("the broker ended".into())),
            Self::Kafkas(kafka) => Ok(kafka.pid()),
        }
    }

    /// The segment files of a topic of ours, in order.
    pub(super) fn segments(&self, topic: &str) -> Result<Vec<PathBuf>> {
        let Self::Ours(broker) = self else {
            return Ok(Vec::new());
        };
        let dir = broker.data_dir();
        let mut out = Vec::new();
        for entry in std::fs::read_dir(&dir).doing(dir.display())? {
            let folder = entry.doing(dir.display())?.path();
            let name = folder
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let is_of_topic = name
                .rsplit_once('-')
                .is_some_and(|(before, number)| before == topic && number.parse::<u32>().is_ok());
            if !is_of_topic {
                continue;
            }
            for file in std::fs::read_dir(&folder).doing(folder.display())? {
                let path = file.doing(folder.display())?.path();
                if path.extension().is_some_and(|extension| extension == "log") {
                    out.push(path);
                }
            }
        }
        out.sort();
        Ok(out)
    }

    fn metric(&self, name: &str) -> Result<f64> {
        match self {
            Self::Ours(broker) => broker.metric(name),
            Self::Kafkas(_) => Ok(0.0),
        }
    }
}

/// Creates a topic.
///
/// # Errors
/// The broker refuses.
pub(super) async fn create_topic(
    bootstrap: &str,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<()> {
    let config = |(key, value): &(&str, &str)| CreatableTopicConfig {
        name: Str::from((*key).to_owned()),
        value: Some(Str::from((*value).to_owned())),
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: Str::from(name.to_owned()),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        }],
        timeout_ms: 60_000,
        ..Default::default()
    };
    let sent = frame::encode(CREATE_VERSION, 1, "storage-load", &request).expect("it can be encoded");
    let mut stream = TcpStream::connect(bootstrap).await.doing(bootstrap)?;
    stream.write_all(&sent).await.doing("creating a topic")?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.doing("creating a topic")?;
    let mut answer = vec![0; (u32::from_be_bytes(head) as usize).min(1 << 20)];
    stream.read_exact(&mut answer).await.doing("creating a topic")?;
    let limits = DecodeLimits::TRUSTED;
    let answer = frame::decode::<CreateTopicsRequest>(answer.into(), CREATE_VERSION, 1, limits)
        .map_err(Error::Failed)?;
    match answer
        .topics
        .iter()
        .find(|topic| topic.error_code != ErrorCode::NONE)
    {
        Some(topic) => failed(format!("topic {name} is refused: {:?}", topic.error_code)),
        None => Ok(()),
    }
}

/// What a run measured; what it does not measure is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// MB (10^6 bytes of batches) a second.
    pub(super) megabytes_per_second: f64,
    pub(super) batches_per_second: f64,
    pub(super) records_per_second: f64,
    /// Percentiles 50, 99 and 99.9 and the longest time of a request, milliseconds.
    pub(super) latency_ms: [f64; 4],
    /// CPU of the broker and of this client, cores.
    pub(super) cores: f64,
    pub(super) client_cores: f64,
    /// Batches of a group commit, kilobytes of one, and the part of the time in which one waited for a sync, of one shard.
    pub(super) commit_batches: f64,
    pub(super) commit_kilobytes: f64,
    pub(super) sync_share: f64,
    pub(super) resident_megabytes: f64,
}

/// The state of a broker at a moment.
pub(super) struct Meter {
    at: Instant,
    cpu: f64,
    client_cpu: f64,
    counters: [f64; 4],
}

const COUNTERS: [&str; 4] = [
    "penstock_commits_total",
    "penstock_batches_appended_total",
    "penstock_commit_bytes_total",
    "penstock_commit_sync_seconds_total",
];

impl Meter {
    pub(super) fn start(host: &Host) -> Result<Self> {
        let mut counters = [0.0; 4];
        for (counter, name) in counters.iter_mut().zip(COUNTERS) {
            *counter = host.metric(name)?;
        }
        Ok(Self {
            at: Instant::now(),
            cpu: usage(host.pid()?)?.cpu_seconds,
            client_cpu: usage(std::process::id())?.cpu_seconds,
            counters,
        })
    }

    /// What was used from here to `end`, and what came of the load.
    pub(super) fn figures(&self, end: &Self, host: &Host, produced: &Produced) -> Result<Figures> {
        let seconds = (end.at - self.at).as_secs_f64().max(1e-9);
        let [commits, batches, bytes, synced] =
            std::array::from_fn(|index| end.counters[index] - self.counters[index]);
        let per_second = |count: u64| count as f64 / produced.seconds.max(1e-9);
        Ok(Figures {
            megabytes_per_second: per_second(produced.bytes) / 1e6,
            batches_per_second: per_second(produced.batches),
            records_per_second: per_second(produced.records),
            latency_ms: latencies(produced.samples.iter().map(|sample| sample.took)),
            cores: (end.cpu - self.cpu) / seconds,
            client_cores: (end.client_cpu - self.client_cpu) / seconds,
            commit_batches: batches / commits.max(1.0),
            commit_kilobytes: bytes / 1e3 / commits.max(1.0),
            sync_share: synced / seconds / shards(host)?,
            resident_megabytes: usage(host.pid()?)?.resident_bytes as f64 / 1e6,
        })
    }
}

/// The shards of a broker of ours.
fn shards(host: &Host) -> Result<f64> {
    let Host::Ours(broker) = host else { return Ok(1.0) };
    let (_, text) = broker.admin("/metrics")?;
    let samples = text
        .lines()
        .filter(|line| line.starts_with("penstock_commits_total{"));
    Ok(samples.count().max(1) as f64)
}

/// Percentiles 50, 99, 99.9 and 100 in milliseconds.
pub(super) fn latencies(times: impl Iterator<Item = Duration>) -> [f64; 4] {
    let mut sorted: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    [0.5, 0.99, 0.999, 1.0].map(|share| percentile(&sorted, share))
}
