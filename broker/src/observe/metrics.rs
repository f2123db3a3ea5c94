//! The counters of one shard's request handling. Cells, no atomics: only the shard writes, and a scrape takes a
//! [`Snapshot`] through the shard's mailbox.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::{ApiKey, ErrorCode};
use storage::types::LogId;

use super::histogram::Histogram;
use super::progress::Progress;
use super::stages::{StageTimes, Stages};
use crate::request::CloseReason;

/// The counters of one shard.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: RefCell<BTreeMap<(ApiKey, i16), u64>>,
    errors: RefCell<BTreeMap<(ApiKey, ErrorCode), u64>>,
    latency: RefCell<BTreeMap<ApiKey, Histogram>>,
    request_bytes: Cell<u64>,
    response_bytes: Cell<u64>,
    duplicates: Cell<u64>,
    connections_opened: Cell<u64>,
    connections_closed: RefCell<BTreeMap<&'static str, u64>>,
    connections_open: RefCell<BTreeMap<Arc<str>, u64>>,
    commit_latency: RefCell<Histogram>,
    /// Logs this shard has to open still, before it has caught up with the metadata.
    logs_to_open: Cell<usize>,
    /// Where the node's start is told how far it is.
    start: OnceCell<Arc<Progress>>,
    /// Partitions of this shard whose log cannot be opened.
    offline: RefCell<BTreeSet<LogId>>,
    /// Where the time of requests goes.
    pub stages: Stages,
}

/// The counters at one moment; snapshots of several shards are added up.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Requests by API and version.
    pub requests: BTreeMap<(ApiKey, i16), u64>,
    /// Error codes in answers by API.
    pub errors: BTreeMap<(ApiKey, ErrorCode), u64>,
    /// Time from a whole frame to its encoded answer, by API.
    pub latency: BTreeMap<ApiKey, Histogram>,
    /// Bytes of request frames.
    pub request_bytes: u64,
    /// Bytes of response frames that the kernel has taken.
    pub response_bytes: u64,
    /// Batches answered with the offset of an earlier, identical one.
    pub duplicates: u64,
    /// Connections accepted.
    pub connections_opened: u64,
    /// Connections ended, by reason.
    pub connections_closed: BTreeMap<&'static str, u64>,
    /// Connections open now, by listener.
    pub connections_open: BTreeMap<Arc<str>, u64>,
    /// Group commits, from the moment one had something to do until it was durable.
    pub commit_latency: Histogram,
    /// Logs that have to be opened still.
    pub logs_to_open: usize,
    /// Partitions whose log cannot be opened.
    pub offline_partitions: usize,
    /// Where the time of requests went.
    pub stages: StageTimes,
}

impl Metrics {
    /// A request's frame is complete and its header was read.
    pub fn request(&self, api: ApiKey, version: i16, bytes: usize) {
        *self.requests.borrow_mut().entry((api, version)).or_default() += 1;
        self.request_bytes.set(self.request_bytes.get() + bytes as u64);
    }

    /// A request was answered after `took`.
    pub fn answered(&self, api: ApiKey, took: Duration) {
        self.latency.borrow_mut().entry(api).or_default().record(took);
    }

    /// An answer carries an error code.
    pub fn error(&self, api: ApiKey, code: ErrorCode) {
        *self.errors.borrow_mut().entry((api, code)).or_default() += 1;
    }

    /// The kernel has taken bytes of answers.
    pub fn sent_bytes(&self, bytes: usize) {
        self.response_bytes.set(self.response_bytes.get() + bytes as u64);
    }

    /// Batches of a produce had been appended before.
    pub fn duplicates(&self, count: u64) {
        self.duplicates.set(self.duplicates.get() + count);
    }

    /// A connection was accepted by this listener.
    pub fn connection_opened(&self, listener: &Arc<str>) {
        self.connections_opened.set(self.connections_opened.get() + 1);
        *self
            .connections_open
            .borrow_mut()
            .entry(listener.clone())
            .or_default() += 1;
    }

