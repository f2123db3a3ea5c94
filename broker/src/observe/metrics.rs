//! The counters of one shard's request handling. Cells, no atomics: only the shard writes, and a scrape takes a
//! [`Snapshot`] through the shard's mailbox.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{ApiKey, ErrorCode};

use super::histogram::Histogram;
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

    /// A connection was accepted.
    pub fn connection_opened(&self) {
        self.connections_opened.set(self.connections_opened.get() + 1);
    }

    /// A connection ended.
    pub fn connection_closed(&self, reason: &CloseReason) {
        *self
            .connections_closed
            .borrow_mut()
            .entry(reason.name())
            .or_default() += 1;
    }

    /// Connections open now.
    #[must_use]
    pub fn connections_open(&self) -> u64 {
        self.connections_opened.get() - self.connections_closed.borrow().values().sum::<u64>()
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
        }
    }
}

impl Snapshot {
    /// Adds another shard's counters.
    pub fn merge(&mut self, other: &Self) {
        fn add<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, count) in from {
                *into.entry(*key).or_default() += count;
            }
        }
        add(&mut self.requests, &other.requests);
        add(&mut self.errors, &other.errors);
        add(&mut self.connections_closed, &other.connections_closed);
        for (api, histogram) in &other.latency {
            self.latency.entry(*api).or_default().merge(histogram);
        }
        self.request_bytes += other.request_bytes;
        self.response_bytes += other.response_bytes;
        self.duplicates += other.duplicates;
        self.connections_opened += other.connections_opened;
    }
}
