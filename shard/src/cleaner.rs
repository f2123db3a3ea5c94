//! Compaction on one shard: a task that gets the core when the others leave it some looks for the dirtiest log of the shard,
//! cleans it, and looks again; when there is none it rests for `log.cleaner.backoff.ms`. What the log.cleaner keys give to all
//! threads of a broker is divided over the shards. Everything that decides is in [`storage::compaction`].

use std::time::Duration;

use storage::compaction::offset_map::MapKey;
use storage::compaction::run::{CleanerLimits, Looked, Pace};
use storage::error::StorageError;

use crate::budget::{Budget, BudgetClass};
use crate::config::BrokerLayers;
use crate::env::Env;
use crate::owner::LogsIo;

/// Bytes of a shard's compaction budget for what is not the offset map: pieces read and written, contexts of codecs.
const BUFFERS_BYTES: u64 = 1 << 20;

/// The `log.cleaner.*` keys as they hold for one shard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerSettings {
    /// `log.cleaner.enable`.
    pub enabled: bool,
    /// `log.cleaner.backoff.ms`.
    pub backoff: Duration,
    /// This shard's part of `log.cleaner.dedupe.buffer.size`, bytes.
    pub map_bytes: u64,
    /// `log.cleaner.io.buffer.load.factor`.
    pub map_load: f64,
    /// `log.cleaner.io.buffer.size`, bytes.
    pub io_bytes: u64,
    /// This shard's part of `log.cleaner.io.max.bytes.per.second`.
    pub bytes_per_second: f64,
}

impl CleanerSettings {
    /// The settings of one of `cleaners`: a broker has one for each log directory of each shard.
    #[must_use]
    pub fn resolve(layers: &BrokerLayers<'_>, cleaners: usize) -> Self {
        let cleaners = cleaners.max(1) as u64;
        let unsigned = |key, fallback| u64::try_from(layers.integer(key, fallback)).unwrap_or(0);
        let number = |key, fallback| {
            let value = layers.value(key).and_then(|value| value.as_number());
            value.unwrap_or(fallback)
        };
        Self {
            enabled: layers.boolean("log.cleaner.enable"),
            backoff: Duration::from_millis(unsigned("log.cleaner.backoff.ms", 15_000)),
            map_bytes: unsigned("log.cleaner.dedupe.buffer.size", 128 << 20) / cleaners,
            map_load: number("log.cleaner.io.buffer.load.factor", 0.9),
            io_bytes: unsigned("log.cleaner.io.buffer.size", 512 << 10),
            bytes_per_second: number("log.cleaner.io.max.bytes.per.second", f64::MAX) / cleaners as f64,
        }
    }

    fn limits(&self, memory_bytes: u64, hash_key: MapKey) -> CleanerLimits {
        let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        CleanerLimits {
            map_bytes: bytes(self.map_bytes.min(memory_bytes.saturating_sub(BUFFERS_BYTES))),
            map_load: self.map_load,
            io_bytes: bytes(self.io_bytes),
            bytes_per_second: self.bytes_per_second,
            hash_key,
        }
    }
}

/// Cleans the logs of a shard in one of its `dirs` log directories until that is offline or closed. `settings` are asked for before each look, so that a
/// change holds from the next one on.
pub async fn run<E: Env, L: LogsIo>(
    env: E,
    logs: L,
    budget: Budget,
    dirs: u64,
    settings: impl Fn() -> CleanerSettings,
) {
    // Nobody knows which keys would collide.
    let hash_key = MapKey(env.random(), env.random());
    let pace = EnvPace(env.clone());
    while settings().enabled {
        let now = settings();
        let memory_bytes = budget.max_bytes(BudgetClass::Compaction) / dirs.max(1);
        let looked = {
            let _held = budget.try_charge(BudgetClass::Compaction, memory_bytes);
            logs.clean(&pace, &now.limits(memory_bytes, hash_key)).await
        };
        match looked {
            Ok(Looked::Cleaned(_) | Looked::GivenUp(_)) => env.yield_to_reactor().await,
            // Without a pause this loop would look and look.
            Ok(Looked::Nothing | Looked::Later) => env.sleep(now.backoff.max(BACKOFF_MIN)).await,
            // The store is offline or closed; whoever serves it says why.
            Err(StorageError::Offline(_)) => break,
            Err(error) => {
                tracing::error!(%error, "compaction ends");
                break;
            }
        }
    }
}

/// The shortest pause between two looks that find nothing.
const BACKOFF_MIN: Duration = Duration::from_millis(10);

struct EnvPace<E>(E);

impl<E: Env> Pace for EnvPace<E> {
    fn now_ns(&self) -> u64 {
        self.0.now().0
    }

    fn wall_ms(&self) -> i64 {
        self.0.wall().0
    }

    async fn sleep_ns(&self, ns: u64) {
        self.0.sleep(Duration::from_nanos(ns)).await;
    }

    async fn breathe(&self) {
        self.0.yield_to_reactor().await;
    }

    async fn aside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        self.0.aside(work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    #[test]
    fn what_is_for_the_broker_is_divided_over_its_shards() {
        let none = Overrides::new();
        let settings = CleanerSettings::resolve(&BrokerLayers::of_file(&none), 4);
        assert_eq!(settings.map_bytes, 32 << 20);
        assert_eq!(
            (settings.enabled, settings.backoff),
            (true, Duration::from_secs(15))
        );
        assert!(settings.bytes_per_second > 1e300, "no bound");
        let own: Overrides = [
            ("log.cleaner.enable", "false"),
            ("log.cleaner.dedupe.buffer.size", "8388608"),
            ("log.cleaner.io.max.bytes.per.second", "1000000"),
            ("log.cleaner.io.buffer.load.factor", "0.5"),
            ("log.cleaner.backoff.ms", "20"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        let settings = CleanerSettings::resolve(&BrokerLayers::of_file(&own), 2);
        assert_eq!((settings.enabled, settings.map_bytes), (false, 4 << 20));
        assert!(
            (settings.bytes_per_second - 500_000.0).abs() < 1e-6 && (settings.map_load - 0.5).abs() < 1e-9
        );
        assert_eq!(settings.backoff, Duration::from_millis(20));
        let limits = settings.limits(3 << 20, MapKey(1, 2));
        assert_eq!(limits.map_bytes, 2 << 20, "the shard's memory is the bound");
    }
}
