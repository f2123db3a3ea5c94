//! The operations a client may do, as the bit fields of Metadata, DescribeCluster and DescribeTopicPartitions: bit n is
//! the operation with Kafka's code n (SE-13). Without an authorizer everything is allowed.

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// All operations on a topic.
pub(super) const TOPIC_OPERATIONS: i32 =
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;

/// All operations on a group.
pub(super) const GROUP_OPERATIONS: i32 = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;

/// All operations on the cluster.
pub(super) const CLUSTER_OPERATIONS: i32 =
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE;

/// In place of such a bit field: the request did not ask for it (MD-9).
pub(super) const OPERATIONS_UNKNOWN: i32 = i32::MIN;
