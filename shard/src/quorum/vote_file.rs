//! The file `quorum-state`: this node's term and vote, in Kafka's JSON (data version 1).
//!
//! ```text
//! {"leaderId":-1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}
//! ```

use super::log::VoteState;
use crate::ids::BrokerId;

/// The file's name.
pub(super) const NAME: &str = "quorum-state";

/// The text of the file. The leader is found anew at each start, so none is written; the directory of the voted-for node is
/// not a part of raft's vote.
pub(super) fn format(vote: VoteState) -> String {
    let voted = vote.voted_for.map_or(-1, |node| node.0);
    let term = vote.term;
    format!(
        "{{\"leaderId\":-1,\"leaderEpoch\":{term},\"votedId\":{voted},\
         \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}}"
    )
}

/// What the text says; `None` when it does not say it.
pub(super) fn parse(bytes: &[u8]) -> Option<VoteState> {
    let text = std::str::from_utf8(bytes).ok()?;
    let voted = number(text, "votedId")?;
    Some(VoteState {
        term: u64::try_from(number(text, "leaderEpoch")?).ok()?,
        voted_for: i32::try_from(voted).ok().filter(|node| *node >= 0).map(BrokerId),
    })
}

/// The number behind a name: a whole JSON parser would be more than two numbers are worth.
fn number(text: &str, name: &str) -> Option<i64> {
    let (_, rest) = text.split_once(&format!("\"{name}\""))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = rest
        .find(|c: char| c != '-' && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_comes_back() {
        for (term, voted_for) in [
            (0, None),
            (7, Some(BrokerId(3))),
            (2_000_000_000, Some(BrokerId(0))),
        ] {
            let vote = VoteState { term, voted_for };
            assert_eq!(parse(format(vote).as_bytes()), Some(vote));
        }
        assert_eq!(parse(b"{}"), None);
        assert_eq!(parse(b"\xff"), None);
    }
}
