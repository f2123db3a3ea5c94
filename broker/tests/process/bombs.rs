//! Batches that take long to decompress: they are walked beside the shard, so others are answered meanwhile, and the order
//! of each connection stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::compression::{Codec, Compressor};
use protocol::messages::metadata::{MetadataRequest, MetadataResponse};
use protocol::messages::produce::{ProduceRequest, ProduceResponse};
use protocol::record::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, BatchOptions, NewRecord};

use crate::stop::{batch, create_topic, produce_request};
use crate::support::{Broker, Client, now_ms};

/// Connections that send bombs, each to partitions of its own.
const BOMBERS: i32 = 3;

/// Requests of each with a bomb for each of its partitions; behind each is one with a small batch for each of them.
const ROUNDS: i64 = 3;

/// Partitions of each.
const PARTITIONS: i32 = 8;

/// One record of zeros, 96 MiB decompressed, 96 KiB on the wire.
pub(crate) fn bomb() -> Bytes {
    let mut compressor = Compressor::new();
    let options = BatchOptions {
        codec: Codec::Gzip,
        level: 9,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options, &mut compressor);
    let record = NewRecord {
        timestamp: now_ms(),
        key: None,
        value: Some(&vec![0; 96 << 20]),
        headers: &[],
    };
    builder.append(&record).unwrap();
    let bytes = builder.finish().unwrap().bytes;
    assert!(bytes.len() < 200_000, "{}", bytes.len());
    bytes
}

/// The same batch, which says that it has one record more.
fn with_wrong_count(batch: &Bytes) -> Bytes {
    let (head, records) = batch.split_first_chunk::<BATCH_HEADER_BYTES>().unwrap();
    let mut header = BatchHeader::decode(head);
    header.record_count += 1;
    header.last_offset_delta += 1;
    Bytes::from([&header.sealed(records).encode(), records].concat())
}

/// The same batch for each partition of a bomber.
fn request(bomber: i32, records: &Bytes) -> ProduceRequest {
    let partitions = bomber * PARTITIONS..(bomber + 1) * PARTITIONS;
    let mut requests = partitions.map(|p| produce_request("bombed", p, records.clone()));
    let mut whole = requests.next().unwrap();
    for request in requests {
        whole.topic_data[0]
            .partition_data
            .extend(request.topic_data.into_iter().flat_map(|t| t.partition_data));
    }
    whole
}

/// Error and base offset of the next answer, the same for every partition.
fn answer(client: &mut Client) -> (ErrorCode, i64) {
    let response: ProduceResponse = client.receive(7).unwrap();
    let mut all: Vec<_> = response.responses[0]
        .partition_responses
        .iter()
        .map(|p| (p.error_code, p.base_offset))
        .collect();
    assert_eq!(all.len(), PARTITIONS as usize);
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

/// The round trips of another client until `is_over`, sorted.
fn round_trips(broker: &Broker, is_over: &AtomicBool) -> Vec<Duration> {
    let mut client = Client::connect(broker.address);
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let _: MetadataResponse = client.call(&MetadataRequest::default(), 4).unwrap();
        times.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    times.sort_unstable();
    times
}

#[test]
fn others_are_answered_while_bombs_are_walked_and_their_order_stays() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "bombed", (BOMBERS + 1) * PARTITIONS);
    let bomb = bomb();
    // Alone, to know how long one takes here.
    let began = Instant::now();
    client.send(&request(BOMBERS, &bomb), 7).unwrap();
    assert_eq!(answer(&mut client), (ErrorCode::NONE, 0));
    let alone = began.elapsed();
    client
        .send(&request(BOMBERS, &with_wrong_count(&bomb)), 7)
        .unwrap();
    assert_eq!(answer(&mut client), (ErrorCode::INVALID_RECORD, -1));

    let is_over = Arc::new(AtomicBool::new(false));
    let address = broker.address;
    let bombers: Vec<_> = (0..BOMBERS)
        .map(|bomber| {
            let bomb = bomb.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..ROUNDS {
                    client.send(&request(bomber, &bomb), 7).unwrap();
                    client.send(&request(bomber, &batch(2)), 7).unwrap();
                }
                (0..2 * ROUNDS).map(|_| answer(&mut client)).collect::<Vec<_>>()
            })
        })
        .collect();
    let watch = {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let answers: Vec<_> = bombers.into_iter().map(|b| b.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            answers
        })
    };
    let times = round_trips(&broker, &is_over);
    // In each partition one record, then two, then one again.
    let expected: Vec<_> = (0..ROUNDS)
        .flat_map(|round| [3 * round, 3 * round + 1])
        .map(|offset| (ErrorCode::NONE, offset))
        .collect();
    for answers in watch.join().unwrap() {
        assert_eq!(answers, expected);
    }
    let (median, late) = (times[times.len() / 2], times[times.len() * 9 / 10]);
    println!(
        "bombs alone {alone:?}; {} round trips beside bombs, median {median:?}, p90 {late:?}",
        times.len()
    );
    // On the shard nearly every round trip would wait for a bomb, and mostly for more than one.
    assert!(
        median < alone / 40 && late < alone / 8,
        "{median:?}, {late:?} beside bombs of {alone:?}"
    );
}
