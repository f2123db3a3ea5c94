//! What a seed decides before anything runs: sizes, speeds, faults, clients. Each group is drawn from its own stream and some
//! features are off in some seeds (swarm testing), so that seeds differ in kind and not only in order.

use std::time::Duration;

use shard::config::Overrides;
use storage::commit::CommitLimits;
use storage::disk::sim::{DiskOp, SimDiskConfig, SimLatency};
use storage::journal::JournalOptions;
use storage::sim_rng::{PPM, SimRng};
use storage::store::StoreOptions;

/// Everything a seed decides.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// The seed.
    pub seed: u64,
    /// Shards in each run of the broker, the last one without faults.
    pub shards: Vec<u16>,
    /// The broker's log directories, each with a file system of its own.
    pub log_dirs: usize,
    /// Topics and the partitions of each.
    pub topics: Vec<i32>,
    /// How each run of the broker but the last one ends.
    pub ends: Vec<End>,
    /// The broker's storage.
    pub storage: StorageKnobs,
    /// The network.
    pub net: NetKnobs,
    /// The producers.
    pub producers: Vec<ProducerKnobs>,
    /// The consumers.
    pub consumers: Vec<ConsumerKnobs>,
    /// Clients that send what must be refused.
    pub vandals: u32,
    /// Whether a client creates and deletes topics all the while.
    pub admin: bool,
    /// Whether a client deletes records all the while.
    pub trimmer: bool,
    /// Whether a client alters configurations all the while.
    pub tuner: bool,
    /// Whether it alters durability classes too. Then no power is lost: only class `fsync` survives that.
    pub classes: bool,
    /// Broker configuration as written in its file.
    pub fixed: Overrides,
    /// Acknowledgements after which the disk is examined at once, per million.
    pub probe_ppm: u32,
}

/// How a run of the broker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power fails at this mutation of the disk.
    PowerLoss {
        /// Mutations from the start on, 1 is the first.
        at_mutation: u64,
    },
    /// The process is killed when the disk is given this mutation.
    Kill {
        /// As above.
        at_mutation: u64,
    },
    /// The process is killed after this time.
    KillAfter(Duration),
    /// It is told to stop after this time.
    Stop(Duration),
    /// The disk fails: it refuses some operations of one kind.
    DiskFails(DiskFailure),
    /// The disk fills up: so many more bytes go in.
    DiskFills {
        /// Bytes above what is in use at the start of the run.
        bytes: u64,
        /// Whether the power is lost afterwards; otherwise the process is killed.
        power_loss: bool,
    },
}

/// A disk that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFailure {
    /// What it refuses.
    pub op: DiskOp,
    /// Operations of the kind that pass before.
    pub passed: u32,
    /// Operations that are refused.
    pub times: u32,
    /// Whether the power is lost afterwards; otherwise the process is killed.
    pub power_loss: bool,
}

/// The operations that a failing disk refuses: writes and syncs more often, whose failure ends the run.
const FAILING: [DiskOp; 14] = [
    DiskOp::Write,
    DiskOp::Write,
    DiskOp::Write,
    DiskOp::Sync,
    DiskOp::Sync,
    DiskOp::Sync,
    DiskOp::SyncFilesystem,
    DiskOp::SyncDir,
    DiskOp::Allocate,
    DiskOp::Create,
    DiskOp::Rename,
    DiskOp::Truncate,
    DiskOp::RemoveFile,
    DiskOp::Read,
];

/// Storage of the simulated broker.
#[derive(Clone, Debug)]
pub struct StorageKnobs {
    /// Bytes of a segment.
    pub segment_bytes: i32,
    /// Bytes between index entries.
    pub index_interval_bytes: i32,
    /// Sizes of the store.
    pub options: StoreOptions,
    /// How long a commit waits for more records.
    pub linger: Duration,
    /// The disk.
    pub disk: SimDiskConfig,
    /// Outcomes of each crash that are looked at beside the one that is gone on with.
    pub outcomes: u32,
}

