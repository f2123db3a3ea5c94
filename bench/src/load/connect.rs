//! The connections of one thread: which producers and consumers it has, which partitions each of them, and a socket to each broker
//! that leads some of those.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use broker::client::frame;
use broker::exit::{Failure, Status};
use protocol::messages::init_producer_id::InitProducerIdRequest;
use protocol::{DecodeLimits, ErrorCode};

use super::batch::ProducerIdentity;
use super::cluster::Cluster;
use super::consumer::{Consumer, Part};
use super::link::Link;
use super::plan::Plan;
use super::producer::{Producer, ProducerLink, Slot};
use super::request::CLIENT_ID;

/// How long a broker may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of InitProducerId without flexible fields.
const INIT_PRODUCER_ID_VERSION: i16 = 1;

/// Bytes of an answer to a produce for each partition, at most, and besides.
const ANSWER_BYTES: (usize, usize) = (400, 64 << 10);

/// Bytes of a batch that a fetch may hold above what was asked for.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// The connections of thread `number` of `plan.threads`.
pub(super) struct Connected {
    pub(super) producers: Vec<Producer>,
    pub(super) consumers: Vec<Consumer>,
}

/// Connects all producers and consumers of thread `number`.
///
/// # Errors
/// A broker does not accept, or gives no producer id.
pub(super) fn connect(plan: &Plan, cluster: &Cluster, number: usize) -> Result<Connected, Failure> {
    let mut producers = Vec::new();
    for index in (number..plan.producers.count).step_by(plan.threads.max(1)) {
        producers.push(producer(plan, cluster, (index, producers.len()))?);
    }
    let mut consumers = Vec::new();
    // Consumers begin at another thread than producers, so that one of each makes use of two.
    for index in 0..plan.consumers() {
        if (index + plan.producers.count) % plan.threads.max(1) == number {
            consumer(plan, cluster, index, &mut consumers)?;
        }
    }
    Ok(Connected { producers, consumers })
}

/// The topics of a producer or consumer: with fewer of those than topics some topics each, else one each.
pub(super) fn topics_of(number: usize, count: usize, topics: usize) -> Vec<usize> {
    if count >= topics {
        return vec![number % topics.max(1)];
    }
    (number..topics).step_by(count.max(1)).collect()
}

fn producer(plan: &Plan, cluster: &Cluster, (number, index): (usize, usize)) -> Result<Producer, Failure> {
    let topics = topics_of(number, plan.producers.count, cluster.names.len());
    let mut brokers: Vec<usize> = Vec::new();
    let mut slots = Vec::new();
    for topic in topics {
        for (partition, broker) in (0i32..).zip(cluster.leaders.get(topic).into_iter().flatten()) {
            let link = brokers
                .iter()
                .position(|known| known == broker)
                .unwrap_or_else(|| {
                    brokers.push(*broker);
                    brokers.len() - 1
                });
            slots.push(Slot::new(
                u32::try_from(topic).unwrap_or(u32::MAX),
                partition,
                link,
            ));
        }
    }
    let answer_bytes = ANSWER_BYTES.0 * slots.len() + ANSWER_BYTES.1;
    let mut identity = None;
    let mut links = Vec::with_capacity(brokers.len());
    for broker in brokers {
        let (mut stream, name) = open(cluster, broker)?;
        if plan.producers.idempotent && identity.is_none() {
            identity = Some(producer_id(&mut stream, name, plan.patience)?);
        }
        let link = Link::new(stream, answer_bytes).map_err(|error| unreachable(name, &error))?;
        links.push(ProducerLink::new(link));
    }
    Ok(Producer::new(
        (number, index),
        identity,
        (cluster.partitions, plan.producers.in_flight_max),
        slots,
        links,
    ))
}

