//! SipHash-2-4 with 128 bits of output (Aumasson and Bernstein; the reference implementation's `siphash(…, 16)`), written from
//! its description. Keyed, so that nobody can choose keys of records that collide.

/// A secret of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(pub u64, pub u64);

/// The hash of `bytes`, low half first.
pub(super) fn hash(key: HashKey, bytes: &[u8]) -> [u64; 2] {
    let mut state = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    // The length's low byte is the last byte of the last word.
    absorb(&mut state, u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
    state[2] ^= 0xee;
    rounds(&mut state, 4);
    let low = fold(&state);
    state[1] ^= 0xdd;
    rounds(&mut state, 4);
    [low, fold(&state)]
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    rounds(state, 2);
    state[0] ^= word;
}

fn rounds(state: &mut [u64; 4], count: usize) {
    let [mut a, mut b, mut c, mut d] = *state;
    for _ in 0..count {
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
    }
    *state = [a, b, c, d];
}

const fn fold(state: &[u64; 4]) -> u64 {
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation's list of vectors: key 00…0f, input 00…n−1.
    #[test]
    fn the_reference_vectors_come_out() {
        let key = HashKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        for (length, expected) in [
            (0u8, "a3817f04ba25a8e66df67214c7550293"),
            (1, "da87c1d86b99af44347659119b22fc45"),
            (2, "8177228da4a45dc7fca38bdef60affe4"),
        ] {
            let input: Vec<u8> = (0..length).collect();
            let found = hash(key, &input);
            let hex: String = found
                .iter()
                .flat_map(|half| half.to_le_bytes())
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, expected, "{length} bytes");
        }
    }

    #[test]
    fn every_byte_and_the_length_count() {
        let key = HashKey(1, 2);
        let mut seen = std::collections::BTreeSet::new();
        for length in 0..40 {
            assert!(seen.insert(hash(key, &vec![0; length])));
            for at in 0..length {
                let mut input = vec![0; length];
                input[at] = 1;
                assert!(seen.insert(hash(key, &input)), "byte {at} of {length}");
            }
        }
        assert_ne!(hash(key, b"k"), hash(HashKey(1, 3), b"k"));
    }
}
