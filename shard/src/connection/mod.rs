//! What a connection has to decide without its socket: which request may start, and which answer may leave.

pub mod order;
