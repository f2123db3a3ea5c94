//! One thread of the generator: its producers and consumers on one poll loop of ours. A turn issues what is due, closes batches that
//! have lingered, sends, waits for sockets or the next moment, and reads answers.
//!
//! Why a loop of ours: the timer of tokio has steps of a millisecond, which at 10,000 messages a second without linger is ten messages
//! at once; glommio would compete with the broker under test for io_uring's workers and take a core of its own to spin on. What a turn
//! costs is its sleep: of 10,000 messages a second, each sent at once, half of this program's CPU is the kernel's going to sleep and
//! waking (perf), which is why messages of a batch that lingers are made together. Figures are in `bench/README.md`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use broker::exit::{Failure, Status};
use bytes::Bytes;
use protocol::compression::{Compressor, Decompressor};

use super::batch::{RECORD_OVERHEAD_BYTES_MAX, Template};
use super::clock::{Clock, nanoseconds};
use super::cluster::Cluster;
use super::connect::{Connected, connect};
use super::consumer::{Consumer, ConsumerError, ConsumerKit};
use super::control::{Change, Control};
use super::keys::KeyTable;
use super::link::Link;
use super::pace::Pace;
use super::plan::Plan;
use super::poller::{Poller, Ready};
use super::producer::{Kit, Linger, Producer, ProducerError};
use super::stats::{Report, Stats, Waiting};

/// Longest wait, after which the conductor's changes are looked at.
const TURN_MAX: Duration = Duration::from_millis(20);

/// With linger, messages of a batch are made together, so long after the first was due at most.
const TOGETHER_MAX: Duration = Duration::from_micros(250);

/// A producer that may send nothing before an answer comes gathers what is due so long; the answer wakes it.
const SATURATED: Duration = Duration::from_millis(2);

/// Batches made before the run: different ones.
const TEMPLATES: usize = 16;

/// Latencies of messages that were given up are recorded in so many steps.
const OVERDUE_STEPS: u64 = 1000;

/// What all threads of a run share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) cluster: Cluster,
    pub(super) keys: KeyTable,
    pub(super) values: Vec<Bytes>,
    pub(super) control: Control,
    pub(super) clock: Clock,
}

/// Whose socket it is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Producer(usize, usize),
    Consumer(usize),
}

/// How messages come to be.
enum Source {
    Nothing,
    Paced(Pace),
    Maximum,
}

/// A thread's state.
struct Worker<'a> {
    shared: &'a Shared,
    poller: Poller,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    owners: Vec<Owner>,
    /// Whether each socket is watched for room.
    is_watched: Vec<bool>,
    /// Sockets of each producer begin here.
    first_socket: Vec<usize>,
    source: Source,
    /// How long messages of a batch may be made together.
    together_ns: u64,
    lingers: VecDeque<Linger>,
    busy: VecDeque<usize>,
    templates: Vec<Template>,
    stats: Stats,
    compressor: Compressor,
    decompressor: Decompressor,
    seen: usize,
    is_paused: bool,
}

/// Runs thread `number` until the conductor ends it. What goes wrong is reported.
pub(super) fn work(shared: &Arc<Shared>, number: usize, reports: &Sender<Report>) {
    let outcome = connect(&shared.plan, &shared.cluster, number).and_then(|connected| {
        let mut worker = Worker::new(shared, connected, reports.clone()).map_err(|error| system(&error))?;
        let _ = reports.send(Report::Connected);
        worker.run()
    });
    if let Err(failure) = outcome {
        let _ = reports.send(Report::Failed(failure));
    }
}

