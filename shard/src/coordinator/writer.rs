//! Turns the records of coordinators' appends into batches of a bounded size. A batch holds the records of as many appends as
//! fit; one append may need several batches, its last one says that it is done.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use protocol::record::{BatchBuilder, BatchOptions, BuildError, NewRecord};
use protocol::{EncodeError, ErrorCode, Str};

use super::group::{GroupRecord, WriteId};
use crate::env::WallMs;

/// A batch to append, and the appends that are done with it.
#[derive(Debug)]
pub(super) struct Batch {
    pub bytes: Bytes,
    pub done: Vec<WriteId>,
    /// Its last records are those of an append that needs another batch.
    pub is_partial: bool,
}

/// An append that cannot be written at all.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwritable {
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// What comes next of the appends that wait.
#[derive(Debug)]
pub(super) enum Next {
    Batch(Batch),
    /// The first append, of this group, is refused; nothing of it has been written, unless it is longer than a batch.
    Refused(WriteId, Str, Unwritable),
}

/// The appends of one partition that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// What became of the earlier batches of the append at the front.
    earlier: Option<ErrorCode>,
}

#[derive(Debug)]
struct Waiting {
    write: WriteId,
    records: Rc<[GroupRecord]>,
    /// So many of the records are in batches.
    taken: usize,
}

impl Queue {
    pub(super) fn push(&mut self, write: WriteId, records: Rc<[GroupRecord]>) {
        self.waiting.push_back(Waiting {
            write,
            records,
            taken: 0,
        });
    }

    /// A batch was appended, or was not: how each of the appends that are done with it went. One of several batches went as
    /// its first that failed.
    pub(super) fn ended(
        &mut self,
        done: &[WriteId],
        is_partial: bool,
        outcome: Result<(), ErrorCode>,
    ) -> Vec<(WriteId, Result<(), ErrorCode>)> {
        let mut earlier = self.earlier.take();
        let ended = done
            .iter()
            .map(|write| (*write, earlier.take().map_or(outcome, Err)));
        let ended = ended.collect();
        if is_partial {
            self.earlier = earlier.or_else(|| outcome.err());
        }
        ended
    }

    /// Takes as many records as a batch of `bytes_max` holds; `None` when none wait.
    pub(super) fn next(&mut self, bytes_max: usize, wall: WallMs) -> Option<Next> {
        let mut builder = BatchBuilder::plain(BatchOptions {
            size_max: bytes_max,
            ..BatchOptions::default()
        });
        let mut done = Vec::new();
        let mut is_empty = true;
        let mut is_partial = false;
        'appends: while let Some(first) = self.waiting.front_mut() {
            for record in &first.records[first.taken..] {
                match append(&mut builder, record, wall) {
                    Ok(()) => {
                        is_empty = false;
                        first.taken += 1;
                    }
                    // The next batch has room for it, or for what stands before the refused one.
                    Err(_) if !is_empty => {
                        is_partial = first.taken > 0;
                        break 'appends;
                    }
                    Err(why) => {
                        let (write, group) = (first.write, record.group().clone());
                        self.waiting.pop_front();
                        self.earlier = None;
                        return Some(Next::Refused(write, group, why));
                    }
                }
            }
            done.push(first.write);
            self.waiting.pop_front();
        }
        if is_empty {
            return None;
        }
        let bytes = builder.finish().expect("a batch within its size").bytes;
        Some(Next::Batch(Batch {
            bytes,
            done,
            is_partial,
        }))
    }
}

fn append(builder: &mut BatchBuilder<'_>, record: &GroupRecord, wall: WallMs) -> Result<(), Unwritable> {
    let (key, value) = record.encode()?;
    builder.append(&NewRecord {
        timestamp: wall.0.max(0),
        key: Some(&key),
        value: value.as_deref(),
        headers: &[],
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::record::BatchView;

    use super::*;

    fn tombstones(count: usize) -> Rc<[GroupRecord]> {
        let record = |n: usize| GroupRecord::Offset {
            group: "g".into(),
            topic: Str::from(format!("topic-{n}")),
            partition: 0,
            offset: None,
        };
        (0..count).map(record).collect()
    }

    fn batch(next: Option<Next>) -> (i32, Vec<WriteId>) {
        match next {
            Some(Next::Batch(batch)) => {
                let view = BatchView::parse(&batch.bytes, 0).unwrap();
                assert_eq!(view.check_crc(0), Ok(()));
                (view.header().record_count, batch.done)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn small_appends_share_a_batch_and_a_large_one_takes_several() {
        let mut queue = Queue::default();
        queue.push(WriteId(1), tombstones(1));
        queue.push(WriteId(2), tombstones(2));
        assert_eq!(
            batch(queue.next(1 << 20, WallMs(1))),
            (3, vec![WriteId(1), WriteId(2)])
        );
        assert!(queue.next(1 << 20, WallMs(1)).is_none());
        queue.push(WriteId(3), tombstones(100));
        queue.push(WriteId(4), tombstones(1));
        let (mut records, mut done) = (0, Vec::new());
        while let Some(next) = queue.next(1000, WallMs(1)) {
            let (count, of) = batch(Some(next));
            assert!(count < 60);
            records += count;
            done.extend(of);
        }
        assert_eq!((records, done), (101, vec![WriteId(3), WriteId(4)]));
    }

    #[test]
    fn a_record_that_fits_no_batch_is_refused_alone() {
        let mut queue = Queue::default();
        queue.push(WriteId(1), tombstones(1));
        queue.push(
            WriteId(2),
            Rc::new([GroupRecord::Offset {
                group: "g".into(),
                topic: Str::from("x".repeat(2000)),
                partition: 0,
                offset: None,
            }]),
        );
        queue.push(WriteId(3), tombstones(1));
        assert_eq!(batch(queue.next(1000, WallMs(1))), (1, vec![WriteId(1)]));
        assert!(matches!(
            queue.next(1000, WallMs(1)),
            Some(Next::Refused(
                WriteId(2),
                group,
                Unwritable::Build(BuildError::TooLarge { limit: 1000 })
            )) if group == "g"
        ));
        assert_eq!(batch(queue.next(1000, WallMs(1))), (1, vec![WriteId(3)]));
    }

    #[test]
    fn an_append_of_several_batches_fails_with_any_of_them() {
        let mut queue = Queue::default();
        queue.push(WriteId(1), tombstones(100));
        queue.push(WriteId(2), tombstones(1));
        let failed = Err(ErrorCode::NOT_ENOUGH_REPLICAS);
        let mut told = Vec::new();
        let mut outcomes = [Ok(()), failed].into_iter().chain(std::iter::repeat(Ok(())));
        while let Some(Next::Batch(batch)) = queue.next(1000, WallMs(1)) {
            let outcome = outcomes.next().unwrap();
            told.extend(queue.ended(&batch.done, batch.is_partial, outcome));
        }
        assert_eq!(told, [(WriteId(1), failed), (WriteId(2), Ok(()))]);
    }
}