/// The network.
#[derive(Clone, Debug)]
pub struct NetKnobs {
    /// Bytes under way in one direction of a connection, least and most.
    pub buffer_bytes: (u64, u64),
    /// How long a piece is under way.
    pub latency: (Duration, Duration),
    /// Connections that carry tiny pieces, per million.
    pub small_pieces_ppm: u32,
    /// A connection is cut about this often; `None` is never.
    pub cut_every: Option<Duration>,
}

/// One producer.
#[derive(Clone, Debug)]
pub struct ProducerKnobs {
    /// `enable.idempotence`.
    pub idempotent: bool,
    /// 0, 1 or −1.
    pub acks: i16,
    /// Version of Produce.
    pub version: i16,
    /// `max.in.flight.requests.per.connection`.
    pub in_flight_max: usize,
    /// Records to send to each of its partitions.
    pub records: u32,
    /// Records in a batch, at most.
    pub batch_records_max: u32,
    /// Bytes of a value, at most.
    pub value_bytes_max: u32,
    /// Codec bits of its batches.
    pub codec: i16,
    /// Its partitions: topic and index.
    pub partitions: Vec<(usize, i32)>,
    /// Batches of different partitions in one request, at most.
    pub request_batches_max: usize,
    /// Waits up to this long between requests.
    pub pause: Duration,
    /// `request.timeout.ms` as the broker is told.
    pub timeout_ms: i32,
}

/// One consumer.
#[derive(Clone, Debug)]
pub struct ConsumerKnobs {
    /// Version of Fetch.
    pub version: i16,
    /// Uses fetch sessions.
    pub session: bool,
    /// `fetch.max.wait.ms`.
    pub wait_ms: i32,
    /// `fetch.min.bytes`.
    pub bytes_min: i32,
    /// `fetch.max.bytes`.
    pub bytes_max: i32,
    /// `max.partition.fetch.bytes`.
    pub partition_bytes_max: i32,
    /// 0 read uncommitted, 1 read committed.
    pub isolation: i8,
    /// Waits up to this long between fetches.
    pub pause: Duration,
}

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few clients and some hundred records: for every crash point.
    Small,
    /// Half a dozen clients and thousands of records.
    Normal,
}

impl Knobs {
    /// What `seed` decides for a run of that size.
    #[must_use]
    pub fn draw(seed: u64, size: Size) -> Self {
        let mut rng = SimRng::new(seed, "shape");
        let small = size == Size::Small;
        let topics: Vec<i32> = (0..rng.between(1, if small { 1 } else { 3 }))
            .map(|_| number(&mut rng, 1, if small { 3 } else { 4 }))
            .collect();
        let restarts = if small { 1 } else { rng.between(1, 5) };
        let shards = (0..=restarts).map(|_| number(&mut rng, 1, 4)).collect();
        let ends: Vec<End> = (0..restarts).map(|_| End::draw(&mut rng)).collect();
        let keeps_power = !ends.iter().any(|end| end.loses_power());
        let producers = (0..rng.between(1, if small { 2 } else { 5 }))
            .map(|index| ProducerKnobs::draw(seed, index, &topics, small))
            .collect();
        let consumers = (0..rng.between(1, if small { 1 } else { 3 }))
            .map(|index| ConsumerKnobs::draw(seed, index))
            .collect();
        let log_dirs = log_dirs(seed);
        let mut storage = StorageKnobs::draw(seed, small);
        storage.disk.file_system_per_dir = log_dirs > 1;
        Self {
            seed,
            shards,
            log_dirs,
            topics,
            ends,
            storage,
            net: NetKnobs::draw(seed),
            producers,
            consumers,
            vandals: if small { 0 } else { number(&mut rng, 0, 2) },
            admin: rng.coin() && !small,
            trimmer: rng.coin(),
            tuner: rng.coin() && !small,
            classes: keeps_power && !small,
            fixed: fixed(seed),
            probe_ppm: if rng.coin() { 20_000 } else { 0 },
        }
    }
}

