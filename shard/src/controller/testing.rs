//! A small cluster for the tests of the controller.

use protocol::messages::cluster_metadata as wire;
use protocol::{Str, Uuid};

use super::bootstrap;
use super::features::SUPPORTED;
use crate::config::{BrokerLayers, Overrides};
use crate::image::{ImageDelta, ImagePosition, MetadataImage};

/// An image with a broker per rack, ids from 0, all serving.
pub(crate) fn cluster_with_racks(racks: &[&str]) -> MetadataImage {
    let none = Overrides::new();
    let mut delta = ImageDelta::new(&MetadataImage::empty("cluster"));
    delta
        .apply_all(&bootstrap::initial_records(&BrokerLayers::of_file(&none)))
        .expect("bootstrap records fit");
    for (id, rack) in (0i32..).zip(racks) {
        let record = wire::RegisterBrokerRecord {
            broker_id: id,
            incarnation_id: Uuid::from_u128(500 + u128::from(id.unsigned_abs())),
            broker_epoch: i64::from(id) + 1,
            end_points: vec![wire::BrokerEndpoint {
                name: Str::from_static("PLAINTEXT"),
                host: Str::from_static("127.0.0.1"),
                port: 9092,
                security_protocol: 0,
            }],
            features: SUPPORTED
                .iter()
                .map(|feature| wire::BrokerFeature {
                    name: Str::from_static(feature.name),
                    min_supported_version: feature.min,
                    max_supported_version: feature.max,
                })
                .collect(),
            rack: (!rack.is_empty()).then(|| Str::from((*rack).to_owned())),
            fenced: false,
            log_dirs: vec![Uuid::from_u128(1000 + u128::from(id.unsigned_abs()))],
            ..wire::RegisterBrokerRecord::default()
        };
        delta.apply(&record.into()).expect("a registration fits");
    }
    delta.finish(ImagePosition { index: 1, term: 1 }).0
}
