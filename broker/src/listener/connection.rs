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

use bytes::Bytes;
use shard::budget::{BudgetClass, Charge};
use shard::connection::order::{ConnectionOrder, SlotId};
use shard::env::{Env, Instant};
use shard::net::{ByteReader, ByteStream, ByteWriter};
use shard::trace::Trace;
use storage::notify::Notify;

use super::answer::{Answer, AnswerCharge, FramePlace};
use super::intake::{Intake, Room};
use super::progress::{FrameProgress, LOOK_INTERVAL, Verdict};
use super::send::{Sent, send};
use super::stranger;
use crate::node::Broker;
use crate::observe::stages::Traced;
use crate::request::{self, CloseReason, Outcome, Started};

/// Answers of one connection that are encoded and not yet with the kernel, bytes; above it no request starts: a peer that does not
/// read holds one answer at most.
const UNSENT_BYTES_MAX: usize = 64 << 10;

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
    order: RefCell<ConnectionOrder<Answer>>,
    /// Encoded answers on their way to the kernel, bytes.
    unsent_bytes: Cell<usize>,
    /// Reading has ended: the writer closes the socket after the last answer.
    is_draining: Cell<bool>,
    /// Set when nothing more may be written: an error, or acks=0 failed.
    is_aborted: Cell<bool>,
    /// The peer did not read, and others waited for the memory of its answers.
    is_shed: Cell<bool>,
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
        is_shed: Cell::new(false),
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
    if shared.is_shed.get() {
        return CloseReason::Memory;
    }
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
    let mut intake = Intake::new();
    let frame_bytes_max = broker.settings.request_bytes_max;
    let mut progress = FrameProgress::new(broker.env.now(), broker.settings.idle_max);
    let mut is_first = true;
    let mut arrival = Arrival::at(broker.env.now());
    loop {
        loop {
            match intake.take_frame(frame_bytes_max) {
                Ok(Some((frame, charges))) => {
                    is_first = false;
                    if let Err(reason) = start_request(broker, shared, frame, charges, arrival).await {
                        return reason;
                    }
                    arrival.first_byte = arrival.last_read;
                    progress.began(broker.env.now());
                }
                Ok(None) => break,
                Err(error) => return not_ours(is_first, &intake, error.to_string()),
            }
        }
        if shared.is_aborted.get() {
            return CloseReason::Aborted;
        }
        match intake
            .make_room(&broker.env, &broker.budget, frame_bytes_max)
            .await
        {
            Ok(Room::Now) => {}
            Ok(Room::Waited) => progress.resumed(broker.env.now()),
            Err(reason) => return reason,
        }
        let now = broker.env.now();
        let deadline = if intake.is_empty() {
            progress.began(now);
            now.after(broker.settings.idle_max)
        } else {
            match progress.look(now, intake.len(), broker.budget.is_pressed(BudgetClass::Requests)) {
                Verdict::GoOn => now.after(LOOK_INTERVAL.min(broker.settings.idle_max)),
                Verdict::Stalled => return CloseReason::Memory,
                Verdict::Late => return CloseReason::Idle,
            }
        };
        reader.set_deadline(Some(deadline));
        let begins = intake.is_empty();
        match receive(broker, shared, &mut reader, &mut intake).await {
            Ok(()) => {}
            Err(CloseReason::Protocol(sentence)) => return not_ours(is_first, &intake, sentence),
            Err(reason) => return reason,
        }
        arrival.read(broker.env.now(), begins);
        broker.env.breathe().await;
    }
}

/// When the frame that comes next came.
#[derive(Clone, Copy)]
struct Arrival {
    first_byte: Instant,
    last_read: Instant,
}

impl Arrival {
    fn at(now: Instant) -> Self {
        Self {
            first_byte: now,
            last_read: now,
        }
    }

    /// Bytes have come; those of a new frame if it `begins`.
    fn read(&mut self, now: Instant, begins: bool) {
        self.last_read = now;
        if begins {
            self.first_byte = now;
        }
    }
}

/// Why bytes are no frame; where they are the first of the connection they may be known as another protocol's.
fn not_ours(is_first: bool, intake: &Intake, sentence: String) -> CloseReason {
    let other = is_first
        .then(|| stranger::looks_like(intake.received_bytes()))
        .flatten();
    CloseReason::Protocol(other.map_or(sentence, str::to_owned))
}

