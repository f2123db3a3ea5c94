//! One client connection on its shard: frames in, requests started in order, answers out in order. The order itself is
//! decided by [`ConnectionOrder`]; here is the driver around it: one task reads, one writes, one runs per request.
//!
//! A connection costs its receive buffer (grows to the largest frame, given back when idle) and its open requests.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::frame::{self, FrameState};
use shard::connection::order::{ConnectionOrder, SlotId};
use shard::env::Env;
use shard::net::{ByteReader, ByteStream, ByteWriter};
use shard::notify::Notify;

use crate::node::Broker;
use crate::request::{self, CloseReason, Outcome, Started};

/// A read asks for at least this much, bytes: one large receive brings many small requests (`glommio.md` §2.2).
const READ_BYTES_MIN: usize = 64 << 10;

/// A receive buffer larger than this is not kept when the connection has nothing buffered, bytes.
const IDLE_BUFFER_BYTES_MAX: usize = 256 << 10;

/// A frame that has begun makes progress within this time, or the connection is closed.
const FRAME_PROGRESS: Duration = Duration::from_secs(60);

/// Answers of one connection that are encoded and not yet with the kernel, bytes; above it no request starts.
const UNSENT_BYTES_MAX: usize = 8 << 20;

/// What the requests of a connection know about it.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// Unique on this node since its start.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// The name of the listener it came in on.
    pub listener: Arc<str>,
    /// What the client said it is (ApiVersions v3+): name and version.
    pub software: RefCell<Option<(String, String)>>,
    closed: Cell<bool>,
    changed: Notify,
}

