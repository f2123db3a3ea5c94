//! How the answers of several shards become one Fetch response. On the connection's shard; no I/O, no clock.
//!
//! Every owner shard of the request is read at once, each with the whole byte limit; the parts are then cut to the limit
//! in request order, so that only the first partition with data may exceed it (FE-2). If that is too little
//! (`min_bytes`), every shard is asked to answer again when its share of what is missing can be read (FE-4, FE-5). The
//! shares add up to what is missing, so one of them fires no later than the sum is there.
//!
//! ```text
//!            all answered, enough or final          Deadline
//! Reading ───────────────────────────────► Done ◄──────────── Finishing (one last read)
//!    │ all answered, too little              ▲                    ▲
//!    └──────────────► Waiting ── enough ─────┘                    │
//!                        └───────────── Deadline ─────────────────┘
//! ```

use crate::message::{FetchAnswer, PartitionData, Wait};
use protocol::ErrorCode;

/// A fetch that waits for at most this much, bytes, keeps what it has found and is brought data by its waiting reads. One that
/// waits for more holds nothing while it waits: waiting reads only tell that there is enough, and then all is read.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// One part of a fetch: the partitions that one shard owns, by their place in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Places in the request, rising.
    pub places: Vec<usize>,
}

/// What the driver has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblyOutput {
    /// Send part `part` to its shard, waiting if told so.
    Read {
        /// Index of the part.
        part: usize,
        /// The condition to wait for.
        wait: Option<Wait>,
    },
    /// Take back the waiting read of part `part`.
    Cancel {
        /// Index of the part.
        part: usize,
    },
    /// The response is complete: [`FetchAssembly::into_response`].
    Done,
}

/// The assembly of one Fetch.
///
/// Events in: [`answered`](Self::answered), [`deadline`](Self::deadline), [`abandon`](Self::abandon). Outputs:
/// [`poll_output`](Self::poll_output), to be drained after each.
#[derive(Debug)]
pub struct FetchAssembly {
    parts: Vec<PartState>,
    places: usize,
    bytes_min: usize,
    bytes_max: usize,
    phase: Phase,
    outputs: std::collections::VecDeque<AssemblyOutput>,
    /// Partitions that were answered without a shard: unknown topics and the like, by place.
    settled: Vec<(usize, PartitionData)>,
    is_urgent: bool,
}

#[derive(Debug)]
struct PartState {
    places: Vec<usize>,
    is_open: bool,
    /// The share an open waiting read was given; 0 for a plain read.
    share: u64,
    answer: FetchAnswer,
    /// Bytes that can be read: those of the answer, or what the marks say where its data were let go.
    have: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reading,
    Waiting,
    Finishing,
    Done,
}

impl FetchAssembly {
    /// A fetch over `places` partitions, of which `settled` are answered already and `parts` go to shards. With
    /// `may_wait` false it is answered with what is there (FE-4).
    #[must_use]
    pub fn new(
        places: usize,
        parts: Vec<Part>,
        settled: Vec<(usize, PartitionData)>,
        bytes_min: usize,
        bytes_max: usize,
        may_wait: bool,
    ) -> Self {
        let asked: usize = parts.iter().map(|p| p.places.len()).sum();
        assert_eq!(
            asked + settled.len(),
            places,
            "each partition is asked for or settled"
        );
        // As in Kafka a partition that does not exist does not end the wait for those that do: a client that asks for a
        // deleted topic among others would otherwise ask without a pause.
        let is_urgent = !may_wait
            || parts.is_empty()
            || settled
                .iter()
                .any(|(_, data)| is_final(data) && !is_unknown(data.error));
        let mut assembly = Self {
            parts: parts
                .into_iter()
                .map(|p| PartState {
                    places: p.places,
                    is_open: false,
                    share: 0,
                    answer: FetchAnswer::default(),
                    have: 0,
                })
                .collect(),
            places,
            bytes_min: bytes_min.min(bytes_max),
            bytes_max,
            phase: Phase::Reading,
            outputs: std::collections::VecDeque::new(),
            settled,
            is_urgent,
        };
        for part in 0..assembly.parts.len() {
            assembly.read(part, None);
        }
        assembly.advance();
        assembly
    }

    /// What to do next; `None` until the next event.
    pub fn poll_output(&mut self) -> Option<AssemblyOutput> {
        self.outputs.pop_front()
    }

