//! TCP streams of a shard: readiness from glommio, bytes by `recv` and `sendmsg` on the socket itself, so that a
//! receive fills a buffer's spare capacity without a copy and one send takes many chunks (trap D8: glommio's own
//! `write_vectored` sends the first only). Deadlines are kept by one sweep per shard, not by a timer per operation.
#![allow(unsafe_code)] // borrowing the socket's descriptor, and counting bytes that the kernel has written

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_lite::io::{AsyncRead, AsyncWrite};
use slab::Slab;
use socket2::SockRef;

use super::accept::{Accepted, Seat};
use crate::env::{Env, Instant};
use crate::net::{ByteReader, ByteStream, ByteWriter, DEADLINE_SWEEP_MS};
use crate::runtime::executor::RuntimeEnv;

/// Chunks per `sendmsg`.
const CHUNKS_MAX: usize = 64;

/// What is read to learn that a socket has become readable: the first bytes of a request that was waited for. Small
/// requests fit, so they cost one `recv`; of large ones this much is copied once more.
const FIRST_READ_BYTES: usize = 4096;

thread_local! {
    static FIRST_READ: RefCell<[u8; FIRST_READ_BYTES]> = const { RefCell::new([0; FIRST_READ_BYTES]) };
}

/// The sockets of one shard. Cheap to clone; not `Send`.
#[derive(Clone)]
pub struct Net(Rc<NetInner>);

struct NetInner {
    env: RuntimeEnv,
    watches: RefCell<Slab<Weak<Socket>>>,
    sweeping: Cell<bool>,
}

impl Net {
    /// The sockets of the shard of `env`.
    #[must_use]
    pub fn new(env: RuntimeEnv) -> Self {
        Self(Rc::new(NetInner {
            env,
            watches: RefCell::new(Slab::new()),
            sweeping: Cell::new(false),
        }))
    }

    /// Takes an accepted connection over.
    #[must_use]
    pub fn adopt(&self, accepted: Accepted) -> TcpStream {
        let Accepted {
            fd,
            seat,
            peer,
            local,
            ..
        } = accepted;
        // SAFETY: into_raw_fd gives up the ownership of an open descriptor, and the glommio stream takes it: it is closed
        // exactly once, when that stream is dropped.
        let stream = unsafe { glommio::net::TcpStream::from_raw_fd(fd.into_raw_fd()) };
        self.watch(stream, Some(seat), peer, local)
    }

    /// Connects to another node.
    ///
    /// # Errors
    /// The socket's, or `TimedOut` after `timeout`.
    pub async fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let stream = glommio::net::TcpStream::connect_timeout(to, timeout)
            .await
            .map_err(io::Error::from)?;
        stream.set_nodelay(true).map_err(io::Error::from)?;
        let local = stream.local_addr().map_err(io::Error::from)?;
        Ok(self.watch(stream, None, to, local))
    }

    /// Open sockets of this shard.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.watches.borrow().len()
    }

    fn watch(
        &self,
        stream: glommio::net::TcpStream,
        seat: Option<Seat>,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> TcpStream {
        let socket = {
            let mut watches = self.0.watches.borrow_mut();
            let entry = watches.vacant_entry();
            let socket = Rc::new(Socket {
                fd: stream.as_raw_fd(),
                stream: RefCell::new(stream),
                read: Deadline::default(),
                write: Deadline::default(),
                net: self.0.clone(),
                key: entry.key(),
                _seat: seat,
            });
            entry.insert(Rc::downgrade(&socket));
            socket
        };
        if !self.0.sweeping.replace(true) {
            self.0.env.spawn(sweep(self.0.clone()));
        }
        TcpStream { socket, peer, local }
    }
}

/// Ends the waits whose deadline has passed. Ends when the shard has no connection: an idle shard
/// has no timer.
async fn sweep(net: Rc<NetInner>) {
    loop {
        net.env.sleep(Duration::from_millis(DEADLINE_SWEEP_MS)).await;
        if net.watches.borrow().is_empty() {
            net.sweeping.set(false);
            return;
        }
        let now = net.env.now();
        for (_, socket) in &*net.watches.borrow() {
            let Some(socket) = socket.upgrade() else { continue };
            socket.read.expire(now);
            socket.write.expire(now);
        }
    }
}

/// An open socket and what its halves share.
struct Socket {
    fd: RawFd,
    stream: RefCell<glommio::net::TcpStream>,
    read: Deadline,
    write: Deadline,
    net: Rc<NetInner>,
    key: usize,
    _seat: Option<Seat>,
}

/// The deadline of one direction.
#[derive(Default)]
struct Deadline {
    at: Cell<Option<Instant>>,
    /// Whoever waits for the socket.
    waiter: RefCell<Option<Waker>>,
    expired: Cell<bool>,
}

impl Deadline {
    fn set(&self, at: Option<Instant>) {
        self.at.set(at);
        self.expired.set(false);
    }

    /// Ends the wait if it has lasted too long.
    fn expire(&self, now: Instant) {
        if self.at.get().is_some_and(|at| at <= now)
            && let Some(waiter) = self.waiter.take()
        {
            self.expired.set(true);
            waiter.wake();
        }
    }

