//! What every load of groups needs first: a topic, and a coordinator.

use std::time::{Duration, Instant};

use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::{ErrorCode, Str};

use super::connection::Connection;
use crate::error::{Result, failed};

/// How long the coordinators may take to come up.
const COORDINATORS_TIME_MAX: Duration = Duration::from_secs(60);
/// Before a question is asked again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The topic that is consumed.
pub(super) const TOPIC: &str = "group-load";

/// Whether a coordinator answers so that is about to come up: FindCoordinator of Apache Kafka names it before it has loaded.
pub(super) fn comes_up(code: ErrorCode) -> bool {
    [
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_COORDINATOR,
    ]
    .contains(&code)
}

/// Creates the topic, and waits until groups have coordinators.
///
/// # Errors
/// The broker refuses, or has no coordinator in time.
pub(super) async fn prepare(bootstrap: &str, partitions: i32, groups: &[Str]) -> Result<()> {
    let mut connection = Connection::open(bootstrap).await?;
    let create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: Str::from(TOPIC),
            num_partitions: partitions,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let created = connection.call(&create, 5).await?;
    let refused = created.topics.iter().find(|t| t.error_code != ErrorCode::NONE);
    if let Some(topic) = refused {
        return failed(format!("the topic is refused: {:?}", topic.error_code));
    }
    let find = FindCoordinatorRequest {
        coordinator_keys: groups.to_vec(),
        ..Default::default()
    };
    let started = Instant::now();
    loop {
        let found = connection.call(&find, 4).await?;
        let missing = found
            .coordinators
            .iter()
            .find(|c| c.error_code != ErrorCode::NONE);
        let Some(missing) = missing else {
            return Ok(());
        };
        if started.elapsed() > COORDINATORS_TIME_MAX {
            return failed(format!(
                "no coordinator for {}: {:?}",
                missing.key, missing.error_code
            ));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