impl ConnectionInfo {
    /// A new connection.
    #[must_use]
    pub fn new(id: u64, peer: SocketAddr, listener: Arc<str>) -> Self {
        Self {
            id,
            peer,
            listener,
            software: RefCell::new(None),
            closed: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// Ends when nobody waits for answers any more: a request that waits for data gives up then.
    pub async fn closed(&self) {
        self.changed.until(|| self.closed.get().then_some(())).await;
    }

    fn give_up_waiting(&self) {
        self.closed.set(true);
        self.changed.notify();
    }
}

/// The state that the tasks of a connection share.
struct Shared {
    info: Rc<ConnectionInfo>,
    order: RefCell<ConnectionOrder<Vec<Bytes>>>,
    /// Encoded answers on their way to the kernel, bytes.
    unsent_bytes: Cell<usize>,
    /// Reading has ended: the writer closes the socket after the last answer.
    is_draining: Cell<bool>,
    /// Set when nothing more may be written: an error, or acks=0 failed.
    is_aborted: Cell<bool>,
    is_writer_done: Cell<bool>,
    changed: Notify,
}

/// Serves a connection until the client leaves, breaks the protocol or the broker stops. Returns why it ended.
pub async fn serve<E: Env, S: ByteStream>(
    broker: Rc<Broker<E>>,
    stream: S,
    info: Rc<ConnectionInfo>,
) -> CloseReason {
    let (reader, writer) = stream.split();
    let shared = Rc::new(Shared {
        info: info.clone(),
        order: RefCell::new(ConnectionOrder::default()),
        unsent_bytes: Cell::new(0),
        is_draining: Cell::new(false),
        is_aborted: Cell::new(false),
        is_writer_done: Cell::new(false),
        changed: Notify::new(),
    });
    broker
        .env
        .spawn(write_answers(shared.clone(), writer, broker.clone()));
    let reason = read_requests(&broker, &shared, reader).await;
    // What has begun is answered, also when the peer only half-closed or sent garbage after good requests.
    shared.is_draining.set(true);
    if matches!(reason, CloseReason::Io(_) | CloseReason::Aborted) {
        shared.is_aborted.set(true);
    }
    if reason != CloseReason::Stopping {
        info.give_up_waiting();
    }
    shared.changed.notify();
    shared.changed.until(|| is_over(&shared).then_some(())).await;
    reason
}

/// Whether both tasks and every request have ended. Answers that come after the writer's end have nowhere to go.
fn is_over(shared: &Shared) -> bool {
    if !shared.is_writer_done.get() {
        return false;
    }
    let mut order = shared.order.borrow_mut();
    while order.poll_answer().is_some() {}
    order.in_flight() == 0
}

async fn read_requests<E: Env, R: ByteReader>(
    broker: &Rc<Broker<E>>,
    shared: &Rc<Shared>,
    mut reader: R,
) -> CloseReason {
    let mut buffer = BytesMut::new();
    let frame_bytes_max = broker.settings.request_bytes_max;
    loop {
        loop {
            match frame::split_frame(&mut buffer, frame_bytes_max) {
                Ok(Some(frame)) => {
                    if let Err(reason) = start_request(broker, shared, frame).await {
                        return reason;
                    }
                }
                Ok(None) => break,
                Err(error) => return CloseReason::Protocol(error.to_string()),
            }
        }
        if shared.is_aborted.get() {
            return CloseReason::Aborted;
        }
        reserve(&mut buffer, frame_bytes_max);
        let limit = if buffer.is_empty() {
            broker.settings.idle_max
        } else {
            FRAME_PROGRESS
        };
        reader.set_deadline(Some(broker.env.now().after(limit)));
        let read = futures_lite::future::or(async { Some(reader.read(&mut buffer).await) }, async {
            broker.stopping().await;
            None
        });
        match read.await {
            None => return CloseReason::Stopping,
            Some(Ok(0)) if buffer.is_empty() => return CloseReason::PeerClosed,
            Some(Ok(0)) => {
                return CloseReason::Protocol(format!(
                    "the peer left in a frame after {} bytes",
                    buffer.len()
                ));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                if buffer.is_empty() && shared.order.borrow().in_flight() > 0 {
                    continue;
                }
                return CloseReason::Idle;
            }
            Some(Err(error)) => return CloseReason::Io(error.kind()),
        }
        broker.env.yield_to_reactor().await;
    }
}

/// Room for the rest of a frame that has begun, else for one large receive.
fn reserve(buffer: &mut BytesMut, frame_bytes_max: usize) {
    if buffer.is_empty() && buffer.capacity() > IDLE_BUFFER_BYTES_MAX {
        *buffer = BytesMut::new();
    }
    let wanted = match frame::peek_frame(buffer, frame_bytes_max) {
        // A frame is believed as it arrives: the buffer doubles, so a claim of 100 MiB costs what was sent.
        Ok(FrameState::Partial { missing, .. }) => missing.min(buffer.len().max(READ_BYTES_MIN)),
        _ => READ_BYTES_MIN,
    };
    buffer.reserve(wanted.max(READ_BYTES_MIN));
}

/// Waits for the request's turn, starts it, and lets it run on its own.
async fn start_request<E: Env>(
    broker: &Rc<Broker<E>>,
    shared: &Rc<Shared>,
    frame: Bytes,
) -> Result<(), CloseReason> {
    let kind = request::kind_of(&frame);
    shared
        .changed
        .until(|| {
            let has_room = shared.unsent_bytes.get() < UNSENT_BYTES_MAX;
            (shared.is_aborted.get() || (has_room && shared.order.borrow().may_start(kind))).then_some(())
        })
        .await;
    if shared.is_aborted.get() {
        return Err(CloseReason::Aborted);
    }
    broker.router.room().await;
    let slot = shared.order.borrow_mut().start(kind);
    match request::start(broker, &shared.info, frame) {
        Ok(Started::Later(answer)) => {
            let shared = shared.clone();
            broker.env.spawn(async move {
                let outcome = answer.await;
                finish(&shared, slot, outcome);
            });
            Ok(())
        }
        Ok(Started::Now(outcome)) => {
            finish(shared, slot, outcome);
            Ok(())
        }
        Err(reason) => {
            finish(shared, slot, Outcome::NoAnswer);
            Err(reason)
        }
    }
}

fn finish(shared: &Shared, slot: SlotId, outcome: Outcome) {
    let answer = match outcome {
        Outcome::Answer(chunks) => Some(chunks),
        Outcome::NoAnswer => None,
        Outcome::Close => {
            shared.is_aborted.set(true);
            None
        }
    };
    shared.order.borrow_mut().answer(slot, answer);
    shared.changed.notify();
}

/// What the writing task does next.
enum Step {
    Write,
    End,
}

/// Sends answers in request order, as many as are ready with one call, then ends the connection.
async fn write_answers<E: Env, W: ByteWriter>(shared: Rc<Shared>, mut writer: W, broker: Rc<Broker<E>>) {
    let mut chunks = VecDeque::new();
    while let Step::Write = shared.changed.until(|| next_step(&shared, &mut chunks)).await {
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        shared.unsent_bytes.set(bytes);
        // A slot has become free; the reader may start the next request while this is being sent.
        shared.changed.notify();
        writer.set_deadline(Some(broker.env.now().after(broker.settings.idle_max)));
        if writer.write_all(&mut chunks).await.is_err() {
            shared.is_aborted.set(true);
            break;
        }
        broker.metrics.sent_bytes(bytes);
        shared.unsent_bytes.set(0);
        shared.changed.notify();
    }
    if shared.is_aborted.get() {
        writer.abort();
    } else {
        writer.shutdown();
    }
    shared.is_writer_done.set(true);
    shared.info.give_up_waiting();
    shared.changed.notify();
}

fn next_step(shared: &Shared, chunks: &mut VecDeque<Bytes>) -> Option<Step> {
    let mut order = shared.order.borrow_mut();
    while let Some(answer) = order.poll_answer() {
        chunks.extend(answer);
    }
    if shared.is_aborted.get() {
        return Some(Step::End);
    }
    if !chunks.is_empty() {
        return Some(Step::Write);
    }
    (shared.is_draining.get() && order.in_flight() == 0).then_some(Step::End)
}
