//! Sockets: connections and what they owe their clients.

pub(crate) mod answer;
pub mod complaints;
pub mod connection;
mod intake;
mod progress;
mod send;
mod stranger;
