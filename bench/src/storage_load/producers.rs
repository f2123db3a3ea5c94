//! Producers that send batches made before, each on a connection of its own, as fast as they are answered or at a pace. At a
//! pace a request's time counts from when it was due, so that a broker that stops for a moment is not let off.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::wire;
use crate::error::{Doing, Error, Result, failed};

/// Requests of a producer without an answer, as in Kafka's own client.
const FLIGHTS_MAX: usize = 5;

/// Bytes of frames that are sent with one call.
const SEND_BYTES_MAX: usize = 1 << 20;

/// Bytes of an answer to a produce.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long answers are waited for after the load.
const LINGER_MAX: Duration = Duration::from_secs(30);

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) topic: String,
    pub(super) producers: usize,
    /// Partitions of the topic; each request goes to the next.
    pub(super) partitions: i32,
    /// Partitions that a request has a batch for.
    pub(super) partitions_per_request: i32,
    pub(super) record_bytes: usize,
    /// Records of a batch.
    pub(super) records: usize,
    pub(super) keyed: bool,
    pub(super) acks: i16,
    /// Bytes of batches a second of all producers; 0 is as fast as they are answered.
    pub(super) bytes_per_second: f64,
    /// Before anything counts.
    pub(super) warmup: Duration,
    pub(super) time: Duration,
}

/// One request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it was due, from the beginning of what counts.
    pub(super) at: Duration,
    pub(super) took: Duration,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Produced {
    pub(super) samples: Vec<Sample>,
    /// Bytes of batches that were acknowledged while it counted.
    pub(super) bytes: u64,
    pub(super) batches: u64,
    pub(super) records: u64,
    pub(super) seconds: f64,
}

struct Shared {
    began: Instant,
    load: Load,
    /// Requests, one for each set of partitions, and the bytes of batches in each.
    frames: Vec<Bytes>,
    request_bytes: u64,
    produced: RefCell<Produced>,
    is_over: Cell<bool>,
}

/// A producer's requests that are not answered: when each was due.
struct Flights {
    due: RefCell<VecDeque<Instant>>,
    moved: Notify,
}

impl Load {
    /// Sends for its time; ends when all is answered.
    ///
    /// # Errors
    /// The broker refuses a batch or closes a connection.
    pub(super) async fn run(self, bootstrap: &str) -> Result<Produced> {
        self.run_watched(bootstrap, async |_| {}).await
    }

    /// The same; `meanwhile` is run when it begins to count, with that moment.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(super) async fn run_watched(
        self,
        bootstrap: &str,
        meanwhile: impl AsyncFnOnce(Instant),
    ) -> Result<Produced> {
        let shared = Rc::new(Shared::new(self));
        let mut tasks = Vec::with_capacity(shared.load.producers);
        for number in 0..shared.load.producers {
            let stream = TcpStream::connect(bootstrap).await.doing(bootstrap)?;
            stream.set_nodelay(true).doing(bootstrap)?;
            tasks.push(tokio::task::spawn_local(produce(stream, number, shared.clone())));
        }
        sleep(shared.began.saturating_duration_since(Instant::now())).await;
        let end = shared.began + shared.load.time;
        meanwhile(shared.began).await;
        sleep(end.saturating_duration_since(Instant::now())).await;
        shared.is_over.set(true);
        shared.produced.borrow_mut().seconds = shared.began.elapsed().as_secs_f64();
        for task in tasks {
            task.await.map_err(|error| Error::Failed(error.to_string()))??;
        }
        Ok(shared.produced.take())
    }
}

impl Shared {
    fn new(load: Load) -> Self {
        let batch = wire::batch(load.records, load.record_bytes, load.keyed);
        let together = load.partitions_per_request.clamp(1, load.partitions);
        let frames = (0..load.partitions)
            .map(|first| {
                let partitions: Vec<i32> = (0..together).map(|n| (first + n) % load.partitions).collect();
                wire::produce(&load.topic, &partitions, &batch, load.acks)
            })
            .collect();
        Self {
            began: Instant::now() + load.warmup,
            request_bytes: batch.len() as u64 * u64::from(together.unsigned_abs()),
            load,
            frames,
            produced: RefCell::default(),
            is_over: Cell::new(false),
        }
    }

    /// The frame of a producer's request.
    fn frame(&self, producer: usize, number: usize) -> &Bytes {
        // The first partitions of producers are spread over the topic, and all producers visit all of it.
        let start = producer * self.frames.len() / self.load.producers.max(1);
        let step = self.load.partitions_per_request.max(1).unsigned_abs() as usize;
        &self.frames[(start + number * step) % self.frames.len()]
    }

    /// The time from one request of a producer to its next.
    fn interval(&self) -> Duration {
        let rate = self.load.bytes_per_second;
        if rate <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(self.request_bytes as f64 * self.load.producers as f64 / rate)
    }

    fn answered(&self, due: Instant) {
        let now = Instant::now();
        if due < self.began || self.is_over.get() {
            return;
        }
        let together = self.load.partitions_per_request.clamp(1, self.load.partitions);
        let mut produced = self.produced.borrow_mut();
        produced.samples.push(Sample {
            at: due - self.began,
            took: now - due,
        });
        produced.bytes += self.request_bytes;
        produced.batches += u64::from(together.unsigned_abs());
        produced.records += u64::from(together.unsigned_abs()) * self.load.records as u64;
    }
}

