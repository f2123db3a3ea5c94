//! Named cases, and random operations of several logs against plain vectors.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A batch whose bytes say which it is.
fn batch(previous_end: i64, records: i64, size: usize, backing: u64) -> CacheInsert {
    let last_offset = previous_end + records - 1;
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..8].copy_from_slice(&previous_end.to_be_bytes());
    CacheInsert {
        previous_end: Offset(previous_end),
        last_offset: Offset(last_offset),
        prefix,
        body: Bytes::from(vec![last_offset as u8; size - PREFIX_BYTES]),
        backing: Backing {
            id: backing,
            capacity: 1 << 20,
        },
    }
}

fn bytes_of(insert: &CacheInsert) -> Vec<u8> {
    [&insert.prefix[..], &insert.body].concat()
}

fn cache() -> BatchCache {
    BatchCache::new(64 << 20)
}

fn read(cache: &mut BatchCache, offset: i64, max_bytes: usize, bound: i64) -> CacheHit {
    match cache.read(1, Offset(offset), max_bytes, Offset(bound), true) {
        CacheRead::Hit(hit) => hit,
        CacheRead::Miss => panic!("no hit at {offset}"),
    }
}

fn is_miss(cache: &mut BatchCache, log: u32, offset: i64) -> bool {
    cache.read(log, Offset(offset), 1 << 20, Offset(i64::MAX), true) == CacheRead::Miss
}

/// The batches of a log that no segment holds yet, in order.
fn not_in_segments(cache: &BatchCache, log: u32) -> impl Iterator<Item = &Batch> + '_ {
    cache.logs.get(&log).into_iter().flat_map(LogBatches::unwritten)
}

#[test]
fn a_read_in_the_middle_of_a_batch_returns_the_whole_batch_and_those_behind_it() {
    let mut cache = cache();
    for number in 0..4 {
        cache.insert(1, batch(number * 10, 10, 100, 0));
    }
    let hit = read(&mut cache, 13, 1000, 100);
    assert_eq!(
        (hit.bytes, hit.next_offset, hit.ended),
        (300, Offset(40), ReadEnd::CacheEnd)
    );
    assert_eq!(hit.pieces.len(), 3);
    assert_eq!(hit.pieces[0], bytes_of(&batch(10, 10, 100, 0)));
    let hit = read(&mut cache, 0, 299, 100);
    assert_eq!(
        (hit.bytes, hit.next_offset, hit.ended),
        (200, Offset(20), ReadEnd::MaxBytes)
    );
    let hit = read(&mut cache, 0, 1000, 39);
    assert_eq!(
        (hit.bytes, hit.next_offset, hit.ended),
        (300, Offset(30), ReadEnd::UpperBound)
    );
    assert!(is_miss(&mut cache, 1, 40) && is_miss(&mut cache, 2, 0));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.hit_bytes), (3, 2, 800));
}

#[test]
fn the_first_batch_comes_whatever_its_size_only_if_it_is_asked_for() {
    let mut cache = cache();
    cache.insert(1, batch(0, 1, 100, 0));
    assert_eq!(read(&mut cache, 0, 0, 100).bytes, 100);
    let CacheRead::Hit(hit) = cache.read(1, Offset(0), 99, Offset(100), false) else {
        panic!("a miss")
    };
    assert_eq!(
        (hit.bytes, hit.next_offset, hit.ended),
        (0, Offset(0), ReadEnd::MaxBytes)
    );
    let hit = read(&mut cache, 0, 1000, 0);
    assert_eq!(
        (hit.bytes, hit.ended),
        (0, ReadEnd::UpperBound),
        "not even the first one above the bound"
    );
}

