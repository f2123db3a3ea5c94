//! A consumer that reads a topic from its beginning, one fetch after the other on one connection, as fast as it is answered or
//! at a pace.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::producers::next_frame;
use super::wire;
use crate::error::{Doing, Error, Result, failed};

/// Bytes of an answer to a fetch.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What is read.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    pub(super) topic: String,
    /// Partitions and where to begin in each.
    pub(super) from: Vec<(i32, i64)>,
    /// Bytes of an answer, and of a partition in it.
    pub(super) fetch_bytes: i32,
    /// Bytes a second; 0 is as fast as it is answered.
    pub(super) bytes_per_second: f64,
    /// It ends after so many bytes, or so long.
    pub(super) bytes_max: u64,
    pub(super) time_max: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drained {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) fetches: u64,
}

impl Drain {
    /// Reads to the end of its bounds, or of the topic.
    ///
    /// # Errors
    /// The broker refuses, or the connection is lost.
    pub(super) async fn run(mut self, bootstrap: &str) -> Result<Drained> {
        let mut stream = TcpStream::connect(bootstrap).await.doing(bootstrap)?;
        stream.set_nodelay(true).doing(bootstrap)?;
        let mut received = BytesMut::with_capacity(2 << 20);
        let mut drained = Drained::default();
        let began = Instant::now();
        let mut turn = 0;
        while drained.bytes < self.bytes_max && began.elapsed() < self.time_max {
            let ahead = drained.bytes as f64 / self.bytes_per_second.max(1.0) - began.elapsed().as_secs_f64();
            if self.bytes_per_second > 0.0 && ahead > 0.0 {
                sleep(Duration::from_secs_f64(ahead)).await;
            }
            // Another partition comes first each time, as clients do it, so that none waits for the others.
            let count = self.from.len().max(1);
            self.from.rotate_left(usize::from(turn > 0) % count);
            turn += 1;
            let request = wire::fetch(&self.topic, &self.from, self.fetch_bytes);
            stream.write_all(&request).await.doing("sending a fetch")?;
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, next(&mut stream, &mut received));
            let answer = answer
                .await
                .map_err(|_| Error::Failed("a fetch is not answered".into()))??;
            drained.fetches += 1;
            let mut came = 0;
            for fetched in wire::fetched(&answer, &self.topic)? {
                came += fetched.bytes as u64;
                let place = self
                    .from
                    .iter_mut()
                    .find(|(partition, _)| *partition == fetched.partition);
                if let (Some(place), Some(next)) = (place, fetched.next) {
                    place.1 = next;
                }
            }
            drained.bytes += came;
            if came == 0 {
                break; // the end
            }
        }
        drained.seconds = began.elapsed().as_secs_f64();
        Ok(drained)
    }
}

async fn next(stream: &mut TcpStream, received: &mut BytesMut) -> Result<BytesMut> {
    loop {
        if let Some(answer) = next_frame(received, ANSWER_BYTES_MAX)? {
            return Ok(answer);
        }
        if stream.read_buf(received).await.doing("reading an answer")? == 0 {
            return failed("the broker closed a connection");
        }
    }
}
