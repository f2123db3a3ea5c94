//! The Penstock process: configuration, listeners, the life of a request, one file per API, admin HTTP, command line.

pub mod admin;
pub mod api;
pub mod assembly;
pub mod cli;
pub mod client;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod exit;
pub mod features;
pub mod homes;
pub mod listener;
pub mod log_dirs;
pub mod memory;
pub mod node;
pub mod observe;
pub mod publish;
pub mod request;
pub mod shutdown;
pub mod startup;
pub mod stores;
pub mod system;
pub mod view;
