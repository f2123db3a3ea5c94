//! The APIs, one file each: what a request of that API means. A handler is `async fn handle(&context, request) ->
//! response`; it validates, asks the owner shards or the controller, and never touches a log or a socket.

pub mod admin;
mod admin_remarks;
pub mod alter_replica_log_dirs;
pub mod api_versions;
mod authorized;
pub mod delete_records;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod fetch_sessions;
pub mod find_coordinator;
pub mod groups;
pub mod init_producer_id;
mod leaders;
pub mod list_config_resources;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
mod offsets;
pub mod produce;
pub mod reassignments;