async fn produce(stream: TcpStream, number: usize, shared: Rc<Shared>) -> Result<()> {
    let (reader, writer) = stream.into_split();
    let flights = Rc::new(Flights {
        due: RefCell::default(),
        moved: Notify::new(),
    });
    let answers = tokio::task::spawn_local(read_answers(reader, flights.clone(), shared.clone()));
    let sent = send(writer, number, &flights, &shared).await;
    flights.moved.notify_waiters();
    let read = tokio::time::timeout(LINGER_MAX, answers);
    let read = read
        .await
        .map_err(|_| Error::Failed("a produce is not answered".into()))?;
    read.map_err(|error| Error::Failed(error.to_string()))??;
    sent.map(drop)
}

/// Sends until the load is over. The writing half is given back, so that the connection stays open for the answers.
async fn send(
    mut writer: OwnedWriteHalf,
    producer: usize,
    flights: &Flights,
    shared: &Shared,
) -> Result<OwnedWriteHalf> {
    let interval = shared.interval();
    // Producers do not send all at the same time.
    let mut due = Instant::now() + interval.mul_f64(producer as f64 / shared.load.producers.max(1) as f64);
    let mut number = 0;
    let mut out = BytesMut::new();
    while !shared.is_over.get() {
        let now = Instant::now();
        if !interval.is_zero() && due > now {
            sleep(due - now).await;
            continue;
        }
        let mut room = FLIGHTS_MAX.saturating_sub(flights.due.borrow().len());
        if room == 0 {
            // Also when nothing comes any more: the loop is to see that the load is over.
            let _ = tokio::time::timeout(Duration::from_millis(50), flights.moved.notified()).await;
            continue;
        }
        out.clear();
        while room > 0 && (interval.is_zero() || due <= now) && out.len() < SEND_BYTES_MAX {
            out.extend_from_slice(shared.frame(producer, number));
            flights
                .due
                .borrow_mut()
                .push_back(if interval.is_zero() { now } else { due });
            due += interval;
            number += 1;
            room -= 1;
        }
        writer.write_all(&out).await.doing("sending a produce")?;
    }
    Ok(writer)
}

async fn read_answers(mut reader: OwnedReadHalf, flights: Rc<Flights>, shared: Rc<Shared>) -> Result<()> {
    let mut received = BytesMut::with_capacity(64 << 10);
    loop {
        while let Some(answer) = next_frame(&mut received, ANSWER_BYTES_MAX)? {
            wire::check_produced(&answer, &shared.load.topic)?;
            let due = flights.due.borrow_mut().pop_front();
            match due {
                Some(due) => shared.answered(due),
                None => return failed("an answer to no request"),
            }
            flights.moved.notify_one();
        }
        if shared.is_over.get() && flights.due.borrow().is_empty() {
            return Ok(());
        }
        let read = tokio::time::timeout(Duration::from_millis(200), reader.read_buf(&mut received)).await;
        if let Ok(read) = read
            && read.doing("reading an answer")? == 0
        {
            return failed("the broker closed a connection");
        }
    }
}

/// The next whole frame, without its length.
pub(super) fn next_frame(received: &mut BytesMut, bytes_max: usize) -> Result<Option<BytesMut>> {
    let Some(head) = received.first_chunk::<4>() else {
        return Ok(None);
    };
    let len = u32::from_be_bytes(*head) as usize;
    if len > bytes_max {
        return failed(format!("a frame of {len} bytes"));
    }
    if received.len() < 4 + len {
        received.reserve(4 + len - received.len());
        return Ok(None);
    }
    received.advance(4);
    Ok(Some(received.split_to(len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(producers: usize, partitions: i32, together: i32) -> Load {
        Load {
            topic: "t".into(),
            producers,
            partitions,
            partitions_per_request: together,
            record_bytes: 100,
            records: 1,
            keyed: false,
            acks: -1,
            bytes_per_second: 0.0,
            warmup: Duration::ZERO,
            time: Duration::from_secs(1),
        }
    }

    #[test]
    fn all_partitions_have_their_turn() {
        let shared = Shared::new(load(3, 10, 2));
        assert_eq!(shared.frames.len(), 10);
        let first: Vec<_> = (0..5).map(|n| shared.frame(0, n).as_ptr()).collect();
        let again: Vec<_> = (5..10).map(|n| shared.frame(0, n).as_ptr()).collect();
        assert_eq!(first, again);
        assert_ne!(first[0], shared.frame(1, 0).as_ptr());
    }

    #[test]
    fn a_pace_is_of_all_producers_together() {
        let mut load = load(4, 1, 1);
        load.records = 10;
        let free = Shared::new(load.clone());
        assert_eq!(free.interval(), Duration::ZERO);
        load.bytes_per_second = free.request_bytes as f64 * 8.0;
        assert_eq!(Shared::new(load).interval(), Duration::from_millis(500));
    }

    #[test]
    fn frames_come_out_whole() {
        let mut bytes = BytesMut::from(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 1][..]);
        assert_eq!(
            next_frame(&mut bytes, 10).expect("in bounds").as_deref(),
            Some(&[7, 8][..])
        );
        assert_eq!(next_frame(&mut bytes, 10).expect("in bounds"), None);
        bytes.extend_from_slice(&[9]);
        assert_eq!(
            next_frame(&mut bytes, 10).expect("in bounds").as_deref(),
            Some(&[9][..])
        );
        let mut large = BytesMut::from(&[1, 0, 0, 0][..]);
        assert!(next_frame(&mut large, 10).is_err());
    }
}
