//! The simulated network: byte streams with bounded buffers, pieces of any size, latency, and connections that are cut.
//! Clients [`SimNet::connect`], shards of the broker [`SimNet::accept`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_lite::future::or;
use shard::env::Instant;
use shard::net::{ByteReader, ByteStream, ByteWriter};
use storage::notify::Notify;
use storage::sim_executor::SimHandle;
use storage::sim_rng::SimRng;

use super::knobs::NetKnobs;

/// All connections of one simulation. Cheap to clone.
#[derive(Clone)]
pub struct SimNet(Rc<Inner>);

struct Inner {
    clock: SimHandle,
    knobs: NetKnobs,
    state: RefCell<State>,
    changed: Notify,
}

struct State {
    rng: SimRng,
    /// One queue of new connections per listening shard; none while the broker is down.
    doors: Vec<VecDeque<SimStream>>,
    /// Grows when the doors close, so that an old shard's `accept` ends.
    generation: u64,
    links: Vec<Weak<Link>>,
    next_port: u16,
}

/// One connection: what flows to the broker and what flows back.
struct Link {
    pipes: RefCell<[Pipe; 2]>,
    changed: Notify,
    clock: SimHandle,
    port: u16,
    protected: bool,
}

#[derive(Default)]
struct Pipe {
    chunks: VecDeque<(u64, Bytes)>,
    bytes: usize,
    capacity: usize,
    piece_bytes_max: usize,
    latency_ns: (u64, u64),
    last_ns: u64,
    /// The sender has ended; nothing comes after this time.
    fin_ns: Option<u64>,
    reset: bool,
    /// A number for each change, so that a waiter sees that there was one.
    version: u64,
    rng: Option<SimRng>,
}

/// One end of a connection.
pub struct SimStream {
    link: Rc<Link>,
    /// The pipe this end writes to; it reads the other.
    out: usize,
    peer: SocketAddr,
}

/// The receiving half.
pub struct SimReader {
    link: Rc<Link>,
    pipe: usize,
    deadline: Option<Instant>,
}

/// The sending half.
pub struct SimWriter {
    link: Rc<Link>,
    pipe: usize,
    deadline: Option<Instant>,
}

/// Says whether the network itself ended a connection.
#[derive(Clone)]
pub struct LinkWatch(Weak<Link>);

impl SimNet {
    /// A network without a broker.
    #[must_use]
    pub fn new(clock: SimHandle, knobs: NetKnobs, seed: u64) -> Self {
        let state = State {
            rng: SimRng::new(seed, "net"),
            doors: Vec::new(),
            generation: 0,
            links: Vec::new(),
            next_port: 1024,
        };
        Self(Rc::new(Inner {
            clock,
            knobs,
            state: RefCell::new(state),
            changed: Notify::new(),
        }))
    }

    /// The broker listens, with this many shards.
    pub fn listen(&self, shards: u16) {
        let mut state = self.0.state.borrow_mut();
        state.doors = (0..shards).map(|_| VecDeque::new()).collect();
    }

    /// The broker does not listen any more; connections that wait are refused.
    pub fn close(&self) {
        let doors = {
            let mut state = self.0.state.borrow_mut();
            state.generation += 1;
            std::mem::take(&mut state.doors)
        };
        for stream in doors.into_iter().flatten() {
            stream.link.reset();
        }
        self.0.changed.notify();
    }

    /// The machine is gone: each connection ends, at once or after what is under way has arrived.
    pub fn cut_all(&self) {
        self.close();
        let links: Vec<_> = std::mem::take(&mut self.0.state.borrow_mut().links);
        for link in links.iter().filter_map(Weak::upgrade) {
            let keep = self.0.state.borrow_mut().rng.coin();
            if keep {
                let now_ns = self.0.clock.now_ns();
                link.end_all(now_ns);
            } else {
                link.reset();
            }
        }
    }

    /// Cuts one connection; false when there is none.
    pub fn cut_one(&self) -> bool {
        let link = {
            let mut state = self.0.state.borrow_mut();
            state.links.retain(|link| link.strong_count() > 0);
            if state.links.is_empty() {
                return false;
            }
            let count = state.links.len();
            let index = state.rng.index(count);
            state.links.swap_remove(index).upgrade()
        };
        match link {
            Some(link) if !link.protected => {
                link.reset();
                true
            }
            Some(link) => {
                self.0.state.borrow_mut().links.push(Rc::downgrade(&link));
                false
            }
            None => false,
        }
    }

