//! What all simulated clients share: a connection that speaks protocol bytes and checks that answers come in request order,
//! once each, within bounded time; and the surroundings of a client.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_lite::future::or;
use protocol::compression::CodecContexts;
use protocol::frame::split_frame;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::message::{Message, Request};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use protocol::{ApiKey, ErrorCode, Reader, Str, Uuid, Writer};
use shard::net::{ByteReader, ByteStream, ByteWriter};
use storage::notify::Notify;
use storage::sim_executor::SimHandle;
use storage::sim_rng::SimRng;

use super::net::{LinkWatch, SimNet, SimReader, SimWriter};
use super::node::topic_name;
use super::oracle::Oracle;
use super::trace::Trace;

/// A request that is not answered within this time, on a connection that stands, never will be (R3).
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The largest answer, bytes.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// A client waits this long, on average, before it connects again.
const BACKOFF: Duration = Duration::from_millis(3);

/// A change whose answer was lost has taken effect on all shards, or never will, after this time. A journal that waits for
/// the rolls of very small segments on a slow disk holds a commit up for seconds (seed 578).
const SETTLED: Duration = Duration::from_secs(10);

/// What every client of a run shares. Cheap to clone.
#[derive(Clone)]
pub struct Surroundings(Rc<Shared>);

struct Shared {
    clock: SimHandle,
    net: SimNet,
    oracle: Oracle,
    trace: Rc<Trace>,
    topics: Vec<i32>,
    codecs: RefCell<CodecContexts>,
    /// Which run of the broker this is, and whether it is about to end: then connections may close.
    run: Cell<u32>,
    is_ending: Cell<bool>,
    /// The disk fails in this run of the broker, or has failed: answers may say so.
    disk_may_fail: Cell<bool>,
    /// Until when the disk was full, the last time; [`Duration::MAX`] while it is.
    full_until: Cell<Duration>,
    /// The run's workload is over: clients that go on for ever end.
    is_over: Cell<bool>,
    over: Notify,
    /// Answered produces, for the world to examine the disk after some of them.
    acknowledged: Cell<u64>,
    acknowledgement: Notify,
    producer_ids: RefCell<BTreeSet<i64>>,
    /// Ids of the run's topics, once a client was told.
    topic_ids: RefCell<Vec<Option<Uuid>>>,
}

/// The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// One connection of a client.
pub struct Connection {
    around: Surroundings,
    name: Rc<str>,
    writer: SimWriter,
    incoming: Rc<Incoming>,
    watch: LinkWatch,
    /// The run of the broker that it was made in.
    run: u32,
    next_correlation: i32,
    /// Requests that wait for their answer.
    open: VecDeque<Expected>,
    /// The broker may close this connection of its own accord.
    may_be_closed: bool,
    /// The disk fails in the run that it was made in: an answer that comes after the run has ended may still say so.
    disk_may_fail: bool,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    correlation: i32,
    key: ApiKey,
    version: i16,
}

#[derive(Default)]
struct Incoming {
    frames: RefCell<VecDeque<Bytes>>,
    is_closed: Cell<bool>,
    changed: Notify,
}

impl Surroundings {
    /// The surroundings of the clients of one run.
    #[must_use]
    pub fn new(clock: SimHandle, net: SimNet, oracle: Oracle, trace: Rc<Trace>, topics: Vec<i32>) -> Self {
        Self(Rc::new(Shared {
            clock,
            net,
            oracle,
            trace,
            topics,
            codecs: RefCell::default(),
            run: Cell::new(0),
            is_ending: Cell::new(false),
            disk_may_fail: Cell::new(false),
            full_until: Cell::new(Duration::ZERO),
            is_over: Cell::new(false),
            over: Notify::new(),
            acknowledged: Cell::new(0),
            acknowledgement: Notify::new(),
            producer_ids: RefCell::default(),
            topic_ids: RefCell::default(),
        }))
    }

    /// The clock and the tasks of clients.
    #[must_use]
    pub fn clock(&self) -> &SimHandle {
        &self.0.clock
    }

    /// The model.
    #[must_use]
    pub fn oracle(&self) -> &Oracle {
        &self.0.oracle
    }

    /// The trace.
    #[must_use]
    pub fn trace(&self) -> &Rc<Trace> {
        &self.0.trace
    }

    /// Partitions of each topic.
    #[must_use]
    pub fn topics(&self) -> &[i32] {
        &self.0.topics
    }

