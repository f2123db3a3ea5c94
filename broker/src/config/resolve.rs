//! From what was written to [`Settings`]: every value is checked by its key, values are checked against each other, and
//! what the operator should know about the file is collected in [`Remarks`]. Pure: no file is opened, nothing is bound.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shard::config::{BrokerLayers, Overrides, Recognised, Standing, recognise};
use shard::ids::BrokerId;
use shard::retention::RetentionSchedule;

use super::layers::{AsWritten, ConfigError, Origin};
use super::listeners;
use super::settings::Settings;
use storage::io_class::{IoClass, IoLimits};
use storage::scrub::ScrubOptions;
use storage::sync_schedule::IntervalBounds;

/// Kafka's default for `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`; every sample file has it.
const KAFKA_SOCKET_BUFFER_BYTES: i64 = 102_400;

/// What the process is told about its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The directory relative paths start from.
    pub directory: &'a Path,
    /// The host's name: what clients are told when a listener names no host.
    pub host_name: &'a str,
}

/// A written configuration, understood.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The typed settings.
    pub settings: Settings,
    /// What to say about the file.
    pub remarks: Remarks,
}

/// What the operator should know about a configuration that is otherwise right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Lines that do nothing though somebody meant something by them, a sentence each.
    pub warnings: Vec<String>,
    /// Known keys without a meaning here.
    pub inert: Vec<String>,
    /// Known keys whose subsystem is not there yet.
    pub later: Vec<String>,
    /// Listeners of the controller plane, which are not opened.
    pub closed_listeners: Vec<String>,
}

impl Remarks {
    /// Writes them to the log: warnings one by one, the rest once.
    pub fn log(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
        if !self.inert.is_empty() {
            let keys = self.inert.join(", ");
            tracing::info!(keys, "accepted, without a meaning in this broker");
        }
        if !self.later.is_empty() {
            let keys = self.later.join(", ");
            tracing::info!(keys, "accepted, without an effect so far");
        }
        if !self.closed_listeners.is_empty() {
            let listeners = self.closed_listeners.join(", ");
            tracing::info!(
                listeners,
                "controller listeners are not opened: the quorum of a single node needs no network"
            );
        }
    }
}

/// Whether a name is a key that is read from the environment without a prefix of its own.
#[must_use]
pub fn is_known(key: &str) -> bool {
    matches!(recognise(key), Recognised::Known(_) | Recognised::OfListener(_))
}

/// Checks everything that was written and gives it its types.
///
/// # Errors
/// One sentence: where it stands, the key, what is wrong and what would be right.
pub fn resolve(written: &AsWritten, around: Surroundings<'_>) -> Result<Resolved, ConfigError> {
    let mut remarks = Remarks::default();
    for (key, value) in written.iter() {
        check_one(key, &value.value, &value.origin, &mut remarks)?;
    }
    let mut fixed: Overrides = written
        .iter()
        .map(|(key, value)| (key.to_owned(), value.value.clone()))
        .collect();
    name_the_node(written, &mut fixed)?;
    check_roles(written, &fixed)?;
    check_quorum(written, &fixed)?;
    check_security(written)?;
    check_session_timeouts(written, &fixed)?;

    let opened = listeners::resolve(written, &fixed, around.host_name)?;
    remarks.closed_listeners = opened.closed;
    let layers = BrokerLayers::of_file(&fixed);
    let whole = |key: &str| usize::try_from(layers.integer(key, 0)).unwrap_or(usize::MAX);
    let socket_buffer = |key: &str| match layers.set_value(key).and_then(|v| v.as_integer()) {
        // The system's own tuning goes further than the value that stands in every sample file.
        Some(bytes) if bytes > 0 && bytes != KAFKA_SOCKET_BUFFER_BYTES => usize::try_from(bytes).ok(),
        _ => None,
    };
    let millis =
        |key: &str, default| Duration::from_millis(u64::try_from(layers.integer(key, default)).unwrap_or(1));
    let settings = Settings {
        node_id: BrokerId(i32::try_from(layers.integer("node.id", 1)).unwrap_or(1)),
        listeners: opened.listeners,
        listen_backlog: i32::try_from(layers.integer("socket.listen.backlog.size", 1024)).unwrap_or(i32::MAX),
        receive_buffer_bytes: socket_buffer("socket.receive.buffer.bytes"),
        send_buffer_bytes: socket_buffer("socket.send.buffer.bytes"),
        log_dirs: log_dirs(written, &layers, around.directory)?,
        admin: admin(written, &layers)?,
        shards: layers
            .set_value("penstock.shards")
            .and_then(|v| v.as_integer())
            .and_then(|n| u16::try_from(n).ok()),
        memory_bytes: layers
            .set_value("penstock.memory.bytes")
            .and_then(|v| v.as_integer())
            .and_then(|n| u64::try_from(n).ok()),
        interval: IntervalBounds {
            ms: whole("penstock.durability.interval.ms") as u64,
            bytes: whole("penstock.durability.interval.bytes") as u64,
        },
        io: io_limits(&layers),
        scrub_bytes_per_second: whole("penstock.scrub.bytes.per.second") as u64,
        scrub: ScrubOptions {
            interval_ms: layers.integer("penstock.scrub.interval.ms", i64::MAX),
        },
        commit_linger: Duration::from_micros(whole("penstock.commit.linger.us") as u64),
        disk_reserve_bytes: layers
            .set_value("penstock.disk.reserve.bytes")
            .and_then(|v| v.as_integer())
            .and_then(|n| u64::try_from(n).ok()),
        rack: layers.text("broker.rack"),
        request_bytes_max: whole("socket.request.max.bytes"),
        idle_max: idle_max(layers.integer("connections.max.idle.ms", -1)),
        fetch_bytes_max: whole("fetch.max.bytes"),
        fetch_session_slots: whole("max.incremental.fetch.session.cache.slots"),
        trace_interval: u32::try_from(whole("penstock.request.trace.interval")).unwrap_or(u32::MAX),
        group_series_max: whole("penstock.metrics.group.series.max"),
        producer_check_interval: millis("producer.id.expiration.check.interval.ms", 600_000),
        retention: RetentionSchedule {
            delay: millis("log.initial.task.delay.ms", 30_000),
            interval: millis("log.retention.check.interval.ms", 300_000),
        },
        auto_create_topics: layers.boolean("auto.create.topics.enable"),
        fixed: Arc::new(fixed),
    };
    Ok(Resolved { settings, remarks })
}