    /// What the open connections are waiting for, for a report.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = self.0.state.borrow();
        let links = state.links.iter().filter_map(Weak::upgrade);
        let pipe = |p: &Pipe| format!("{} bytes, end {:?}, reset {}", p.bytes, p.fin_ns, p.reset);
        let line = |link: Rc<Link>| {
            let pipes = link.pipes.borrow();
            format!(
                "port {}: to the broker {}; back {}",
                link.port,
                pipe(&pipes[0]),
                pipe(&pipes[1])
            )
        };
        links.map(line).collect::<Vec<_>>().join("; ")
    }

    /// A client connects; the shard is chosen by lot. A `protected` connection is not cut.
    ///
    /// # Errors
    /// `ConnectionRefused` while the broker is down.
    pub fn connect(&self, protected: bool) -> io::Result<SimStream> {
        let mut state = self.0.state.borrow_mut();
        if state.doors.is_empty() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        state.next_port = state.next_port.wrapping_add(1).max(1024);
        let port = state.next_port;
        let link = Rc::new(Link {
            pipes: RefCell::new([self.pipe(&mut state.rng), self.pipe(&mut state.rng)]),
            changed: Notify::new(),
            clock: self.0.clock.clone(),
            port,
            protected,
        });
        state.links.push(Rc::downgrade(&link));
        let end = |out, port| SimStream {
            link: link.clone(),
            out,
            peer: SocketAddr::from(([10, 0, 0, 1], port)),
        };
        let shards = state.doors.len();
        let shard = state.rng.index(shards);
        state.doors[shard].push_back(end(1, port));
        drop(state);
        self.0.changed.notify();
        Ok(end(0, 9092))
    }

    /// The next connection for a shard; `None` once the broker has stopped listening.
    pub async fn accept(&self, shard: u16) -> Option<SimStream> {
        let generation = self.0.state.borrow().generation;
        self.0
            .changed
            .until(|| {
                let mut state = self.0.state.borrow_mut();
                if state.generation != generation {
                    return Some(None);
                }
                let stream = state.doors.get_mut(usize::from(shard))?.pop_front()?;
                Some(Some(stream))
            })
            .await
    }

    fn pipe(&self, rng: &mut SimRng) -> Pipe {
        let knobs = &self.0.knobs;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let pieces = [usize::MAX, 4096, 97, 7];
        let small = if rng.chance(knobs.small_pieces_ppm) {
            1 + rng.index(3)
        } else {
            0
        };
        Pipe {
            capacity: usize::try_from(rng.between(knobs.buffer_bytes.0, knobs.buffer_bytes.1))
                .expect("a buffer size fits"),
            piece_bytes_max: pieces[small],
            latency_ns: (nanos(knobs.latency.0), nanos(knobs.latency.1)),
            rng: Some(SimRng::new(rng.next_u64(), "pipe")),
            ..Pipe::default()
        }
    }
}

impl Link {
    fn reset(&self) {
        for pipe in &mut *self.pipes.borrow_mut() {
            pipe.reset = true;
            pipe.chunks.clear();
            pipe.version += 1;
        }
        self.changed.notify();
    }

    /// Both senders have ended; what has been sent still arrives.
    fn end_all(&self, now_ns: u64) {
        for pipe in &mut *self.pipes.borrow_mut() {
            pipe.finish(now_ns);
        }
        self.changed.notify();
    }

    /// Waits until a pipe changes or the clock reaches `until_ns`.
    async fn wait(&self, pipe: usize, until_ns: Option<u64>) {
        let seen = self.pipes.borrow()[pipe].version;
        let changed = self
            .changed
            .until(|| (self.pipes.borrow()[pipe].version != seen).then_some(()));
        match until_ns {
            Some(until_ns) => {
                let nap = Duration::from_nanos(until_ns.saturating_sub(self.clock.now_ns()));
                or(changed, self.clock.sleep(nap)).await;
            }
            None => changed.await,
        }
    }

    fn touch(&self, pipe: usize) {
        self.pipes.borrow_mut()[pipe].version += 1;
        self.changed.notify();
    }
}

impl Pipe {
    fn finish(&mut self, now_ns: u64) {
        let at = self.last_ns.max(now_ns);
        self.fin_ns.get_or_insert(at);
        self.version += 1;
    }