    /// Notes who waits, or that nobody does; a wait that has expired ends with an error, and its deadline with it.
    fn watch<T>(&self, cx: &Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiter.take();
            return polled;
        }
        if self.expired.replace(false) {
            self.at.set(None);
            let error = io::Error::new(io::ErrorKind::TimedOut, "the connection made no progress in time");
            return Poll::Ready(Err(error));
        }
        let mut waiter = self.waiter.borrow_mut();
        if !waiter.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waiter = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to `self.stream`, which is neither replaced nor closed before `self` is dropped, and
        // the borrow does not outlive `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Socket {
    /// The socket for calls that glommio does not have.
    fn sockref(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    /// Receives into the spare capacity of `buf`.
    fn recv(&self, buf: &mut BytesMut) -> io::Result<usize> {
        loop {
            match self
                .sockref()
                .recv_with_flags(buf.spare_capacity_mut(), libc::MSG_DONTWAIT)
            {
                Ok(received) => {
                    // SAFETY: recv has written the first `received` bytes of the spare capacity.
                    unsafe { buf.set_len(buf.len() + received) };
                    return Ok(received);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends from the front of `chunks`, as much as the socket's buffer takes, and returns how much that was.
    fn send(&self, chunks: &VecDeque<Bytes>) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); CHUNKS_MAX];
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(chunks) {
            *slice = IoSlice::new(chunk);
            count += 1;
        }
        loop {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            match self.sockref().send_vectored_with_flags(&slices[..count], flags) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.net.watches.borrow_mut().remove(self.key);
        // A poll that glommio still has in its ring holds the socket open until the next reactor turn: end the
        // connection now, behind what has been sent.
        let _ = self.sockref().shutdown(Shutdown::Both);
    }
}

/// A TCP connection of a shard.
pub struct TcpStream {
    socket: Rc<Socket>,
    peer: SocketAddr,
    local: SocketAddr,
}

impl ByteStream for TcpStream {
    type Reader = TcpReader;
    type Writer = TcpWriter;

    fn split(self) -> (TcpReader, TcpWriter) {
        let reader = TcpReader {
            socket: self.socket.clone(),
            // A new connection has rarely sent something yet: wait first.
            drained: true,
        };
        (reader, TcpWriter { socket: self.socket })
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

/// The receiving half of a [`TcpStream`].
pub struct TcpReader {
    socket: Rc<Socket>,
    /// Whether the last receive left the socket empty: then the next read waits before it tries.
    drained: bool,
}

impl ByteReader for TcpReader {
    async fn read(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        if buf.capacity() == buf.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the buffer has no spare capacity",
            ));
        }
        poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        self.socket.read.set(at);
    }
}

impl TcpReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let spare = buf.capacity() - buf.len();
        if !self.drained {
            match self.socket.recv(buf) {
                Ok(received) => {
                    self.drained = received < spare;
                    return Poll::Ready(Ok(received));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.drained = true,
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        let first = ready!(self.poll_first(cx, buf, spare.min(FIRST_READ_BYTES)))?;
        if first < FIRST_READ_BYTES || first == spare {
            self.drained = first < spare.min(FIRST_READ_BYTES);
            return Poll::Ready(Ok(first));
        }
        // There was more than fits into the first read: take the rest in place.
        match self.socket.recv(buf) {
            Ok(rest) => {
                self.drained = rest < spare - first;
                Poll::Ready(Ok(first + rest))
            }
            // What it is will be met again by the next read; these bytes are good.
            Err(_) => Poll::Ready(Ok(first)),
        }
    }

    /// Waits for the socket and reads at most `length` bytes. glommio wants an initialised slice, and only its own reads
    /// wait for readiness.
    fn poll_first(&self, cx: &mut Context<'_>, buf: &mut BytesMut, length: usize) -> Poll<io::Result<usize>> {
        FIRST_READ.with_borrow_mut(|space| {
            let space = &mut space[..length];
            let polled = Pin::new(&mut *self.socket.stream.borrow_mut()).poll_read(cx, space);
            let received = ready!(self.socket.read.watch(cx, polled))?;
            buf.extend_from_slice(&space[..received]);
            Poll::Ready(Ok(received))
        })
    }
}

/// The sending half of a [`TcpStream`].
pub struct TcpWriter {
    socket: Rc<Socket>,
}

impl ByteWriter for TcpWriter {
    async fn write_all(&mut self, chunks: &mut VecDeque<Bytes>) -> io::Result<()> {
        while !chunks.is_empty() {
            let sent = match self.socket.send(chunks) {
                Ok(sent) => sent,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_and_send(&chunks[0]).await?,
                Err(e) => return Err(e),
            };
            drop_front(chunks, sent);
        }
        Ok(())
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        self.socket.write.set(at);
    }

    fn shutdown(&mut self) {
        // Only fails when the connection has ended already.
        let _ = self.socket.sockref().shutdown(Shutdown::Write);
    }

    fn abort(&mut self) {
        let _ = self.socket.sockref().shutdown(Shutdown::Both);
    }
}

impl TcpWriter {
    /// Waits until the socket has room and sends from `chunk`: glommio's write is what waits.
    async fn wait_and_send(&self, chunk: &Bytes) -> io::Result<usize> {
        poll_fn(|cx| {
            let polled = Pin::new(&mut *self.socket.stream.borrow_mut()).poll_write(cx, chunk);
            self.socket.write.watch(cx, polled)
        })
        .await
    }
}

/// Takes the first `sent` bytes off `chunks`, and empty chunks with them.
fn drop_front(chunks: &mut VecDeque<Bytes>, mut sent: usize) {
    while let Some(front) = chunks.front_mut() {
        if sent < front.len() {
            front.advance(sent);
            return;
        }
        sent -= front.len();
        chunks.pop_front();
    }
    debug_assert_eq!(sent, 0, "no more was sent than there was");
}
