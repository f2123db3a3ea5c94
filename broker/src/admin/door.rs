//! The listening socket of the admin server, with bounds: on open connections, on the time a request's head may take to
//! arrive, and on the time between requests. A probe always gets in: when the bound is reached, the connection that has
//! waited longest for its peer makes room.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

/// The head of a request arrives within this time after the connection was made or its first byte came.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// A connection waits this long for the next request.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Door {
    listener: TcpListener,
    rooms: Arc<Mutex<Rooms>>,
}

/// Open connections, by the order they came in. Decides who makes room; no I/O.
struct Rooms {
    /// How many may be open.
    connections_max: usize,
    next: u64,
    guests: BTreeMap<u64, Guest>,
}

struct Guest {
    /// Since when its peer has been waited for; `None` while a request is answered.
    waits_since: Option<Instant>,
    is_sent_away: bool,
    waker: Option<Waker>,
}

/// An admitted connection; its place is free again when it is dropped.
pub(super) struct Admitted {
    stream: TcpStream,
    rooms: Arc<Mutex<Rooms>>,
    number: u64,
    head: Head,
    timer: Pin<Box<Sleep>>,
}

/// How far a request's head is. Requests here have no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// None has begun since the last answer.
    None,
    /// It has begun; so many bytes of the empty line at its end are here.
    Part(u8),
    /// It is complete and being answered.
    Whole,
}

impl Head {
    fn received(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self = match (self, byte) {
                (Self::Whole, _) => Self::Whole,
                (Self::Part(3), b'\n') => Self::Whole,
                (Self::Part(1), b'\n') => Self::Part(2),
                (Self::Part(2), b'\r') => Self::Part(3),
                (_, b'\r') => Self::Part(1),
                _ => Self::Part(0),
            };
        }
        self
    }
}

impl Rooms {
    fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            next: 0,
            guests: BTreeMap::new(),
        }
    }

    fn admit(&mut self, now: Instant) -> Option<u64> {
        let open = self.guests.values().filter(|g| !g.is_sent_away).count();
        if open >= self.connections_max {
            let waiting = self.guests.values_mut().filter(|g| !g.is_sent_away);
            // Without anybody who waits all are being answered: then the newcomer is one too many.
            let oldest = waiting
                .filter(|g| g.waits_since.is_some())
                .min_by_key(|g| g.waits_since)?;
            oldest.is_sent_away = true;
            if let Some(waker) = oldest.waker.take() {
                waker.wake();
            }
        }
        let number = self.next;
        self.next += 1;
        let guest = Guest {
            waits_since: Some(now),
            is_sent_away: false,
            waker: None,
        };
        self.guests.insert(number, guest);
        Some(number)
    }
}

fn lock(rooms: &Mutex<Rooms>) -> MutexGuard<'_, Rooms> {
    rooms.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    /// On a bound, non-blocking socket, within a tokio runtime, for so many open connections.
    pub(super) fn new(listener: std::net::TcpListener, connections_max: usize) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::from_std(listener)?,
            rooms: Arc::new(Mutex::new(Rooms::new(connections_max))),
        })
    }
}

impl Listener for Door {
    type Io = Admitted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Admitted, SocketAddr) {
        loop {
            // Waits out errors of accept(2), such as too few descriptors.
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            let admitted = lock(&self.rooms).admit(Instant::now());
            let Some(number) = admitted else { continue };
            let admitted = Admitted {
                stream,
                rooms: self.rooms.clone(),
                number,
                head: Head::None,
                timer: Box::pin(tokio::time::sleep(HEAD_TIME_MAX)),
            };
            return (admitted, peer);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Admitted {
    /// Notes since when the peer is waited for, and for how long at most.
    fn wait_for_peer(&mut self, at_most: Duration) {
        let now = Instant::now();
        self.timer.as_mut().reset(now + at_most);
        if let Some(guest) = lock(&self.rooms).guests.get_mut(&self.number) {
            guest.waits_since = Some(now);
        }
    }

    /// Whether the wait for the peer is over: somebody needs the room, or it took too long.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(guest) = lock(&self.rooms).guests.get_mut(&self.number) {
            if guest.is_sent_away {
                return true;
            }
            guest.waker = Some(cx.waker().clone());
        }
        self.head != Head::Whole && self.timer.as_mut().poll(cx).is_ready()
    }

    fn received(&mut self, bytes: &[u8]) {
        let before = self.head;
        self.head = before.received(bytes);
        if self.head == Head::Whole {
            if let Some(guest) = lock(&self.rooms).guests.get_mut(&self.number) {
                guest.waits_since = None;
            }
        } else if before == Head::None {
            self.wait_for_peer(HEAD_TIME_MAX);
        }
    }

    /// Something of an answer was sent: the next head may come.
    fn answered(&mut self) {
        self.head = Head::None;
        self.wait_for_peer(IDLE_TIME_MAX);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.rooms).guests.remove(&self.number);
    }
}

impl AsyncRead for Admitted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.received(buffer.filled().get(filled..).unwrap_or_default());
            return polled;
        }
        if self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(_)) = polled {
            self.answered();
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        if let Poll::Ready(Ok(_)) = polled {
            self.answered();
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line_however_it_is_cut() {
        let head = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 1..head.len() {
            let part = Head::None.received(&head[..cut]);
            assert!(matches!(part, Head::Part(_)), "{cut}");
            assert_eq!(part.received(&head[cut..]), Head::Whole);
        }
    }

    const CONNECTIONS_MAX: usize = 128;

    #[test]
    fn the_one_that_waits_longest_makes_room_and_who_is_answered_stays() {
        let (mut rooms, start) = (Rooms::new(CONNECTIONS_MAX), Instant::now());
        for _ in 0..CONNECTIONS_MAX {
            assert!(rooms.admit(start).is_some());
        }
        for guest in rooms.guests.values_mut() {
            guest.waits_since = None;
        }
        assert_eq!(rooms.admit(start), None, "all are being answered");
        let later = start + Duration::from_secs(1);
        rooms.guests.get_mut(&5).expect("open").waits_since = Some(later);
        rooms.guests.get_mut(&9).expect("open").waits_since = Some(start);
        assert!(rooms.admit(later).is_some());
        assert!(rooms.guests[&9].is_sent_away && !rooms.guests[&5].is_sent_away);
    }
}
