//! The hash functions that Kafka's clients and brokers must agree on: murmur2 (default partitioner), Java's
//! `String.hashCode` (group and transactional id to internal partition), and XXH32 (LZ4 frame checksums).
//! None of them is for untrusted hash maps; they are fixed functions with golden vectors computed by Java.

/// Kafka's default-partitioner hash: murmur2 with seed `0x9747b28c`, as the signed 32-bit value Java computes.
#[must_use]
pub fn murmur2(bytes: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut h = SEED ^ (bytes.len() as u32);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    (h ^ (h >> 15)) as i32
}

/// The partition that Kafka's default partitioner picks for a non-null key: the sign bit is masked off, not negated.
///
/// `partitions` must be positive; 0 is answered with partition 0.
#[must_use]
pub fn partition_for_key(key: &[u8], partitions: u32) -> u32 {
    ((murmur2(key) & i32::MAX) as u32)
        .checked_rem(partitions)
        .unwrap_or(0)
}

/// Java's `String.hashCode`: a base-31 polynomial over UTF-16 code units (not bytes, not code points).
#[must_use]
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The internal-topic partition of a group or transactional id: `abs(hashCode) mod partitions`, where Kafka's `abs`
/// maps `Integer.MIN_VALUE` to 0. `partitions` must be positive; 0 is answered with partition 0.
#[must_use]
pub fn partition_for_id(id: &str, partitions: u32) -> u32 {
    let hash = java_string_hash(id);
    let positive = if hash == i32::MIN { 0 } else { hash.unsigned_abs() };
    positive.checked_rem(partitions).unwrap_or(0)
}

/// XXH32 with seed 0 (the LZ4 frame format's checksum of descriptors and blocks).
#[must_use]
pub fn xxh32(bytes: &[u8]) -> u32 {
    const P1: u32 = 0x9e37_79b1;
    const P2: u32 = 0x85eb_ca77;
    const P3: u32 = 0xc2b2_ae3d;
    const P4: u32 = 0x27d4_eb2f;
    const P5: u32 = 0x1656_67b1;
    let (stripes, rest) = bytes.as_chunks::<16>();
    let mut h = if stripes.is_empty() {
        P5
    } else {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, 0u32.wrapping_sub(P1)];
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<4>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P2));
                *lane = mixed.rotate_left(13).wrapping_mul(P1);
            }
        }
        let [a, b, c, d] = lanes;
        let (low, high) = (a.rotate_left(1).wrapping_add(b.rotate_left(7)), c.rotate_left(12));
        low.wrapping_add(high).wrapping_add(d.rotate_left(18))
    };
    h = h.wrapping_add(bytes.len() as u32);
    let (words, tail) = rest.as_chunks::<4>();
    for word in words {
        h = h
            .wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P3))
            .rotate_left(17)
            .wrapping_mul(P4);
    }
    for byte in tail {
        h = h
            .wrapping_add(u32::from(*byte).wrapping_mul(P5))
            .rotate_left(11)
            .wrapping_mul(P1);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P2);
    h = (h ^ (h >> 13)).wrapping_mul(P3);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by kafka-clients 4.3.1 on Java 17: text, murmur2, partition of 12 (`toPositive`), `hashCode`, partition of
    /// 50 (`Utils.abs`), XXH32 (lz4-java).
    const JAVA_VECTORS: &[(&str, i32, u32, i32, u32, u32)] = &[
        ("", 275_646_681, 9, 0, 0, 46_947_589),
        ("a", -1_563_381_124, 4, 97, 47, 1_426_945_110),
        ("ab", 316_155_434, 2, 3105, 5, 1_234_828_371),
        ("abc", 479_470_107, 3, 96354, 4, 852_579_327),
        ("abcd", -1_323_649_548, 8, 2_987_074, 24, 2_741_253_893),
        ("abcde", 461_995_741, 1, 92_599_395, 45, 2_537_091_483),
        ("21", -973_932_308, 0, 1599, 49, 4_061_434_644),
        ("foobar", -790_332_482, 6, -1_268_878_963, 13, 3_986_901_679),
        (
            "a-little-bit-long-string",
            -985_981_536,
            8,
            -865_776_169,
            19,
            2_459_091_891,
        ),
        (
            "a-little-bit-longer-string",
            -1_486_304_829,
            11,
            -1_512_594_870,
            20,
            3_921_073_941,
        ),
        (
            "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
            -58_897_971,
            5,
            -305_440_039,
            39,
            367_476_085,
        ),
        ("\u{e9}\u{fc}\u{df}", -190_830_617, 3, 231_948, 48, 1_290_339_538),
        ("\u{4f60}\u{597d}", 183_567_948, 0, 652_829, 29, 1_821_811_294),
        (
            "\u{1f600} smile",
            -580_186_616,
            0,
            -1_559_691_765,
            15,
            605_139_725,
        ),
        ("polygenelubricants", 342_343_466, 2, i32::MIN, 0, 4_144_407_580),
        (
            "connect-cluster",
            236_862_414,
            6,
            1_440_343_063,
            13,
            1_844_445_561,
        ),
        ("my-group", -1_626_987_699, 5, -1_906_497_762, 12, 631_700_189),
        ("a.b_c-d", 1_087_558_114, 10, 1_598_883_920, 20, 1_418_885_288),
    ];

    /// The same for prefixes of the byte sequence `7 i - 3`: length, murmur2, XXH32.
    const JAVA_BYTE_VECTORS: &[(usize, i32, u32)] = &[
        (1, -1_945_550_450, 313_670_976),
        (15, 637_551_584, 260_138_395),
        (16, 1_303_954_292, 3_847_968_053),
        (17, 1_345_030_688, 2_529_659_700),
        (31, -1_235_628_040, 3_380_130_527),
        (32, -894_481_406, 856_184_342),
        (33, 214_497_109, 1_758_999_122),
        (64, -1_473_270_844, 2_703_103_376),
        (255, 1_601_006_455, 2_223_715_133),
        (1003, 547_455_222, 1_391_581_013),
    ];

    #[test]
    fn hashes_of_text_are_those_of_java() {
        for (text, murmur, key_partition, string_hash, id_partition, xxh) in JAVA_VECTORS {
            assert_eq!(murmur2(text.as_bytes()), *murmur, "murmur2 of {text:?}");
            assert_eq!(
                partition_for_key(text.as_bytes(), 12),
                *key_partition,
                "key partition of {text:?}"
            );
            assert_eq!(java_string_hash(text), *string_hash, "hashCode of {text:?}");
            assert_eq!(
                partition_for_id(text, 50),
                *id_partition,
                "id partition of {text:?}"
            );
            assert_eq!(xxh32(text.as_bytes()), *xxh, "xxh32 of {text:?}");
        }
    }

    #[test]
    fn hashes_of_bytes_of_every_alignment_are_those_of_java() {
        let bytes: Vec<u8> = (0..1003u32)
            .map(|i| (i.wrapping_mul(7).wrapping_sub(3)) as u8)
            .collect();
        for (len, murmur, xxh) in JAVA_BYTE_VECTORS {
            assert_eq!(murmur2(&bytes[..*len]), *murmur, "murmur2 of {len} bytes");
            assert_eq!(xxh32(&bytes[..*len]), *xxh, "xxh32 of {len} bytes");
        }
    }

    #[test]
    fn zero_partitions_never_divide() {
        assert_eq!((partition_for_key(b"k", 0), partition_for_id("k", 0)), (0, 0));
    }
}
