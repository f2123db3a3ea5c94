//! The `penstock` binary as an operator and a client meet it: what it says when it cannot start, how it stops, what its
//! admin address answers. Each test runs its own process on free ports of 127.0.0.1 and in a directory of its own.
#![allow(clippy::unwrap_used)]

mod admin;
mod bombs;
mod cli;
mod compaction;
mod damage;
mod descriptors;
mod durability;
mod errors;
mod full_disk;
mod full_start;
mod group_answers;
mod group_reports;
mod groups;
mod leaks;
mod lifecycle;
mod linger;
mod log_dirs;
mod log_tools;
mod moves;
mod remote;
mod retention;
mod scrub;
mod sessions;
mod stop;
mod strangers;
mod support;
