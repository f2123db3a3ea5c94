//! The resolved settings of this process: typed, checked, fixed until the next start. Dynamic configs are looked up in
//! the metadata image over [`Settings::fixed`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shard::config::Overrides;
use shard::ids::BrokerId;
use shard::retention::RetentionSchedule;
use storage::io_class::{IO_CLASSES, IoClass, IoLimits};
use storage::scrub::ScrubOptions;
use storage::sync_schedule::IntervalBounds;

/// What the process was told, resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `node.id`.
    pub node_id: BrokerId,
    /// `listeners` with their `advertised.listeners`.
    pub listeners: Vec<ListenerSettings>,
    /// `socket.listen.backlog.size`.
    pub listen_backlog: i32,
    /// `socket.receive.buffer.bytes`; `None` leaves it to the system.
    pub receive_buffer_bytes: Option<usize>,
    /// `socket.send.buffer.bytes`; `None` leaves it to the system.
    pub send_buffer_bytes: Option<usize>,
    /// `log.dirs`, absolute.
    pub log_dirs: Vec<PathBuf>,
    /// `penstock.admin.listener`.
    pub admin: Option<SocketAddr>,
    /// `penstock.shards`; `None` is one for each allowed CPU.
    pub shards: Option<u16>,
    /// `penstock.memory.bytes`; `None` is a share of the host's.
    pub memory_bytes: Option<u64>,
    /// `penstock.durability.interval.ms` and `.bytes`.
    pub interval: IntervalBounds,
    /// `penstock.io.*`, for the whole process.
    pub io: IoLimits,
    /// `penstock.scrub.bytes.per.second`, for the whole process; 0 is off.
    pub scrub_bytes_per_second: u64,
    /// `penstock.scrub.interval.ms`.
    pub scrub: ScrubOptions,
    /// `penstock.commit.linger.us`.
    pub commit_linger: Duration,
    /// `penstock.disk.reserve.bytes`; `None` is a share of the file system.
    pub disk_reserve_bytes: Option<u64>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// `socket.request.max.bytes`.
    pub request_bytes_max: usize,
    /// `connections.max.idle.ms`.
    pub idle_max: Duration,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `producer.id.expiration.check.interval.ms`.
    pub producer_check_interval: Duration,
    /// `log.initial.task.delay.ms` and `log.retention.check.interval.ms`.
    pub retention: RetentionSchedule,
    /// `penstock.request.trace.interval`; 0 is off.
    pub trace_interval: u32,
    /// `penstock.metrics.group.series.max`.
    pub group_series_max: usize,
    /// Every key that was written, as text: the weakest layer under the dynamic ones.
    pub fixed: Arc<Overrides>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Its name, as in `PLAINTEXT`.
    pub name: String,
    /// What it binds to: a host name or address, empty for all.
    pub host: String,
    /// The port; 0 lets the kernel choose.
    pub port: u16,
    /// What clients are told: host and port.
    pub advertised: (String, u16),
}

impl Settings {
    /// The bounds of one of `shards` stores: the rates are the process's, of which each has its part.
    #[must_use]
    pub fn io_of_shard(&self, shards: u16) -> IoLimits {
        let limits = self.io.with_rate(IoClass::Scrub, self.scrub_bytes_per_second);
        let part = |rate: u64| rate.div_ceil(u64::from(shards.max(1)));
        let bytes_per_second: [u64; IO_CLASSES] = limits.bytes_per_second.map(part);
        IoLimits {
            bytes_per_second,
            ..limits
        }
    }
}

impl Default for Settings {
    /// What a start without any configuration uses (DESIGN §9).
    fn default() -> Self {
        Self {
            node_id: BrokerId(1),
            listeners: vec![ListenerSettings {
                name: "PLAINTEXT".to_owned(),
                host: "127.0.0.1".to_owned(),
                port: 9092,
                advertised: ("127.0.0.1".to_owned(), 9092),
            }],
            listen_backlog: 1024,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            log_dirs: vec![PathBuf::from("data")],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9644))),
            shards: None,
            memory_bytes: None,
            interval: IntervalBounds::default(),
            io: IoLimits::default(),
            scrub_bytes_per_second: 10 << 20,
            scrub: ScrubOptions::default(),
            commit_linger: Duration::ZERO,
            disk_reserve_bytes: None,
            rack: None,
            request_bytes_max: 100 << 20,
            idle_max: Duration::from_secs(600),
            fetch_bytes_max: 55 << 20,
            fetch_session_slots: 1000,
            auto_create_topics: true,
            producer_check_interval: Duration::from_secs(600),
            retention: RetentionSchedule::default(),
            trace_interval: 128,
            group_series_max: 100_000,
            fixed: Arc::default(),
        }
    }
}
