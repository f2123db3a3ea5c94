//! How often a shard says the same thing in its log, about connections of a listener or settings that clients make: at most
//! once a second, with the number of those that went without a line. A state machine without a clock; one per shard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shard::env::Instant;

/// Between two lines about one listener.
const INTERVAL: Duration = Duration::from_secs(1);

/// The complaints of one shard, by subject: a listener, or what else there is to say of requests. They are few.
#[derive(Debug, Default)]
pub struct Complaints(BTreeMap<Arc<str>, Complaint>);

#[derive(Debug)]
struct Complaint {
    said: Instant,
    unsaid: u64,
}

impl Complaints {
    /// There is something to complain about. Returns how many times nothing was said since the last line if a line may be
    /// written now.
    pub fn may_say(&mut self, subject: &Arc<str>, now: Instant) -> Option<u64> {
        let Some(complaint) = self.0.get_mut(subject) else {
            let first = Complaint { said: now, unsaid: 0 };
            self.0.insert(subject.clone(), first);
            return Some(0);
        };
        if now.since(complaint.said) < INTERVAL {
            complaint.unsaid += 1;
            return None;
        }
        complaint.said = now;
        Some(std::mem::take(&mut complaint.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_one_line_a_second_with_a_count_for_each_listener() {
        let (mut complaints, start) = (Complaints::default(), Instant::default());
        let (inside, outside): (Arc<str>, Arc<str>) = (Arc::from("INSIDE"), Arc::from("OUTSIDE"));
        let said: Vec<u64> = (0..2500)
            .filter_map(|ms| complaints.may_say(&outside, start.after(Duration::from_millis(ms))))
            .collect();
        assert_eq!(said, [0, 999, 999]);
        assert_eq!(complaints.may_say(&inside, start), Some(0));
    }
}
