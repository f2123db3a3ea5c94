//! The settings of group coordinators, from the broker's configuration.

use std::time::Duration;

use shard::config::BrokerLayers;
use shard::coordinator::group::GroupSettings;

/// What the layers say of groups.
#[must_use]
pub fn group_settings(layers: &BrokerLayers<'_>) -> GroupSettings {
    let number = |key: &str| u64::try_from(layers.integer(key, 0)).unwrap_or(0);
    let millis = |key: &str| Duration::from_millis(number(key));
    let count = |key: &str| usize::try_from(number(key)).unwrap_or(usize::MAX);
    let offsets_retention_minutes = number("offsets.retention.minutes");
    GroupSettings {
        session_timeout_min: millis("group.min.session.timeout.ms"),
        session_timeout_max: millis("group.max.session.timeout.ms"),
        initial_rebalance_delay: millis("group.initial.rebalance.delay.ms"),
        size_max: count("group.max.size"),
        offset_metadata_bytes_max: count("offset.metadata.max.bytes"),
        offsets_retention: Duration::from_secs(offsets_retention_minutes.saturating_mul(60)),
        offsets_check_interval: millis("offsets.retention.check.interval.ms"),
    }
}

#[cfg(test)]
mod tests {
    use shard::config::Overrides;

    use super::*;

    #[test]
    fn without_configuration_they_are_kafkas_defaults() {
        let nothing = Overrides::default();
        assert_eq!(
            group_settings(&BrokerLayers::of_file(&nothing)),
            GroupSettings::default()
        );
    }
}
