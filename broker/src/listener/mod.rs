//! Sockets: connections and what they owe their clients.

pub mod complaints;
pub mod connection;
mod intake;
mod progress;
mod send;
mod stranger;
