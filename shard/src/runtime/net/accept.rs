//! Listening sockets and the acceptor: one thread per listener that accepts and hands each connection to the shard with
//! the fewest. A thread and not a task of a shard: accepting stays prompt while that shard is busy, and a file
//! descriptor on its way is owned at every moment (glommio's accepted stream is a bare number that leaks when lost).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::ids::ShardId;

/// Accepted connections that wait for one shard; with all shards at it, new ones wait in the kernel's backlog.
const DOOR_CONNECTIONS_MAX: usize = 1024;

/// How long the acceptor waits when the process or the host has no file descriptor or memory left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// How often the same trouble is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How a listening socket is set up.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// `socket.listen.backlog.size`: connections the kernel keeps until they are accepted.
    pub backlog: i32,
    /// `socket.receive.buffer.bytes`, or the system's default. Set before listening, so that the window scale fits.
    pub receive_buffer_bytes: Option<usize>,
    /// `socket.send.buffer.bytes`, or the system's default.
    pub send_buffer_bytes: Option<usize>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 1024,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

/// A bound, listening socket.
pub struct Listener {
    socket: Socket,
    local: SocketAddr,
}

impl Listener {
    /// Binds and listens. The port is not shared (no `SO_REUSEPORT`): a second broker on it fails here. It can be bound
    /// again at once after a restart. `[::]` also takes IPv4.
    ///
    /// # Errors
    /// The operating system's: `AddrInUse`, `PermissionDenied`, `AddrNotAvailable` and so on.
    pub fn bind(addr: SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(&addr.into())?;
        socket.listen(options.backlog)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(addr);
        Ok(Self { socket, local })
    }

    /// The bound address, with the port the kernel chose for port 0.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// A connection on its way to its shard. Dropping it closes it.
#[derive(Debug)]
pub struct Accepted {
    pub(super) fd: OwnedFd,
    pub(super) seat: Seat,
    /// The other end.
    pub peer: SocketAddr,
    /// This end.
    pub local: SocketAddr,
    /// Which listener it came in by, as given to [`Acceptor::start`].
    pub listener: u16,
}

/// A connection's place in its shard's count; given back when dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The acceptors' side of all shards' doors.
#[derive(Clone)]
pub struct Doors {
    doors: Arc<[DoorSender]>,
    connections_max: usize,
}

struct DoorSender {
    sender: flume::Sender<Accepted>,
    open: Arc<AtomicUsize>,
}

/// Where one shard's new connections come in.
pub struct Door {
    receiver: flume::Receiver<Accepted>,
    shard: ShardId,
}

/// The doors of a node with that many shards, in shard order. While `connections_max` connections are open, over all shards,
/// acceptors leave new ones in the kernel's backlog.
#[must_use]
pub fn doors(shards: u16, connections_max: usize) -> (Doors, Vec<Door>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards)
        .map(|shard| {
            let (sender, receiver) = flume::bounded(DOOR_CONNECTIONS_MAX);
            let open = Arc::new(AtomicUsize::new(0));
            (
                DoorSender { sender, open },
                Door {
                    receiver,
                    shard: ShardId(shard),
                },
            )
        })
        .unzip();
    (
        Doors {
            doors: senders.into(),
            connections_max,
        },
        receivers,
    )
}

impl Door {
    /// The next connection of this shard; `None` when every acceptor has stopped and all [`Doors`] are gone.
    pub async fn accept(&self) -> Option<Accepted> {
        self.receiver.recv_async().await.ok()
    }

    /// The shard behind it.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }
}

impl Doors {
    /// Open connections of each shard, those on their way included.
    #[must_use]
    pub fn open(&self) -> Vec<usize> {
        self.doors
            .iter()
            .map(|door| door.open.load(Ordering::Relaxed))
            .collect()
    }

    /// Whether as many connections are open as may be.
    fn are_full(&self) -> bool {
        let open = self.doors.iter().map(|door| door.open.load(Ordering::Relaxed));
        open.sum::<usize>() >= self.connections_max
    }

