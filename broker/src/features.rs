//! The features of this cluster (KIP-584) as far as they are true: clients choose protocols by them. A Java producer
//! that sees `transaction.version` 2 uses transactions V2; so a level is raised only when its subsystem is there.

/// One feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Kafka's name.
    pub name: &'static str,
    /// Lowest level we can run at.
    pub min: i16,
    /// Highest level we can run at.
    pub max: i16,
    /// The level in force; 0 is off and not listed as finalized.
    pub finalized: i16,
}

/// What we support and what is in force. Groups, share groups, streams groups and transactions are not there yet.
pub const FEATURES: &[Feature] = &[
    // 4.3-IV0: the metadata records of a Kafka 4.3 cluster.
    Feature {
        name: "metadata.version",
        min: 30,
        max: 30,
        finalized: 30,
    },
];

/// Grows when a level changes; features are fixed so far.
pub const FINALIZED_EPOCH: i64 = 0;
