//! A connection without a network: the shard that reads from it finds requests that were made before, as many as may be in flight, and
//! what it answers is looked at and counted. Costs the broker one copy of each request, as a receive from the kernel would.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use shard::env::Instant;
use shard::net::{ByteReader, ByteStream, ByteWriter};
use storage::notify::Notify;

/// Looks at an answer, without its length; the error says what is wrong with it.
type Check = dyn Fn(&[u8]) -> Result<(), String>;

/// What a connection sends.
pub(super) struct Feed {
    /// Whole requests, sent in turn for ever; at least one.
    pub(super) requests: Vec<Bytes>,
    /// Requests in flight at most.
    pub(super) window: usize,
    /// Looks at each answer.
    pub(super) check: Box<Check>,
    /// Where answers are counted.
    pub(super) answered: Arc<AtomicU64>,
    /// Who is told of an answer that is not right.
    pub(super) wrong: flume::Sender<String>,
}

/// Both ends of such a connection.
pub(super) struct FedStream(Rc<Shared>);

/// The end that the shard reads requests from.
pub(super) struct FedReader {
    shared: Rc<Shared>,
    next: usize,
    /// What is left of the request that is being read.
    rest: Bytes,
}

/// The end that the shard writes answers to.
pub(super) struct FedWriter {
    shared: Rc<Shared>,
    /// An answer that has not come whole.
    part: RefCell<BytesMut>,
}

struct Shared {
    feed: Feed,
    in_flight: Cell<usize>,
    is_closed: Cell<bool>,
    changed: Notify,
}

impl FedStream {
    pub(super) fn new(feed: Feed) -> Self {
        Self(Rc::new(Shared {
            feed,
            in_flight: Cell::new(0),
            is_closed: Cell::new(false),
            changed: Notify::new(),
        }))
    }
}

impl ByteStream for FedStream {
    type Reader = FedReader;
    type Writer = FedWriter;

    fn split(self) -> (FedReader, FedWriter) {
        let reader = FedReader {
            shared: self.0.clone(),
            next: 0,
            rest: Bytes::new(),
        };
        let writer = FedWriter {
            shared: self.0,
            part: RefCell::default(),
        };
        (reader, writer)
    }

    fn peer(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn local(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }
}

impl FedReader {
    /// The next request begins, if one more may be in flight.
    fn begin(&mut self) -> bool {
        let feed = &self.shared.feed;
        let in_flight = self.shared.in_flight.get();
        if in_flight >= feed.window {
            return false;
        }
        self.shared.in_flight.set(in_flight + 1);
        self.rest = feed.requests[self.next].clone();
        self.next = (self.next + 1) % feed.requests.len();
        true
    }
}

impl ByteReader for FedReader {
    async fn read(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        let shared = self.shared.clone();
        let has_something = || {
            let may_begin = shared.in_flight.get() < shared.feed.window;
            (may_begin || shared.is_closed.get() || !self.rest.is_empty()).then_some(())
        };
        shared.changed.until(has_something).await;
        if shared.is_closed.get() {
            return Ok(0);
        }
        let before = buf.len();
        while buf.len() < buf.capacity() && (!self.rest.is_empty() || self.begin()) {
            let part = self.rest.len().min(buf.capacity() - buf.len());
            buf.extend_from_slice(&self.rest[..part]);
            self.rest.advance(part);
        }
        Ok(buf.len() - before)
    }

    // Requests are there as soon as they may be.
    fn set_deadline(&mut self, _: Option<Instant>) {}
}

impl FedWriter {
    /// Takes whole answers from what has come; returns how many.
    fn count(&self) -> usize {
        let mut part = self.part.borrow_mut();
        let mut answers = 0;
        while let Some(length) = part
            .first_chunk()
            .map(|bytes| u32::from_be_bytes(*bytes) as usize)
            && part.len() >= 4 + length
        {
            let answer = part.split_to(4 + length);
            if let Err(sentence) = (self.shared.feed.check)(&answer[4..]) {
                // Nobody listens any more when the run is over.
                let _ = self.shared.feed.wrong.send(sentence);
            }
            answers += 1;
        }
        answers
    }
}

impl ByteWriter for FedWriter {
    async fn write_all(&mut self, chunks: &mut VecDeque<Bytes>) -> io::Result<()> {
        for chunk in chunks.drain(..) {
            self.part.borrow_mut().extend_from_slice(&chunk);
        }
        let answers = self.count();
        let shared = &self.shared;
        shared
            .in_flight
            .set(shared.in_flight.get().saturating_sub(answers));
        shared.feed.answered.fetch_add(answers as u64, Ordering::Relaxed);
        shared.changed.notify();
        Ok(())
    }

    fn set_deadline(&mut self, _: Option<Instant>) {}

    fn shutdown(&mut self) {
        self.abort();
    }

    fn abort(&mut self) {
        self.shared.is_closed.set(true);
        self.shared.changed.notify();
    }
}
