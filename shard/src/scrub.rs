//! The task that scrubs a shard's logs ([`storage::scrub`]): step after step, others first, until storage is offline. And the
//! timer of the disk's I/O classes ([`storage::io_class`]), which scrub, compaction and cold reads wait for.

use std::time::Duration;

use storage::scrub::ScrubStep;

use crate::env::Env;
use crate::owner::LogsIo;

/// While there is nothing to do, the time is looked at so often: a clock may be set.
const REST_MAX: Duration = Duration::from_secs(60);

/// Scrubs for ever.
pub async fn scrub<E: Env, L: LogsIo>(env: E, logs: L) {
    while let Ok(step) = logs.scrub(env.wall()).await {
        match step {
            ScrubStep::Worked => env.yield_to_reactor().await,
            ScrubStep::RestUntil(until_ms) => {
                let left_ms = u64::try_from(until_ms.saturating_sub(env.wall().0)).unwrap_or(0);
                env.sleep(Duration::from_millis(left_ms.max(1)).min(REST_MAX))
                    .await;
            }
        }
    }
}

/// Lets disk work go when its time has come, for ever.
pub async fn time_io<E: Env, L: LogsIo>(env: E, logs: L) {
    loop {
        match logs.io_due() {
            None => logs.io_moved().await,
            Some(at) => {
                let left = at.since(env.now());
                futures_lite::future::or(logs.io_moved(), env.sleep(left)).await;
            }
        }
    }
}
