//! The highest rate that a broker sustains: the rate doubles until a step breaks a bound, then the middle of what holds and what does
//! not is tried until both are close. The walk itself is pure; steps are run by the conductor.

use std::time::Instant;

use broker::exit::{Failure, Status};

use super::conductor::Conductor;
use super::control::Change;
use super::outcome::SearchStep;
use super::plan::SearchPlan;

/// Rates below it are no use to anyone, messages a second.
const RATE_MIN: f64 = 10.0;

/// Steps at most.
const STEPS_MAX: usize = 40;

/// The part of the rate that has to be acknowledged.
const ACHIEVED_SHARE: f64 = 0.97;

/// The name of phases that do not count begins so.
pub(super) const SETTLE: &str = "settle";

/// What was found.
pub(super) struct Found {
    pub(super) rate: f64,
    pub(super) steps: Vec<SearchStep>,
}

/// The walk from rate to rate.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// The highest rate that held.
    holds: Option<f64>,
    /// The lowest that did not.
    breaks: Option<f64>,
    next: f64,
    precision: f64,
}

impl Walk {
    const fn new(from: f64, precision: f64) -> Self {
        Self {
            holds: None,
            breaks: None,
            next: from,
            precision,
        }
    }

    /// The next rate after this one held or did not; `None` at the end.
    fn step(&mut self, has_held: bool) -> Option<f64> {
        if has_held {
            self.holds = Some(self.next);
        } else {
            self.breaks = Some(self.next);
        }
        self.next = match (self.holds, self.breaks) {
            (Some(holds), Some(breaks)) if breaks - holds <= breaks * self.precision => return None,
            (Some(holds), Some(breaks)) => f64::midpoint(holds, breaks),
            (Some(holds), None) => holds * 2.0,
            (None, _) if self.next / 4.0 < RATE_MIN => return None,
            (None, _) => self.next / 4.0,
        };
        Some(self.next)
    }
}

/// Looks for the highest rate.
///
/// # Errors
/// As a run; no rate holds.
pub(super) fn highest_rate(conductor: &mut Conductor<'_>, plan: &SearchPlan) -> Result<Found, Failure> {
    let mut walk = Walk::new(plan.from, plan.precision);
    let mut steps = Vec::new();
    let mut rate = Some(plan.from);
    while let Some(asked) = rate
        && steps.len() < STEPS_MAX
    {
        let step = try_rate(conductor, plan, asked)?;
        let verdict = step.too_high.clone().unwrap_or_else(|| "holds".to_owned());
        conductor.say(&format!("       {asked:.0} messages/s: {verdict}"));
        rate = walk.step(step.too_high.is_none());
        steps.push(step);
    }
    let Some(rate) = walk.holds else {
        let sentence = format!(
            "no rate holds, not even {:.0} messages/s: {}; raise --search-p99-ms or --search-behind",
            walk.breaks.unwrap_or(plan.from),
            steps
                .last()
                .and_then(|step| step.too_high.as_deref())
                .unwrap_or_default()
        );
        return Err(Failure::new(Status::TempFail, sentence));
    };
    Ok(Found { rate, steps })
}

fn try_rate(conductor: &mut Conductor<'_>, plan: &SearchPlan, asked: f64) -> Result<SearchStep, Failure> {
    let from = conductor.soon();
    let intervals = conductor.intervals(plan.step).max(2);
    let counted = from + (intervals / 3).max(1);
    let until = counted.max(from + intervals);
    conductor.begin(from, format!("{SETTLE} {asked:.0}"), Some(asked));
    conductor.plan(from, &[Change::Rate(asked)]);
    conductor.begin(counted, format!("try {asked:.0}"), Some(asked));
    conductor.end_phase(until);
    conductor.plan(until, &[Change::Idle]);
    conductor.advance(until)?;
    let behind = conductor.behind();
    // What was given up at the end comes with the interval behind the last.
    settle(conductor)?;
    let seconds = conductor.seconds(until - counted);
    let phase = conductor.phases.last();
    let produced = phase.map_or(0, |phase| phase.counts.acknowledged);
    let latency = phase.map(|phase| phase.produce.summary()).unwrap_or_default();
    let produced_per_second = produced as f64 / seconds;
    let behind_s = behind as f64 / asked;
    let too_high = if produced_per_second < asked * ACHIEVED_SHARE {
        Some(format!(
            "only {produced_per_second:.0} messages/s are acknowledged"
        ))
    } else if latency.p99_ms > plan.p99_ms_max {
        Some(format!("p99 is {:.1} ms", latency.p99_ms))
    } else if behind_s > plan.behind_s_max {
        Some(format!("consumers are {behind_s:.1} s behind"))
    } else {
        None
    };
    Ok(SearchStep {
        asked_per_second: asked,
        produced_per_second,
        p99_ms: latency.p99_ms,
        behind_s,
        too_high,
    })
}

/// Waits until nothing of a step is left, as far as patience goes.
fn settle(conductor: &mut Conductor<'_>) -> Result<(), Failure> {
    let began = Instant::now();
    conductor.step()?;
    while !(conductor.is_quiet() && conductor.is_consumed()) {
        conductor.step()?;
        if began.elapsed() > conductor.shared.plan.patience {
            let sentence = "what a step of the search sent is not answered or consumed in time; see the broker's log, or raise --timeout";
            return Err(Failure::new(Status::TempFail, sentence));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(from: f64, limit: f64) -> (Option<f64>, usize) {
        let mut walk = Walk::new(from, 0.05);
        let (mut rate, mut steps) = (Some(from), 0);
        while let Some(asked) = rate {
            rate = walk.step(asked <= limit);
            steps += 1;
            assert!(steps < STEPS_MAX);
        }
        (walk.holds, steps)
    }

    #[test]
    fn the_walk_ends_close_below_the_limit() {
        for limit in [120.0, 9_999.0, 10_000.0, 123_456.0, 3_000_000.0] {
            let (found, steps) = search(10_000.0, limit);
            let found = found.expect("some rate holds");
            assert!(found <= limit && found >= limit * 0.94, "{found} of {limit}");
            assert!(steps <= 20, "{steps} steps for {limit}");
        }
        assert_eq!(search(10_000.0, 1.0).0, None);
    }
}
