//! Planted bugs, to show that the checks see: each wraps a seam of the broker, none is in the broker itself. [`SimLogs`] stands
//! between the owner and its storage (it also makes segments small), [`Swapping`] between a connection and its stream.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use protocol::record::BatchHeader;
use protocol::{ErrorCode, RecordBytes};
use shard::config::TopicSettings;
use shard::env::{Env, Instant, WallMs};
use shard::message::OffsetAnswer;
use shard::net::{ByteStream, ByteWriter};
use shard::owner::store::StoreLogs;
use shard::owner::{Appended, Logs, LogsIo, LookUp, Read};
use storage::compaction::run::{CleanerLimits, Looked, Pace};
use storage::disk::sim::SimDisk;
use storage::error::{AppendError, StorageError};
use storage::log::query::ProducerSweep;
use storage::log::{LogOffsets, LogRef, LogSize};
use storage::scrub::ScrubStep;
use storage::stats::StoreStats;
use storage::store::ColdRead;
use storage::sync_schedule::LossWindows;
use storage::types::{LeaderEpoch, LogId, Offset, ProducerId};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Canary {
    /// The disk says that it has synced and has not.
    LyingSync,
    /// Appends with acks=1 are acknowledged before their commit.
    EarlyAcknowledgement,
    /// After a restart producers are taken for new ones.
    ForgottenProducers,
    /// Two answers of a connection change places.
    SwappedAnswers,
}

/// The logs of a simulated shard.
#[derive(Clone)]
pub struct SimLogs {
    inner: StoreLogs<SimDisk>,
    shape: Rc<Shape>,
}

/// What a simulated shard's logs are like.
#[derive(Debug)]
pub struct Shape {
    /// Bytes of a segment: Kafka's least value would need megabytes of records for a roll.
    pub segment_bytes: i32,
    /// Bytes between index entries.
    pub index_interval_bytes: i32,
    /// The bug that is planted here, if any.
    pub canary: Option<Canary>,
    /// Which run of the broker this is, from 0.
    pub run: u32,
}

impl SimLogs {
    /// Wraps the logs of a store.
    #[must_use]
    pub fn new(inner: StoreLogs<SimDisk>, shape: Rc<Shape>) -> Self {
        Self { inner, shape }
    }

    /// The logs inside.
    #[must_use]
    pub fn inner(&self) -> &StoreLogs<SimDisk> {
        &self.inner
    }

    fn is(&self, canary: Canary) -> bool {
        self.shape.canary == Some(canary)
    }

    fn settings(&self, settings: &TopicSettings) -> TopicSettings {
        TopicSettings {
            segment_bytes: self.shape.segment_bytes,
            index_interval_bytes: self.shape.index_interval_bytes,
            ..settings.clone()
        }
    }

    /// The batch of a producer that nobody remembers from the run before.
    fn of_stranger(&self, batch: &Bytes) -> Bytes {
        let parts = batch
            .split_first_chunk()
            .map(|(head, records)| (BatchHeader::decode(head), records));
        let Some((mut header, records)) = parts.filter(|(header, _)| header.producer_id >= 0) else {
            return batch.clone();
        };
        header.producer_id += i64::from(self.shape.run) << 32;
        let mut out = BytesMut::from(&header.sealed(records).encode()[..]);
        out.extend_from_slice(records);
        out.freeze()
    }
}

impl Logs for SimLogs {
    type Log = LogRef;
    type Cold = ColdRead;

    fn append(
        &self,
        log: LogRef,
        batch: Bytes,
        leader_epoch: LeaderEpoch,
        now: WallMs,
    ) -> Result<Appended, AppendError> {
        let batch = if self.is(Canary::ForgottenProducers) {
            self.of_stranger(&batch)
        } else {
            batch
        };
        self.inner.append(log, batch, leader_epoch, now)
    }

    fn is_offline(&self, log: LogRef) -> bool {
        self.inner.is_offline(log)
    }

    fn lead(&self, log: LogRef, epoch: LeaderEpoch) {
        self.inner.lead(log, epoch);
    }

    fn high_watermark(&self, log: LogRef, mark: Offset) {
        self.inner.high_watermark(log, mark);
    }

    fn read(
        &self,
        log: LogRef,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Read<ColdRead> {
        self.inner.read(log, from, upper, bytes_max, at_least_one)
    }

    fn ends(&self, log: LogRef) -> LogOffsets {
        let mut ends = self.inner.ends(log);
        if self.is(Canary::EarlyAcknowledgement) {
            ends.durable_end = ends.log_end;
        }
        ends
    }

    fn size(&self, log: LogRef) -> LogSize {
        self.inner.size(log)
    }

    fn epoch_end(&self, log: LogRef, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        self.inner.epoch_end(log, epoch)
    }

    fn newest_epoch(&self, log: LogRef) -> LeaderEpoch {
        self.inner.newest_epoch(log)
    }

    fn epoch_of(&self, log: LogRef, offset: Offset) -> LeaderEpoch {
        self.inner.epoch_of(log, offset)
    }

    fn aborted(&self, log: LogRef, from: Offset, to: Offset) -> Vec<(ProducerId, Offset)> {
        self.inner.aborted(log, from, to)
    }
}

impl LogsIo for SimLogs {
    async fn read_cold(&self, plan: &ColdRead) -> Result<RecordBytes, ErrorCode> {
        self.inner.read_cold(plan).await
    }

