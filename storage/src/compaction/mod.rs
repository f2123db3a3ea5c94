//! Log compaction: of each key the newest record stays (KIP-98, KIP-534, KIP-354; CP-1…9 of the surface map). A pass over one
//! log reads its uncleaned part into a bounded [`offset_map`], then rewrites the segments below it group by group
//! ([`filter`], [`transactions`]) and puts the new ones in the place of the old ([`swap`]). What is cleaned and when is
//! decided in [`plan`]; [`run`] does the reading and writing, a piece at a time, within a rate ([`throttle`]).

mod build;
mod cleaned;
pub mod filter;
pub mod offset_map;
mod pass;
pub mod plan;
pub(crate) mod progress;
mod reader;
pub mod run;
mod siphash;
pub(crate) mod state;
pub(crate) mod swap;
pub mod throttle;
pub mod transactions;

pub use state::CleanerStats;
#[doc(hidden)]
pub use swap::SwapStep;
