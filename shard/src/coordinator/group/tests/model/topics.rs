//! The model's topics, which come and go, what its coordinator has been told of them, and what it owes then: offsets of topics that are
//! gone are not found any more once its sweeps have ended.

use super::super::sweep::known;
use super::*;

pub(super) const TOPICS: [&str; 3] = ["t", "u", "v"];

/// No shard hears of a change later than this: what it has not heard of a minute after a commit is not there.
const BEHIND_MAX: Duration = Duration::from_secs(50);

/// The metadata, the coordinator's view of it, and its debts.
#[derive(Debug)]
pub(super) struct Topics {
    /// The ids of topics that are there.
    there: [Option<u64>; TOPICS.len()],
    /// How many there were.
    made: u64,
    /// The ids before those.
    before: [u64; TOPICS.len()],
    /// All ids that were there before.
    gone: BTreeSet<Uuid>,
    /// What the coordinator knows to be there, and since when.
    told: [Option<u64>; TOPICS.len()],
    since: WallMs,
    /// Topics that went, of which it has not been told.
    untold: Vec<(Str, Uuid)>,
    /// Since when it has not been told of a change.
    behind: Option<Instant>,
    /// Offsets that its sweeps have to bring to their end.
    owed: BTreeMap<Place, Logged>,
}

impl Topics {
    pub(super) fn new(wall: WallMs) -> Self {
        let there = [Some(1), Some(2), Some(3)];
        Self {
            there,
            made: 3,
            before: [1, 2, 3],
            gone: BTreeSet::new(),
            told: there,
            since: wall,
            untold: Vec::new(),
            behind: None,
            owed: BTreeMap::new(),
        }
    }

    pub(super) fn are_without(&self, id: Uuid) -> bool {
        self.gone.contains(&id)
    }

    /// The id with which somebody commits for a topic. Some have not heard yet that it went, or that another one has its name.
    pub(super) fn id_for_commit(&self, which: usize, is_late: bool) -> Uuid {
        match self.there[which] {
            Some(id) if !is_late => topic_id(id),
            _ => topic_id(self.before[which]),
        }
    }

    fn change(&mut self, which: usize, comes: bool) {
        let was = self.there[which].take();
        if let Some(id) = was {
            self.before[which] = id;
            self.gone.insert(topic_id(id));
            self.untold.push((TOPICS[which].into(), topic_id(id)));
        }
        if was.is_none() || comes {
            self.made += 1;
            self.there[which] = Some(self.made);
        }
    }

    /// What the coordinator is told now: all that is there. Returns what went.
    fn tell(&mut self, wall: WallMs) -> Vec<(Str, Uuid)> {
        (self.told, self.since) = (self.there, wall);
        self.behind = None;
        std::mem::take(&mut self.untold)
    }

    /// The metadata as the coordinator knows it.
    fn known(&self, canary: Canary) -> KnownTopics {
        let is_seen = |id: u64| canary != Canary::OverlooksSuccessors || id <= TOPICS.len() as u64;
        let ids = self.told.map(|id| id.filter(|id| is_seen(*id)).map(topic_id));
        let topics: Vec<_> = TOPICS
            .into_iter()
            .zip(ids)
            .filter_map(|(name, id)| Some((name, id?)))
            .collect();
        known(&topics, self.since)
    }

    /// Whether the metadata says that an offset is over.
    fn are_known_without(&self, place: Place, offset: &Logged) -> bool {
        let id = TOPICS
            .into_iter()
            .zip(self.told)
            .find(|(name, _)| *name == place.1);
        let id = id.and_then(|(_, id)| id).map(topic_id);
        offset.committed_ms < self.since.0 && id != Some(offset.topic_id)
    }
}

impl Model {
    /// A topic goes, or another one comes with its name, or both at once.
    pub(super) fn change_topic(&mut self) {
        let which = self.random.index(TOPICS.len());
        let comes = self.random.below(3) > 0;
        self.topics.change(which, comes);
        self.topics.behind.get_or_insert(self.f.now);
        if self.random.coin() {
            self.tell_topics();
        }
    }

    /// The coordinator hears of what is there, and of what went.
    pub(super) fn tell_topics(&mut self) {
        let mut gone = self.topics.tell(self.f.wall);
        let ids: BTreeSet<Uuid> = gone.iter().map(|(_, id)| *id).collect();
        self.owe(|_, _, offset| ids.contains(&offset.topic_id));
        if self.canary == Canary::ForgetsAnotherTopic && !gone.is_empty() {
            let there = TOPICS.into_iter().zip(self.topics.there);
            gone.extend(there.filter_map(|(name, id)| Some((name.into(), topic_id(id?)))));
        }
        self.f.coordinator.know_topics(self.topics.known(self.canary));
        self.f.coordinator.forget_topics(&gone, self.f.now);
        self.f.collect();
    }