/// One read of the socket; the deadline may pass without one.
async fn receive<E: Env, R: ByteReader>(
    broker: &Broker<E>,
    shared: &Shared,
    reader: &mut R,
    intake: &mut Intake,
) -> Result<(), CloseReason> {
    let read = futures_lite::future::or(async { Some(reader.read(intake.buffer()).await) }, async {
        broker.stopping().await;
        None
    });
    match read.await {
        None => Err(CloseReason::Stopping),
        Some(Ok(0)) if intake.is_empty() => Err(CloseReason::PeerClosed),
        Some(Ok(0)) => Err(CloseReason::Protocol(format!(
            "the peer left in a frame after {} bytes",
            intake.len()
        ))),
        Some(Ok(bytes)) => {
            intake.received(bytes);
            Ok(())
        }
        // A request that takes long is no idleness, and a frame has its own limits.
        Some(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
            if !intake.is_empty() || shared.order.borrow().in_flight() > 0 {
                Ok(())
            } else {
                Err(CloseReason::Idle)
            }
        }
        Some(Err(error)) => Err(CloseReason::Io(error.kind())),
    }
}

/// Waits for the request's turn and for memory, starts it, and lets it run on its own.
async fn start_request<E: Env>(
    broker: &Rc<Broker<E>>,
    shared: &Rc<Shared>,
    frame: Bytes,
    charges: Vec<Charge>,
    arrival: Arrival,
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
    if broker.budget.is_pressed(BudgetClass::Responses) && !request::has_small_answer(&frame) {
        // Answers wait for memory: a request that would make more of them waits behind them.
        drop(broker.budget.charge(BudgetClass::Responses, 1).await);
    }
    broker.router.room().await;
    let slot = shared.order.borrow_mut().start(kind);
    let begin = |now| Trace::new(arrival.first_byte, arrival.last_read, now);
    let trace = broker.metrics.stages.begin(&frame, || begin(broker.env.now()));
    let place = FramePlace::of(&frame);
    match request::start(broker, &shared.info, frame, trace.clone()).await {
        Ok(Started::Later(answer)) => {
            let (shared, broker) = (shared.clone(), broker.clone());
            broker.env.clone().spawn(async move {
                let mut outcome = answer.await;
                leave_frame(place, &mut outcome);
                finish(&broker, &shared, slot, outcome, trace).await;
                drop(charges);
            });
            Ok(())
        }
        Ok(Started::Now(mut outcome)) => {
            leave_frame(place, &mut outcome);
            finish(broker, shared, slot, outcome, trace).await;
            Ok(())
        }
        Err(reason) => {
            finish(broker, shared, slot, Outcome::NoAnswer, None).await;
            Err(reason)
        }
    }
}

fn leave_frame(place: FramePlace, outcome: &mut Outcome) {
    if let Outcome::Answer(chunks, _) = outcome {
        place.leave(chunks);
    }
}

async fn finish<E: Env>(
    broker: &Broker<E>,
    shared: &Shared,
    slot: SlotId,
    outcome: Outcome,
    trace: Option<Traced>,
) {
    if let Some(traced) = &trace {
        traced.trace.encoded(broker.env.now());
    }
    let answer = match outcome {
        Outcome::Answer(chunks, charged) => {
            let charge = match charged {
                Some(charge) => AnswerCharge::made_before(charge),
                None => AnswerCharge::of(&broker.budget, &broker.shared_pieces, &chunks).await,
            };
            Some(Answer {
                chunks,
                charge,
                trace,
            })
        }
        Outcome::NoAnswer => {
            if let Some(traced) = trace {
                broker
                    .metrics
                    .stages
                    .ended(&traced, broker.env.now(), broker.env.wall());
            }
            None
        }
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
    let (mut charges, mut traces) = (Vec::new(), Vec::new());
    while let Step::Write = shared
        .changed
        .until(|| next_step(&shared, &broker.env, &mut chunks, &mut charges, &mut traces))
        .await
    {
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        shared.unsent_bytes.set(bytes);
        // A slot has become free; the reader may start the next request while this is being sent.
        shared.changed.notify();
        let sent = send(&broker, &mut writer, &mut chunks).await;
        if sent != Sent::All {
            shared.is_shed.set(sent == Sent::Shed);
            shared.is_aborted.set(true);
            break;
        }
        broker.metrics.sent_bytes(bytes);
        for traced in traces.drain(..) {
            broker
                .metrics
                .stages
                .ended(&traced, broker.env.now(), broker.env.wall());
        }
        charges.clear();
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

fn next_step(
    shared: &Shared,
    env: &impl Env,
    chunks: &mut VecDeque<Bytes>,
    charges: &mut Vec<AnswerCharge>,
    traces: &mut Vec<Traced>,
) -> Option<Step> {
    let mut order = shared.order.borrow_mut();
    while let Some(answer) = order.poll_answer() {
        chunks.extend(answer.chunks);
        charges.push(answer.charge);
        if let Some(traced) = answer.trace {
            traced.trace.its_turn(env.now());
            traces.push(traced);
        }
    }
    if shared.is_aborted.get() {
        return Some(Step::End);
    }
    if !chunks.is_empty() {
        return Some(Step::Write);
    }
    (shared.is_draining.get() && order.in_flight() == 0).then_some(Step::End)
}