    /// Hands a connection to the shard with the fewest, the next one after a tie's last.
    fn hand_out(&self, turn: usize, socket: Socket, peer: SocketAddr, listener: u16) -> io::Result<()> {
        // Answers are written as soon as they are there, whole; Nagle's delay would only add to their latency.
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        let local = socket.local_addr()?.as_socket().map_or(peer, canonical);
        let count = self.doors.len();
        let Some(door) = (0..count)
            .map(|i| &self.doors[(turn + i) % count])
            .filter(|door| !door.sender.is_full())
            .min_by_key(|door| door.open.load(Ordering::Relaxed))
        else {
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "every shard has its connections waiting",
            ));
        };
        door.open.fetch_add(1, Ordering::Relaxed);
        let accepted = Accepted {
            fd: socket.into(),
            seat: Seat(door.open.clone()),
            peer,
            local,
            listener,
        };
        // Waits if another acceptor took the last place in between; an error means that the shard has stopped.
        let _ = door.sender.send(accepted);
        Ok(())
    }
}

/// What an acceptor has counted.
#[derive(Default, Debug)]
pub struct AcceptCounters {
    /// Connections handed to shards.
    pub accepted: AtomicU64,
    /// Connections that were gone before they were accepted.
    pub aborted: AtomicU64,
    /// Times the process or the host had no descriptor or memory for a connection, or no share of it was left for one.
    pub exhausted: AtomicU64,
}

/// A running acceptor; stops when dropped.
pub struct Acceptor {
    socket: Arc<Socket>,
    stop: Arc<AtomicBool>,
    counters: Arc<AcceptCounters>,
    thread: Option<JoinHandle<()>>,
    local: SocketAddr,
}

impl Acceptor {
    /// Accepts on `listener` from now on. `index` says in each [`Accepted`] which listener it was.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(listener: Listener, index: u16, doors: Doors) -> io::Result<Self> {
        let local = listener.local;
        let socket = Arc::new(listener.socket);
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(AcceptCounters::default());
        let thread = {
            let (socket, stop, counters) = (socket.clone(), stop.clone(), counters.clone());
            thread::Builder::new()
                .name(format!("accept-{index}"))
                .spawn(move || accept_loop(&socket, &stop, &counters, index, &doors))?
        };
        Ok(Self {
            socket,
            stop,
            counters,
            thread: Some(thread),
            local,
        })
    }

    /// The listener's address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> &Arc<AcceptCounters> {
        &self.counters
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // On Linux this ends a waiting accept(2), with EINVAL.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client that came by IPv4 to a socket of both families is known by its IPv4 address, as everywhere else.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn accept_loop(socket: &Socket, stop: &AtomicBool, counters: &AcceptCounters, index: u16, doors: &Doors) {
    let mut turn = 0;
    let mut logged: Option<Instant> = None;
    while !stop.load(Ordering::SeqCst) {
        let accepted = if doors.are_full() {
            Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "as many connections are open as the limit on open files leaves room for",
            ))
        } else {
            socket.accept()
        };
        let error = match accepted {
            Ok((connection, peer)) => {
                turn += 1;
                let Some(peer) = peer.as_socket().map(canonical) else {
                    continue;
                };
                match doors.hand_out(turn, connection, peer, index) {
                    Ok(()) => {
                        counters.accepted.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if stop.load(Ordering::SeqCst) {
            return;
        }
        if belongs_to_the_connection(&error) {
            counters.aborted.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        // EMFILE, ENFILE, ENOBUFS, ENOMEM and whatever else: the connection waits in the backlog, others are closed meanwhile.
        counters.exhausted.fetch_add(1, Ordering::Relaxed);
        if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            tracing::warn!(listener = index, %error, "a connection cannot be accepted now; clients wait");
            logged = Some(Instant::now());
        }
        thread::sleep(EXHAUSTED_PAUSE);
    }
}

/// Whether an error of accept(2) or of the first look at a connection says that this one is gone, and nothing about the next
/// (accept(2), "Error handling": Linux passes on pending network errors of the new socket).
fn belongs_to_the_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::EOPNOTSUPP
                | libc::EPERM
                | libc::ETIMEDOUT
                | libc::ECONNRESET
                | libc::ENOTCONN
        )
    ) || (error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error() == Some(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_client_of_a_socket_for_both_families_keeps_its_address() {
        for (seen, known) in [
            ("[::ffff:10.1.2.3]:5", "10.1.2.3:5"),
            ("10.1.2.3:5", "10.1.2.3:5"),
            ("[2001:db8::1]:5", "[2001:db8::1]:5"),
        ] {
            let seen: SocketAddr = seen.parse().expect("an address");
            assert_eq!(canonical(seen).to_string(), known);
        }
    }
}
