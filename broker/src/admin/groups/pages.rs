//! Reads the groups of all shards for a scrape, page by page: from all shards side by side, so that a silent one holds up no
//! other, and handed on in the shards' order, so that the same groups have samples in every scrape.

use shard::coordinator::driver::{GroupPage, PageCursor};
use shard::ids::ShardId;
use shard::router::ShardMessage;
use tokio::time::{Duration, Instant, timeout};

use crate::admin::Running;
use crate::node::NodeMessage;

/// How long a scrape waits for the answers of one shard in all; it is left then, and counted.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(3);
/// Pages of a shard that wait to be taken, beside the one that its reader holds.
const PAGES_AHEAD_MAX: usize = 1;

/// What comes from a shard: a page, or `None` when it does not answer; nothing follows that.
type Read = Option<GroupPage>;

/// Asks a shard for the page that begins at a cursor.
pub(super) fn asking(
    running: &Running,
) -> impl Fn(ShardId, Option<PageCursor>) -> Answer + Clone + Send + use<> {
    let port = running.port.clone();
    move |shard, from| {
        let asked = port.call(shard, |reply| {
            ShardMessage::Node(NodeMessage::Groups(from, reply))
        });
        Box::pin(async move { asked.ok()?.answer().await.ok() })
    }
}

/// An answer under way.
pub(super) type Answer = std::pin::Pin<Box<dyn Future<Output = Read> + Send>>;

/// Gives `take` all pages, those of shard 0 first; how many shards were not read to their end.
pub(super) async fn read(
    shards: u16,
    wait_max: Duration,
    ask: impl Fn(ShardId, Option<PageCursor>) -> Answer + Clone + Send + 'static,
    mut take: impl FnMut(GroupPage),
) -> usize {
    let readers: Vec<_> = (0..shards)
        .map(|shard| {
            let (pages, taken) = flume::bounded(PAGES_AHEAD_MAX);
            tokio::spawn(pages_of(ShardId(shard), wait_max, ask.clone(), pages));
            taken
        })
        .collect();
    let mut unread = 0;
    for pages in readers {
        while let Ok(page) = pages.recv_async().await {
            match page {
                Some(page) => take(page),
                None => unread += 1,
            }
        }
    }
    unread
}

/// The pages of one shard, until there is none, or the shard has been waited for long enough, or nobody takes them any more.
async fn pages_of(
    shard: ShardId,
    wait_max: Duration,
    ask: impl Fn(ShardId, Option<PageCursor>) -> Answer,
    to: flume::Sender<Read>,
) {
    let mut left = wait_max;
    let mut from = None;
    loop {
        let asked = Instant::now();
        let page = timeout(left, ask(shard, from.take())).await.ok().flatten();
        // Only waiting for the shard counts, not for those before it to be taken.
        left = left.saturating_sub(asked.elapsed());
        from = page.as_ref().and_then(|page| page.next.clone());
        if to.send_async(page).await.is_err() || from.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use protocol::Str;
    use shard::coordinator::group::{GroupImage, GroupState};

    use super::*;

    fn page(group: &str) -> GroupPage {
        GroupPage {
            groups: vec![GroupImage {
                id: Str::from(group.to_owned()),
                state: GroupState::Empty,
                members: 0,
                topics: Vec::new(),
                is_rest: false,
            }],
            next: None,
        }
    }

    #[test]
    fn silent_shards_are_left_out_together_and_the_others_come_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            // Time passes when all wait, and only then: a machine that stands still cannot be seen.
            .start_paused(true)
            .build()
            .unwrap();
        let wait_max = Duration::from_millis(300);
        let ask = move |shard: ShardId, _| -> Answer {
            Box::pin(async move {
                match shard.0 {
                    0 | 2 | 3 => pending().await,
                    4 => return None,
                    // Slower than the one behind it.
                    1 => tokio::time::sleep(wait_max / 10).await,
                    _ => {}
                }
                Some(page(&shard.0.to_string()))
            })
        };
        let mut seen = Vec::new();
        let (unread, took) = runtime.block_on(async {
            let began = Instant::now();
            let take = |page: GroupPage| {
                seen.extend(page.groups.into_iter().map(|group| group.id.to_string()));
            };
            (read(6, wait_max, ask, take).await, began.elapsed())
        });
        assert_eq!((unread, seen), (4, vec!["1".to_owned(), "5".to_owned()]));
        // One wait for the three of them.
        assert!(took >= wait_max && took < wait_max * 3 / 2, "{took:?}");
    }
}
