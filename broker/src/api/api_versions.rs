//! ApiVersions: what this broker serves (CN-5…9, BR-001). Every other request of a client follows from this answer, so
//! it says no more than is true.

use protocol::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use protocol::{ApiKey, ErrorCode, Str};
use shard::env::Env;

use crate::features::FEATURES;
use crate::request::served::{SERVED, Served, served};
use crate::request::{Outcome, RequestContext};

/// The longest software name or version that is kept, bytes.
const SOFTWARE_BYTES_MAX: usize = 256;

/// Answers with every API served.
pub async fn handle<E: Env>(context: &RequestContext<E>, request: ApiVersionsRequest) -> ApiVersionsResponse {
    if context.version >= 3 {
        let (name, version) = (&request.client_software_name, &request.client_software_version);
        if !is_software_text(name) || !is_software_text(version) {
            context.count_error(ErrorCode::INVALID_REQUEST);
            return ApiVersionsResponse {
                error_code: ErrorCode::INVALID_REQUEST,
                ..Default::default()
            };
        }
        *context.connection.software.borrow_mut() = Some((kept(name), kept(version)));
    }
    let view = context.broker.view();
    let image = &view.image;
    ApiVersionsResponse {
        api_keys: SERVED.iter().map(row).collect(),
        // Older clients crash on a feature whose lowest level is 0 (CN-8).
        supported_features: FEATURES
            .iter()
            .filter(|f| context.version >= 4 || f.min > 0)
            .map(|f| SupportedFeatureKey {
                name: Str::from(f.name),
                min_version: f.min,
                max_version: f.max,
            })
            .collect(),
        finalized_features_epoch: i64::try_from(image.position.index).unwrap_or(i64::MAX),
        finalized_features: image
            .features
            .iter()
            .map(|(name, level)| FinalizedFeatureKey {
                name: Str::from(name.to_string()),
                min_version_level: *level,
                max_version_level: *level,
            })
            .collect(),
        ..Default::default()
    }
}

/// The answer to a version we do not know: in the oldest form, with our own range, so that the client comes again lower
/// (CN-5).
pub fn unsupported_version<E: Env>(context: &RequestContext<E>) -> Outcome {
    context.count_error(ErrorCode::UNSUPPORTED_VERSION);
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        api_keys: served(ApiKey::ApiVersions).map(row).into_iter().collect(),
        ..Default::default()
    };
    context.answer_in_version(&response, 0)
}

fn row(served: &Served) -> ApiVersion {
    ApiVersion {
        api_key: served.key.as_i16(),
        min_version: served.advertised_min,
        max_version: served.max,
    }
}

/// The part of a software name or version that is kept.
fn kept(text: &str) -> String {
    text.chars().take(SOFTWARE_BYTES_MAX).collect()
}

/// CN-6: starts and ends with a letter or digit; letters, digits, `-` and `.` between.
fn is_software_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(is_inner)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_follow_kafkas_pattern() {
        for good in ["a", "librdkafka", "apache-kafka-java", "4.3.1", "v2.0-rc.1"] {
            assert!(is_software_text(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a/b", ".", "é", "a\n"] {
            assert!(!is_software_text(bad), "{bad}");
        }
    }
}
