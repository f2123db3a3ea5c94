//! Sockets: connections and what they owe their clients.

pub mod connection;
mod intake;
