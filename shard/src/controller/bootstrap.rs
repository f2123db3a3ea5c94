//! The first records of a new cluster's metadata log.

use super::features;
use super::record::MetadataRecord;
use crate::config::BrokerLayers;
use crate::image::{ResourceKind, config_record};

/// Feature levels, and the cluster's `min.insync.replicas`: under ELR it is a value of the cluster, not of a file (AD-12),
/// so the first node's file gives it once.
#[must_use]
pub fn initial_records(layers: &BrokerLayers<'_>) -> Vec<MetadataRecord> {
    let mut records: Vec<MetadataRecord> = features::initial_records().map(MetadataRecord::from).collect();
    let min_isr = layers.integer("min.insync.replicas", 1).to_string();
    records.push(config_record(
        ResourceKind::Broker,
        "",
        "min.insync.replicas",
        Some(&min_isr),
    ));
    records
}
