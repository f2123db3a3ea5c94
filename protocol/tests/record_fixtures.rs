//! Batches written by kafka-clients, librdkafka and kafka-python are read as they were meant, and ours are the same bytes
//! where the format leaves no choice. `fixtures/README.md` says how the files were made.

use std::path::Path;

use protocol::compression::{Codec, Compressor, Decompressor};
use protocol::message::Message;
use protocol::messages::{
    KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter, SnapshotFooterRecord,
    SnapshotHeaderRecord, VotersRecord,
};
use protocol::record::{
    BatchBuilder, BatchOptions, BatchView, Batches, ControlRecord, Header, MARKER_BATCH_BYTES, NewRecord,
    RecordStream, TimestampType, TransactionEnd,
};

const TIME: i64 = 1_700_000_000_000;
const LIMIT: u64 = 64 << 20;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/batches")
        .join(format!("{name}.batch"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Offset, timestamp, key, value, headers.
type Owned = (
    i64,
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(Vec<u8>, Option<Vec<u8>>)>,
);

fn read(bytes: &[u8]) -> Vec<Owned> {
    let mut decompressor = Decompressor::new();
    let mut records = Vec::new();
    for batch in Batches::new(bytes, 0).checked() {
        let (_, batch) = batch.expect("a good batch");
        let header = *batch.header();
        let mut stream = RecordStream::new(&batch, &mut decompressor, LIMIT).expect("a readable stream");
        while let Some(record) = stream.next_record().expect("a good record") {
            records.push((
                header.base_offset + i64::from(record.offset_delta),
                header.timestamp(record.timestamp_delta),
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                record
                    .headers
                    .iter()
                    .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
                    .collect(),
            ));
        }
        drop(stream);
        // The walk that keeps nothing sees the same records.
        let mut stream = RecordStream::new(&batch, &mut decompressor, LIMIT).expect("a readable stream");
        let first = records.len() - header.record_count as usize;
        for record in &records[first..] {
            let facts = stream
                .next_facts()
                .expect("a good record")
                .expect("as many records");
            assert_eq!(header.base_offset + i64::from(facts.offset_delta), record.0);
            assert_eq!(header.timestamp(facts.timestamp_delta), record.1);
            assert_eq!(facts.has_key, record.2.is_some());
        }
        assert_eq!(stream.next_facts(), Ok(None));
    }
    records
}

fn some(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

/// What `Make.java` wrote as "varied".
fn varied() -> Vec<Owned> {
    let headers = vec![
        (b"h".to_vec(), None),
        (b"h".to_vec(), some("")),
        (Vec::new(), some("v")),
        ("\u{e4}\u{1f600}".as_bytes().to_vec(), Some(vec![0; 200])),
    ];
    vec![
        (1000, TIME, some("key"), some("value"), Vec::new()),
        (1001, TIME + 5, None, some(""), Vec::new()),
        (1002, TIME - 3, some(""), None, Vec::new()),
        (1003, TIME + 2, None, None, Vec::new()),
        (1004, TIME + 1, some("k"), some(&"x".repeat(300)), headers),
    ]
}

/// What `Make.java` wrote as "large".
fn large(count: i64) -> Vec<Owned> {
    let record = |i: i64| {
        let value = format!("value-{i} ").repeat(200).as_bytes()[..1024].to_vec();
        (i, TIME + i, some(&format!("key-{i}")), Some(value), Vec::new())
    };
    (0..count).map(record).collect()
}

/// Builds the same records with our builder.
fn build(records: &[Owned], options: BatchOptions) -> Vec<u8> {
    let mut compressor = Compressor::new();
    let mut builder = BatchBuilder::new(options, &mut compressor);
    for (offset, timestamp, key, value, headers) in records {
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        let record = NewRecord {
            timestamp: *timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers,
        };
        builder.append_at(*offset, &record).expect("a valid record");
    }
    builder.finish().expect("a batch").bytes.to_vec()
}

#[test]
fn batches_of_the_java_client_are_read_for_every_codec() {
    for codec in [
        "none", "gzip", "snappy", "lz4", "zstd", "gzip-9", "lz4-1", "zstd-22",
    ] {
        let bytes = fixture(&format!("java-varied-{codec}"));
        assert_eq!(read(&bytes), varied(), "{codec}");
        let batch = BatchView::parse(&bytes, 0).expect("a batch");
        let name = codec.split('-').next().expect("a name");
        assert_eq!(batch.header().attributes.codec(), Codec::from_name(name));
        assert_eq!(
            (batch.header().leader_epoch, batch.header().max_timestamp),
            (7, TIME + 5)
        );
        if codec != "none" {
            assert_eq!(
                read(&fixture(&format!("java-large-{codec}"))),
                large(400),
                "{codec}"
            );
        }
    }
}

#[test]
fn batches_of_librdkafka_and_kafka_python_are_read_for_every_codec() {
    for client in ["librdkafka", "kafka-python"] {
        for codec in ["gzip", "snappy", "lz4", "zstd"] {
            let expected: Vec<Owned> = large(100)
                .into_iter()
                .map(|(offset, timestamp, key, value, _)| {
                    (
                        offset,
                        timestamp,
                        key,
                        value,
                        vec![(b"h".to_vec(), some("x")), (b"n".to_vec(), some(""))],
                    )
                })
                .collect();
            assert_eq!(
                read(&fixture(&format!("{client}-{codec}"))),
                expected,
                "{client} {codec}"
            );
        }
    }
}

#[test]
fn our_uncompressed_batches_are_javas_bytes() {
    let options = BatchOptions {
        base_offset: 1000,
        leader_epoch: 7,
        ..BatchOptions::default()
    };
    assert_eq!(build(&varied(), options), fixture("java-varied-none"));
    let options = BatchOptions {
        append_time: Some(TIME + 77),
        producer_id: 42,
        producer_epoch: 3,
        base_sequence: i32::MAX,
        transactional: true,
        leader_epoch: 12,
        ..BatchOptions::default()
    };
    let records = [
        (0, TIME, some("a"), some("1"), Vec::new()),
        (1, TIME + 1, some("b"), some("2"), Vec::new()),
    ];
    let java = fixture("java-transactional-append-time");
    assert_eq!(build(&records, options), java);
    assert_eq!(
        header(&java).attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(header(&java).last_sequence(), 0);
    assert_eq!(
        read(&java).iter().map(|record| record.1).collect::<Vec<_>>(),
        [TIME + 77; 2]
    );
}

fn header(bytes: &[u8]) -> protocol::record::BatchHeader {
    *BatchView::parse(bytes, 0).expect("a batch").header()
}

#[test]
fn our_compressed_batches_come_back() {
    for codec in Codec::ALL {
        for records in [varied(), large(400)] {
            let options = BatchOptions {
                base_offset: records[0].0,
                codec,
                level: codec.level_default(),
                ..BatchOptions::default()
            };
            assert_eq!(read(&build(&records, options)), records, "{codec}");
        }
    }
}

#[test]
fn offset_gaps_are_kept() {
    let mut records = varied();
    records.retain(|record| record.0 != 1000 && record.0 != 1003);
    let options = BatchOptions {
        base_offset: 1000,
        ..BatchOptions::default()
    };
    let bytes = build(&records, options);
    assert_eq!(read(&bytes), records);
    assert_eq!(
        (header(&bytes).last_offset_delta, header(&bytes).record_count),
        (4, 3)
    );
}

#[test]
fn transaction_markers_are_javas_78_bytes() {
    for (name, committed, coordinator_epoch) in [("java-commit", true, 9), ("java-abort", false, 10)] {
        let end = TransactionEnd {
            committed,
            coordinator_epoch,
        };
        let batch = end.marker_batch(42, 3, TIME);
        assert_eq!(batch.bytes.len(), MARKER_BATCH_BYTES);
        assert_eq!(batch.bytes, fixture(name));
        assert_eq!(batch.header.attributes.0, 0x30);
        assert_eq!(control(&batch.bytes), ControlRecord::TransactionEnd(end));
    }
}

fn control(bytes: &[u8]) -> ControlRecord {
    let batch = BatchView::parse(bytes, 0).expect("a batch");
    assert_eq!(batch.check_crc(0), Ok(()));
    assert!(batch.header().attributes.is_control());
    let mut decompressor = Decompressor::new();
    let mut stream = RecordStream::new(&batch, &mut decompressor, LIMIT).expect("a stream");
    let record = stream.next_record().expect("a record").expect("one record");
    ControlRecord::parse(&record).expect("a control record")
}

#[test]
fn quorum_control_records_are_javas_bytes() {
    let voter = |voter_id| LeaderChangeMessageVoter {
        voter_id,
        ..Default::default()
    };
    let leader_change = LeaderChangeMessage {
        version: 0,
        leader_id: 1,
        voters: vec![voter(1), voter(2)],
        granting_voters: vec![voter(1)],
    };
    let header = SnapshotHeaderRecord {
        last_contained_log_timestamp: TIME - 1,
        ..Default::default()
    };
    let version = KRaftVersionRecord {
        k_raft_version: 1,
        ..Default::default()
    };
    let records = [
        ("java-leader-change", ControlRecord::LeaderChange(leader_change)),
        ("java-snapshot-header", ControlRecord::SnapshotHeader(header)),
        (
            "java-snapshot-footer",
            ControlRecord::SnapshotFooter(SnapshotFooterRecord::default()),
        ),
        ("java-kraft-version", ControlRecord::KRaftVersion(version)),
    ];
    for (name, record) in records {
        let java = fixture(name);
        assert_eq!(control(&java), record, "{name}");
        assert_eq!(
            record.quorum_batch(5, 3, TIME).expect("a batch").bytes,
            java,
            "{name}"
        );
    }
    let java = fixture("java-voters");
    let ControlRecord::Voters(voters) = control(&java) else {
        panic!("no voters")
    };
    assert_eq!(voters.voters.len(), 1);
    assert_eq!(voters.voters[0].endpoints[0].host.as_str(), "localhost");
    assert_eq!(voters.voters[0].endpoints[0].port, 9093);
    let value = voters.to_bytes(0).expect("bytes");
    assert_eq!(VotersRecord::from_bytes(value, 0).as_ref(), Ok(&voters));
    assert_eq!(
        ControlRecord::Voters(voters)
            .quorum_batch(5, 3, TIME)
            .expect("a batch")
            .bytes,
        java
    );
}
