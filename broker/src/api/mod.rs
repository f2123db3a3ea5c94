//! The APIs, one file each: what a request of that API means. A handler is `async fn handle(&context, request) ->
//! response`; it validates, asks the owner shards or the controller, and never touches a log or a socket.

pub mod api_versions;
mod authorized;
pub mod fetch;
mod leaders;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
mod offsets;
pub mod produce;