    /// A group commit has become durable.
    pub fn committed(&self, took: Duration) {
        self.commit_latency.borrow_mut().record(took);
    }

    /// The logs that are opened until the start is over count there, too.
    pub fn count_start(&self, progress: Arc<Progress>) {
        // Set once in a shard's life; a second call would change nothing.
        let _ = self.start.set(progress);
    }

    /// So many logs are about to be opened.
    pub fn logs_to_open(&self, count: usize) {
        if let Some(start) = self.start.get() {
            start.logs_to_open(count);
        }
        self.logs_to_open.set(self.logs_to_open.get() + count);
    }

    /// A log was opened, or could not be: then its partition is offline.
    pub fn log_opened(&self, log: LogId, is_open: bool) {
        if let Some(start) = self.start.get() {
            start.log_opened();
        }
        self.logs_to_open.set(self.logs_to_open.get().saturating_sub(1));
        let mut offline = self.offline.borrow_mut();
        if is_open {
            offline.remove(&log);
        } else {
            offline.insert(log);
        }
    }

    /// The directory of these logs has failed.
    pub fn logs_failed(&self, logs: &[LogId]) {
        self.offline.borrow_mut().extend(logs.iter().copied());
    }

    /// Whether the log could not be opened.
    #[must_use]
    pub fn is_offline(&self, log: LogId) -> bool {
        self.offline.borrow().contains(&log)
    }

    /// A partition has left this shard.
    pub fn log_gone(&self, log: LogId) {
        self.offline.borrow_mut().remove(&log);
    }

    /// Logs to be opened still, and partitions whose log cannot be.
    #[must_use]
    pub fn logs_missing(&self) -> (usize, usize) {
        (self.logs_to_open.get(), self.offline.borrow().len())
    }

    /// A connection of this listener ended.
    pub fn connection_closed(&self, listener: &Arc<str>, reason: &CloseReason) {
        if let Some(open) = self.connections_open.borrow_mut().get_mut(listener) {
            *open = open.saturating_sub(1);
        }
        *self
            .connections_closed
            .borrow_mut()
            .entry(reason.name())
            .or_default() += 1;
    }

    /// All counters now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            requests: self.requests.borrow().clone(),
            errors: self.errors.borrow().clone(),
            latency: self.latency.borrow().clone(),
            request_bytes: self.request_bytes.get(),
            response_bytes: self.response_bytes.get(),
            duplicates: self.duplicates.get(),
            connections_opened: self.connections_opened.get(),
            connections_closed: self.connections_closed.borrow().clone(),
            connections_open: self.connections_open.borrow().clone(),
            commit_latency: self.commit_latency.borrow().clone(),
            logs_to_open: self.logs_to_open.get(),
            offline_partitions: self.offline.borrow().len(),
            stages: self.stages.times(),
        }
    }
}

impl Snapshot {
    /// Adds another shard's counters.
    pub fn merge(&mut self, other: &Self) {
        fn add<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, count) in from {
                *into.entry(key.clone()).or_default() += count;
            }
        }
        add(&mut self.requests, &other.requests);
        add(&mut self.errors, &other.errors);
        add(&mut self.connections_closed, &other.connections_closed);
        add(&mut self.connections_open, &other.connections_open);
        self.commit_latency.merge(&other.commit_latency);
        self.logs_to_open += other.logs_to_open;
        self.offline_partitions += other.offline_partitions;
        for (api, times) in &other.stages {
            self.stages.entry(*api).or_default().merge(times);
        }
        for (api, histogram) in &other.latency {
            self.latency.entry(*api).or_default().merge(histogram);
        }
        self.request_bytes += other.request_bytes;
        self.response_bytes += other.response_bytes;
        self.duplicates += other.duplicates;
        self.connections_opened += other.connections_opened;
    }
}