fn io_limits(layers: &BrokerLayers<'_>) -> IoLimits {
    let bytes = |key: &str| u64::try_from(layers.integer(key, 0)).unwrap_or(u64::MAX);
    let limits = IoLimits {
        busy_bytes_max: bytes("penstock.io.busy.bytes"),
        idle_bytes_max: bytes("penstock.io.idle.bytes"),
        ..IoLimits::default()
    };
    limits.with_rate(IoClass::ColdRead, bytes("penstock.io.cold.read.bytes.per.second"))
}

/// A [`ConfigError`] about a key, with its place if it was written.
pub(super) fn wrong(written: &AsWritten, key: &str, what: &str) -> ConfigError {
    match written.get(key) {
        Some(value) => ConfigError(format!("{}: {key}: {what}", value.origin)),
        None => ConfigError(format!("{key} (not set): {what}")),
    }
}

fn check_one(key: &str, value: &str, origin: &Origin, remarks: &mut Remarks) -> Result<(), ConfigError> {
    match recognise(key) {
        Recognised::Known(known) | Recognised::OfListener(known) => {
            known
                .parse(value)
                .map_err(|what| ConfigError(format!("{origin}: {what}")))?;
            match known.standing {
                Standing::Inert if key != "broker.id" => remarks.inert.push(key.to_owned()),
                Standing::Later => remarks.later.push(key.to_owned()),
                Standing::Inert | Standing::Used => {}
            }
        }
        Recognised::PlugIn => remarks.inert.push(key.to_owned()),
        Recognised::Removed => remarks.warnings.push(format!(
            "{origin}: {key} was dropped by Kafka 4 and does nothing; remove it"
        )),
        Recognised::Unknown(nearest) => {
            let advice = nearest.map_or_else(
                || "see `penstock config` for all keys".to_owned(),
                |name| format!("did you mean {name}?"),
            );
            remarks.warnings.push(format!(
                "{origin}: {key} is not a known key and does nothing; {advice}"
            ));
        }
    }
    Ok(())
}

/// No member could join where the bounds of its session timeout leave none.
fn check_session_timeouts(written: &AsWritten, fixed: &Overrides) -> Result<(), ConfigError> {
    const LEAST: &str = "group.min.session.timeout.ms";
    const MOST: &str = "group.max.session.timeout.ms";
    let layers = BrokerLayers::of_file(fixed);
    let (least, most) = (layers.integer(LEAST, 0), layers.integer(MOST, i64::MAX));
    if least <= most {
        return Ok(());
    }
    let key = if written.get(MOST).is_some() { MOST } else { LEAST };
    let what = format!("{MOST} ({most}) must be at least {LEAST} ({least})");
    Err(wrong(written, key, &what))
}

