//! Fetch: the session says what to read, the owner shards read it, the assembly makes one answer of theirs, and the
//! session says what of that is sent (FE-1…25). All decisions are in `shard::fetch`; here is their driver.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use protocol::messages::fetch::{
    AbortedTransaction, FetchRequest, FetchRequestFetchPartition, FetchResponse, FetchResponseEpochEndOffset,
    FetchResponseLeaderIdAndEpoch, FetchResponseNodeEndpoint, FetchResponsePartitionData,
    FetchableTopicResponse,
};
use protocol::{ErrorCode, Str, Uuid};
use shard::budget::{BudgetClass, Charge};
use shard::env::Env;
use shard::fetch::assembly::{AssemblyOutput, FetchAssembly, KEPT_BYTES_MAX, Part};
use shard::fetch::session::{
    AnswerFacts, FetchPosition, PartitionKey, Plan, SessionError, SessionRequest, TopicKey,
};
use shard::ids::{BrokerId, ShardId};
use shard::message::{
    FetchAnswer, FetchEntry, FetchRead, Isolation, PartitionData, ShardReply, ShardRequest, Wait,
};
use shard::router::Asked;
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

use super::fetch_sessions::{self, EndedFetch};
use super::leaders;
use crate::request::RequestContext;
use crate::view::{Home, TopicName, View};

/// First version that names topics by id.
const TOPIC_ID_VERSION_MIN: i16 = 13;

/// First version with endpoints of leaders (FE-15).
const ENDPOINT_VERSION_MIN: i16 = 16;

/// The last version that does not know KAFKA_STORAGE_ERROR (FE-17).
const NO_STORAGE_ERROR_VERSION_MAX: i16 = 5;

/// What a fetch is granted at least for each shard it reads from, bytes: a first batch of the largest size that topics take
/// by default (`message.max.bytes`, 1 MiB and a little).
const FIRST_BATCH_BYTES: u64 = (1 << 20) + (64 << 10);

/// What a fetch waits for at most before anything is read, as a part of all that fetches may take.
const LEAST_SHARE: u64 = 4;

/// What of a request holds for all its partitions.
struct Terms {
    isolation: Isolation,
    bytes_max: usize,
    bytes_min: usize,
    wait_max: Duration,
    by_id: bool,
    from_follower: bool,
}

/// Answers a fetch.
pub async fn handle<E: Env>(context: &RequestContext<E>, request: FetchRequest) -> FetchResponse {
    let broker = &context.broker;
    let terms = terms(context, &request);
    let begun = fetch_sessions::begin(broker, session_request(request, &terms)).await;
    let plan = match begun {
        Ok(plan) => plan,
        Err(error) => return refuse(context, error),
    };
    let view = broker.view();
    let (answers, charge) = read(context, &view, &plan, &terms).await;
    context.charge.set(charge);
    let ended = EndedFetch {
        plan,
        facts: answers.iter().map(facts).collect(),
        by_id: terms.by_id,
        from_follower: terms.from_follower,
    };
    let (plan, session_id, listed) = fetch_sessions::finish(broker, ended).await;
    let mut response = FetchResponse {
        session_id,
        ..Default::default()
    };
    let mut hinted = Vec::new();
    for (((key, _), data), is_listed) in plan.partitions.iter().zip(answers).zip(listed) {
        if is_listed {
            context.count_error(data.error);
            hinted.extend(data.current_leader.map(|(leader, _)| leader));
            add(&mut response, context.version, key, data);
        }
    }
    if context.version >= ENDPOINT_VERSION_MIN {
        response.node_endpoints = endpoints(context, &view, hinted);
    }
    response
}

