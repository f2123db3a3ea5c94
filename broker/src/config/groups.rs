//! The settings of group coordinators, from the broker's configuration.

use std::time::Duration;

use shard::config::BrokerLayers;
use shard::coordinator::group::GroupSettings;

/// What the layers say of groups.
#[must_use]
pub fn group_settings(layers: &BrokerLayers<'_>) -> GroupSettings {
    let number = |key: &str, fallback: u64| {
        let fallback = i64::try_from(fallback).unwrap_or(i64::MAX);
        u64::try_from(layers.integer(key, fallback)).unwrap_or(0)
    };
    let millis = |key: &str, fallback: Duration| {
        let fallback = u64::try_from(fallback.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(number(key, fallback))
    };
    let count =
        |key: &str, fallback: usize| usize::try_from(number(key, fallback as u64)).unwrap_or(usize::MAX);
    let default = GroupSettings::default();
    GroupSettings {
        session_timeout_min: millis("group.min.session.timeout.ms", default.session_timeout_min),
        session_timeout_max: millis("group.max.session.timeout.ms", default.session_timeout_max),
        initial_rebalance_delay: millis(
            "group.initial.rebalance.delay.ms",
            default.initial_rebalance_delay,
        ),
        size_max: count("group.max.size", default.size_max),
        offset_metadata_bytes_max: count("offset.metadata.max.bytes", default.offset_metadata_bytes_max),
        offsets_retention: Duration::from_secs(
            number(
                "offsets.retention.minutes",
                default.offsets_retention.as_secs() / 60,
            )
            .saturating_mul(60),
        ),
        offsets_check_interval: millis(
            "offsets.retention.check.interval.ms",
            default.offsets_check_interval,
        ),
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
