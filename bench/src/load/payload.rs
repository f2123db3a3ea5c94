//! The values of messages: a pool that is gone through in turn. As the OpenMessaging benchmark makes them, the first part of a value
//! is random and the rest is zeros, so that a codec finds as much to do as is asked for; the random part has no zero byte.

use bytes::Bytes;

use super::random::Random;

/// Bytes of a pool at most; larger values make a smaller pool.
pub(super) const POOL_BYTES_MAX: usize = 64 << 20;

/// Where values come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A pool of `pool` values, of which the first `random_share` (0 to 1) is random bytes.
    Random {
        /// The random part.
        random_share: f64,
        /// Different values.
        pool: usize,
    },
    /// One value: the content of a file.
    Given(Bytes),
}

impl Payload {
    /// The values, each of `size` bytes; a given one is as it is.
    pub(super) fn pool(&self, size: usize) -> Vec<Bytes> {
        match self {
            Self::Given(value) => vec![value.clone()],
            Self::Random { random_share, pool } => {
                let count = (POOL_BYTES_MAX / size.max(1)).clamp(1, (*pool).max(1));
                let mut random = Random::new(1);
                (0..count)
                    .map(|_| value(size, *random_share, &mut random))
                    .collect()
            }
        }
    }
}

fn value(size: usize, random_share: f64, random: &mut Random) -> Bytes {
    let random_bytes = ((size as f64 * random_share) as usize).min(size);
    let mut value = vec![0; size];
    for byte in &mut value[..random_bytes] {
        *byte = (random.next() % 255) as u8 + 1;
    }
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_share_has_no_zeros_and_the_rest_is_zeros() {
        let payload = Payload::Random {
            random_share: 0.5,
            pool: 10,
        };
        let pool = payload.pool(1000);
        assert_eq!(pool.len(), 10);
        for value in &pool {
            assert_eq!(value.iter().position(|byte| *byte == 0), Some(500));
            assert!(value[500..].iter().all(|byte| *byte == 0));
        }
        assert_ne!(pool[0], pool[1]);
        assert_eq!(payload.pool(1000), pool, "the same in each run");
    }

    #[test]
    fn large_values_do_not_make_a_large_pool() {
        let payload = Payload::Random {
            random_share: 1.0,
            pool: 100_000,
        };
        assert_eq!(payload.pool(1 << 20).len(), 64);
    }
}
