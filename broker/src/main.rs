//! The `penstock` binary.
fn main() {}
