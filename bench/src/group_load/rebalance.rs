//! One large group that rebalances again and again: from the moment its last member asked to join until all have their partitions.

use std::time::{Duration, Instant};

use protocol::Str;

use super::member::Member;
use super::setup::prepare;
use super::{Figures, Meter, allow_connections, on_this_thread};
use crate::compare::Serving;
use crate::error::{Error, Result, failed};

/// The first generation comes after the broker's delay of it, and may need some rounds; not measured.
const WARMUP_ROUNDS: u32 = 2;

/// A group and its rebalances.
#[derive(Clone, Copy, Debug)]
pub struct Rebalances {
    /// Members of the group.
    pub members: usize,
    /// Partitions that are dealt out.
    pub partitions: i32,
    /// Rebalances that are measured.
    pub rounds: u32,
}

/// When a member had asked to join, and when it had its partitions.
type Times = (Instant, Instant);

impl Rebalances {
    /// Has the group rebalance, and measures each.
    ///
    /// # Errors
    /// The group breaks, or partitions are dealt out twice or not at all.
    pub fn run(&self, broker: &Serving) -> Result<Figures> {
        allow_connections(self.members)?;
        on_this_thread(async {
            let group = Str::from("rebalancing");
            prepare(&broker.bootstrap, self.partitions, std::slice::from_ref(&group)).await?;
            let mut members = Vec::with_capacity(self.members);
            for _ in 0..self.members {
                members.push(Member::connect(&broker.bootstrap, &group, self.partitions).await?);
            }
            for round in 0..WARMUP_ROUNDS {
                members = self.rebalance(members, round).await?.0;
            }
            let meter = Meter::start(broker)?;
            let mut times = Vec::new();
            for round in 0..self.rounds {
                let time;
                (members, time) = self.rebalance(members, WARMUP_ROUNDS + round).await?;
                times.push(time);
            }
            let requests = u64::from(self.rounds) * self.members as u64 * 2;
            meter.stop(u64::from(self.rounds), requests, times)
        })
    }

    /// All members join anew; returns the time from the last that asked to the last that has its partitions.
    async fn rebalance(&self, members: Vec<Member>, round: u32) -> Result<(Vec<Member>, Duration)> {
        let tasks: Vec<_> = members
            .into_iter()
            .map(|mut member| {
                tokio::task::spawn_local(async move {
                    member.send_join(round).await?;
                    let asked = Instant::now();
                    member.finish_join(round).await?;
                    Ok::<_, Error>((member, (asked, Instant::now())))
                })
            })
            .collect();
        let (mut members, mut times): (Vec<Member>, Vec<Times>) = (Vec::new(), Vec::new());
        for task in tasks {
            let (member, time) = task.await.map_err(|error| Error::Failed(error.to_string()))??;
            members.push(member);
            times.push(time);
        }
        let mut dealt: Vec<i32> = members
            .iter()
            .flat_map(|m| m.partitions().iter().copied())
            .collect();
        dealt.sort_unstable();
        if round >= WARMUP_ROUNDS && !dealt.iter().copied().eq(0..self.partitions) {
            return failed(format!(
                "of {} partitions {} are dealt out",
                self.partitions,
                dealt.len()
            ));
        }
        let asked = times.iter().map(|(asked, _)| *asked).max();
        let ended = times.iter().map(|(_, ended)| *ended).max();
        let time = asked.zip(ended).map(|(asked, ended)| ended - asked);
        Ok((members, time.unwrap_or_default()))
    }
}