    /// Compression contexts.
    #[must_use]
    pub fn codecs(&self) -> std::cell::RefMut<'_, CodecContexts> {
        self.0.codecs.borrow_mut()
    }

    /// The number of a partition in the run.
    #[must_use]
    pub fn partition_number(&self, topic: usize, index: i32) -> u32 {
        let before: i32 = self.0.topics[..topic].iter().sum();
        u32::try_from(before + index).expect("partitions are counted from 0")
    }

    /// The next run of the broker begins.
    pub fn begin_run(&self, run: u32) {
        self.0.run.set(run);
        self.0.is_ending.set(false);
    }

    /// The run of the broker is about to end, or ends.
    pub fn end_run(&self) {
        self.0.is_ending.set(true);
    }

    /// Whether the disk is to fail from now on.
    pub fn let_disk_fail(&self, may_fail: bool) {
        self.0.disk_may_fail.set(may_fail);
        self.0.trace.allow_errors(may_fail);
    }

    /// Whether the disk fails in this run of the broker.
    #[must_use]
    pub fn disk_may_fail(&self) -> bool {
        self.0.disk_may_fail.get()
    }

    /// The disk is full from now on, or has space from now on.
    pub fn fill_disk(&self, is_full: bool) {
        let until = if is_full {
            Duration::MAX
        } else {
            self.0.clock.now()
        };
        self.0.full_until.set(until);
    }

    /// Whether what was asked for at `since`, and not answered, has happened by now or never will. On a full disk it waits.
    #[must_use]
    pub fn has_settled(&self, since: Duration) -> bool {
        let from = since.max(self.0.full_until.get());
        self.0.clock.now() > from.saturating_add(SETTLED)
    }

    /// The clients are to end.
    pub fn finish(&self) {
        self.0.is_over.set(true);
        self.0.over.notify();
    }

    /// Whether the clients are to end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over.get()
    }

    /// Sleeps up to `most`.
    pub async fn pause(&self, rng: &mut SimRng, most: Duration) {
        if most.is_zero() {
            return;
        }
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let nap = self.0.clock.sleep(Duration::from_nanos(rng.between(1, most)));
        or(nap, self.0.over.until(|| self.is_over().then_some(()))).await;
    }

    /// Waits before another try.
    pub async fn back_off(&self, rng: &mut SimRng) {
        self.pause(rng, BACKOFF * 2).await;
    }

    /// A produce with acks=1 or all was answered well.
    pub fn note_acknowledgement(&self) {
        self.0.acknowledged.set(self.0.acknowledged.get() + 1);
        self.0.acknowledgement.notify();
    }

    /// Ends after the next acknowledgement.
    pub async fn next_acknowledgement(&self) {
        let seen = self.0.acknowledged.get();
        self.0
            .acknowledgement
            .until(|| (self.0.acknowledged.get() != seen).then_some(()))
            .await;
    }

    /// A producer was given this id: none is given twice.
    pub fn check_producer_id(&self, id: i64) {
        if id < 0 || !self.0.producer_ids.borrow_mut().insert(id) {
            self.0
                .trace
                .violation(format_args!("producer id {id} was given twice"));
        }
    }

    /// Ids of the run's topics, as far as any client was told.
    #[must_use]
    pub fn known_topic_ids(&self) -> Vec<Option<Uuid>> {
        self.0.topic_ids.borrow().clone()
    }

    /// Topics have these ids: for ever.
    fn check_topic_ids(&self, ids: &[Uuid]) {
        let mut known = self.0.topic_ids.borrow_mut();
        known.resize(ids.len(), None);
        for (topic, (known, id)) in known.iter_mut().zip(ids).enumerate() {
            let before = *known.get_or_insert(*id);
            if before != *id {
                let what = format_args!("topic {topic} has the id {id:?}, it had {before:?}");
                self.0.trace.violation(what);
            }
        }
    }

    /// Connects, trying again until the broker is there; `None` once the clients are to end.
    pub async fn connect(&self, name: &Rc<str>, rng: &mut SimRng) -> Option<Connection> {
        self.connect_as(name, rng, false).await
    }

    /// As [`Self::connect`]; the network does not cut a `protected` connection.
    pub async fn connect_as(&self, name: &Rc<str>, rng: &mut SimRng, protected: bool) -> Option<Connection> {
        loop {
            if self.is_over() {
                return None;
            }
            if let Ok(stream) = self.0.net.connect(protected) {
                self.0.trace.event(format_args!("{name} connects"));
                let watch = stream.watch();
                let (reader, writer) = stream.split();
                let incoming = Rc::new(Incoming::default());
                self.0.clock.spawn(receive(reader, incoming.clone()));
                return Some(Connection {
                    around: self.clone(),
                    name: name.clone(),
                    writer,
                    incoming,
                    watch,
                    run: self.0.run.get(),
                    next_correlation: number(rng),
                    open: VecDeque::new(),
                    may_be_closed: false,
                    disk_may_fail: self.disk_may_fail(),
                });
            }
            self.back_off(rng).await;
        }
    }
}

fn number(rng: &mut SimRng) -> i32 {
    super::knobs::number(rng, 0, 1 << 30)
}

async fn receive(mut reader: SimReader, incoming: Rc<Incoming>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(16 << 10);
        match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {
                while let Ok(Some(frame)) = split_frame(&mut buffer, FRAME_BYTES_MAX) {
                    incoming.frames.borrow_mut().push_back(frame);
                }
                incoming.changed.notify();
            }
        }
    }
    incoming.is_closed.set(true);
    incoming.changed.notify();
}

impl Connection {
    /// Whether an answer may say that the disk failed.
    #[must_use]
    pub fn disk_may_fail(&self) -> bool {
        self.disk_may_fail
    }

