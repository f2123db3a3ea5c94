//! The flags of `penstock-bench run`, as they are written and explained.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use protocol::compression::Codec;

use super::keys::Keys;
use super::values::{bytes, codec, duration, keys, load_words, pair};

/// What is written of `--rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateWords {
    /// Messages a second.
    Rate(f64),
    /// `max`.
    Maximum,
    /// `search`.
    Search,
}

/// Sends and consumes messages and reports latency and throughput.
///
/// With --rate messages are due on a schedule that does not wait for the broker, and each one's latency counts from when it was due.
/// Flags are stronger than --workload and --driver, which are files of the OpenMessaging benchmark.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub struct RunArguments {
    /// Brokers to begin with, HOST:PORT, several with commas [default: localhost:9092, or the driver's]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub bootstrap: Vec<String>,
    /// A workload file of the OpenMessaging benchmark
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// A driver file of the OpenMessaging benchmark, for Kafka
    #[arg(long, value_name = "FILE")]
    pub driver: Option<PathBuf>,
    /// Name of the run in reports
    #[arg(long)]
    pub name: Option<String>,

    /// Topics to make [default: 1]
    #[arg(long, help_heading = "Topics")]
    pub topics: Option<usize>,
    /// Partitions of each [default: 16]
    #[arg(long, help_heading = "Topics")]
    pub partitions: Option<u32>,
    /// Replicas [default: the broker's]
    #[arg(long, help_heading = "Topics")]
    pub replication_factor: Option<i16>,
    /// A config of the topics; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, help_heading = "Topics")]
    pub topic_config: Vec<(String, String)>,
    /// Topics that exist, several with commas, instead of new ones; they stay
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "topics",
        help_heading = "Topics"
    )]
    pub topic: Vec<String>,
    /// Leave new topics where they are
    #[arg(long, help_heading = "Topics")]
    pub keep_topics: bool,

    /// Producers, each on a connection of its own, of all topics together [default: 1]
    #[arg(long, help_heading = "Producers")]
    pub producers: Option<usize>,
    /// Messages a second of all producers; `max` for as fast as they are answered; `search` for the highest rate within the bounds
    /// [default: 10000]
    #[arg(long, value_name = "N|max|search", value_parser = load_words, help_heading = "Producers")]
    pub rate: Option<RateWords>,
    /// Bytes of a message's value [default: 1024]
    #[arg(long, value_parser = bytes, help_heading = "Producers")]
    pub message_size: Option<u64>,
    /// The value of all messages: the content of this file
    #[arg(long, value_name = "FILE", help_heading = "Producers")]
    pub payload_file: Option<PathBuf>,
    /// Share of each value that is random, 0 to 1; the rest is zeros [default: 0.5]
    #[arg(long, help_heading = "Producers")]
    pub random_bytes_ratio: Option<f64>,
    /// Different values [default: 1000]
    #[arg(long, help_heading = "Producers")]
    pub payload_pool: Option<usize>,
    /// Keys: `none` (a batch's worth to a partition, then to another), `none-round-robin`, `round-robin`, `random`, `zipf` or
    /// `zipf:EXPONENT` [default: none]
    #[arg(long, value_parser = keys, help_heading = "Producers")]
    pub keys: Option<Keys>,
    /// Different keys [default: 10000]
    #[arg(long, help_heading = "Producers")]
    pub key_count: Option<usize>,
    /// Bytes of a batch at which it is sent at once [default: 16384]
    #[arg(long, value_parser = bytes, help_heading = "Producers")]
    pub batch_size: Option<u64>,
    /// How long a batch waits for more messages, as 5ms [default: 5ms]
    #[arg(long, value_parser = duration, help_heading = "Producers")]
    pub linger: Option<Duration>,
    /// none, gzip, snappy, lz4 or zstd [default: none]
    #[arg(long, value_parser = codec, help_heading = "Producers")]
    pub codec: Option<Codec>,
    /// Level of the codec [default: the codec's]
    #[arg(long, allow_negative_numbers = true, help_heading = "Producers")]
    pub level: Option<i32>,
    /// all, 1 or 0 [default: all]
    #[arg(long, allow_negative_numbers = true, help_heading = "Producers")]
    pub acks: Option<String>,
    /// With producer id and sequence numbers [default: as Kafka's clients, with acks=all; not with --pre-encoded]
    #[arg(long, value_name = "BOOL", help_heading = "Producers")]
    pub idempotent: Option<bool>,
    /// Requests of a connection without an answer [default: 5]
    #[arg(long, help_heading = "Producers")]
    pub max_in_flight: Option<usize>,
    /// Bytes of a request [default: 1MiB]
    #[arg(long, value_parser = bytes, help_heading = "Producers")]
    pub max_request_size: Option<u64>,
    /// Bytes that a producer holds unsent [default: 32MiB]
    #[arg(long, value_parser = bytes, help_heading = "Producers")]
    pub buffer_memory: Option<u64>,
    /// Send batches that were made before the run: the least cost for this program. Keys and linger do not apply
    #[arg(long, help_heading = "Producers")]
    pub pre_encoded: bool,

    /// Consumers of each subscription; they share the partitions without a group [default: 1]
    #[arg(long, help_heading = "Consumers")]
    pub consumers: Option<usize>,
    /// How often everything is consumed [default: 1]
    #[arg(long, help_heading = "Consumers")]
    pub subscriptions: Option<usize>,
    /// Bytes of an answer to a fetch [default: 50MiB]
    #[arg(long, value_parser = bytes, help_heading = "Consumers")]
    pub fetch_max_bytes: Option<u64>,
    /// Bytes of a partition in it [default: 1MiB]
    #[arg(long, value_parser = bytes, help_heading = "Consumers")]
    pub partition_fetch_bytes: Option<u64>,
    /// Bytes below which the broker waits for more [default: 1]
    #[arg(long, value_parser = bytes, help_heading = "Consumers")]
    pub fetch_min_bytes: Option<u64>,
    /// How long it waits [default: 500ms]
    #[arg(long, value_parser = duration, help_heading = "Consumers")]
    pub fetch_wait: Option<Duration>,
    /// Check the checksum of each batch, as Java's client does
    #[arg(long, help_heading = "Consumers")]
    pub check_crcs: bool,
    /// Begin at the first offset of topics given with --topic, not at their end
    #[arg(long, help_heading = "Consumers")]
    pub from_beginning: bool,

    /// Time before anything counts, as 30s or 1m [default: 10s]
    #[arg(long, value_parser = duration, help_heading = "Time")]
    pub warmup: Option<Duration>,
    /// Time that counts [default: 30s]
    #[arg(long, value_parser = duration, help_heading = "Time")]
    pub time: Option<Duration>,
    /// End when so many bytes of batches are acknowledged, though the time is not over, as 4GB
    #[arg(long, value_parser = bytes, help_heading = "Time")]
    pub max_bytes: Option<u64>,
    /// Time between two figures of the series [default: 1s]
    #[arg(long, value_parser = duration, help_heading = "Time")]
    pub interval: Option<Duration>,
    /// How long brokers may take to create topics, and at the end until all is answered and consumed [default: 60s]
    #[arg(long, value_parser = duration, help_heading = "Time")]
    pub timeout: Option<Duration>,

    /// Consumers wait until so many bytes of messages are there, as 2GB; then their draining them is measured
    #[arg(long, value_parser = bytes, help_heading = "Backlog and search")]
    pub backlog: Option<u64>,
    /// Build the backlog as fast as possible; drain it beside --rate
    #[arg(long, help_heading = "Backlog and search")]
    pub backlog_fast: bool,
    /// The share of the backlog that is to be drained [default: 1]
    #[arg(long, help_heading = "Backlog and search")]
    pub backlog_drain_ratio: Option<f64>,
    /// Bound of p99 of produce latency in a search, milliseconds [default: 100]
    #[arg(long, help_heading = "Backlog and search")]
    pub search_p99_ms: Option<f64>,
    /// Bound of what consumers may be behind, as a time [default: 2s]
    #[arg(long, value_parser = duration, help_heading = "Backlog and search")]
    pub search_behind: Option<Duration>,
    /// The first rate, messages a second [default: 10000]
    #[arg(long, help_heading = "Backlog and search")]
    pub search_from: Option<f64>,
    /// Time of a step, of which the first third does not count [default: 6s]
    #[arg(long, value_parser = duration, help_heading = "Backlog and search")]
    pub search_step: Option<Duration>,
    /// How close the highest rate that holds and the lowest that does not are to be [default: 0.05]
    #[arg(long, help_heading = "Backlog and search")]
    pub search_precision: Option<f64>,

    /// Process id of the broker on this host: its CPU and memory are reported
    #[arg(long, help_heading = "Reports")]
    pub pid: Option<u32>,
    /// Threads of this program [default: half of the processors]
    #[arg(long, help_heading = "Reports")]
    pub threads: Option<usize>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub json: Option<PathBuf>,
    /// Write the results as Markdown; without it they go to standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub markdown: Option<PathBuf>,
    /// Write a page with plots that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub html: Option<PathBuf>,
    /// No line each interval on standard error
    #[arg(long, short, help_heading = "Reports")]
    pub quiet: bool,
}

const EXAMPLES: &str = "Examples:
  penstock-bench run --rate 10000 --linger 0ms --time 60s --html steady.html
      latency of 10,000 messages of 1 KiB a second, each sent at once
  penstock-bench run --rate max --producers 4 --batch-size 128KiB --pre-encoded --consumers 0
      what the broker takes, at the least cost for this program
  penstock-bench run --rate search --search-p99-ms 20 --pid $(pidof penstock)
      the highest rate whose p99 is at most 20 ms, and what the broker uses for it
  penstock-bench run --rate 50000 --backlog 4GB
      consumers wait until 4 GB are there; how fast they drain them beside the producers
  penstock-bench run --workload 1-topic-16-partitions-1kb.yaml --driver kafka-latency.yaml --time 5m
      an OpenMessaging workload, with another duration

Exit status: 0, or as sysexits(3) has it: 64 a wrong flag, 65 a wrong file or refused messages, 69 a broker that is not there,
71 the system refuses, 74 a report that cannot be written, 75 what was not done in time, 76 a peer that does not speak Kafka.";