    /// The partition is taken up again: by a process that has heard of everything, or by the one that had it.
    pub(super) fn restart_with_topics(&mut self) {
        if self.random.coin() {
            self.topics.tell(self.f.wall);
        }
        self.topics.owed.clear();
        self.owe(Topics::are_known_without);
        let known = self.topics.known(self.canary);
        let is_told = self.canary != Canary::RestartsUntold;
        self.f.restart_with(is_told.then_some(known));
    }

    /// Time passes, or as much of it as there is until a sweep has had a turn: something else may come before the next one.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.f.now.after(time);
        if self
            .topics
            .behind
            .is_some_and(|since| end.since(since) > BEHIND_MAX)
        {
            self.tell_topics();
        }
        while let Some(next) = self.f.coordinator.next_deadline().filter(|next| *next <= end) {
            if self.is_due(&Timer::Expiry, next) {
                self.owe(Topics::are_known_without);
            }
            self.f.advance(next);
            if self.is_due(&Timer::Sweep, self.f.now) && self.random.coin() {
                if self.canary == Canary::DropsTheRestOfASweep {
                    self.f.coordinator.sweeps = Sweeps::default();
                }
                return;
            }
        }
        self.f.advance(end);
    }

    fn is_due(&self, timer: &Timer, at: Instant) -> bool {
        let due = self.f.coordinator.effects.timers.due(at);
        due.iter().any(|(_, due)| due == timer)
    }

    /// What will be committed when all that is under way is written.
    fn to_come(&self) -> BTreeMap<Place, Logged> {
        let mut all = self.logged.clone();
        for (place, offset) in self.f.pending.iter().flat_map(|(_, records)| offsets_of(records)) {
            match offset {
                Some(offset) => all.insert(place, offset),
                None => all.remove(&place),
            };
        }
        all
    }

    /// These offsets are to be gone when no sweep is under way any more; but for those that others would be there instead of if an append
    /// failed, which the next sweep sees to.
    fn owe(&mut self, which: impl Fn(&Topics, Place, &Logged) -> bool) {
        let pending = self.f.pending.iter().flat_map(|(_, records)| offsets_of(records));
        let pending = pending.filter_map(|(place, offset)| Some((place, offset?)));
        let possible = pending.chain(self.logged.iter().map(|(place, offset)| (*place, *offset)));
        let stay: BTreeSet<Place> = possible
            .filter(|(place, offset)| !which(&self.topics, *place, offset))
            .map(|(place, _)| place)
            .collect();
        let mut all = self.to_come();
        all.retain(|place, offset| which(&self.topics, *place, offset) && !stay.contains(place));
        self.topics.owed.extend(all);
    }

    /// What could not be written the next sweep sees to, and not this one.
    pub(super) fn excuse_sweeps(&mut self, lost: &[GroupRecord]) {
        for (place, _) in offsets_of(lost) {
            self.topics.owed.remove(&place);
        }
    }

    /// When sweeps have ended, what they were for is gone, or its tombstone is under way.
    pub(super) fn check_sweeps(&mut self) {
        if self.is_due(&Timer::Sweep, Instant::NEVER) {
            return;
        }
        let all = self.to_come();
        for (place, offset) in std::mem::take(&mut self.topics.owed) {
            let stays = all.get(&place) == Some(&offset);
            assert!(
                !stays,
                "{place:?} outlasts its topic and the sweep for it: {offset:?}"
            );
        }
    }

    /// The coordinator knows of all topics since a while, and nothing is under way: nothing is left of those that went.
    pub(super) fn check_nothing_is_left(&self) {
        for (place, offset) in &self.logged {
            let is_left = self.topics.are_known_without(*place, offset);
            assert!(
                !is_left,
                "{place:?} outlasts its topic and all sweeps: {offset:?}"
            );
        }
    }
}

/// The offsets that records make or end.
fn offsets_of(records: &[GroupRecord]) -> impl Iterator<Item = (Place, Option<Logged>)> {
    records.iter().filter_map(|record| match record {
        GroupRecord::Offset {
            group,
            topic,
            partition,
            offset,
        } => Some((place(group, topic, *partition), offset.as_ref().map(Logged::of))),
        GroupRecord::Group { .. } => None,
    })
}