    /// The broker may close this connection: something on it may be refused that way.
    pub fn allow_close(&mut self) {
        self.may_be_closed = true;
    }

    /// Sends a request. `answered` is false for a produce with acks=0.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn send<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        answered: bool,
    ) -> Result<(), Closed> {
        let correlation = self.next_correlation;
        self.next_correlation = correlation.wrapping_add(1);
        let mut writer = Writer::framed(256);
        RequestHeader {
            api_key: R::KEY,
            api_version: version,
            correlation_id: correlation,
            client_id: Some(Str::from(self.name.to_string())),
        }
        .encode(&mut writer);
        request
            .encode(&mut writer, version)
            .expect("a request of ours can be encoded");
        let chunks = writer.finish().expect("a request of ours fits a frame");
        if answered {
            self.open.push_back(Expected {
                correlation,
                key: R::KEY,
                version,
            });
        }
        self.send_bytes(chunks.into()).await
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn send_bytes(&mut self, mut chunks: VecDeque<Bytes>) -> Result<(), Closed> {
        match self.writer.write_all(&mut chunks).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.closed()),
        }
    }

    /// Whether an answer, or the end of the connection, has arrived.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.incoming.frames.borrow().is_empty() || self.incoming.is_closed.get()
    }

    /// Ends when [`Self::has_arrived`].
    pub async fn arrived(&self) {
        self.incoming
            .changed
            .until(|| self.has_arrived().then_some(()))
            .await;
    }

    /// Waits for the answer of the oldest request.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn receive<M: Message>(&mut self) -> Result<M, Closed> {
        let arrived = async {
            self.arrived().await;
            true
        };
        let late = async {
            self.around.0.clock.sleep(ANSWER_MAX).await;
            false
        };
        if !or(arrived, late).await {
            let open = &self.open;
            let what = format_args!("{}: {open:?} not answered within {ANSWER_MAX:?}", self.name);
            self.around.0.trace.violation(what);
            return Err(Closed);
        }
        let frame = self.incoming.frames.borrow_mut().pop_front();
        let Some(frame) = frame else {
            return Err(self.closed());
        };
        let Some(expected) = self.open.pop_front() else {
            return Err(self.wrong(format_args!("an answer to nothing")));
        };
        let mut reader = Reader::new(frame);
        let header = ResponseHeader::decode(&mut reader, expected.key, expected.version);
        match header {
            Ok(header) if header.correlation_id == expected.correlation => {}
            other => {
                let what = format_args!("answer {other:?} where {expected:?} was due");
                return Err(self.wrong(what));
            }
        }
        match M::decode(&mut reader, expected.version).map(|message| (message, reader.remaining())) {
            Ok((message, 0)) => Ok(message),
            other => Err(self.wrong(format_args!("{expected:?} was answered with {other:?}"))),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response, Closed> {
        self.send(request, version, true).await?;
        self.receive().await
    }

    /// Waits until the broker closes the connection, without another answer.
    pub async fn expect_close(&mut self) {
        self.may_be_closed = true;
        let closed = async {
            self.incoming
                .changed
                .until(|| self.incoming.is_closed.get().then_some(()))
                .await;
            true
        };
        let late = async {
            self.around.0.clock.sleep(ANSWER_MAX).await;
            false
        };
        if !or(closed, late).await {
            self.wrong(format_args!("the connection stands after what must close it"));
        }
    }

    /// Ids of the run's topics, `None` while one of them is not there.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn topic_ids(&mut self) -> Result<Option<Vec<Uuid>>, Closed> {
        let topics = self.around.0.topics.len();
        let topic = |index| MetadataRequestTopic {
            name: Some(Str::from(topic_name(index))),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some((0..topics).map(topic).collect()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let response: MetadataResponse = self.call(&request, 12).await?;
        if response.topics.iter().any(|t| t.error_code != ErrorCode::NONE) {
            return Ok(None);
        }
        let ids: Vec<Uuid> = response.topics.iter().map(|t| t.topic_id).collect();
        self.around.check_topic_ids(&ids);
        Ok(Some(ids))
    }

    /// The connection ended: nothing but the network, the end of the run or a request that asks for it may do that.
    fn closed(&mut self) -> Closed {
        let around = &self.around.0;
        let is_excused = self.may_be_closed
            || self.watch.is_cut()
            || around.is_ending.get()
            || around.run.get() != self.run;
        if !is_excused {
            self.around
                .0
                .trace
                .violation(format_args!("{}: the broker closed the connection", self.name));
        }
        Closed
    }

    fn wrong(&self, what: std::fmt::Arguments<'_>) -> Closed {
        self.around
            .0
            .trace
            .violation(format_args!("{}: {what}", self.name));
        Closed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let trace = &self.around.0.trace;
        trace.event(format_args!("{} disconnects", self.name));
        if self.open.is_empty() && !self.incoming.frames.borrow().is_empty() {
            trace.violation(format_args!("{}: an answer to nothing", self.name));
        }
        // Some clients vanish, others say good-bye and still take what comes.
        if self.next_correlation % 2 == 0 {
            self.writer.abort();
        }
    }
}
