//! Properties of batches: what is built is read back through every codec and recompression, both ways of walking agree, and
//! whatever validation accepts can be read to its end.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::compression::{Codec, CodecContexts, Decompressor};
use protocol::record::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, BatchOptions, BatchView, Batches, Header, NewRecord,
    ProduceRules, ReadError, RecordStream, Rewritten, TimestampType, TopicCompression, ValidatedBatch,
    validate,
};

const LIMIT: u64 = 16 << 20;
const NOW: i64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Owned {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Up to 40 records; some values reach over a chunk of 64 KiB.
fn records() -> impl Strategy<Value = Vec<Owned>> {
    let value = prop_oneof![
        8 => vec(any::<u8>(), 0..200),
        1 => (any::<u8>(), 1usize..150_000).prop_map(|(byte, len)| vec![byte; len]),
        1 => vec(any::<u8>(), 65_000..66_500),
    ];
    let headers = vec(
        (vec(any::<u8>(), 0..20), option::of(vec(any::<u8>(), 0..20))),
        0..4,
    );
    let record = (
        NOW - 1000..NOW + 1000,
        option::of(vec(any::<u8>(), 0..50)),
        option::of(value),
        headers,
    )
        .prop_map(|(timestamp, key, value, headers)| Owned {
            timestamp,
            key,
            value,
            headers,
        });
    vec(record, 1..40)
}

fn codec() -> impl Strategy<Value = Codec> {
    (0usize..5).prop_map(|index| Codec::ALL[index])
}

fn build(records: &[Owned], options: BatchOptions, contexts: &mut CodecContexts) -> Bytes {
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    for record in records {
        let headers: Vec<Header<'_>> = record
            .headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        builder
            .append(&NewRecord {
                timestamp: record.timestamp,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &headers,
            })
            .expect("a valid record");
    }
    assert_eq!(builder.len(), records.len());
    builder.finish().expect("a batch").bytes
}

/// Reads all records and checks that the walk without contents sees the same.
fn read(batch: &[u8], decompressor: &mut Decompressor) -> Result<Vec<Owned>, ReadError> {
    let view = BatchView::parse(batch, 0).expect("a batch");
    let header = *view.header();
    let mut facts = Vec::new();
    let mut stream = RecordStream::new(&view, decompressor, LIMIT)?;
    while let Some(record) = stream.next_facts()? {
        facts.push(record);
    }
    drop(stream);
    let mut records = Vec::new();
    let mut stream = RecordStream::new(&view, decompressor, LIMIT)?;
    while let Some(record) = stream.next_record()? {
        let fact = facts[records.len()];
        assert_eq!(
            (record.offset_delta, record.timestamp_delta, record.key.is_some()),
            (fact.offset_delta, fact.timestamp_delta, fact.has_key)
        );
        assert_eq!(record.offset_delta as usize, records.len());
        records.push(Owned {
            timestamp: header.timestamp(record.timestamp_delta),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
                .collect(),
        });
    }
    assert_eq!(records.len(), facts.len());
    Ok(records)
}

fn stored(validated: &ValidatedBatch) -> Vec<u8> {
    [validated.head(77, 5).as_slice(), &validated.records].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_survive_validation_and_recompression(
        records in records(), source in codec(), target in option::of(codec()), append: bool, transactional: bool,
    ) {
        let mut contexts = CodecContexts::default();
        let options = BatchOptions {
            codec: source,
            level: source.level_default(),
            producer_id: 9,
            producer_epoch: 2,
            base_sequence: 4,
            transactional,
            ..BatchOptions::default()
        };
        let sent = build(&records, options, &mut contexts);
        let rules = ProduceRules {
            now_ms: NOW,
            max_message_bytes: 64 << 20,
            timestamp_type: if append { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
            compression: target.map_or(TopicCompression::Producer, |codec| {
                TopicCompression::Codec { codec, level: codec.level_default() }
            }),
            ..ProduceRules::default()
        };
        let validated = validate(&sent, &rules, &mut contexts).expect("a good batch");
        let batch = stored(&validated);
        prop_assert_eq!(batch.len(), validated.size());
        let (_, view) = Batches::new(&batch, 0).checked().next().expect("one").expect("a good batch");
        let header = *view.header();
        prop_assert_eq!(header.attributes.codec(), Some(target.unwrap_or(source)));
        prop_assert_eq!(header.attributes.is_transactional(), transactional);
        prop_assert_eq!((header.base_offset, header.leader_epoch), (77, 5));
        prop_assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (9, 2, 4));
        prop_assert_eq!(header.record_count as usize, records.len());
        let rebuilt = target.is_some_and(|target| target != source);
        prop_assert_eq!(validated.rewritten == Rewritten::Records, rebuilt);
        let mut expected = records;
        if append {
            expected.iter_mut().for_each(|record| record.timestamp = NOW);
        }
        let latest = expected.iter().map(|record| record.timestamp).max();
        prop_assert_eq!(Some(header.max_timestamp), latest);
        let first_latest = expected.iter().position(|record| Some(record.timestamp) == latest);
        prop_assert_eq!(Some(validated.max_timestamp_delta as usize), first_latest);
        prop_assert_eq!(read(&batch, &mut contexts.decompressor).expect("readable"), expected);
    }

    #[test]
    fn what_is_accepted_can_be_read(
        records in records(), source in codec(), target in option::of(codec()),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), seal: bool,
    ) {
        let mut contexts = CodecContexts::default();
        let options = BatchOptions { codec: source, level: source.level_default(), ..BatchOptions::default() };
        let mut bytes = build(&records, options, &mut contexts).to_vec();
        for (at, with) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= with;
        }
        if seal {
            // A liar who knows how to compute a CRC.
            let head = *bytes.first_chunk::<BATCH_HEADER_BYTES>().expect("a header");
            let mut header = BatchHeader::decode(&head);
            header.crc = header.computed_crc(&bytes[BATCH_HEADER_BYTES..]);
            bytes[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
        }
        let rules = ProduceRules {
            now_ms: NOW,
            max_message_bytes: 64 << 20,
            decompressed_bytes_max: LIMIT,
            compression: target.map_or(TopicCompression::Producer, |codec| {
                TopicCompression::Codec { codec, level: codec.level_default() }
            }),
            ..ProduceRules::default()
        };
        if let Ok(validated) = validate(&Bytes::from(bytes), &rules, &mut contexts) {
            let batch = stored(&validated);
            let view = BatchView::parse(&batch, 0).expect("a batch");
            prop_assert_eq!(view.check_crc(0), Ok(()));
            let read = read(&batch, &mut contexts.decompressor).expect("accepted, so readable");
            prop_assert_eq!(read.len(), view.header().record_count as usize);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..400), magic in -1i8..4) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.get_mut(16) {
            *byte = magic as u8;
        }
        let _ = validate(&Bytes::from(bytes.clone()), &ProduceRules::default(), &mut CodecContexts::default());
        assert!(Batches::new(&bytes, 0).count() <= bytes.len());
    }
}
