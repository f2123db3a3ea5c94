//! The seeded generator of everything simulated: xoshiro256** (Blackman and Vigna, public domain algorithm), seeded
//! through splitmix64. Streams with different salts are independent, so that drawing once more in one place does not
//! move the draws of another.

/// A seeded stream of pseudo-random numbers. Equal seed and salt give equal streams on every platform.
#[derive(Clone, Debug)]
pub struct SimRng {
    state: [u64; 4],
}

/// One million: the scale of [`SimRng::chance`].
pub const PPM: u32 = 1_000_000;

impl SimRng {
    /// The stream of `seed` for the purpose named by `salt`.
    #[must_use]
    pub fn new(seed: u64, salt: &str) -> Self {
        // FNV-1a folds the salt's name into the seed; splitmix64 then spreads it over the state.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in salt.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut mix = seed ^ hash.rotate_left(17);
        let mut next = || {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A number below `bound` (0 when `bound` is 0). The bias of the multiplication method is below 2⁻³² here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of a 128-bit product fits 64 bits")
    }

    /// A number from `low` to `high`, both included; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        low + self.below((high - low).saturating_add(1))
    }

    /// An index below `len`; 0 when `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// True or false, evenly.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// True `ppm` times in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(u64::from(PPM)) < u64::from(ppm)
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, salt: &str) -> Vec<u64> {
        let mut rng = SimRng::new(seed, salt);
        (0..8).map(|_| rng.next_u64()).collect()
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_salts_separate_them() {
        assert_eq!(first(7, "a"), first(7, "a"));
        assert_ne!(first(7, "a"), first(7, "b"));
        assert_ne!(first(7, "a"), first(8, "a"));
    }

    #[test]
    fn the_generator_matches_the_published_xoshiro256_starstar() {
        // First outputs of the reference implementation for the state {1, 2, 3, 4}.
        let mut rng = SimRng { state: [1, 2, 3, 4] };
        let outputs: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(outputs, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn draws_stay_in_their_bounds_and_reach_them() {
        let mut rng = SimRng::new(1, "bounds");
        let mut seen = [false; 5];
        for _ in 0..1000 {
            let value = rng.between(10, 14);
            seen[usize::try_from(value - 10).unwrap()] = true;
            assert!(rng.below(3) < 3);
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(9, 2), 9);
        let heads = (0..10_000).filter(|_| rng.chance(250_000)).count();
        assert!((2200..2800).contains(&heads), "{heads}");
    }
}