/// Two in one seed of four.
fn log_dirs(seed: u64) -> usize {
    let several = SimRng::new(seed, "log directories").chance(PPM / 4);
    1 + usize::from(several)
}

/// None in three seeds of four.
fn linger(seed: u64) -> Duration {
    let mut rng = SimRng::new(seed, "commit linger");
    if rng.chance(PPM / 4) {
        Duration::from_micros(rng.between(1, 5000))
    } else {
        Duration::ZERO
    }
}

fn fixed(seed: u64) -> Overrides {
    let mut rng = SimRng::new(seed, "configuration");
    let mut fixed = Overrides::new();
    if rng.coin() {
        let bytes = rng.between(1, 10_000);
        let key = "metadata.log.max.record.bytes.between.snapshots";
        fixed.insert(key.to_owned(), bytes.to_string());
    }
    fixed
}

impl End {
    fn draw(rng: &mut SimRng) -> Self {
        // Small numbers hit recovery and the creation of topics, large ones a broker at work.
        let at_mutation = match rng.below(4) {
            0 => rng.between(1, 60),
            1 => rng.between(1, 300),
            _ => rng.between(100, 3000),
        };
        let after = Duration::from_micros(rng.between(1, 200_000));
        let passed_max = if rng.coin() { 20 } else { 400 };
        match rng.below(12) {
            0..=3 => Self::PowerLoss { at_mutation },
            4 | 5 => Self::Kill { at_mutation },
            6 => Self::KillAfter(after),
            7 => Self::Stop(after),
            8 => Self::DiskFills {
                bytes: rng.below(2 << 20),
                power_loss: rng.coin(),
            },
            _ => Self::DiskFails(DiskFailure {
                op: FAILING[rng.index(FAILING.len())],
                passed: number(rng, 0, passed_max),
                times: if rng.coin() { 1 } else { u32::MAX },
                power_loss: rng.coin(),
            }),
        }
    }

    /// Whether the power is lost at the end of the run.
    #[must_use]
    pub fn loses_power(self) -> bool {
        match self {
            Self::PowerLoss { .. } => true,
            Self::DiskFails(DiskFailure { power_loss, .. }) | Self::DiskFills { power_loss, .. } => {
                power_loss
            }
            Self::Kill { .. } | Self::KillAfter(_) | Self::Stop(_) => false,
        }
    }

    /// Whether the disk fails in the run.
    #[must_use]
    pub fn fails_disk(self) -> bool {
        matches!(self, Self::DiskFails(_) | Self::DiskFills { .. })
    }
}

impl StorageKnobs {
    fn draw(seed: u64, small: bool) -> Self {
        let mut rng = SimRng::new(seed, "storage");
        let kib = |rng: &mut SimRng, low: u64, high: u64| rng.between(low, high) << 10;
        let bytes = |value: u64| usize::try_from(value).expect("a size fits");
        let options = StoreOptions {
            cache_bytes: bytes(kib(&mut rng, 16, 1024)),
            staged_bytes_max: bytes(kib(&mut rng, 512, 4096)),
            unwritten_bytes_max: bytes(kib(&mut rng, 64, 1024)),
            write_behind_bytes: bytes(kib(&mut rng, 8, 256)),
            journal: JournalOptions {
                file_bytes: kib(&mut rng, 16, if small { 64 } else { 256 }) & !4095,
                files_max: bytes(rng.between(2, 4)),
            },
            commit: CommitLimits {
                bytes_max: bytes(kib(&mut rng, 8, 256)),
                direct_logs_max: bytes(rng.between(0, 4)),
                ..CommitLimits::default()
            },
            is_journal_filled: SimRng::new(seed, "journal fill").coin(),
            ..StoreOptions::default()
        };
        let mut latency = SimLatency::default();
        if rng.chance(PPM / 4) {
            latency.slow_ppm = 100_000;
        }
        if rng.chance(PPM / 4) {
            latency.sync = (Duration::from_millis(1), Duration::from_millis(20));
        }
        let disk = SimDiskConfig {
            seed: rng.next_u64(),
            latency,
            garbage_tails: rng.coin(),
            ..SimDiskConfig::default()
        };
        Self {
            segment_bytes: i32::try_from(kib(&mut rng, 48, if small { 64 } else { 256 })).expect("small"),
            index_interval_bytes: i32::try_from(rng.between(1, 4096)).expect("small"),
            options,
            linger: linger(seed),
            disk,
            outcomes: if small { 1 } else { 3 },
        }
    }
}

