//! Properties of every message in every version: what is decoded is encoded to the same bytes and is equal when it comes
//! back, defaults survive, unknown tagged fields change nothing, pieces of a vectored write join to the same bytes.

use crate::codecs::codecs;
use crate::common::generated_messages;
use crate::common::wire::{Fill, Rng, bytes_of};
use bytes::Bytes;
use proptest::prelude::*;
use protocol::messages::{FetchResponse, FetchResponsePartitionData, FetchableTopicResponse};
use protocol::writer::SPLICE_BYTES_MIN;
use protocol::{Message, RecordBytes, Writer};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_messages_come_back(seed: u64) {
        let codecs = codecs();
        for (name, definition) in generated_messages() {
            for version in definition.versions.lo..=definition.versions.hi {
                let bytes = Bytes::from(bytes_of(&definition, version, Fill::Random, &mut Rng(seed)));
                let codec = codecs[name.as_str()];
                let again = (codec.recode)(bytes.clone(), version, version);
                prop_assert_eq!(again.as_ref(), Ok(&bytes), "{} v{}", name, version);
                prop_assert_eq!((codec.equal)(bytes.clone(), bytes, version), Ok(()), "{} v{}", name, version);
            }
        }
    }
}

#[test]
fn the_default_of_every_message_can_be_sent_in_every_version() {
    let codecs = codecs();
    for (name, definition) in generated_messages() {
        for version in definition.versions.lo..=definition.versions.hi {
            assert_eq!(
                (codecs[name.as_str()].default_survives)(version),
                Ok(()),
                "{name} v{version}"
            );
        }
    }
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    let (codecs, mut checked) = (codecs(), 0);
    for (name, definition) in generated_messages() {
        for version in definition.versions.lo..=definition.versions.hi {
            if definition.flexible.is_none_or(|first| version < first) {
                continue;
            }
            let plain = bytes_of(&definition, version, Fill::Empty, &mut Rng(1));
            // The count of the message's own tagged fields is the last byte. Two unknown ones in its place, the second
            // with a tag of five bytes.
            let (0, mut extended) = (*plain.last().unwrap(), plain[..plain.len() - 1].to_vec()) else {
                panic!()
            };
            extended.extend([2, 99, 3, 1, 2, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
            let equal = (codecs[name.as_str()].equal)(plain.into(), extended.into(), version);
            assert_eq!(equal, Ok(()), "{name} v{version}");
            checked += 1;
        }
    }
    assert!(checked > 400);
}

#[test]
fn a_version_outside_of_the_range_is_refused_both_ways() {
    let codecs = codecs();
    for (name, definition) in generated_messages() {
        let bytes = Bytes::from(bytes_of(
            &definition,
            definition.versions.hi,
            Fill::One,
            &mut Rng(1),
        ));
        for version in [
            definition.versions.lo - 1,
            definition.versions.hi + 1,
            -1,
            i16::MAX,
        ] {
            let recode = codecs[name.as_str()].recode;
            assert!(
                recode(bytes.clone(), version, definition.versions.hi).is_err(),
                "{name} v{version}"
            );
            let encoded = recode(bytes.clone(), definition.versions.hi, version);
            assert!(
                encoded.is_err_and(|e| e.starts_with("encoding")),
                "{name} v{version}"
            );
        }
    }
}

#[test]
fn a_fetch_answer_leaves_as_slices_of_the_record_bytes() {
    let batch = Bytes::from(vec![7; SPLICE_BYTES_MIN * 2]);
    let prefix = Bytes::from_static(&[1; 16]);
    let records: RecordBytes = [prefix, batch.clone()].into_iter().collect();
    let partition = |index, records| FetchResponsePartitionData {
        partition_index: index,
        records,
        ..FetchResponsePartitionData::default()
    };
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            partitions: vec![
                partition(0, Some(records.clone())),
                partition(1, None),
                partition(2, Some(records)),
            ],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    for version in FetchResponse::MIN_VERSION..=FetchResponse::MAX_VERSION {
        let mut w = Writer::framed(256);
        response.encode(&mut w, version).unwrap();
        let len = w.len();
        let chunks = w.finish().unwrap();
        assert_eq!(chunks.iter().map(Bytes::len).sum::<usize>(), len);
        assert_eq!(
            chunks
                .iter()
                .filter(|chunk| chunk.as_ptr() == batch.as_ptr())
                .count(),
            2
        );
        let joined: Bytes = chunks.concat().into();
        assert_eq!(joined[..4], u32::try_from(len - 4).unwrap().to_be_bytes());
        assert_eq!(
            FetchResponse::from_bytes(joined.slice(4..), version).unwrap(),
            response
        );
    }
}