fn terms<E: Env>(context: &RequestContext<E>, request: &FetchRequest) -> Terms {
    let replica = if context.version >= 15 {
        request.replica_state.replica_id
    } else {
        request.replica_id
    };
    let bytes_max = usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(context.broker.settings.fetch_bytes_max);
    Terms {
        isolation: match (replica, request.isolation_level) {
            (0.., _) => Isolation::Replica(BrokerId(replica)),
            (_, 1) => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        },
        bytes_max,
        bytes_min: usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_max),
        wait_max: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        by_id: context.version >= TOPIC_ID_VERSION_MIN,
        from_follower: replica >= 0,
    }
}

fn session_request(request: FetchRequest, terms: &Terms) -> SessionRequest {
    let key = |name: &Str, id: Uuid| {
        if terms.by_id {
            TopicKey::Id(TopicId(id.0))
        } else {
            TopicKey::Name(Arc::from(name.as_str()))
        }
    };
    let mut wanted = Vec::new();
    for topic in &request.topics {
        let topic_key = key(&topic.topic, topic.topic_id);
        for p in &topic.partitions {
            wanted.push((
                PartitionKey {
                    topic: topic_key.clone(),
                    partition: p.partition,
                },
                position(p),
            ));
        }
    }
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let topic_key = key(&topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |p| PartitionKey {
            topic: topic_key.clone(),
            partition: *p,
        })
    });
    SessionRequest {
        id: request.session_id,
        epoch: request.session_epoch,
        by_id: terms.by_id,
        from_follower: terms.from_follower,
        wanted,
        forgotten: forgotten.collect(),
    }
}

fn position(p: &FetchRequestFetchPartition) -> FetchPosition {
    FetchPosition {
        offset: Offset(p.fetch_offset),
        bytes_max: p.partition_max_bytes,
        current_leader_epoch: p.current_leader_epoch,
        last_fetched_epoch: p.last_fetched_epoch,
        log_start_offset: p.log_start_offset,
    }
}

/// FE-16, FE-21: a session error stands alone.
fn refuse<E: Env>(context: &RequestContext<E>, error: SessionError) -> FetchResponse {
    let error_code = match error {
        SessionError::NotFound => ErrorCode::FETCH_SESSION_ID_NOT_FOUND,
        SessionError::InvalidEpoch => ErrorCode::INVALID_FETCH_SESSION_EPOCH,
        SessionError::TopicId => ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR,
    };
    context.count_error(error_code);
    FetchResponse {
        error_code,
        ..Default::default()
    }
}

/// The parts of a plan by owner shard, and what needs no shard.
struct Split {
    shards: Vec<ShardId>,
    parts: Vec<Part>,
    entries: Vec<Vec<FetchEntry>>,
    settled: Vec<(usize, PartitionData)>,
}

fn split(view: &View, plan: &Plan) -> Split {
    let mut split = Split {
        shards: Vec::new(),
        parts: Vec::new(),
        entries: Vec::new(),
        settled: Vec::new(),
    };
    for (place, (key, position)) in plan.partitions.iter().enumerate() {
        match locate(view, key) {
            Err(data) => split.settled.push((place, *data)),
            Ok((shard, log)) => {
                let part = split.shards.iter().position(|s| *s == shard).unwrap_or_else(|| {
                    split.shards.push(shard);
                    split.parts.push(Part { places: Vec::new() });
                    split.entries.push(Vec::new());
                    split.shards.len() - 1
                });
                split.parts[part].places.push(place);
                split.entries[part].push(FetchEntry {
                    log,
                    offset: position.offset,
                    bytes_max: usize::try_from(position.bytes_max).unwrap_or(0),
                    current_leader_epoch: LeaderEpoch(position.current_leader_epoch),
                    last_fetched_epoch: LeaderEpoch(position.last_fetched_epoch),
                });
            }
        }
    }
    split
}

