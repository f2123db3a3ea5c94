//! TCP for shards: the acceptor that hands connections out to them, and the streams they use.

mod accept;
mod stream;

pub use accept::{AcceptCounters, Accepted, Acceptor, Door, Doors, ListenOptions, Listener, doors};
pub use stream::{Net, TcpReader, TcpStream, TcpWriter};
