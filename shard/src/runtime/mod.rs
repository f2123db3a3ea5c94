//! The driver side of a shard: the only executor code of the project (with `storage/src/disk/direct.rs`). Executors pinned
//! to their cores, the thread that keeps them awake, mailboxes between them, sockets. glommio 0.9.0 has ten
//! known traps; each is named D1 to D10 where it is met (`docs/decisions/0020-runtime.md` lists them).

mod aside;
pub mod executor;
mod fatal;
pub mod histogram;
pub mod mailbox;
pub mod net;
pub mod port;
mod pulse;
mod ticker;
mod urgent;

pub use executor::{PulseReader, Runtime, RuntimeEnv, RuntimeOptions, StartError};
pub use fatal::PANIC_EXIT_STATUS;
pub use pulse::{Place, PulseImage, STALL_MIN, Stall};
