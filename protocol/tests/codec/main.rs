//! Tests that go over every generated message in every version.

mod allocator;
mod codecs;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod kafka_classes;
mod round_trip;