impl NetKnobs {
    fn draw(seed: u64) -> Self {
        let mut rng = SimRng::new(seed, "network");
        let micros = Duration::from_micros;
        Self {
            buffer_bytes: if rng.chance(PPM / 4) {
                (64, 4096)
            } else {
                (16 << 10, 256 << 10)
            },
            latency: if rng.coin() {
                (micros(5), micros(100))
            } else {
                (micros(50), micros(5000))
            },
            small_pieces_ppm: if rng.chance(PPM / 4) { 200_000 } else { 0 },
            cut_every: rng.coin().then(|| Duration::from_millis(rng.between(2, 200))),
        }
    }
}

impl ProducerKnobs {
    fn draw(seed: u64, index: u64, topics: &[i32], small: bool) -> Self {
        let mut rng = SimRng::new(seed ^ index.rotate_left(32), "producer");
        let mut all: Vec<(usize, i32)> = topics
            .iter()
            .enumerate()
            .flat_map(|(topic, count)| (0..*count).map(move |partition| (topic, partition)))
            .collect();
        let wanted = 1 + rng.index(all.len());
        let partitions = (0..wanted)
            .map(|_| {
                let index = rng.index(all.len());
                all.swap_remove(index)
            })
            .collect();
        let idempotent = rng.chance(PPM / 4 * 3);
        let large = !small && rng.chance(PPM / 4);
        Self {
            idempotent,
            acks: match rng.below(if idempotent { 5 } else { 6 }) {
                0 | 1 => 1,
                5 => 0,
                _ => -1,
            },
            version: number(&mut rng, 3, 13),
            in_flight_max: 1 + rng.index(5),
            records: number(&mut rng, 1, if small { 40 } else { 400 }),
            batch_records_max: number(&mut rng, 1, 20),
            value_bytes_max: if large {
                number(&mut rng, 1000, 20_000)
            } else {
                number(&mut rng, 16, 1000)
            },
            codec: if rng.coin() { 0 } else { number(&mut rng, 1, 4) },
            partitions,
            request_batches_max: 1 + rng.index(4),
            pause: Duration::from_micros(if rng.coin() { 0 } else { rng.between(1, 20_000) }),
            timeout_ms: if rng.chance(PPM / 8) { 3 } else { 30_000 },
        }
    }
}

impl ConsumerKnobs {
    fn draw(seed: u64, index: u64) -> Self {
        let mut rng = SimRng::new(seed ^ index.rotate_left(32), "consumer");
        Self {
            version: number(&mut rng, 4, 18),
            session: rng.coin(),
            wait_ms: number(&mut rng, 0, 500),
            bytes_min: if rng.coin() {
                1
            } else {
                number(&mut rng, 0, 20_000)
            },
            bytes_max: number(&mut rng, 1, 1 << 20),
            partition_bytes_max: number(&mut rng, 1, 256 << 10),
            isolation: number(&mut rng, 0, 1),
            pause: Duration::from_micros(if rng.coin() { 0 } else { rng.between(1, 50_000) }),
        }
    }
}

/// A number of any integer type from `low` to `high`, both included.
pub(super) fn number<T: TryFrom<u64>>(rng: &mut SimRng, low: u64, high: u64) -> T {
    T::try_from(rng.between(low, high))
        .ok()
        .expect("the bounds fit the type")
}
