//! The feature levels that this version of ours really supports, and UpdateFeatures. ApiVersions, `kafka-features` and the
//! controller answer from this one table: a level stands here when what it turns on works, so groups and transactions are
//! added by the coordinators that bring them (clients choose their protocol by it).

use protocol::messages::cluster_metadata::FeatureLevelRecord;
use protocol::messages::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use protocol::{ErrorCode, Str};

use super::context::{Context, Decision, Draft};
use super::topics::repeated;
use crate::error::ApiError;

/// Formats of metadata records; everything else needs a minimum of it.
pub const METADATA_VERSION: &str = "metadata.version";
/// Eligible leader replicas (KIP-966).
pub const ELR_VERSION: &str = "eligible.leader.replicas.version";

/// A feature: its levels and what a new cluster starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Kafka's name.
    pub name: &'static str,
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
    /// The level of a new cluster.
    pub initial: i16,
}

/// Every supported feature, by name.
pub const SUPPORTED: &[Feature] = &[
    Feature {
        name: ELR_VERSION,
        min: 0,
        max: 1,
        initial: 1,
    },
    // 30 is 4.3-IV0: the record formats that this version writes. It reads no older log, so there is no other level.
    Feature {
        name: METADATA_VERSION,
        min: 30,
        max: 30,
        initial: 30,
    },
];

/// The supported feature of that name.
#[must_use]
pub fn supported(name: &str) -> Option<&'static Feature> {
    SUPPORTED.iter().find(|feature| feature.name == name)
}

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

/// Changes final feature levels: all of a request, or none. `version` is the request's: up to 1 a success names each
/// feature, and version 0 says by a flag that a downgrade is meant.
pub(super) fn update_features(
    context: &Context<'_>,
    request: &UpdateFeaturesRequest,
    version: i16,
) -> Decision<UpdateFeaturesResponse> {
    let mut draft = Draft::new(context.image);
    let repeated = repeated(
        request
            .feature_updates
            .iter()
            .map(|update| update.feature.as_str()),
    );
    for update in &request.feature_updates {
        let outcome = if repeated.contains(update.feature.as_str()) {
            Err(refused(update, "It comes more than once."))
        } else {
            check_update(context, update, version)
        };
        if let Err(error) = outcome {
            return Decision::answer(UpdateFeaturesResponse {
                error_code: error.code,
                error_message: Some(error.text()),
                ..UpdateFeaturesResponse::default()
            });
        }
        if context.image.feature(&update.feature) != update.max_version_level {
            draft.push(FeatureLevelRecord {
                name: update.feature.detached(),
                feature_level: update.max_version_level,
            });
        }
    }
    let result = |update: &FeatureUpdateKey| UpdatableFeatureResult {
        feature: update.feature.clone(),
        error_code: ErrorCode::NONE,
        error_message: None,
    };
    Decision {
        records: if request.validate_only {
            Vec::new()
        } else {
            draft.into_records()
        },
        response: UpdateFeaturesResponse {
            throttle_time_ms: 0,
            error_code: ErrorCode::NONE,
            error_message: None,
            results: if version <= 1 {
                request.feature_updates.iter().map(result).collect()
            } else {
                Vec::new()
            },
        },
    }
}

fn check_update(context: &Context<'_>, update: &FeatureUpdateKey, version: i16) -> Result<(), ApiError> {
    let upgrade_type = match (version, update.allow_downgrade) {
        (0, true) => SAFE_DOWNGRADE,
        (0, false) => UPGRADE,
        _ => update.upgrade_type,
    };
    let level = update.max_version_level;
    let current = context.image.feature(&update.feature);
    let Some(feature) = supported(&update.feature) else {
        return Err(refused(update, "This cluster does not have the feature."));
    };
    if !(UPGRADE..=UNSAFE_DOWNGRADE).contains(&upgrade_type) {
        return Err(refused(update, "The upgrade type is none that is known."));
    }
    if level < 0 {
        return Err(refused(update, "A level is not below 0."));
    }
    if !(feature.min..=feature.max).contains(&level) {
        let message = format!("Supported are {} to {}.", feature.min, feature.max);
        return Err(refused(update, &message));
    }
    let unable = context.image.brokers.iter().find(|broker| {
        let range = broker
            .features
            .iter()
            .find(|supported| *supported.name == *update.feature);
        level > 0 && !range.is_some_and(|range| (range.min..=range.max).contains(&level))
    });
    if let Some(broker) = unable {
        return Err(refused(
            update,
            &format!("Broker {} does not support it.", broker.id),
        ));
    }
    if level < current && upgrade_type == UPGRADE {
        return Err(refused(
            update,
            "It is lower than the level now: ask for a safe or unsafe downgrade.",
        ));
    }
    Ok(())
}

fn refused(update: &FeatureUpdateKey, reason: &str) -> ApiError {
    ApiError::new(
        ErrorCode::INVALID_UPDATE_VERSION,
        format!(
            "Nothing was updated. Invalid update version {} for feature {}. {reason}",
            update.max_version_level, &*update.feature
        ),
    )
}

/// The records that set a new cluster's features.
pub(super) fn initial_records() -> impl Iterator<Item = FeatureLevelRecord> {
    // The metadata version comes first: whoever reads the log needs it for the rest.
    let mut features: Vec<&Feature> = SUPPORTED.iter().filter(|feature| feature.initial > 0).collect();
    features.sort_by_key(|feature| feature.name != METADATA_VERSION);
    features.into_iter().map(|feature| FeatureLevelRecord {
        name: Str::from_static(feature.name),
        feature_level: feature.initial,
    })
}