    /// Takes what has arrived.
    fn take(&mut self, buf: &mut BytesMut, now_ns: u64) -> Option<io::Result<usize>> {
        if self.reset {
            return Some(Err(io::ErrorKind::ConnectionReset.into()));
        }
        match self.chunks.front_mut() {
            Some((at, chunk)) if *at <= now_ns => {
                let room = buf.capacity() - buf.len();
                let count = chunk.len().min(room);
                buf.extend_from_slice(&chunk.split_to(count));
                if chunk.is_empty() {
                    self.chunks.pop_front();
                }
                self.bytes -= count;
                self.version += 1;
                Some(Ok(count))
            }
            Some(_) => None,
            None => self.fin_ns.filter(|at| *at <= now_ns).map(|_| Ok(0)),
        }
    }

    /// Puts in as much of `bytes` as there is room for.
    fn put(&mut self, bytes: &mut Bytes, now_ns: u64) -> Option<io::Result<()>> {
        if self.reset || self.fin_ns.is_some() {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.capacity.saturating_sub(self.bytes);
        if room == 0 {
            return None;
        }
        let rng = self.rng.as_mut().expect("made with the pipe");
        let piece = bytes.len().min(room).min(self.piece_bytes_max);
        let latency = rng.between(self.latency_ns.0, self.latency_ns.1);
        self.last_ns = self.last_ns.max(now_ns + latency);
        self.chunks.push_back((self.last_ns, bytes.split_to(piece)));
        self.bytes += piece;
        self.version += 1;
        Some(Ok(()))
    }

    fn next_ns(&self) -> Option<u64> {
        self.chunks.front().map(|(at, _)| *at).or(self.fin_ns)
    }
}

impl SimStream {
    /// A watch on the connection.
    #[must_use]
    pub fn watch(&self) -> LinkWatch {
        LinkWatch(Rc::downgrade(&self.link))
    }
}

impl LinkWatch {
    /// Whether the connection was cut from outside.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.0
            .upgrade()
            .is_none_or(|link| link.pipes.borrow().iter().any(|pipe| pipe.reset))
    }
}

impl ByteStream for SimStream {
    type Reader = SimReader;
    type Writer = SimWriter;

    fn split(self) -> (SimReader, SimWriter) {
        let reader = SimReader {
            link: self.link.clone(),
            pipe: 1 - self.out,
            deadline: None,
        };
        let writer = SimWriter {
            link: self.link,
            pipe: self.out,
            deadline: None,
        };
        (reader, writer)
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 9092))
    }
}

impl ByteReader for SimReader {
    async fn read(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        if buf.capacity() == buf.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            let now_ns = self.link.clock.now_ns();
            let (taken, next_ns) = {
                let pipe = &mut self.link.pipes.borrow_mut()[self.pipe];
                (pipe.take(buf, now_ns), pipe.next_ns())
            };
            if let Some(taken) = taken {
                self.link.changed.notify();
                return taken;
            }
            let deadline = self.deadline.map(|at| at.0);
            if deadline.is_some_and(|at| at <= now_ns) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let until_ns = [next_ns, deadline].into_iter().flatten().min();
            self.link.wait(self.pipe, until_ns).await;
        }
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        self.deadline = at;
    }
}

impl ByteWriter for SimWriter {
    async fn write_all(&mut self, chunks: &mut VecDeque<Bytes>) -> io::Result<()> {
        while let Some(chunk) = chunks.front_mut() {
            if chunk.is_empty() {
                chunks.pop_front();
                continue;
            }
            let now_ns = self.link.clock.now_ns();
            let put = self.link.pipes.borrow_mut()[self.pipe].put(chunk, now_ns);
            match put {
                Some(Ok(())) => self.link.changed.notify(),
                Some(Err(error)) => return Err(error),
                None if self.deadline.is_some_and(|at| at.0 <= now_ns) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                None => self.link.wait(self.pipe, self.deadline.map(|at| at.0)).await,
            }
        }
        Ok(())
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        self.deadline = at;
    }

    fn shutdown(&mut self) {
        let now_ns = self.link.clock.now_ns();
        self.link.pipes.borrow_mut()[self.pipe].finish(now_ns);
        self.link.changed.notify();
    }

    fn abort(&mut self) {
        self.link.reset();
    }
}

impl Drop for SimReader {
    fn drop(&mut self) {
        // Nobody reads any more: what is written from now on fails.
        let mut pipes = self.link.pipes.borrow_mut();
        let pipe = &mut pipes[self.pipe];
        pipe.chunks.clear();
        pipe.bytes = 0;
        pipe.fin_ns = Some(self.link.clock.now_ns());
        drop(pipes);
        self.link.touch(self.pipe);
    }
}

impl Drop for SimWriter {
    fn drop(&mut self) {
        self.shutdown();
    }
}
