//! Bytes that no honest client sends, for every message in every version: cut short, with lengths and counts that lie,
//! changed at any place, random. Decoding never panics, and never takes more memory than the frame's budget, measured by
//! an allocator that counts.

use crate::allocator::peak_of;
use crate::codecs::{Codec, codecs};
use crate::common::schema::Message as Definition;
use crate::common::wire::{Fill, Rng, bytes_of};
use crate::common::{generated_messages, say};
use bytes::Bytes;
use proptest::prelude::*;
use protocol::{DecodeFault, DecodeLimits};

/// Reference counts of a frame that is sliced for the first time, and the error.
const SLACK_BYTES: usize = 256;

/// Decodes within bounds and returns whether it succeeded.
fn decode_bounded(codec: &Codec, bytes: &[u8], version: i16) -> bool {
    let frame = Bytes::copy_from_slice(bytes);
    let limits = DecodeLimits::CLIENT;
    let (result, peak) = peak_of(|| (codec.decode)(frame, version, limits));
    let allowed = limits.budget(bytes.len()) + SLACK_BYTES;
    assert!(
        peak <= allowed,
        "{} v{version}: {peak} bytes of memory for a frame of {}",
        codec.name,
        bytes.len()
    );
    result.is_ok()
}

/// Every message in every version.
fn all() -> Vec<(Codec, Definition, i16)> {
    let codecs = codecs();
    let mut all = Vec::new();
    for (name, definition) in generated_messages() {
        for version in definition.versions.lo..=definition.versions.hi {
            all.push((codecs[name.as_str()], definition.clone(), version));
        }
    }
    all
}

#[test]
fn a_message_cut_short_is_refused_at_every_length() {
    let mut cuts = 0;
    for (codec, definition, version) in all() {
        for fill in [Fill::Three, Fill::Random] {
            let bytes = bytes_of(&definition, version, fill, &mut Rng(3));
            for len in 0..bytes.len().min(2_000) {
                assert!(
                    !decode_bounded(&codec, &bytes[..len], version),
                    "{} v{version} cut at {len}",
                    codec.name
                );
                cuts += 1;
            }
        }
    }
    say(&format!("hostile: {cuts} messages cut short, all refused"));
}

/// As Kafka, which ignores what stands behind a request's body.
#[test]
fn bytes_behind_a_message_are_left_to_the_caller() {
    for (codec, definition, version) in all() {
        let mut bytes = bytes_of(&definition, version, Fill::One, &mut Rng(5));
        bytes.extend([0xde, 0xad, 0xbe]);
        let left = (codec.decode)(bytes.into(), version, DecodeLimits::CLIENT);
        assert_eq!(left, Ok(3), "{} v{version}", codec.name);
    }
}

#[test]
fn any_byte_can_be_changed_to_anything() {
    let (mut changes, mut accepted) = (0u64, 0u64);
    for (codec, definition, version) in all() {
        let mut bytes = bytes_of(&definition, version, Fill::One, &mut Rng(7));
        for at in 0..bytes.len() {
            let original = bytes[at];
            for value in [0, 1, 0x7f, 0x80, 0xfe, 0xff, original ^ 0x10] {
                bytes[at] = value;
                accepted += u64::from(decode_bounded(&codec, &bytes, version));
                changes += 1;
            }
            bytes[at] = original;
        }
    }
    say(&format!(
        "hostile: {changes} messages with one byte changed, {accepted} still a message"
    ));
    assert!(accepted > 0 && accepted < changes);
}

#[test]
fn lengths_that_lie_are_refused_before_memory_is_taken() {
    // The largest lengths and counts in each form, negative ones, and varints that do not end.
    let claims: [&[u8]; 9] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x7f, 0xff],
        &[0x80, 0x00, 0x00, 0x00],
        &[0xff, 0xff, 0xff, 0xfe],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0x80, 0x80, 0x80, 0x80, 0x10],
        &[0xff; 10],
        &[0x80; 10],
    ];
    let mut tried = 0u64;
    for (codec, definition, version) in all() {
        let bytes = bytes_of(&definition, version, Fill::One, &mut Rng(9));
        for at in 0..=bytes.len() {
            for claim in claims {
                let lie = [&bytes[..at], claim, &bytes[at..]].concat();
                decode_bounded(&codec, &lie, version);
                let over: Vec<u8> = [
                    &bytes[..at],
                    claim,
                    bytes.get(at + claim.len()..).unwrap_or_default(),
                ]
                .concat();
                decode_bounded(&codec, &over, version);
                decode_bounded(&codec, &[&bytes[..at], claim].concat(), version);
                tried += 3;
            }
        }
    }
    say(&format!("hostile: {tried} messages with a length that lies"));
}

/// A frame whose bytes all are the smallest elements that there are has the highest ratio of memory to input.
#[test]
fn a_large_frame_of_tiny_elements_is_held_to_its_budget() {
    let mut worst = (0, String::new());
    for (codec, definition, version) in all() {
        let flexible = definition.flexible.is_some_and(|first| version >= first);
        for filler in [0u8, 1, 2] {
            let mut frame = vec![filler; 200_000];
            // Somewhere among the first bytes an array's count is hit; this makes it claim all the rest.
            for at in 0..24 {
                let claim: &[u8] = if flexible {
                    &[0x80, 0xa0, 0x06]
                } else {
                    &[0, 0, 0x61, 0xa8]
                };
                frame[at..at + claim.len()].copy_from_slice(claim);
                let bytes = Bytes::from(frame.clone());
                let (_, peak) = peak_of(|| (codec.decode)(bytes, version, DecodeLimits::CLIENT));
                if peak > worst.0 {
                    worst = (peak, format!("{} v{version}", codec.name));
                }
                frame[at..at + claim.len()].fill(filler);
            }
        }
    }
    let budget = DecodeLimits::CLIENT.budget(200_000);
    say(&format!(
        "hostile: worst is {} with {} bytes of memory, budget {budget}",
        worst.1, worst.0
    ));
    assert!(worst.0 <= budget + SLACK_BYTES && worst.0 > budget / 4);
}

/// The request that aborts other implementations: four bytes that claim two thousand million topics.
#[test]
fn the_four_byte_metadata_request() {
    let metadata = codecs()["MetadataRequest"];
    let frame = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]);
    let (result, peak) = peak_of(|| (metadata.decode)(frame, 1, DecodeLimits::CLIENT));
    let error = result.unwrap_err();
    assert_eq!(
        error.fault,
        DecodeFault::Count {
            declared: 0x7fff_ffff,
            remaining: 0
        }
    );
    assert_eq!(
        (error.message, error.version, error.offset),
        ("MetadataRequest", 1, 4)
    );
    assert!(peak <= SLACK_BYTES, "{peak}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic_and_stay_in_bounds(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..4, Just(0xffu8)], 0..600),
    ) {
        for (codec, _, version) in all() {
            decode_bounded(&codec, &bytes, version);
        }
    }
}