fn system(error: &std::io::Error) -> Failure {
    Failure::new(Status::System, format!("waiting for sockets: {error}"))
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, connected: Connected, reports: Sender<Report>) -> std::io::Result<Self> {
        let poller = Poller::new()?;
        let (mut owners, mut first_socket) = (Vec::new(), Vec::new());
        for (index, producer) in connected.producers.iter().enumerate() {
            first_socket.push(owners.len());
            for (link, to) in producer.links.iter().enumerate() {
                poller.add(to.link.stream(), owners.len())?;
                owners.push(Owner::Producer(index, link));
            }
        }
        for (index, consumer) in connected.consumers.iter().enumerate() {
            poller.add(consumer.link.stream(), owners.len())?;
            owners.push(Owner::Consumer(index));
        }
        let interval_ns = nanoseconds(shared.plan.interval).max(1);
        Ok(Self {
            shared,
            poller,
            producers: connected.producers,
            consumers: connected.consumers,
            is_watched: vec![false; owners.len()],
            owners,
            first_socket,
            source: Source::Nothing,
            together_ns: 0,
            lingers: VecDeque::new(),
            busy: VecDeque::new(),
            templates: templates(shared),
            stats: Stats::new(shared.clock, interval_ns, reports),
            compressor: Compressor::new(),
            decompressor: Decompressor::new(),
            seen: 0,
            is_paused: false,
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        self.ask_all()?;
        let mut ready = Vec::new();
        while !self.shared.control.is_aborted() {
            let now = self.shared.clock.now();
            self.change(now)?;
            self.roll(now);
            self.issue(now);
            self.expire(now);
            self.serve_busy(now)?;
            let wait = self.next_moment().saturating_sub(self.shared.clock.now());
            ready.clear();
            self.poller
                .wait(Duration::from_nanos(wait), &mut ready)
                .map_err(|error| system(&error))?;
            if ready.is_empty() {
                continue;
            }
            // Answers of a new interval are counted there.
            let now = self.shared.clock.now();
            self.change(now)?;
            self.roll(now);
            for one in &ready {
                self.serve(*one)?;
            }
        }
        Ok(())
    }

    fn roll(&mut self, now: u64) {
        let producers = &self.producers;
        let batch = self
            .templates
            .first()
            .map_or(1, |template| u64::from(template.records().unsigned_abs()));
        self.stats.roll(now, || {
            producers.iter().fold(Waiting::default(), |sum, producer| {
                let (unsent, in_flight) = producer.waiting();
                Waiting {
                    unsent: sum.unsent + unsent + producer.owed * (batch - 1),
                    in_flight: sum.in_flight + in_flight,
                }
            })
        });
    }

    /// Carries out the changes whose moment has come.
    fn change(&mut self, now: u64) -> Result<(), Failure> {
        while let Some(planned) = self.shared.control.get(self.seen) {
            if planned.at > now {
                break;
            }
            self.seen += 1;
            match planned.change {
                Change::Rate(rate) => self.set_pace(planned.at, rate, now),
                Change::Maximum => {
                    self.give_up(now);
                    self.source = Source::Maximum;
                    (0..self.producers.len()).for_each(|producer| self.mark_busy(producer));
                }
                Change::Idle => {
                    self.give_up(now);
                    self.source = Source::Nothing;
                }
                Change::Phase => self.stats.begin_phase(planned.at),
                Change::Pause(is_paused) => {
                    self.is_paused = is_paused;
                    self.ask_all()?;
                }
            }
        }
        Ok(())
    }

    fn set_pace(&mut self, at: u64, rate: f64, now: u64) {
        self.give_up(now);
        let plan = &self.shared.plan;
        let messages = self
            .templates
            .first()
            .map_or(1.0, |template| f64::from(template.records()));
        let share = self.producers.len() as f64 / plan.producers.count.max(1) as f64;
        let per_second = rate / messages * share;
        if per_second <= 0.0 {
            self.source = Source::Nothing;
            return;
        }
        let pace = Pace::new(at, per_second, self.producers.len());
        // A batch is still closed in time: the first of its messages says when.
        let bytes = plan.message_bytes() + RECORD_OVERHEAD_BYTES_MAX / 2;
        let filled = plan.producers.batch_bytes as f64 / bytes as f64 * pace.interval_of_producer_ns();
        self.together_ns = if self.templates.is_empty() {
            nanoseconds(plan.producers.linger.min(TOGETHER_MAX)).min(filled as u64 / 4)
        } else {
            0
        };
        self.source = Source::Paced(pace);
    }

    /// Messages that were due and are not made: their latency so far counts, so that a rate that is too high shows.
    fn give_up(&mut self, now: u64) {
        let messages = self
            .templates
            .first()
            .map_or(1, |template| u64::from(template.records().unsigned_abs()));
        for (index, producer) in self.producers.iter_mut().enumerate() {
            if let Source::Paced(pace) = &self.source {
                let step = producer.owed.div_ceil(OVERDUE_STEPS).max(1);
                let mut from = 0;
                while from < producer.owed {
                    let count = step.min(producer.owed - from);
                    let due = pace.due(index, producer.number_in_pace + from);
                    self.stats.record_produce(due, now, count * messages);
                    from += count;
                }
                self.stats.current.counts.given_up += producer.owed * messages;
            }
            producer.owed = 0;
            producer.number_in_pace = 0;
        }
    }

    /// Hands out what is due.
    fn issue(&mut self, now: u64) {
        let Source::Paced(pace) = &mut self.source else {
            return;
        };
        while let Some(index) = pace.take(now) {
            if let Some(producer) = self.producers.get_mut(index) {
                producer.owed += 1;
                if !producer.is_busy {
                    producer.is_busy = true;
                    self.busy.push_back(index);
                }
            }
        }
    }

    fn mark_busy(&mut self, index: usize) {
        if let Some(producer) = self.producers.get_mut(index)
            && !producer.is_busy
        {
            producer.is_busy = true;
            self.busy.push_back(index);
        }
    }

    fn expire(&mut self, now: u64) {
        while self.lingers.front().is_some_and(|linger| linger.until <= now) {
            if let Some(linger) = self.lingers.pop_front() {
                if let Some(producer) = self.producers.get_mut(linger.producer) {
                    producer.expire(&linger);
                }
                self.mark_busy(linger.producer);
            }
        }
    }

    /// Makes and sends messages of the producers that have something to do.
    fn serve_busy(&mut self, now: u64) -> Result<(), Failure> {
        for _ in 0..self.busy.len() {
            let Some(index) = self.busy.pop_front() else { break };
            let Some(producer) = self.producers.get_mut(index) else {
                continue;
            };
            producer.is_busy = false;
            let mut kit = Kit {
                plan: &self.shared.plan.producers,
                keys: &self.shared.keys,
                values: &self.shared.values,
                templates: &self.templates,
                names: &self.shared.cluster.names,
                clock: self.shared.clock,
                is_stamped: self.shared.plan.is_stamped(),
                compressor: &mut self.compressor,
            };
            match &self.source {
                Source::Nothing => {}
                Source::Paced(pace) => {
                    while producer.owed > 0 && !producer.is_full(kit.plan.buffer_bytes) {
                        let due = pace.due(index, producer.number_in_pace);
                        producer.owed -= 1;
                        producer.number_in_pace += 1;
                        let linger = producer.append(due, now, &mut kit);
                        put_linger(linger, now, producer, &mut self.lingers);
                    }
                }
                Source::Maximum => {
                    let bytes = kit.plan.request_bytes_max.min(kit.plan.buffer_bytes);
                    while !producer.is_full(bytes) {
                        let linger = producer.append(now, now, &mut kit);
                        put_linger(linger, now, producer, &mut self.lingers);
                    }
                }
            }
            let outcome = producer.dispatch(&mut kit, &mut self.stats);
            self.sent(index, outcome.map_err(ProducerError::from))?;
            // No answer will say that it may go on.
            let goes_on = self
                .producers
                .get(index)
                .is_some_and(|producer| !producer.is_blocked());
            if matches!(self.source, Source::Maximum) && self.shared.plan.producers.acks == 0 && goes_on {
                self.mark_busy(index);
            }
        }
        Ok(())
    }

    /// What follows a write of a producer: watching for room, or not any more.
    fn sent(&mut self, index: usize, outcome: Result<(), ProducerError>) -> Result<(), Failure> {
        let socket = self.first_socket.get(index).copied().unwrap_or(0);
        outcome.map_err(|error| error.failure(&self.broker_of(socket)))?;
        let Some(producer) = self.producers.get(index) else {
            return Ok(());
        };
        for (link, to) in producer.links.iter().enumerate() {
            watch(&self.poller, &to.link, socket + link, &mut self.is_watched)?;
        }
        Ok(())
    }

    /// The moment at which something is to be done without any answer.
    fn next_moment(&self) -> u64 {
        if !self.busy.is_empty() {
            return 0;
        }
        let mut moment = self.shared.clock.now() + nanoseconds(TURN_MAX);
        moment = moment.min(self.stats.end());
        if let Source::Paced(pace) = &self.source {
            let next = self.producers.get(pace.next_producer());
            let wait = match next.is_some_and(Producer::is_saturated) {
                true => nanoseconds(SATURATED),
                false => self.together_ns,
            };
            moment = moment.min(pace.next_due() + wait);
        }
        if let Some(linger) = self.lingers.front() {
            moment = moment.min(linger.until);
        }
        if let Some(planned) = self.shared.control.get(self.seen) {
            moment = moment.min(planned.at);
        }
        moment
    }

    fn serve(&mut self, ready: Ready) -> Result<(), Failure> {
        match self.owners.get(ready.name).copied() {
            Some(Owner::Producer(index, link)) => {
                let Some(producer) = self.producers.get_mut(index) else {
                    return Ok(());
                };
                let mut outcome = Ok(());
                if ready.writable {
                    outcome = producer.flush(link, &mut self.stats).map_err(ProducerError::from);
                }
                if ready.readable && outcome.is_ok() {
                    outcome = producer.answers(link, &self.shared.cluster.names, &mut self.stats);
                }
                self.sent(index, outcome)?;
                self.mark_busy(index);
            }
            Some(Owner::Consumer(index)) => {
                let outcome = self.consume(index, ready);
                outcome.map_err(|error| error.failure(&self.broker_of(ready.name)))?;
                if let Some(consumer) = self.consumers.get(index) {
                    watch(&self.poller, &consumer.link, ready.name, &mut self.is_watched)?;
                }
            }
            None => {}
        }
        Ok(())
    }

    fn consume(&mut self, index: usize, ready: Ready) -> Result<(), ConsumerError> {
        let Some(consumer) = self.consumers.get_mut(index) else {
            return Ok(());
        };
        let mut kit = ConsumerKit {
            plan: &self.shared.plan.consumers,
            names: &self.shared.cluster.names,
            topics: &self.shared.cluster.topics,
            is_stamped: self.shared.plan.is_stamped(),
            decompressor: &mut self.decompressor,
        };
        if ready.writable {
            consumer.link.flush()?;
        }
        if ready.readable {
            consumer.answers(&mut kit, &mut self.stats)?;
            if !self.is_paused {
                consumer.ask(&kit)?;
            }
        }
        Ok(())
    }

    fn ask_all(&mut self) -> Result<(), Failure> {
        if self.is_paused {
            return Ok(());
        }
        let first = self.owners.len() - self.consumers.len();
        let broker = self.broker_of(first);
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            let kit = ConsumerKit {
                plan: &self.shared.plan.consumers,
                names: &self.shared.cluster.names,
                topics: &self.shared.cluster.topics,
                is_stamped: false,
                decompressor: &mut self.decompressor,
            };
            consumer
                .ask(&kit)
                .map_err(|error| ConsumerError::from(error).failure(&broker))?;
            watch(&self.poller, &consumer.link, first + index, &mut self.is_watched)?;
        }
        Ok(())
    }

    /// The broker behind a socket, for messages.
    fn broker_of(&self, socket: usize) -> String {
        let peer = match self.owners.get(socket) {
            Some(Owner::Producer(index, link)) => {
                let producer = self.producers.get(*index);
                producer
                    .and_then(|producer| producer.links.get(*link))
                    .map(|to| to.link.stream().peer_addr())
            }
            Some(Owner::Consumer(index)) => self
                .consumers
                .get(*index)
                .map(|consumer| consumer.link.stream().peer_addr()),
            None => None,
        };
        match peer {
            Some(Ok(address)) => address.to_string(),
            _ => {
                let names = self.shared.cluster.brokers.iter().map(|(_, name)| name.clone());
                names.collect::<Vec<_>>().join(" or ")
            }
        }
    }
}