/// `broker.id` is the old name of `node.id`.
fn name_the_node(written: &AsWritten, fixed: &mut Overrides) -> Result<(), ConfigError> {
    let Some(old) = written.get("broker.id") else {
        return Ok(());
    };
    match written.get("node.id") {
        Some(new) if new.value != old.value => {
            let what = format!(
                "it is {} but node.id is {}; remove broker.id, the old name of node.id",
                old.value, new.value
            );
            Err(wrong(written, "broker.id", &what))
        }
        Some(_) => Ok(()),
        None if old.value.starts_with('-') => Err(wrong(
            written,
            "broker.id",
            "ids are not given out automatically; name one of 0 or above with node.id",
        )),
        None => {
            fixed.insert("node.id".to_owned(), old.value.clone());
            Ok(())
        }
    }
}

fn check_roles(written: &AsWritten, fixed: &Overrides) -> Result<(), ConfigError> {
    let roles = BrokerLayers::of_file(fixed).list("process.roles");
    if roles.iter().any(|role| role == "broker") {
        return Ok(());
    }
    let what =
        "a node that is only a controller is not supported so far; write process.roles=broker,controller";
    Err(wrong(written, "process.roles", what))
}

/// A node that was told of others must not quietly start a cluster of its own.
fn check_quorum(written: &AsWritten, fixed: &Overrides) -> Result<(), ConfigError> {
    let layers = BrokerLayers::of_file(fixed);
    for key in ["controller.quorum.voters", "controller.quorum.bootstrap.servers"] {
        let nodes = layers.list(key).len();
        if nodes > 1 {
            let what = format!(
                "it names {nodes} nodes, and clusters are not supported so far; name this node alone"
            );
            return Err(wrong(written, key, &what));
        }
    }
    Ok(())
}

/// Access control that was asked for and is not there must not be left out quietly.
fn check_security(written: &AsWritten) -> Result<(), ConfigError> {
    match written.get("authorizer.class.name") {
        Some(class) if !class.value.is_empty() => Err(wrong(
            written,
            "authorizer.class.name",
            "there is no access control so far; remove it to let every client do everything",
        )),
        _ => Ok(()),
    }
}

/// `log.dirs`, or `log.dir` where that is unset; absolute, so that a message names a place. The metadata log's is the first: the one
/// that `metadata.log.dir` names, and otherwise that which is written first.
fn log_dirs(
    written: &AsWritten,
    layers: &BrokerLayers<'_>,
    directory: &Path,
) -> Result<Vec<PathBuf>, ConfigError> {
    const METADATA: &str = "metadata.log.dir";
    let several = layers.list("log.dirs");
    let dirs = if several.is_empty() {
        layers.list("log.dir")
    } else {
        several
    };
    let absolute = |dir: String| {
        let path = Path::new(&dir);
        directory.join(path.strip_prefix(".").unwrap_or(path))
    };
    let mut dirs: Vec<PathBuf> = dirs.into_iter().map(absolute).collect();
    let Some(metadata) = layers.text(METADATA) else {
        return Ok(dirs);
    };
    let shown = metadata.clone();
    let metadata = absolute(metadata);
    let Some(at) = dirs.iter().position(|dir| *dir == metadata) else {
        let what = format!(
            "'{shown}' is none of log.dirs: the metadata log cannot have a directory of its own; name it there, too, or remove this"
        );
        return Err(wrong(written, METADATA, &what));
    };
    if let Some(first) = dirs.get_mut(..=at) {
        first.rotate_right(1);
    }
    Ok(dirs)
}

/// Kafka's "never": a negative time.
fn idle_max(ms: i64) -> Duration {
    const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    u64::try_from(ms).map_or(NEVER, |ms| Duration::from_millis(ms).min(NEVER))
}

fn admin(written: &AsWritten, layers: &BrokerLayers<'_>) -> Result<Option<SocketAddr>, ConfigError> {
    const KEY: &str = "penstock.admin.listener";
    let Some(text) = layers.text(KEY) else {
        return Ok(None);
    };
    let bare = text.strip_prefix("http://").unwrap_or(&text);
    let found = bare.to_socket_addrs().ok().and_then(prefer_ipv4);
    found.map(Some).ok_or_else(|| {
        let what = format!(
            "'{text}' is no address; write host:port as in 127.0.0.1:9644, or nothing to turn it off"
        );
        wrong(written, KEY, &what)
    })
}

/// The first IPv4 address, else the first: what Java binds a host name to.
pub fn prefer_ipv4(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let mut first = None;
    for address in addresses {
        if address.is_ipv4() {
            return Some(address);
        }
        first.get_or_insert(address);
    }
    first
}

#[cfg(test)]
mod tests;
