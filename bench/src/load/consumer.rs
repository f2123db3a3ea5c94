//! One consumer of assigned partitions: a fetch session with each broker (KIP-227), one fetch under way, whole batches counted, and
//! from each message's stamp the time since it was due.

use std::collections::BTreeMap;

use broker::exit::{Failure, Status};
use protocol::compression::Decompressor;
use protocol::record::{BatchView, ReadError, RecordStream};
use protocol::{ErrorCode, Str};

use super::batch::STAMP_BYTES;
use super::link::{Link, LinkError};
use super::plan::ConsumerPlan;
use super::request::{self, Fetched, ToFetch};
use super::stats::Stats;

/// Bytes that a batch may decompress to.
const DECOMPRESSED_BYTES_MAX: u64 = 1 << 30;

/// Epoch of a fetch that asks for a new session.
const EPOCH_NEW: i32 = 0;

/// What the consumers of a thread share.
pub(super) struct ConsumerKit<'a> {
    pub(super) plan: &'a ConsumerPlan,
    pub(super) names: &'a [Str],
    /// Topics by name.
    pub(super) topics: &'a BTreeMap<Vec<u8>, u32>,
    pub(super) is_stamped: bool,
    pub(super) decompressor: &'a mut Decompressor,
}

/// A partition that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) topic: u32,
    pub(super) partition: i32,
    /// Where to go on.
    pub(super) offset: i64,
    /// Whether the session does not know where to go on.
    pub(super) is_changed: bool,
}

/// A consumer's connection to a broker.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) link: Link,
    /// In the order of topic and partition.
    parts: Vec<Part>,
    session: (i32, i32),
    correlation: i32,
    is_waiting: bool,
}

/// Why a consumer cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConsumerError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("an answer to a fetch makes no sense: {0}")]
    Senseless(String),
    #[error("a fetch is answered with {0}")]
    Refused(ErrorCode),
    #[error("a fetch of {0}-{1} is answered with {2}")]
    RefusedPartition(String, i32, ErrorCode),
    #[error("{0}-{1}: a batch at offset {2} is damaged: {3}")]
    Damaged(String, i32, i64, String),
}

impl Consumer {
    pub(super) fn new(link: Link, mut parts: Vec<Part>) -> Self {
        parts.sort_by_key(|part| (part.topic, part.partition));
        Self {
            link,
            parts,
            session: (0, EPOCH_NEW),
            correlation: 0,
            is_waiting: false,
        }
    }

    /// Asks for more, unless an answer is awaited.
    pub(super) fn ask(&mut self, kit: &ConsumerKit<'_>) -> Result<(), LinkError> {
        if self.is_waiting {
            return Ok(());
        }
        let is_new = self.session.1 == EPOCH_NEW;
        self.correlation = self.correlation.wrapping_add(1) & i32::MAX;
        let wanted = self
            .parts
            .iter()
            .filter(|part| is_new || part.is_changed)
            .map(|part| ToFetch {
                topic: part.topic,
                partition: part.partition,
                offset: part.offset,
            });
        let pieces = request::fetch(self.correlation, kit.plan, self.session, kit.names, wanted);
        for part in &mut self.parts {
            part.is_changed = false;
        }
        self.is_waiting = true;
        self.link.queue(pieces);
        self.link.flush()
    }

    /// Reads what came.
    pub(super) fn answers(
        &mut self,
        kit: &mut ConsumerKit<'_>,
        stats: &mut Stats,
    ) -> Result<(), ConsumerError> {
        self.link.fill()?;
        let Self {
            link,
            parts,
            session,
            correlation,
            is_waiting,
        } = self;
        while let Some(answer) = link.frame()? {
            if request::correlation(answer) != Some(*correlation) || !*is_waiting {
                return Err(ConsumerError::Senseless(
                    "it has the correlation id of no request".into(),
                ));
            }
            *is_waiting = false;
            stats.current.counts.fetches += 1;
            let mut outcome = Ok(());
            let head = request::fetched(answer, |fetched| {
                if outcome.is_ok() {
                    outcome = take(parts, &fetched, kit, stats);
                }
            });
            let (code, id) = head.ok_or_else(|| ConsumerError::Senseless("it ends before its end".into()))?;
            outcome?;
            *session = next_session(*session, ErrorCode(code), id)?;
        }
        Ok(())
    }
}