/// A batch that lingers is remembered; one that need not is ready.
fn put_linger(linger: Option<Linger>, now: u64, producer: &mut Producer, lingers: &mut VecDeque<Linger>) {
    let Some(linger) = linger else { return };
    if linger.until <= now {
        producer.expire(&linger);
    } else {
        lingers.push_back(linger);
    }
}

fn watch(poller: &Poller, link: &Link, socket: usize, is_watched: &mut [bool]) -> Result<(), Failure> {
    let Some(is_watched) = is_watched.get_mut(socket) else {
        return Ok(());
    };
    if link.is_blocked() != *is_watched {
        *is_watched = link.is_blocked();
        let watched = poller.watch_room(link.stream(), socket, *is_watched);
        watched.map_err(|error| system(&error))?;
    }
    Ok(())
}

/// The batches that a run with batches made before sends; none for other runs.
fn templates(shared: &Shared) -> Vec<Template> {
    let plan = &shared.plan.producers;
    if !plan.pre_encoded {
        return Vec::new();
    }
    let record_bytes = plan.message_bytes + RECORD_OVERHEAD_BYTES_MAX / 2;
    let records = (plan.batch_bytes / record_bytes.max(1)).max(1);
    let values = &shared.values;
    let template = |number: usize| {
        let of_batch = values
            .iter()
            .cycle()
            .skip(number * records % values.len().max(1))
            .take(records);
        let now = shared.clock.unix_ms(shared.clock.now());
        Template::new(of_batch, (plan.codec, plan.level), now, shared.plan.is_stamped())
    };
    (0..TEMPLATES).map(template).collect()
}
