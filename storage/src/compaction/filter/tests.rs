//! What stays of one batch: records, tombstones, markers, emptied headers, with each codec.

use protocol::compression::Codec;
use protocol::record::{BatchHeader, Header, NewRecord, TransactionEnd};

use super::*;
use crate::compaction::offset_map::MapKey;

const RULES: FilterRules = FilterRules {
    looked_to: Offset(1000),
    now_ms: 50_000,
    delete_retention_ms: 7000,
};

/// Key, value; offset and timestamp are the index and 100 times it.
type Rec = (Option<&'static str>, Option<&'static str>);

fn built(options: BatchOptions, records: &[Rec], contexts: &mut CodecContexts) -> Bytes {
    let options = BatchOptions {
        level: options.codec.level_default(),
        ..options
    };
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    let headers = [
        Header {
            key: b"h",
            value: None,
        },
        Header {
            key: b"",
            value: Some(b""),
        },
    ];
    for (index, (key, value)) in records.iter().enumerate() {
        let record = NewRecord {
            timestamp: index as i64 * 100,
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: &headers,
        };
        builder.append(&record).expect("fits");
    }
    builder.finish().expect("fits").bytes
}

fn map(newest: &[(&str, i64)]) -> OffsetMap {
    let mut map = OffsetMap::new(1 << 16, 100, 0.9, MapKey(1, 2));
    for (key, offset) in newest {
        map.put(key.as_bytes(), Offset(*offset)).expect("room");
    }
    map
}

/// Offset, timestamp, key, value.
type Read = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn read(batch: &[u8]) -> (BatchHeader, Vec<Read>) {
    let view = BatchView::parse(batch, 0).expect("a batch");
    view.check_crc(0).expect("its CRC");
    assert_eq!(view.bytes().len(), batch.len());
    let mut contexts = CodecContexts::default();
    let mut stream = RecordStream::new(&view, &mut contexts.decompressor, u64::MAX).expect("readable");
    let mut records = Vec::new();
    while let Some(record) = stream.next_record().expect("readable") {
        assert_eq!(
            record.headers.len(),
            if view.header().attributes.is_control() {
                0
            } else {
                2
            }
        );
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        records.push((
            view.header().base_offset + i64::from(record.offset_delta),
            view.header().timestamp(record.timestamp_delta),
            owned(record.key),
            owned(record.value),
        ));
    }
    (*view.header(), records)
}

fn filter(batch: &[u8], order: BatchOrder, map: &OffsetMap, rules: &FilterRules) -> Filtered {
    let view = BatchView::parse(batch, 0).expect("a batch");
    let mut contexts = CodecContexts::default();
    filter_batch(&view, order, map, rules, &mut contexts).expect("readable")
}