    /// A shard answered its part.
    pub fn answered(&mut self, part: usize, answer: FetchAnswer) {
        let is_bare = self.waits_bare();
        let Some(state) = self.parts.get_mut(part) else {
            return;
        };
        assert!(state.is_open, "an answer belongs to an open read");
        assert_eq!(
            state.places.len(),
            answer.partitions.len(),
            "each partition of a part has an answer"
        );
        state.is_open = false;
        state.have = if state.share > 0 && is_bare {
            let grown = answer.mark.saturating_sub(state.answer.mark);
            state.have.saturating_add(grown)
        } else {
            answer.bytes() as u64
        };
        state.answer = answer;
        self.advance();
    }

    /// Whether waiting reads bring no data ([`KEPT_BYTES_MAX`]).
    #[must_use]
    pub fn waits_bare(&self) -> bool {
        self.bytes_min > KEPT_BYTES_MAX
    }

    /// Record bytes held now.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.parts.iter().map(|p| p.answer.bytes()).sum()
    }

    /// The longest wait is over: answer with what is there.
    pub fn deadline(&mut self) {
        if self.phase != Phase::Waiting {
            self.is_urgent = true;
            return;
        }
        self.read_once_more();
    }

    /// The connection is gone: takes back what waits. No output after these is meant to be answered.
    pub fn abandon(&mut self) {
        for part in self.open_parts() {
            self.outputs.push_back(AssemblyOutput::Cancel { part });
        }
        self.phase = Phase::Done;
    }

    /// The answers by place, cut to the byte limit.
    ///
    /// # Panics
    /// Before [`AssemblyOutput::Done`].
    #[must_use]
    pub fn into_response(self) -> Vec<PartitionData> {
        assert_eq!(self.phase, Phase::Done, "a response is taken when it is complete");
        let mut by_place: Vec<Option<PartitionData>> = (0..self.places).map(|_| None).collect();
        let answered = self
            .parts
            .into_iter()
            .flat_map(|p| p.places.into_iter().zip(p.answer.partitions));
        for (place, data) in answered.chain(self.settled) {
            by_place[place] = Some(data);
        }
        let mut total = 0;
        let mut response = Vec::with_capacity(self.places);
        for data in by_place {
            let mut data = data.expect("each place has an answer");
            let fits = total == 0 || (!data.is_oversized && total + data.records.len() <= self.bytes_max);
            if !fits {
                data.records = protocol::RecordBytes::default();
                if let Some(aborted) = &mut data.aborted {
                    aborted.clear();
                }
            }
            total += data.records.len();
            response.push(data);
        }
        response
    }

    fn read(&mut self, part: usize, wait: Option<Wait>) {
        let state = &mut self.parts[part];
        state.is_open = true;
        state.share = wait.map_or(0, |w| w.needed_bytes);
        self.outputs.push_back(AssemblyOutput::Read { part, wait });
    }

    fn open_parts(&self) -> Vec<usize> {
        (0..self.parts.len()).filter(|p| self.parts[*p].is_open).collect()
    }

    fn advance(&mut self) {
        let all_answered = self.parts.iter().all(|p| !p.is_open);
        let have: u64 = self.parts.iter().map(|p| p.have).sum();
        let is_final = self.is_urgent
            || self
                .parts
                .iter()
                .any(|p| !p.is_open && p.answer.partitions.iter().any(is_final))
            || have >= self.bytes_min as u64;
        match self.phase {
            Phase::Reading | Phase::Finishing if !all_answered => {}
            Phase::Reading if !is_final && !self.parts.is_empty() => {
                self.phase = Phase::Waiting;
                self.wait_for_the_rest(have);
            }
            Phase::Waiting if !is_final => self.wait_for_the_rest(have),
            Phase::Waiting if self.waits_bare() => self.read_once_more(),
            Phase::Waiting => {
                for part in self.open_parts() {
                    self.outputs.push_back(AssemblyOutput::Cancel { part });
                    self.parts[part].is_open = false;
                }
                self.finish();
            }
            Phase::Reading | Phase::Finishing => self.finish(),
            Phase::Done => {}
        }
    }

    /// Asks every part that is not asked yet to answer when its share of the missing bytes is there.
    fn wait_for_the_rest(&mut self, have: u64) {
        if self.waits_bare() {
            let answers = self.parts.iter_mut().flat_map(|p| &mut p.answer.partitions);
            answers.for_each(|data| data.records = protocol::RecordBytes::default());
        }
        let missing = (self.bytes_min as u64).saturating_sub(have).max(1);
        let share = missing.div_ceil(self.parts.len() as u64);
        for part in 0..self.parts.len() {
            if !self.parts[part].is_open {
                let seen = self.parts[part].answer.mark;
                self.read(
                    part,
                    Some(Wait {
                        seen,
                        needed_bytes: share,
                    }),
                );
            }
        }
    }

    /// Takes back what waits and reads it as it is now; where nothing was kept, all of it.
    fn read_once_more(&mut self) {
        self.phase = Phase::Finishing;
        let is_bare = self.waits_bare();
        for part in 0..self.parts.len() {
            let is_open = self.parts[part].is_open;
            if is_open {
                self.outputs.push_back(AssemblyOutput::Cancel { part });
            }
            if is_open || is_bare {
                self.read(part, None);
            }
        }
        self.advance();
    }

    fn finish(&mut self) {
        self.phase = Phase::Done;
        self.outputs.push_back(AssemblyOutput::Done);
    }
}

