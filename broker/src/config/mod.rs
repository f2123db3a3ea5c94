//! Configuration in two stages: as written (`properties.rs`, `layers.rs`: which key, which value, from where) and resolved
//! (typed settings). Kafka's property names and units throughout (DESIGN §9).

pub mod groups;
pub mod layers;
mod listeners;
pub mod properties;
pub mod report;
pub mod resolve;
pub mod settings;
