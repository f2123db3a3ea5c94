//! What one core owns: its partitions, its copy of the cluster's metadata, and every state machine that decides.
//! Nothing here does I/O but `runtime/` (feature `runtime`), the only executor code of the project.

pub mod budget;
pub mod cleaner;
pub mod config;
pub mod connection;
pub mod controller;
pub mod coordinator;
#[cfg(feature = "runtime")]
pub mod driver;
pub mod env;
pub mod error;
pub mod fetch;
pub mod histogram;
pub mod ids;
pub mod image;
pub mod message;
#[cfg(feature = "runtime")]
pub mod moves;
pub mod net;
pub mod owner;
pub mod partition;
pub mod placement;
pub mod purgatory;
pub mod quorum;
pub mod replies;
#[cfg(feature = "runtime")]
pub mod retention;
#[cfg(feature = "runtime")]
pub mod router;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod scrub;
pub mod trace;
