//! The feature levels that this version of ours really supports. ApiVersions, `kafka-features` and the controller answer
//! from this one table: a level stands here when what it turns on works, so groups and transactions are added by the
//! coordinators that bring them (Kafka's clients choose their protocol by it).

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
    /// Kafka's word for each level, for messages; by level − `min`.
    pub downgrade_is_lossy: bool,
}

/// Every supported feature, by name.
pub const SUPPORTED: &[Feature] = &[
    Feature {
        name: ELR_VERSION,
        min: 0,
        max: 1,
        initial: 1,
        downgrade_is_lossy: false,
    },
    // 30 is 4.3-IV0: the record formats that this version writes. It reads no older log, so there is no other level.
    Feature {
        name: METADATA_VERSION,
        min: 30,
        max: 30,
        initial: 30,
        downgrade_is_lossy: true,
    },
];

/// The supported feature of that name.
#[must_use]
pub fn supported(name: &str) -> Option<&'static Feature> {
    SUPPORTED.iter().find(|feature| feature.name == name)
}
