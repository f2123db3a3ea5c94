//! Keys of messages and the partition of each: as Kafka's clients choose it, by murmur2 of the key, or without keys one partition
//! until a batch's worth went there (KIP-794).

use bytes::Bytes;
use protocol::hash::partition_for_key;

use super::random::Random;

/// Which keys messages have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// None: a partition gets a batch's worth of bytes, then another one, as in Kafka's clients since 3.3.
    None,
    /// None: each message goes to the next partition.
    NoneRoundRobin,
    /// Each key in turn.
    RoundRobin,
    /// Any key.
    Random,
    /// Few keys often: key `n` as often as `1 / n^exponent`.
    Zipf(f64),
}

/// What all producers of a run share: the keys and what they are drawn by.
#[derive(Debug)]
pub(super) struct KeyTable {
    keys: Keys,
    /// Each with its partition.
    table: Vec<(Bytes, u32)>,
    /// Of Zipf's distribution: the share of the keys up to and with each.
    shares: Vec<f64>,
    partitions: u32,
    batch_bytes: usize,
}

/// What one producer keeps to choose: its turn, its random numbers, its partition.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    random: Random,
    turn: usize,
    partition: u32,
    /// Bytes that went to the partition since it was chosen.
    bytes: usize,
}

impl KeyTable {
    /// `count` keys for topics of so many partitions.
    pub(super) fn new(keys: Keys, count: usize, partitions: u32, batch_bytes: usize) -> Self {
        let has_keys = !matches!(keys, Keys::None | Keys::NoneRoundRobin);
        let count = if has_keys { count.max(1) } else { 0 };
        let key = |number: usize| Bytes::from(format!("{number:08x}"));
        let table: Vec<(Bytes, u32)> = (0..count)
            .map(key)
            .map(|key| (key.clone(), partition_for_key(&key, partitions)))
            .collect();
        Self {
            keys,
            shares: match keys {
                Keys::Zipf(exponent) => zipf_shares(count, exponent),
                _ => Vec::new(),
            },
            table,
            partitions,
            batch_bytes,
        }
    }

    /// Bytes of a key; 0 without keys.
    pub(super) fn key_bytes(&self) -> usize {
        self.table.first().map_or(0, |(key, _)| key.len())
    }

    /// The key and the partition of a producer's next message, which takes `bytes`.
    pub(super) fn choose(&self, chooser: &mut Chooser, bytes: usize) -> (Option<&Bytes>, u32) {
        let index = match self.keys {
            Keys::None => return (None, self.sticky(chooser, bytes)),
            Keys::NoneRoundRobin => {
                chooser.partition = (chooser.partition + 1) % self.partitions;
                return (None, chooser.partition);
            }
            Keys::RoundRobin => {
                chooser.turn = (chooser.turn + 1) % self.table.len();
                chooser.turn
            }
            Keys::Random => chooser.random.below(self.table.len()),
            Keys::Zipf(_) => {
                let share = chooser.random.share();
                self.shares.partition_point(|until| *until < share)
            }
        };
        let place = index.min(self.table.len().saturating_sub(1));
        self.table
            .get(place)
            .map_or((None, 0), |(key, partition)| (Some(key), *partition))
    }

    fn sticky(&self, chooser: &mut Chooser, bytes: usize) -> u32 {
        if chooser.bytes + bytes > self.batch_bytes && chooser.bytes > 0 {
            chooser.partition = u32::try_from(chooser.random.below(self.partitions as usize)).unwrap_or(0);
            chooser.bytes = 0;
        }
        chooser.bytes += bytes;
        chooser.partition
    }

    /// The partition of a whole batch made before.
    pub(super) fn next_partition(&self, chooser: &mut Chooser) -> u32 {
        chooser.partition = (chooser.partition + 1) % self.partitions;
        chooser.partition
    }
}

impl Chooser {
    /// That of producer `number`: each begins elsewhere.
    pub(super) fn new(number: usize, partitions: u32) -> Self {
        let mut random = Random::new(number as u64 + 1);
        let partition = u32::try_from(random.below(partitions as usize)).unwrap_or(0);
        Self {
            turn: random.below(1 << 20),
            random,
            partition,
            bytes: 0,
        }
    }
}

fn zipf_shares(count: usize, exponent: f64) -> Vec<f64> {
    let weights = (1..=count).map(|rank| (rank as f64).powf(-exponent));
    let total: f64 = weights.clone().sum();
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: Keys, count: usize, draws: usize) -> Vec<usize> {
        let table = KeyTable::new(keys, count, 8, 16_384);
        let mut chooser = Chooser::new(3, 8);
        let mut counts = vec![0; count];
        for _ in 0..draws {
            let (key, partition) = table.choose(&mut chooser, 100);
            let key = key.expect("it has keys");
            assert_eq!(partition, partition_for_key(key, 8));
            let text = std::str::from_utf8(key).expect("a key is text");
            counts[usize::from_str_radix(text, 16).expect("of digits")] += 1;
        }
        counts
    }

    /// Murmur2 itself has Java's vectors in `protocol/src/hash.rs`; here the partitions of our keys, which
    /// `org.apache.kafka.common.utils.Utils.toPositive(murmur2(key)) % 8` gives too.
    #[test]
    fn keys_go_where_kafkas_clients_send_them() {
        for key in ["00000000", "00000001", "0000270f"] {
            let expected = (protocol::hash::murmur2(key.as_bytes()) & 0x7fff_ffff) as u32 % 8;
            let table = KeyTable::new(Keys::RoundRobin, 10_000, 8, 16_384);
            let found = table.table.iter().find(|(k, _)| k == key).expect("it is a key");
            assert_eq!(found.1, expected, "{key}");
        }
        // From the vectors that Java printed.
        assert_eq!(protocol::hash::murmur2(b"21"), -973_932_308);
        assert_eq!(protocol::hash::murmur2(b"foobar"), -790_332_482);
    }

    #[test]
    fn each_key_has_its_turn() {
        assert_eq!(counts(Keys::RoundRobin, 50, 500), vec![10; 50]);
    }

    #[test]
    fn random_keys_are_all_used_about_equally() {
        let counts = counts(Keys::Random, 10, 10_000);
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_first_key_of_zipf_is_the_most_frequent() {
        let counts = counts(Keys::Zipf(1.0), 100, 100_000);
        // The harmonic number of 100 is 5.187: the first key has 19.3 %, the tenth a tenth of that.
        assert!((18_000..21_000).contains(&counts[0]), "{counts:?}");
        assert!((1_500..2_400).contains(&counts[9]), "{counts:?}");
    }

    #[test]
    fn without_keys_a_partition_gets_a_batch_and_all_have_their_turn() {
        let table = KeyTable::new(Keys::None, 0, 4, 1000);
        let mut chooser = Chooser::new(0, 4);
        let chosen: Vec<u32> = (0..400).map(|_| table.choose(&mut chooser, 100).1).collect();
        assert!(
            chosen
                .chunks(10)
                .all(|batch| batch.iter().all(|p| *p == batch[0])),
            "{chosen:?}"
        );
        assert!((0..4).all(|partition| chosen.contains(&partition)), "{chosen:?}");
        let table = KeyTable::new(Keys::NoneRoundRobin, 0, 4, 1000);
        let first = table.choose(&mut chooser, 100).1;
        assert_eq!(table.choose(&mut chooser, 100).1, (first + 1) % 4);
    }
}