    async fn look_up<E: Env>(&self, env: &E, log: LogRef, what: LookUp) -> OffsetAnswer {
        self.inner.look_up(env, log, what).await
    }

    async fn commit(&self) -> Result<Vec<(LogRef, Offset)>, StorageError> {
        self.inner.commit().await
    }

    async fn staged(&self, bytes: usize) {
        self.inner.staged(bytes).await;
    }

    fn fail(&self, reason: &str) {
        self.inner.fail(reason);
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn loss_windows(&self, now: Instant) -> LossWindows {
        self.inner.loss_windows(now)
    }

    fn note_time(&self, now: Instant) {
        self.inner.note_time(now);
    }

    async fn background(&self) -> Result<(), StorageError> {
        self.inner.background().await
    }

    async fn read_ahead(&self) -> Result<(), StorageError> {
        self.inner.read_ahead().await
    }

    async fn sync_due(&self, now: Instant) -> Result<Option<Instant>, StorageError> {
        self.inner.sync_due(now).await
    }

    async fn sync_schedule_moved(&self) {
        self.inner.sync_schedule_moved().await;
    }

    async fn scrub(&self, now: WallMs) -> Result<ScrubStep, StorageError> {
        self.inner.scrub(now).await
    }

    fn set_clock(&self, clock: Rc<dyn Fn() -> u64>) {
        self.inner.set_clock(clock);
    }

    fn io_due(&self) -> Option<Instant> {
        self.inner.io_due()
    }

    async fn io_moved(&self) {
        self.inner.io_moved().await;
    }

    async fn watch_space(&self, now: Instant) {
        self.inner.watch_space(now).await;
    }

    async fn open(
        &self,
        id: LogId,
        topic: &str,
        settings: &TopicSettings,
        now: WallMs,
    ) -> Result<LogRef, StorageError> {
        self.inner.open(id, topic, &self.settings(settings), now).await
    }

    fn configure(&self, log: LogRef, settings: &TopicSettings) {
        self.inner.configure(log, &self.settings(settings));
    }

    fn sweep_producers(&self, sweep: &mut ProducerSweep, now: WallMs, producers_max: usize) -> usize {
        self.inner.sweep_producers(sweep, now, producers_max)
    }

    fn is_retention_due(&self, log: LogRef, high_watermark: Offset, now: WallMs) -> bool {
        self.inner.is_retention_due(log, high_watermark, now)
    }

    async fn retain(&self, log: LogRef, high_watermark: Offset, now: WallMs) -> Result<(), StorageError> {
        self.inner.retain(log, high_watermark, now).await
    }

    async fn clean<P: Pace>(&self, pace: &P, limits: &CleanerLimits) -> Result<Looked, StorageError> {
        self.inner.clean(pace, limits).await
    }

    type Move = <StoreLogs<SimDisk> as LogsIo>::Move;

    async fn begin_move(&self, log: LogRef, to: &Self, unique: u128) -> Result<Self::Move, StorageError> {
        self.inner.begin_move(log, &to.inner, unique).await
    }

    async fn delete(&self, log: LogRef) -> Result<(), StorageError> {
        self.inner.delete(log).await
    }

    async fn remove_due(&self, now: Instant) -> Result<Option<Instant>, StorageError> {
        self.inner.remove_due(now).await
    }

    async fn removals_moved(&self) {
        self.inner.removals_moved().await;
    }
}

/// A stream of the broker that may swap answers.
pub struct Swapping<S> {
    /// The stream.
    pub stream: S,
    /// Whether it does.
    pub swaps: bool,
}

/// The sending half of a [`Swapping`].
pub struct SwappingWriter<W> {
    writer: W,
    swaps: bool,
}

impl<S: ByteStream> ByteStream for Swapping<S> {
    type Reader = S::Reader;
    type Writer = SwappingWriter<S::Writer>;

    fn split(self) -> (Self::Reader, Self::Writer) {
        let (reader, writer) = self.stream.split();
        let swaps = self.swaps;
        (reader, SwappingWriter { writer, swaps })
    }

    fn peer(&self) -> SocketAddr {
        self.stream.peer()
    }

    fn local(&self) -> SocketAddr {
        self.stream.local()
    }
}

impl<W: ByteWriter> ByteWriter for SwappingWriter<W> {
    async fn write_all(&mut self, chunks: &mut VecDeque<Bytes>) -> io::Result<()> {
        if self.swaps {
            let mut whole: BytesMut = chunks.drain(..).flatten().collect();
            let mut frames = Vec::new();
            while let Some(length) = whole
                .first_chunk::<4>()
                .map(|n| u32::from_be_bytes(*n) as usize + 4)
            {
                frames.push(whole.split_to(length.min(whole.len())).freeze());
            }
            if let [first, second, ..] = &mut frames[..] {
                std::mem::swap(first, second);
            }
            chunks.extend(frames);
        }
        self.writer.write_all(chunks).await
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        self.writer.set_deadline(at);
    }

    fn shutdown(&mut self) {
        self.writer.shutdown();
    }

    fn abort(&mut self) {
        self.writer.abort();
    }
}