fn locate(view: &View, key: &PartitionKey) -> Result<(ShardId, LogId), Box<PartitionData>> {
    let name = match &key.topic {
        TopicKey::Name(name) => TopicName::Name(name),
        TopicKey::Id(id) => TopicName::Id(*id),
    };
    let topic = view.topic(name).map_err(failed)?;
    let (partition, home) = view.partition(topic, key.partition).map_err(failed)?;
    match home {
        Home::Shard(shard, log) => Ok((shard, log)),
        Home::Offline => Err(Box::new(PartitionData::failed(ErrorCode::KAFKA_STORAGE_ERROR))),
        Home::Elsewhere => Err(Box::new(PartitionData {
            current_leader: partition.leader.map(|leader| (leader, partition.leader_epoch)),
            ..PartitionData::failed(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        })),
    }
}

/// A partition that does not exist. As in Kafka its list of aborted transactions is empty, not null.
fn failed(code: ErrorCode) -> Box<PartitionData> {
    Box::new(PartitionData {
        aborted: Some(Vec::new()),
        ..PartitionData::failed(code)
    })
}

/// Reads what a fetch asks for, charged before it is read. A first batch that is larger than what was granted is let go and
/// read again when there is memory for it.
async fn read<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    plan: &Plan,
    terms: &Terms,
) -> (Vec<PartitionData>, Option<Charge>) {
    let mut needed = None;
    loop {
        let (data, charge) = read_once(context, view, plan, terms, needed).await;
        let Some(mut charge) = charge else {
            return (data, None);
        };
        let bytes: u64 = data.iter().map(|d| d.records.len() as u64).sum();
        let is_charged = bytes <= charge.bytes() || charge.try_grow(bytes - charge.bytes());
        let is_hopeless = needed.is_some() || bytes > context.broker.budget.max_bytes(BudgetClass::Fetches);
        if is_charged || is_hopeless {
            charge.shrink_to(bytes);
            return (data, Some(charge));
        }
        needed = Some(bytes);
    }
}

/// Memory for one fetch, and what each of its parts may read of it. `None` when the client has left or the broker stops while
/// it waits.
async fn grant<E: Env>(
    context: &RequestContext<E>,
    entries: &[Vec<FetchEntry>],
    terms: &Terms,
    needed: Option<u64>,
) -> Option<(Charge, usize)> {
    let budget = &context.broker.budget;
    let wanted_of = |part: &Vec<FetchEntry>| {
        let all = part.iter().fold(0usize, |sum, e| sum.saturating_add(e.bytes_max));
        all.min(terms.bytes_max) as u64
    };
    let wanted: u64 = entries.iter().map(wanted_of).sum();
    let least = needed.unwrap_or_else(|| {
        let of_all = budget.max_bytes(BudgetClass::Fetches) / LEAST_SHARE;
        (FIRST_BATCH_BYTES * entries.len() as u64).min(of_all).min(wanted)
    });
    let charged = futures_lite::future::or(
        async {
            let charge = budget.charge_between(BudgetClass::Fetches, least, wanted.max(least));
            charge.await.ok()
        },
        async {
            futures_lite::future::or(context.connection.closed(), context.broker.stopping()).await;
            None
        },
    );
    let charge = charged.await?;
    let part_bytes = if charge.bytes() >= wanted {
        terms.bytes_max
    } else {
        usize::try_from(charge.bytes()).unwrap_or(usize::MAX) / entries.len().max(1)
    };
    Some((charge, part_bytes))
}

