//! The Penstock process: configuration, listeners, the life of a request, one file per API, admin HTTP, command line.

pub mod config;
pub mod shutdown;
pub mod system;