impl FetchAnswer {
    /// Record bytes in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.partitions.iter().map(|p| p.records.len()).sum()
    }
}

/// Whether a partition's answer ends the wait at once (FE-4).
fn is_final(data: &PartitionData) -> bool {
    data.error != ErrorCode::NONE || data.diverging.is_some()
}

/// Whether the partition is one that this node has never heard of, rather than one that cannot be read.
fn is_unknown(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use protocol::RecordBytes;

    fn data(bytes: usize) -> PartitionData {
        PartitionData {
            records: RecordBytes::from(Bytes::from(vec![0; bytes])),
            ..PartitionData::default()
        }
    }

    fn answer(sizes: &[usize], mark: u64) -> FetchAnswer {
        FetchAnswer {
            partitions: sizes.iter().map(|s| data(*s)).collect(),
            mark,
        }
    }

    fn outputs(assembly: &mut FetchAssembly) -> Vec<AssemblyOutput> {
        std::iter::from_fn(|| assembly.poll_output()).collect()
    }

    fn two_parts(bytes_min: usize, bytes_max: usize) -> FetchAssembly {
        let parts = vec![Part { places: vec![0, 2] }, Part { places: vec![1] }];
        let mut assembly = FetchAssembly::new(3, parts, vec![], bytes_min, bytes_max, true);
        let asked = outputs(&mut assembly);
        assert_eq!(asked.len(), 2, "each shard is read once: {asked:?}");
        assembly
    }

    fn sizes(assembly: FetchAssembly) -> Vec<usize> {
        assembly.into_response().iter().map(|d| d.records.len()).collect()
    }

    #[test]
    fn answers_are_cut_in_request_order_and_only_the_first_with_data_may_exceed() {
        let mut assembly = two_parts(1, 100);
        assembly.answered(1, answer(&[80], 0));
        assembly.answered(0, answer(&[0, 30], 0));
        assert_eq!(outputs(&mut assembly), [AssemblyOutput::Done]);
        assert_eq!(sizes(assembly), [0, 80, 0]);

        let mut assembly = two_parts(1, 100);
        let mut first = answer(&[500, 30], 0);
        first.partitions[0].is_oversized = true;
        assembly.answered(0, first);
        assembly.answered(1, answer(&[80], 0));
        assert_eq!(sizes(assembly), [500, 0, 0]);
    }

    #[test]
    fn too_little_waits_and_the_first_shard_with_its_share_ends_it() {
        let mut assembly = two_parts(1, 100);
        assembly.answered(0, answer(&[0, 0], 7));
        assert!(outputs(&mut assembly).is_empty());
        assembly.answered(1, answer(&[0], 9));
        let wait = |part, seen| AssemblyOutput::Read {
            part,
            wait: Some(Wait {
                seen,
                needed_bytes: 1,
            }),
        };
        assert_eq!(outputs(&mut assembly), [wait(0, 7), wait(1, 9)]);
        assembly.answered(1, answer(&[10], 19));
        assert_eq!(
            outputs(&mut assembly),
            [AssemblyOutput::Cancel { part: 0 }, AssemblyOutput::Done]
        );
        assert_eq!(sizes(assembly), [0, 10, 0]);
    }

    #[test]
    fn min_bytes_counts_over_all_shards() {
        let mut assembly = two_parts(100, 1000);
        assembly.answered(0, answer(&[20, 0], 20));
        assembly.answered(1, answer(&[0], 0));
        let share = |part, seen, needed_bytes| AssemblyOutput::Read {
            part,
            wait: Some(Wait { seen, needed_bytes }),
        };
        assert_eq!(outputs(&mut assembly), [share(0, 20, 40), share(1, 0, 40)]);
        assembly.answered(1, answer(&[45], 45));
        assert_eq!(
            outputs(&mut assembly),
            [share(1, 45, 18)],
            "35 are missing, shared by two"
        );
        assembly.answered(0, answer(&[60, 0], 60));
        assert_eq!(
            outputs(&mut assembly),
            [AssemblyOutput::Cancel { part: 1 }, AssemblyOutput::Done]
        );
        assert_eq!(sizes(assembly), [60, 45, 0]);
    }

    #[test]
    fn an_error_ends_the_wait_at_once() {
        let settled = PartitionData {
            error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ..PartitionData::default()
        };
        let parts = vec![Part { places: vec![1] }];
        let mut assembly = FetchAssembly::new(2, parts, vec![(0, settled)], 1, 100, true);
        assert_eq!(
            outputs(&mut assembly),
            [AssemblyOutput::Read { part: 0, wait: None }]
        );
        assembly.answered(0, answer(&[0], 0));
        assert_eq!(outputs(&mut assembly), [AssemblyOutput::Done]);
    }

    #[test]
    fn at_the_deadline_what_is_there_is_read_once_more() {
        let mut assembly = two_parts(100, 1000);
        assembly.answered(0, answer(&[20, 0], 20));
        assembly.answered(1, answer(&[0], 0));
        outputs(&mut assembly);
        assembly.deadline();
        let read = |part| AssemblyOutput::Read { part, wait: None };
        let cancel = |part| AssemblyOutput::Cancel { part };
        assert_eq!(outputs(&mut assembly), [cancel(0), read(0), cancel(1), read(1)]);
        assembly.answered(1, answer(&[5], 5));
        assembly.answered(0, answer(&[20, 0], 20));
        assert_eq!(outputs(&mut assembly), [AssemblyOutput::Done]);
        assert_eq!(sizes(assembly), [20, 5, 0]);
    }

    #[test]
    fn a_wait_for_much_holds_nothing_and_reads_all_at_its_end() {
        let much = KEPT_BYTES_MAX + 100;
        let mut assembly = two_parts(much, 1 << 20);
        assembly.answered(0, answer(&[KEPT_BYTES_MAX, 0], 70_000));
        assembly.answered(1, answer(&[0], 0));
        assert_eq!(outputs(&mut assembly).len(), 2, "both wait for their share");
        assert_eq!(assembly.held_bytes(), 0);
        assembly.answered(1, answer(&[0], 60));
        assert!(
            matches!(
                outputs(&mut assembly)[..],
                [AssemblyOutput::Read {
                    part: 1,
                    wait: Some(_)
                }]
            ),
            "60 of 100 are there"
        );
        assembly.answered(0, answer(&[0, 0], 70_040));
        let read = |part| AssemblyOutput::Read { part, wait: None };
        assert_eq!(
            outputs(&mut assembly),
            [read(0), AssemblyOutput::Cancel { part: 1 }, read(1)]
        );
        assembly.answered(0, answer(&[KEPT_BYTES_MAX, 40], 70_040));
        assembly.answered(1, answer(&[60], 60));
        assert_eq!(outputs(&mut assembly), [AssemblyOutput::Done]);
        assert_eq!(sizes(assembly), [KEPT_BYTES_MAX, 60, 40]);
    }

    #[test]
    fn a_deadline_before_all_have_answered_waits_for_them_only() {
        let mut assembly = two_parts(100, 1000);
        assembly.answered(0, answer(&[20, 0], 20));
        assembly.deadline();
        assembly.answered(1, answer(&[0], 0));
        assert_eq!(outputs(&mut assembly), [AssemblyOutput::Done]);
    }

    #[test]
    fn a_fetch_of_nothing_is_answered_at_once() {
        let mut assembly = FetchAssembly::new(0, vec![], vec![], 1, 100, true);
        assert_eq!(outputs(&mut assembly), [AssemblyOutput::Done]);
        assert!(assembly.into_response().is_empty());
    }
}