/// Drives the assembly of one fetch: sends what it asks for, waits for answers, the deadline, or the client's leaving. With
/// `needed` it does not wait for data.
async fn read_once<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    plan: &Plan,
    terms: &Terms,
    needed: Option<u64>,
) -> (Vec<PartitionData>, Option<Charge>) {
    let router = &context.broker.router;
    let Split {
        shards,
        parts,
        entries,
        settled,
    } = split(view, plan);
    let unread = || plan.partitions.iter().map(|_| overloaded_partition()).collect();
    let Some((charge, mut part_bytes)) = grant(context, &entries, terms, needed).await else {
        return (unread(), None);
    };
    let mut charge = Some(charge);
    let may_wait = !terms.wait_max.is_zero() && terms.bytes_min > 0 && needed.is_none();
    let bytes_min = terms.bytes_min.min(part_bytes);
    let mut open: Vec<Option<Asked>> = parts.iter().map(|_| None).collect();
    let places = plan.partitions.len();
    let mut assembly = FetchAssembly::new(places, parts, settled, bytes_min, terms.bytes_max, may_wait);
    // A fetch that waits is answered with what there is when the broker stops.
    let mut deadline = pin!(futures_lite::future::or(
        context.broker.env.sleep(terms.wait_max),
        context.broker.stopping(),
    ));
    let mut is_late = false;
    let mut gone = pin!(context.connection.closed());
    loop {
        while let Some(output) = assembly.poll_output() {
            match output {
                AssemblyOutput::Read { part, wait } => {
                    if wait.is_some() {
                        part_bytes = stop_holding(&assembly, &mut charge, terms);
                    } else if charge.is_none() {
                        let Some(granted) = grant(context, &entries, terms, None).await else {
                            open.iter_mut()
                                .filter_map(Option::take)
                                .for_each(|asked| router.cancel(asked));
                            return (unread(), None);
                        };
                        (charge, part_bytes) = (Some(granted.0), granted.1);
                    }
                    let read = read_of(&entries[part], terms, part_bytes, wait);
                    let request = ShardRequest::Fetch(read);
                    match router.ask_traced(shards[part], request, context.asking()) {
                        Ok(asked) => open[part] = Some(asked),
                        Err(_) => assembly.answered(part, overloaded(entries[part].len())),
                    }
                }
                AssemblyOutput::Cancel { part } => {
                    if let Some(asked) = open[part].take() {
                        router.cancel(asked);
                    }
                }
                AssemblyOutput::Done => return (assembly.into_response(), charge),
            }
        }
        match next_event(&mut open, deadline.as_mut(), is_late, gone.as_mut()).await {
            Event::Answer(part, answer) => assembly.answered(part, answer),
            Event::Deadline => {
                is_late = true;
                assembly.deadline();
            }
            Event::Gone => {
                assembly.abandon();
                open.iter_mut()
                    .filter_map(Option::take)
                    .for_each(|asked| router.cancel(asked));
                return (unread(), None);
            }
        }
    }
}

/// The fetch begins or goes on to wait: gives back what it does not hold. Returns what a part may bring when the wait is over.
fn stop_holding(assembly: &FetchAssembly, charge: &mut Option<Charge>, terms: &Terms) -> usize {
    if assembly.waits_bare() {
        *charge = None;
        return 0;
    }
    if let Some(charge) = charge {
        charge.shrink_to(assembly.held_bytes() as u64);
    }
    terms.bytes_max.min(KEPT_BYTES_MAX)
}

enum Event {
    Answer(usize, FetchAnswer),
    Deadline,
    Gone,
}

async fn next_event(
    open: &mut [Option<Asked>],
    mut deadline: Pin<&mut impl Future<Output = ()>>,
    is_late: bool,
    mut gone: Pin<&mut impl Future<Output = ()>>,
) -> Event {
    poll_fn(|cx| {
        for (part, slot) in open.iter_mut().enumerate() {
            if let Some(asked) = slot
                && let Poll::Ready(reply) = Pin::new(asked).poll(cx)
            {
                *slot = None;
                let ShardReply::Fetch(answer) = reply else {
                    unreachable!("a fetch is answered with data")
                };
                return Poll::Ready(Event::Answer(part, answer));
            }
        }
        if gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Event::Gone);
        }
        if !is_late && deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Event::Deadline);
        }
        Poll::Pending
    })
    .await
}

fn read_of(entries: &[FetchEntry], terms: &Terms, bytes_max: usize, wait: Option<Wait>) -> FetchRead {
    FetchRead {
        entries: entries.to_vec(),
        bytes_max,
        isolation: terms.isolation,
        wait,
    }
}

