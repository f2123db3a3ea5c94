//! Configuration as data: every key of Apache Kafka 4.3.1 and ours (`table`), how values are read and checked (`key`,
//! `value`), what a resource's effective values are and where each comes from (`layers`, `describe`), the typed settings of
//! a topic (`topic`), and what an alteration makes of the overrides of a resource (`alter`). Pure functions over maps of
//! text: the broker reads files with them, the controller checks requests, every shard resolves its topics. A node's view
//! where broker layers take part; otherwise the cluster's.

pub mod alter;
pub mod describe;
pub mod key;
pub mod layers;
pub mod suggest;
pub mod synonyms;
pub mod table;
pub mod topic;
pub mod value;

pub use alter::{AlterOp, Alteration};
pub use describe::{ConfigEntry, ConfigSource, ConfigSynonym};
pub use key::{ConfigKey, ConfigType, DynamicMode, Standing, Visibility};
pub use layers::{BrokerLayers, Overrides};
pub use table::{
    ConfigTable, Recognised, broker_keys, client_metrics_keys, group_keys, recognise, topic_keys,
};
pub use topic::{CleanupPolicy, CompressionSetting, Durability, TimestampType, TopicSettings};
pub use value::ConfigValue;