#[test]
fn large_batches_are_referenced_and_their_buffer_is_charged_once() {
    let mut cache = cache();
    let (first, second) = (batch(0, 1, SMALL_BYTES_MAX, 7), batch(1, 1, 100_000, 7));
    let body = first.body.clone();
    cache.insert(1, first);
    let one = cache.charged_bytes();
    assert!(one > (1 << 20) + SLAB_BYTES && one < (1 << 20) + SLAB_BYTES + 4096);
    let (head, rest) = cache.insert(1, second.clone());
    assert_eq!([&head[..], &rest].concat(), bytes_of(&second));
    assert!(cache.charged_bytes() - one < 4096);
    assert_eq!(cache.pinned_bytes(), SMALL_BYTES_MAX + 100_000);
    let hit = read(&mut cache, 0, 1 << 20, 2);
    assert_eq!(hit.pieces.len(), 4);
    assert_eq!(hit.pieces[1].as_ptr(), body.as_ptr(), "not copied");
    cache.truncate(1, Offset(1));
    assert!(
        cache.charged_bytes() > 1 << 20,
        "the first batch is in the same buffer"
    );
    cache.truncate(1, Offset(0));
    assert!(cache.charged_bytes() <= SLAB_BYTES && cache.is_empty());
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn small_batches_do_not_keep_their_buffer() {
    let mut cache = cache();
    let insert = batch(0, 1, SMALL_BYTES_MAX - 1, 7);
    let body = insert.body.clone();
    cache.insert(1, insert);
    assert!(cache.charged_bytes() < SLAB_BYTES + 4096);
    assert!(body.is_unique(), "the cache has a copy");
}

#[test]
fn unwritten_batches_are_never_evicted_and_written_ones_in_the_order_of_writing() {
    let mut cache = BatchCache::new(0);
    for log in 1..=3 {
        for number in 0..2 {
            cache.insert(log, batch(number, 1, 60_000, 0));
        }
    }
    assert_eq!((cache.len(), cache.pinned_bytes()), (6, 360_000));
    cache.mark_written(2, Offset(1));
    assert_eq!(cache.len(), 5, "over budget, so it goes at once");
    assert!(is_miss(&mut cache, 2, 0) && !is_miss(&mut cache, 2, 1));
    cache.set_budget(64 << 20);
    cache.mark_written(3, Offset(1));
    cache.mark_written(1, Offset(2));
    cache.mark_written(3, Offset(2));
    cache.insert(1, batch(2, 1, 100, 0));
    assert_eq!(
        not_in_segments(&cache, 1)
            .map(|batch| batch.previous_end.0)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(
        not_in_segments(&cache, 2)
            .map(|batch| batch.previous_end.0)
            .collect::<Vec<_>>(),
        [1]
    );
    // Room for one slab: of the two, the first holds batches of logs 1 and 2.
    cache.set_budget(cache.charged_bytes() - cache.pinned_bytes() - 1);
    assert!(is_miss(&mut cache, 3, 0), "written first");
    assert!(!is_miss(&mut cache, 3, 1), "written last");
    assert_eq!(cache.pinned_bytes(), 60_100);
}

#[test]
fn a_batch_that_was_never_inserted_ends_a_read_and_is_a_miss() {
    let mut cache = cache();
    cache.insert(1, batch(0, 10, 100, 0));
    cache.insert(1, batch(20, 10, 100, 0));
    let hit = read(&mut cache, 0, 1000, 100);
    assert_eq!(
        (hit.bytes, hit.next_offset, hit.ended),
        (100, Offset(10), ReadEnd::CacheEnd)
    );
    assert!(is_miss(&mut cache, 1, 10) && is_miss(&mut cache, 1, 19));
    assert_eq!(read(&mut cache, 20, 1000, 100).bytes, 100);
}

#[test]
fn a_gap_that_compaction_left_is_no_end() {
    // The leader's batch starts at 20, the follower's log ended at 10.
    let mut cache = cache();
    cache.insert(1, batch(0, 10, 100, 0));
    let mut after_gap = batch(10, 20, 100, 0);
    after_gap.prefix[..8].copy_from_slice(&20i64.to_be_bytes());
    cache.insert(1, after_gap);
    assert_eq!(read(&mut cache, 5, 1000, 100).bytes, 200);
    assert_eq!(read(&mut cache, 15, 1000, 100).bytes, 100);
}

#[test]
#[should_panic(expected = "log order")]
fn a_forgotten_truncation_is_a_bug() {
    let mut cache = cache();
    cache.insert(1, batch(0, 10, 100, 0));
    cache.insert(1, batch(5, 10, 100, 0));
}

#[test]
fn full_slabs_are_used_again_unless_a_reader_holds_a_slice() {
    let mut cache = BatchCache::new(SLAB_BYTES * 2);
    let mut held = None;
    let mut places = BTreeSet::new();
    for number in 0..100 {
        let (head, _) = cache.insert(1, batch(number, 1, 60_000, 0));
        places.insert(head.as_ptr());
        if number == 50 {
            held = Some(head);
        }
        cache.mark_written(1, Offset(number + 1));
        assert!(cache.charged_bytes() <= SLAB_BYTES * 3 + 4096);
    }
    assert_eq!(
        held.unwrap(),
        bytes_of(&batch(50, 1, 60_000, 0)),
        "a slice that is held stays as it is"
    );
    // 100 batches, 4 a slab: two slabs in the budget, one being filled, one that was held.
    assert!(places.len() <= 4 * 4, "{} places", places.len());
    cache.invalidate(1);
    assert!(cache.slabs.free_slabs() > 0 && cache.slabs.free_slabs() <= SLABS_FREE_MAX);
}

#[test]
fn truncated_batches_leave_no_garbage_in_the_line() {
    let mut cache = cache();
    for _ in 0..10_000 {
        cache.insert(1, batch(0, 1, 100, 0));
        cache.mark_written(1, Offset(1));
        cache.truncate(1, Offset(0));
    }
    assert!(cache.is_empty() && cache.line.len() <= 1 && cache.line.capacity() < 64);
    assert!(cache.logs.is_empty());
    assert_eq!(
        cache.charged_bytes(),
        SLAB_BYTES,
        "the slab being filled stays, empty or not"
    );
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Insert {
        log: u32,
        records: i64,
        size: usize,
        gap: bool,
    },
    Write {
        log: u32,
        batches: usize,
    },
    Truncate {
        log: u32,
        batches: usize,
    },
    Invalidate {
        log: u32,
    },
    Read {
        log: u32,
        back: i64,
        max_bytes: usize,
        bound_back: i64,
    },
    Budget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let log = 0u32..3;
    prop_oneof![
        8 => (log.clone(), 1i64..5, prop_oneof![16usize..2000, 30_000usize..100_000], prop::bool::weighted(0.05))
            .prop_map(|(log, records, size, gap)| Step::Insert { log, records, size, gap }),
        4 => (log.clone(), 0usize..6).prop_map(|(log, batches)| Step::Write { log, batches }),
        1 => (log.clone(), 0usize..4).prop_map(|(log, batches)| Step::Truncate { log, batches }),
        1 => log.clone().prop_map(|log| Step::Invalidate { log }),
        6 => (log, 0i64..30, 0usize..200_000, -3i64..6)
            .prop_map(|(log, back, max_bytes, bound_back)| Step::Read { log, back, max_bytes, bound_back }),
        1 => (0usize..2_000_000).prop_map(Step::Budget),
    ]
}

/// All batches a log ever kept, evicted ones too.
#[derive(Default)]
struct ModelLog {
    batches: Vec<CacheInsert>,
    written: usize,
    end: i64,
}

impl ModelLog {
    fn unwritten_bytes(&self) -> usize {
        self.batches[self.written..]
            .iter()
            .map(|b| b.body.len() + PREFIX_BYTES)
            .sum()
    }

    fn check(&self, offset: i64, max_bytes: usize, bound: i64, hit: &CacheHit) -> Result<(), TestCaseError> {
        let mut expected = Vec::new();
        let (mut next, mut ended) = (None, ReadEnd::CacheEnd);
        for b in self.batches.iter().skip_while(|b| b.last_offset.0 < offset) {
            let len = b.body.len() + PREFIX_BYTES;
            if next.is_some_and(|next| b.previous_end != next) {
                break;
            }
            if b.last_offset.0 >= bound {
                ended = ReadEnd::UpperBound;
                break;
            }
            if expected.len() + len > max_bytes && !expected.is_empty() {
                ended = ReadEnd::MaxBytes;
                break;
            }
            expected.extend(bytes_of(b));
            next = Some(b.last_offset.plus(1));
        }
        prop_assert_eq!(hit.ended, ended);
        prop_assert_eq!(hit.next_offset, next.unwrap_or(Offset(offset)));
        prop_assert_eq!(hit.bytes, expected.len());
        prop_assert!(hit.pieces.concat() == expected, "other bytes");
        Ok(())
    }
}

proptest! {
    #[test]
    fn behaves_like_the_logs_themselves(steps in proptest::collection::vec(step(), 1..120)) {
        let mut cache = BatchCache::new(500_000);
        let mut model: BTreeMap<u32, ModelLog> = BTreeMap::new();
        let mut received = 0;
        for step in steps {
            match step {
                Step::Insert { log, records, size, gap } => {
                    let kept = model.entry(log).or_default();
                    received += 1;
                    // Two batches a buffer.
                    let insert = batch(kept.end + i64::from(gap) * 3, records, size, received / 2);
                    kept.end = insert.last_offset.0 + 1;
                    kept.batches.push(insert.clone());
                    cache.insert(log, insert);
                }
                Step::Write { log, batches } => {
                    let kept = model.entry(log).or_default();
                    kept.written = (kept.written + batches).min(kept.batches.len());
                    let end = kept.batches[..kept.written].last().map_or(0, |b| b.last_offset.0 + 1);
                    cache.mark_written(log, Offset(end));
                }
                Step::Truncate { log, batches } => {
                    let kept = model.entry(log).or_default();
                    kept.batches.truncate(kept.batches.len().saturating_sub(batches));
                    kept.written = kept.written.min(kept.batches.len());
                    kept.end = kept.batches.last().map_or(0, |b| b.last_offset.0 + 1);
                    cache.truncate(log, Offset(kept.end));
                }
                Step::Invalidate { log } => {
                    let end = model.remove(&log).map_or(0, |kept| kept.end);
                    cache.invalidate(log);
                    prop_assert!(is_miss(&mut cache, log, end - 1));
                }
                Step::Read { log, back, max_bytes, bound_back } => {
                    let kept = model.entry(log).or_default();
                    let (offset, bound) = (kept.end - back, kept.end - bound_back);
                    match cache.read(log, Offset(offset), max_bytes, Offset(bound), true) {
                        CacheRead::Hit(hit) => kept.check(offset, max_bytes, bound, &hit)?,
                        CacheRead::Miss => {
                            let holds = |b: &CacheInsert| b.previous_end.0 <= offset && offset <= b.last_offset.0;
                            prop_assert!(!kept.batches[kept.written..].iter().any(holds), "unwritten, but missed");
                        }
                    }
                }
                Step::Budget(bytes) => cache.set_budget(bytes),
            }
            let pinned: usize = model.values().map(ModelLog::unwritten_bytes).sum();
            prop_assert_eq!(cache.pinned_bytes(), pinned);
            let unwritten: usize = model.values().map(|kept| kept.batches.len() - kept.written).sum();
            prop_assert!(cache.len() >= unwritten);
            if cache.len() > unwritten {
                prop_assert!(cache.charged_bytes() <= cache.budget_bytes + pinned);
            }
            for (log, kept) in &model {
                let bytes = not_in_segments(&cache, *log).map(|batch| {
                    let (head, body) = batch.pieces.split();
                    [&head[..], body.map_or(&[][..], |body| &body[..])].concat()
                });
                prop_assert!(bytes.eq(kept.batches[kept.written..].iter().map(bytes_of)));
            }
        }
        for log in 0..3 {
            cache.invalidate(log);
        }
        prop_assert!(cache.is_empty() && cache.line.is_empty() && cache.backings.is_empty());
        prop_assert!(cache.charged_bytes() <= SLAB_BYTES, "only the slab being filled");
    }
}