fn changed(filtered: Filtered) -> Bytes {
    match filtered {
        Filtered::Changed(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// CP-3, BR-054, BR-120: with each codec, null and empty keys and values, headers.
#[test]
fn the_newest_record_of_each_key_stays_at_its_offset() {
    for codec in Codec::ALL {
        let mut contexts = CodecContexts::default();
        let options = BatchOptions {
            base_offset: 40,
            leader_epoch: 3,
            codec,
            producer_id: 9,
            producer_epoch: 2,
            base_sequence: 17,
            ..BatchOptions::default()
        };
        let records = [
            (Some("a"), Some("1")),
            (Some("b"), Some("")),
            (Some("a"), Some("2")),
            (None, Some("nobody's")),
            (Some(""), Some("empty key")),
            (Some("c"), Some("3")),
            (Some("d"), Some("4")),
        ];
        let batch = built(options, &records, &mut contexts);
        let map = map(&[("a", 42), ("b", 41), ("", 44), ("c", 90), ("d", 91)]);
        let out = changed(filter(&batch, BatchOrder::default(), &map, &RULES));
        let (header, left) = read(&out);
        let offsets: Vec<_> = left.iter().map(|record| (record.0, record.1)).collect();
        assert_eq!(offsets, [(41, 100), (42, 200), (44, 400)], "{codec}");
        assert_eq!(left[0].3, Some(Vec::new()));
        assert_eq!(left[2].2, Some(Vec::new()));
        assert_eq!((header.base_offset, header.last_offset_delta), (40, 6));
        assert_eq!(
            (header.producer_id, header.producer_epoch, header.base_sequence),
            (9, 2, 17)
        );
        assert_eq!((header.leader_epoch, header.max_timestamp), (3, 400));
        assert_eq!(header.attributes.codec(), Some(codec));
        assert_eq!(
            filter(&out, BatchOrder::default(), &map, &RULES),
            Filtered::Same,
            "{codec}"
        );
    }
}

#[test]
fn a_batch_of_which_all_stays_is_kept_byte_for_byte() {
    for codec in Codec::ALL {
        let mut contexts = CodecContexts::default();
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        let batch = built(
            options,
            &[(Some("a"), Some("1")), (Some("b"), Some("2"))],
            &mut contexts,
        );
        let order = BatchOrder {
            keep_empty: true,
            ..BatchOrder::default()
        };
        assert_eq!(filter(&batch, order, &map(&[("a", 0)]), &RULES), Filtered::Same);
        // Not looked at for newer ones.
        let rules = FilterRules {
            looked_to: Offset::ZERO,
            ..RULES
        };
        assert_eq!(
            filter(&batch, order, &map(&[("a", 9), ("b", 9)]), &rules),
            Filtered::Same
        );
    }
}

/// CP-4.
#[test]
fn a_tombstone_gets_a_horizon_and_goes_after_it() {
    for codec in [Codec::None, Codec::Zstd] {
        let mut contexts = CodecContexts::default();
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        let batch = built(
            options,
            &[(Some("a"), None), (Some("b"), Some("2"))],
            &mut contexts,
        );
        let map = map(&[]);
        let stamped = changed(filter(&batch, BatchOrder::default(), &map, &RULES));
        let (header, left) = read(&stamped);
        assert_eq!(header.delete_horizon(), Some(57_000));
        assert_eq!(left.len(), 2);
        assert_eq!(
            (left[0].1, left[1].1, header.max_timestamp),
            (0, 100, 100),
            "timestamps stay"
        );
        let later = |now_ms| FilterRules { now_ms, ..RULES };
        assert_eq!(
            filter(&stamped, BatchOrder::default(), &map, &later(56_999)),
            Filtered::Same
        );
        let gone = changed(filter(&stamped, BatchOrder::default(), &map, &later(57_000)));
        let (header, left) = read(&gone);
        assert_eq!((left.len(), left[0].0), (1, 1));
        assert_eq!((header.base_offset, header.last_offset_delta), (0, 1));
        let superseded = self::map(&[("a", 9), ("b", 9)]);
        assert_eq!(
            filter(&stamped, BatchOrder::default(), &superseded, &RULES),
            Filtered::Gone
        );
    }
}

#[test]
fn the_append_time_stays_the_batchs() {
    let mut contexts = CodecContexts::default();
    let options = BatchOptions {
        append_time: Some(77_000),
        ..BatchOptions::default()
    };
    let batch = built(
        options,
        &[(Some("a"), Some("1")), (Some("b"), None)],
        &mut contexts,
    );
    let out = changed(filter(&batch, BatchOrder::default(), &map(&[("a", 5)]), &RULES));
    let (header, left) = read(&out);
    assert_eq!((header.max_timestamp, left[0].1), (77_000, 77_000));
    assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.delete_horizon(), Some(57_000));
}

/// CP-6, BR-106.
#[test]
fn a_batch_that_must_stay_is_emptied() {
    let mut contexts = CodecContexts::default();
    let options = BatchOptions {
        base_offset: 10,
        leader_epoch: 4,
        codec: Codec::Gzip,
        producer_id: 9,
        producer_epoch: 2,
        base_sequence: 5,
        transactional: true,
        ..BatchOptions::default()
    };
    let batch = built(
        options,
        &[(Some("a"), Some("1")), (Some("b"), Some("2"))],
        &mut contexts,
    );
    let map = map(&[("a", 90), ("b", 91)]);
    let keep = BatchOrder {
        keep_empty: true,
        may_go: false,
    };
    let empty = changed(filter(&batch, keep, &map, &RULES));
    let (header, left) = read(&empty);
    assert_eq!((empty.len(), left.len(), header.record_count), (61, 0, 0));
    assert_eq!(
        (header.base_offset, header.last_offset_delta, header.max_timestamp),
        (10, 1, 100)
    );
    assert_eq!(
        (header.producer_id, header.producer_epoch, header.base_sequence),
        (9, 2, 5)
    );
    assert!(header.attributes.is_transactional() && !header.attributes.is_compressed());
    assert_eq!(header.leader_epoch, 4);
    assert_eq!(filter(&empty, keep, &map, &RULES), Filtered::Same, "and stays so");
    assert_eq!(
        filter(&empty, BatchOrder::default(), &map, &RULES),
        Filtered::Gone
    );
    // Records of an aborted transaction go whatever the map says (CP-5).
    let aborted = BatchOrder {
        keep_empty: true,
        may_go: true,
    };
    assert_eq!(changed(filter(&batch, aborted, &self::map(&[]), &RULES)), empty);
    let aborted = BatchOrder {
        keep_empty: false,
        ..aborted
    };
    assert_eq!(filter(&batch, aborted, &self::map(&[]), &RULES), Filtered::Gone);
}

/// CP-5: a marker is kept until it is spent, then until its horizon.
#[test]
fn a_marker_goes_when_it_is_spent_and_its_own_time_has_come() {
    let end = TransactionEnd {
        committed: false,
        coordinator_epoch: 3,
    };
    let marker = end.marker_batch(9, 1, 5000).bytes;
    let map = map(&[]);
    let spent = BatchOrder {
        may_go: true,
        keep_empty: false,
    };
    assert_eq!(
        filter(&marker, BatchOrder::default(), &map, &RULES),
        Filtered::Same
    );
    let stamped = changed(filter(&marker, spent, &map, &RULES));
    let (header, left) = read(&stamped);
    assert_eq!((header.delete_horizon(), left[0].1), (Some(57_000), 5000));
    assert!(header.attributes.is_control() && header.attributes.is_transactional());
    let original = read(&marker).1;
    assert_eq!((&left[0].2, &left[0].3), (&original[0].2, &original[0].3));
    let later = FilterRules {
        now_ms: 57_000,
        ..RULES
    };
    assert_eq!(filter(&stamped, spent, &map, &RULES), Filtered::Same);
    assert_eq!(
        filter(&stamped, BatchOrder::default(), &map, &later),
        Filtered::Same,
        "not spent"
    );
    assert_eq!(filter(&stamped, spent, &map, &later), Filtered::Gone);
    let last = BatchOrder {
        keep_empty: true,
        ..spent
    };
    assert_eq!(read(&changed(filter(&stamped, last, &map, &later))).1.len(), 0);
}

/// CP-8: what cannot be read is an error and not a loss.
#[test]
fn a_damaged_batch_is_an_error() {
    let mut contexts = CodecContexts::default();
    let options = BatchOptions {
        codec: Codec::Lz4,
        ..BatchOptions::default()
    };
    let batch = built(options, &[(Some("a"), Some("1"))], &mut contexts);
    let mut damaged = batch.to_vec();
    *damaged.last_mut().expect("not empty") ^= 1;
    damaged[70] ^= 4;
    let view = BatchView::parse(&damaged, 0).expect("its header is right");
    assert!(filter_batch(&view, BatchOrder::default(), &map(&[]), &RULES, &mut contexts).is_err());
}