/// The session of the next fetch.
fn next_session((asked, epoch): (i32, i32), code: ErrorCode, id: i32) -> Result<(i32, i32), ConsumerError> {
    match code {
        // A broker that keeps no session, having too many, says 0: each fetch names all partitions then.
        ErrorCode::NONE if id == 0 => Ok((0, EPOCH_NEW)),
        ErrorCode::NONE if id == asked => Ok((id, if epoch == i32::MAX { 1 } else { epoch + 1 })),
        ErrorCode::NONE => Ok((id, 1)),
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND | ErrorCode::INVALID_FETCH_SESSION_EPOCH => Ok((0, EPOCH_NEW)),
        code => Err(ConsumerError::Refused(code)),
    }
}

/// Counts what came of a partition.
fn take(
    parts: &mut [Part],
    fetched: &Fetched<'_>,
    kit: &mut ConsumerKit<'_>,
    stats: &mut Stats,
) -> Result<(), ConsumerError> {
    let name = || String::from_utf8_lossy(fetched.topic).into_owned();
    let topic = kit.topics.get(fetched.topic).copied();
    let place = topic.and_then(|topic| {
        let wanted = (topic, fetched.partition);
        parts
            .binary_search_by_key(&wanted, |part| (part.topic, part.partition))
            .ok()
    });
    let Some(part) = place.and_then(|place| parts.get_mut(place)) else {
        let what = format!(
            "it holds {}-{}, which nobody asked for",
            name(),
            fetched.partition
        );
        return Err(ConsumerError::Senseless(what));
    };
    if fetched.code != 0 {
        let code = ErrorCode(fetched.code);
        return Err(ConsumerError::RefusedPartition(name(), fetched.partition, code));
    }
    let now = stats.clock.now();
    let mut rest = fetched.records;
    // What is cut off at the end is no batch yet.
    while let Ok(batch) = BatchView::parse(rest, 0) {
        rest = rest.get(batch.bytes().len()..).unwrap_or_default();
        let header = batch.header();
        let damaged =
            |what: String| ConsumerError::Damaged(name(), fetched.partition, header.base_offset, what);
        if header.last_offset() < part.offset {
            continue;
        }
        if kit.plan.check_crcs {
            batch.check_crc(0).map_err(|fault| damaged(fault.to_string()))?;
        }
        part.offset = header.next_offset();
        part.is_changed = true;
        stats.current.counts.consumed_bytes += batch.bytes().len() as u64;
        if header.attributes.is_control() {
            continue;
        }
        stats.current.counts.consumed += u64::try_from(header.record_count).unwrap_or(0);
        if kit.is_stamped {
            stamps(&batch, kit.decompressor, now, stats).map_err(|error| damaged(error.to_string()))?;
        }
    }
    Ok(())
}

/// The time since each message of a batch was due. A message without a stamp of this run has none.
fn stamps(
    batch: &BatchView<'_>,
    decompressor: &mut Decompressor,
    now: u64,
    stats: &mut Stats,
) -> Result<(), ReadError> {
    let mut records = RecordStream::new(batch, decompressor, DECOMPRESSED_BYTES_MAX)?;
    while let Some(record) = records.next_record()? {
        let stamp = record.value.and_then(|value| value.first_chunk::<STAMP_BYTES>());
        if let Some(due) = stamp.and_then(|stamp| stats.clock.stamped(u64::from_be_bytes(*stamp))) {
            stats.record_end_to_end(due, now);
        }
    }
    Ok(())
}

impl ConsumerError {
    /// The end of the run.
    pub(super) fn failure(&self, broker: &str) -> Failure {
        let status = match self {
            Self::Link(_) => Status::Unavailable,
            Self::Senseless(_) => Status::Protocol,
            Self::Refused(_) | Self::RefusedPartition(..) | Self::Damaged(..) => Status::Data,
        };
        Failure::new(status, format!("consuming from {broker}: {self}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_goes_on_begins_anew_or_is_not_kept() {
        let next = |session, code, id| next_session(session, code, id).ok();
        assert_eq!(next((0, 0), ErrorCode::NONE, 7), Some((7, 1)));
        assert_eq!(next((7, 1), ErrorCode::NONE, 7), Some((7, 2)));
        assert_eq!(next((7, i32::MAX), ErrorCode::NONE, 7), Some((7, 1)));
        assert_eq!(next((0, 0), ErrorCode::NONE, 0), Some((0, 0)));
        assert_eq!(
            next((7, 3), ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0),
            Some((0, 0))
        );
        assert_eq!(next((7, 3), ErrorCode::UNKNOWN_SERVER_ERROR, 7), None);
    }
}
