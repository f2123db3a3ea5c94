//! Frames: requests in, answers out.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use protocol::compression::Codec;
use protocol::frame::split_frame;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::messages::fetch::{
    FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic, FetchResponse,
    FetchResponsePartitionData, FetchableTopicResponse,
};
use protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
    TopicProduceResponse,
};
use protocol::{ApiKey, Message, Reader, RecordBytes, Request, Str, Uuid, Writer};

use super::Operation;
use super::batches::batch;

const TOPIC: Uuid = Uuid([7; 16]);
const FRAME_BYTES_MAX: usize = 1 << 20;

pub(super) fn decoding() -> Vec<Operation> {
    vec![
        decode::<ProduceRequest>(
            "decode/produce, 1 partition of 16 KiB",
            &produce(1, &batch(Codec::None, 16, 1024)),
        ),
        decode::<ProduceRequest>(
            "decode/produce, 50 partitions of 100 B",
            &produce(50, &batch(Codec::None, 1, 100)),
        ),
        decode::<FetchRequest>("decode/fetch, 50 partitions", &fetch(50)),
    ]
}

pub(super) fn encoding() -> Vec<Operation> {
    vec![
        encode("encode/produce answer, 1 partition", ApiKey::Produce, produced(1)),
        encode(
            "encode/produce answer, 50 partitions",
            ApiKey::Produce,
            produced(50),
        ),
        encode(
            "encode/fetch answer, 16 partitions of 64 KiB",
            ApiKey::Fetch,
            fetched(16, 64 << 10),
        ),
    ]
}

/// What a connection does with what it received: finds the frame, reads header and body.
fn decode<R: Request>(name: &'static str, request: &R) -> Operation {
    let mut w = Writer::framed(256);
    RequestHeader {
        api_key: ApiKey::from_i16(R::API_KEY).expect("the API exists"),
        api_version: R::MAX_VERSION,
        correlation_id: 1,
        client_id: Some(Str::from("a producer".to_owned())),
    }
    .encode(&mut w);
    request
        .encode(&mut w, R::MAX_VERSION)
        .expect("a request of this version");
    let frame = Bytes::from(w.finish().expect("a request within all bounds").concat());
    let mut received = BytesMut::with_capacity(2 * frame.len());
    Operation::new(name, frame.len(), move || {
        received.reserve(frame.len());
        received.extend_from_slice(&frame);
        let body = split_frame(&mut received, FRAME_BYTES_MAX)
            .expect("the frame is valid")
            .expect("the frame is whole");
        let mut reader = Reader::new(body);
        let header = RequestHeader::decode(&mut reader).expect("the header is valid");
        let request = R::decode(&mut reader, header.api_version).expect("the request is valid");
        black_box((header, request));
    })
}

/// What a connection sends: the pieces of one vectored write.
fn encode<M: Message + 'static>(name: &'static str, api: ApiKey, answer: M) -> Operation {
    let version = M::MAX_VERSION;
    let write = move || {
        let mut w = Writer::framed(256);
        ResponseHeader { correlation_id: 1 }.encode(&mut w, api, version);
        answer.encode(&mut w, version).expect("an answer of this version");
        w.finish().expect("an answer within all bounds")
    };
    let bytes = write().iter().map(Bytes::len).sum();
    Operation::new(name, bytes, move || {
        black_box(write());
    })
}

fn produce(partitions: i32, batch: &Bytes) -> ProduceRequest {
    let data = |index| PartitionProduceData {
        index,
        records: Some(RecordBytes::from(batch.clone())),
    };
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            topic_id: TOPIC,
            partition_data: (0..partitions).map(data).collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn produced(partitions: i32) -> ProduceResponse {
    let answer = |index| PartitionProduceResponse {
        index,
        base_offset: 1_000_000,
        log_append_time_ms: -1,
        log_start_offset: 0,
        ..PartitionProduceResponse::default()
    };
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            topic_id: TOPIC,
            partition_responses: (0..partitions).map(answer).collect(),
            ..TopicProduceResponse::default()
        }],
        ..ProduceResponse::default()
    }
}

fn fetch(partitions: i32) -> FetchRequest {
    let one = |partition| FetchRequestFetchPartition {
        partition,
        fetch_offset: 1_000_000,
        partition_max_bytes: 1 << 20,
        ..FetchRequestFetchPartition::default()
    };
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        topics: vec![FetchRequestFetchTopic {
            topic_id: TOPIC,
            partitions: (0..partitions).map(one).collect(),
            ..FetchRequestFetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

/// An answer as the batch cache gives it: each batch is its prefix and the rest.
fn fetched(partitions: i32, bytes: usize) -> FetchResponse {
    let batch = Bytes::from(vec![0x5a; bytes]);
    let answer = |partition_index| FetchResponsePartitionData {
        partition_index,
        high_watermark: 1_000_100,
        records: Some(RecordBytes::from_iter([batch.slice(..16), batch.slice(16..)])),
        ..FetchResponsePartitionData::default()
    };
    FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic_id: TOPIC,
            partitions: (0..partitions).map(answer).collect(),
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    }
}