fn consumer(plan: &Plan, cluster: &Cluster, number: usize, out: &mut Vec<Consumer>) -> Result<(), Failure> {
    let (count, topics) = (plan.consumers.count.max(1), cluster.names.len());
    let member = number % count;
    // Consumers of one topic share its partitions.
    let (sharing, place) = if count >= topics {
        let topic = member % topics.max(1);
        (
            (topic..count).step_by(topics.max(1)).count(),
            member / topics.max(1),
        )
    } else {
        (1, 0)
    };
    let mut by_broker: Vec<(usize, Vec<Part>)> = Vec::new();
    for topic in topics_of(member, count, topics) {
        let of_topic = cluster.leaders.get(topic).zip(cluster.offsets.get(topic));
        let Some((leaders, offsets)) = of_topic else {
            continue;
        };
        let all = (0i32..).zip(leaders.iter().zip(offsets));
        for (partition, (broker, offset)) in all.skip(place).step_by(sharing.max(1)) {
            let part = Part {
                topic: u32::try_from(topic).unwrap_or(u32::MAX),
                partition,
                offset: *offset,
                is_changed: true,
            };
            match by_broker.iter_mut().find(|(known, _)| known == broker) {
                Some((_, parts)) => parts.push(part),
                None => by_broker.push((*broker, vec![part])),
            }
        }
    }
    for (broker, parts) in by_broker {
        let (stream, name) = open(cluster, broker)?;
        let asked = plan
            .consumers
            .fetch_bytes_max
            .max(plan.consumers.partition_bytes_max);
        let bytes = usize::try_from(asked).unwrap_or(0) + BATCH_BYTES_MAX + parts.len() * ANSWER_BYTES.0;
        let link = Link::new(stream, bytes).map_err(|error| unreachable(name, &error))?;
        out.push(Consumer::new(link, parts));
    }
    Ok(())
}

fn open(cluster: &Cluster, broker: usize) -> Result<(TcpStream, &str), Failure> {
    let (address, name) = cluster
        .brokers
        .get(broker)
        .expect("leaders are places in the list");
    TcpStream::connect_timeout(address, CONNECT_TIMEOUT)
        .map(|stream| (stream, name.as_str()))
        .map_err(|error| unreachable(name, &error))
}

fn unreachable(name: &str, error: &std::io::Error) -> Failure {
    let sentence = format!(
        "connecting to the broker at {name}: {error}; is it running, and is its limit of connections high enough?"
    );
    Failure::new(Status::Unavailable, sentence)
}

/// Asks for a producer id, again while the broker is getting ready.
fn producer_id(stream: &mut TcpStream, name: &str, patience: Duration) -> Result<ProducerIdentity, Failure> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        let answer = ask(stream, &request, patience).map_err(|error| unreachable(name, &error))?;
        let may_pass = answer.error_code.is_retriable() && began.elapsed() < patience;
        match answer.error_code {
            ErrorCode::NONE => {
                return Ok(ProducerIdentity {
                    id: answer.producer_id,
                    epoch: answer.producer_epoch,
                });
            }
            _ if may_pass => std::thread::sleep(Duration::from_millis(50)),
            code => {
                let sentence = format!(
                    "the broker at {name} answers the request for a producer id with {code}; --idempotent false needs none"
                );
                return Err(Failure::new(Status::Data, sentence));
            }
        }
    }
}

fn ask(
    stream: &mut TcpStream,
    request: &InitProducerIdRequest,
    patience: Duration,
) -> std::io::Result<protocol::messages::init_producer_id::InitProducerIdResponse> {
    stream.set_read_timeout(Some(patience.max(Duration::from_secs(1))))?;
    let sent = frame::encode(INIT_PRODUCER_ID_VERSION, 0, CLIENT_ID, request).expect("it can be encoded");
    stream.write_all(&sent)?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut answer = vec![0; (u32::from_be_bytes(head) as usize).min(ANSWER_BYTES.1)];
    stream.read_exact(&mut answer)?;
    frame::decode::<InitProducerIdRequest>(answer.into(), INIT_PRODUCER_ID_VERSION, 0, DecodeLimits::TRUSTED)
        .map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_topics_have_someone() {
        for (count, topics) in [(1, 1), (3, 7), (7, 3), (4, 4), (10, 1), (1, 10)] {
            let all: Vec<Vec<usize>> = (0..count)
                .map(|number| topics_of(number, count, topics))
                .collect();
            assert!(
                all.iter().all(|some| !some.is_empty()),
                "{count} {topics}: {all:?}"
            );
            assert!(
                (0..topics).all(|topic| all.iter().any(|some| some.contains(&topic))),
                "{all:?}"
            );
        }
    }
}
