//! Writes what happens to groups to the log: a line for each, so that an operator finds out later who was thrown out and why. A bounded
//! number of lines a second, whatever clients do.

use std::cell::Cell;
use std::time::Duration;

use super::group::{GroupNews, Happened, MemberName, News};
use super::shown;
use crate::env::Instant;

/// Lines a second of one shard.
const LINES_PER_SECOND: u32 = 100;

/// Counts the lines of the present second.
#[derive(Debug, Default)]
pub(super) struct Teller {
    since: Cell<Instant>,
    said: Cell<u32>,
    left_out: Cell<u64>,
}

impl Teller {
    /// Tells what has happened on a partition of `__consumer_offsets`, as far as the second has lines left.
    pub(super) fn tell(&self, partition: i32, news: News, now: Instant) {
        let is_over = now.since(self.since.get()) >= Duration::from_secs(1);
        if is_over && self.left_out.get() > 0 {
            let left_out = self.left_out.replace(0);
            tracing::info!(left_out, "more happened to groups than was told here");
        }
        if news.told.is_empty() {
            return;
        }
        if is_over {
            self.since.set(now);
            self.said.set(0);
        }
        let free = LINES_PER_SECOND - self.said.get();
        let mut said = 0;
        for one in news.told.iter().take(free as usize) {
            write(partition, one);
            said += 1;
        }
        self.said.set(self.said.get() + said);
        let left_out = news.told.len() as u64 - u64::from(said) + news.left_out;
        self.left_out.set(self.left_out.get() + left_out);
    }
}

fn write(partition: i32, one: &GroupNews) {
    let group = shown(&one.group);
    match &one.what {
        Happened::Joined(member) => about(group, member, "a member joins", None),
        Happened::Out(member, why) => about(group, member, "a member is out", Some(why.words())),
        Happened::Replaced { member, old } => {
            let what = "an instance has a new member id, the one before is fenced";
            about(group, member, what, Some(shown(old)));
        }
        Happened::RebalanceBegun {
            generation,
            reason,
            members,
        } => {
            let reason = reason.name();
            tracing::info!(
                group,
                generation,
                members,
                reason,
                partition,
                "a rebalance begins"
            );
        }
        Happened::Stable {
            generation,
            members,
            protocol,
            took,
        } => {
            let (protocol, took_ms) = (shown(protocol), took.as_millis() as u64);
            tracing::info!(
                group,
                generation,
                members,
                protocol,
                took_ms,
                "a rebalance has ended"
            );
        }
        Happened::OffsetsDeleted(offsets) => {
            tracing::info!(group, offsets, "committed offsets were deleted by request");
        }
        Happened::Deleted(offsets) => tracing::info!(group, offsets, "the group was deleted by request"),
        Happened::Expired(offsets) => {
            tracing::info!(
                group,
                offsets,
                "the group is gone: its offsets grew old and it has no members"
            );
        }
    }
}

/// A line about a member; `why` it is so, if there is a reason to tell.
fn about(group: &str, member: &MemberName, what: &str, why: Option<&str>) {
    tracing::info!(
        group,
        member = shown(&member.id),
        instance = member.instance.as_deref().map(shown),
        client_id = shown(&member.client.client_id),
        host = shown(&member.client.host),
        why,
        "{what}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::group::Departure;

    fn news(count: usize) -> News {
        let one = GroupNews {
            group: "g".into(),
            what: Happened::Deleted(1),
        };
        News {
            told: vec![one; count],
            left_out: 0,
        }
    }

    #[test]
    fn a_second_has_so_many_lines_and_what_is_left_out_is_counted() {
        let teller = Teller::default();
        let second = Instant(5_000_000_000);
        teller.tell(0, news(60), second);
        teller.tell(0, news(60), second);
        assert_eq!((teller.said.get(), teller.left_out.get()), (100, 20));
        teller.tell(0, news(0), second.after(Duration::from_secs(1)));
        assert_eq!(
            teller.left_out.get(),
            0,
            "it is said though nothing new has happened"
        );
        teller.tell(0, news(1), second.after(Duration::from_secs(1)));
        assert_eq!((teller.said.get(), teller.left_out.get()), (1, 0));
    }

    #[test]
    fn every_departure_has_words_of_its_own() {
        let all = [
            Departure::Left,
            Departure::SessionExpired,
            Departure::JoinExpired,
            Departure::SyncExpired,
            Departure::SizeExceeded,
        ];
        let words: std::collections::BTreeSet<_> = all.iter().map(|why| why.words()).collect();
        assert_eq!(words.len(), all.len());
    }
}