/// The answer for a shard that cannot be asked: the client tries again.
fn overloaded(entries: usize) -> FetchAnswer {
    FetchAnswer {
        partitions: vec![overloaded_partition(); entries],
        mark: 0,
    }
}

fn overloaded_partition() -> PartitionData {
    PartitionData::failed(ErrorCode::NOT_LEADER_OR_FOLLOWER)
}

fn facts(data: &PartitionData) -> AnswerFacts {
    AnswerFacts {
        high_watermark: data.high_watermark,
        log_start_offset: data.log_start_offset,
        has_records: !data.records.is_empty(),
        is_error: data.error != ErrorCode::NONE,
        redirects: data.diverging.is_some(),
    }
}

/// Adds a partition to the response; neighbours of one topic share its entry.
fn add(response: &mut FetchResponse, version: i16, key: &PartitionKey, data: PartitionData) {
    let (topic, topic_id) = match &key.topic {
        TopicKey::Name(name) => (Str::from(name.to_string()), Uuid::default()),
        TopicKey::Id(id) => (Str::default(), Uuid(id.0)),
    };
    let is_new = response
        .responses
        .last()
        .is_none_or(|last| last.topic != topic || last.topic_id != topic_id);
    if is_new {
        response.responses.push(FetchableTopicResponse {
            topic,
            topic_id,
            ..Default::default()
        });
    }
    if let Some(last) = response.responses.last_mut() {
        last.partitions.push(partition_data(version, key.partition, data));
    }
}

fn partition_data(version: i16, partition_index: i32, data: PartitionData) -> FetchResponsePartitionData {
    let is_old = version <= NO_STORAGE_ERROR_VERSION_MAX;
    let error_code = match data.error {
        ErrorCode::KAFKA_STORAGE_ERROR if is_old => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        other => other,
    };
    let aborted = |(producer, first): (storage::types::ProducerId, Offset)| AbortedTransaction {
        producer_id: producer.0,
        first_offset: first.0,
    };
    let mut wire = FetchResponsePartitionData {
        partition_index,
        error_code,
        high_watermark: data.high_watermark,
        last_stable_offset: data.last_stable_offset,
        log_start_offset: data.log_start_offset,
        aborted_transactions: data.aborted.map(|list| list.into_iter().map(aborted).collect()),
        preferred_read_replica: -1,
        // Never null: clients of old versions cannot read a null (BR-003).
        records: Some(data.records),
        ..Default::default()
    };
    if version >= 12 {
        if let Some((epoch, end)) = data.diverging {
            wire.diverging_epoch = FetchResponseEpochEndOffset {
                epoch: epoch.0,
                end_offset: end.0,
            };
        }
        if let Some((leader, epoch)) = data.current_leader
            && version >= ENDPOINT_VERSION_MIN
        {
            wire.current_leader = FetchResponseLeaderIdAndEpoch {
                leader_id: leader.0,
                leader_epoch: epoch.0,
            };
        }
    }
    wire
}

fn endpoints<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    hinted: Vec<BrokerId>,
) -> Vec<FetchResponseNodeEndpoint> {
    leaders::endpoints(view, &context.connection.listener, hinted)
        .map(|e| FetchResponseNodeEndpoint {
            node_id: e.id,
            host: e.host,
            port: e.port,
            rack: e.rack,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_are_told_what_they_know() {
        for (version, expected) in [
            (4, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            (5, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            (6, ErrorCode::KAFKA_STORAGE_ERROR),
            (18, ErrorCode::KAFKA_STORAGE_ERROR),
        ] {
            let lost = PartitionData::failed(ErrorCode::KAFKA_STORAGE_ERROR);
            assert_eq!(
                partition_data(version, 0, lost).error_code,
                expected,
                "v{version}"
            );
        }
    }
}
