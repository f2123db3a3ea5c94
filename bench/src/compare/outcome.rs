//! What came of a comparison: every run, medians and extremes, ratios round by round, and which goals are met.

use std::collections::BTreeMap;

use serde::Serialize;

use super::drive::Trace;
use super::figure::{Figure, Figures};
use super::goal::{Goal, Verdict};
use super::plan::Scale;
use super::workload::Workload;

/// The results of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The commit that was measured.
    pub commit: String,
    /// The host.
    pub host: String,
    /// The command that was given.
    pub command: String,
    /// Versions of the clients that are not ours.
    pub clients: Vec<String>,
    /// How much of each workload.
    pub scale: Scale,
    /// Who took part, the first being judged, each with its settings.
    pub brokers: Vec<(String, String)>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
    /// What else a reader has to know.
    pub notes: Vec<String>,
    /// What was measured.
    pub workloads: Vec<WorkloadOutcome>,
}

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadOutcome {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Who drives it.
    pub client: &'static str,
    /// Brokers in their order.
    pub brokers: Vec<BrokerOutcome>,
    /// Goals.
    pub goals: Vec<GoalOutcome>,
}

/// A broker in a workload.
#[derive(Clone, Debug, Serialize)]
pub struct BrokerOutcome {
    /// Its name.
    pub name: String,
    /// Round by round.
    pub runs: Vec<Run>,
    /// Over the rounds.
    pub figures: BTreeMap<Figure, Spread>,
    /// Of the broker that is judged, divided by this one's, over the rounds; none for that one itself.
    pub ratios: BTreeMap<Figure, Spread>,
}

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// Its figures; none when it failed or was left out.
    pub figures: Option<Figures>,
    /// Why there are none.
    pub failure: Option<String>,
    /// What plots show.
    #[serde(skip)]
    pub(super) trace: Option<Trace>,
}

/// Values of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// A goal and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct GoalOutcome {
    /// The goal.
    pub goal: Goal,
    /// The ratio or figure that is judged.
    pub measured: Option<Spread>,
    /// Whether it is met.
    pub verdict: Verdict,
}

impl Spread {
    /// That of values; `None` of nothing.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let (least, most) = (*values.first()?, *values.last()?);
        let median = match values.len().is_multiple_of(2) {
            true => f64::midpoint(*values.get(middle - 1)?, *values.get(middle)?),
            false => *values.get(middle)?,
        };
        Some(Self { median, least, most })
    }
}

impl Outcome {
    /// Runs that failed.
    pub fn failures(&self) -> usize {
        let brokers = self.workloads.iter().flat_map(|workload| &workload.brokers);
        let runs = brokers.flat_map(|broker| &broker.runs);
        runs.filter(|run| run.failure.is_some()).count()
    }
}

impl WorkloadOutcome {
    /// Puts the runs of all brokers together; the first is the one that is judged.
    pub fn new(workload: &Workload, runs: Vec<(String, Vec<Run>)>) -> Self {
        let subject: Vec<Run> = runs.first().map(|(_, runs)| runs.clone()).unwrap_or_default();
        let brokers: Vec<BrokerOutcome> = runs
            .into_iter()
            .enumerate()
            .map(|(place, (name, runs))| BrokerOutcome {
                name,
                figures: over_rounds(|figure| runs.iter().filter_map(|run| run.get(figure)).collect()),
                ratios: match place {
                    0 => BTreeMap::new(),
                    _ => over_rounds(|figure| ratios(&subject, &runs, figure)),
                },
                runs,
            })
            .collect();
        let goals = workload.goals.iter().map(|goal| judge(goal, &brokers)).collect();
        Self {
            name: workload.name,
            title: workload.title,
            client: workload.client(),
            brokers,
            goals,
        }
    }
}

impl Run {
    fn get(&self, figure: Figure) -> Option<f64> {
        self.figures.as_ref()?.get(figure)
    }
}

fn over_rounds(of: impl Fn(Figure) -> Vec<f64>) -> BTreeMap<Figure, Spread> {
    let spreads = Figure::ALL
        .into_iter()
        .filter_map(|figure| Some((figure, Spread::of(of(figure).into_iter())?)));
    spreads.collect()
}

/// Round by round, so that what changes on the host between rounds does not count.
fn ratios(subject: &[Run], other: &[Run], figure: Figure) -> Vec<f64> {
    let pairs = subject.iter().zip(other);
    pairs
        .filter_map(|(subject, other)| Some((subject.get(figure)?, other.get(figure)?)))
        .filter(|(_, other)| *other > 0.0)
        .map(|(subject, other)| subject / other)
        .collect()
}

fn judge(goal: &Goal, brokers: &[BrokerOutcome]) -> GoalOutcome {
    let measured = match goal.against.name() {
        Some(name) => {
            let other = brokers.iter().skip(1).find(|broker| broker.name == name);
            other.and_then(|broker| broker.ratios.get(&goal.figure))
        }
        None => brokers
            .first()
            .and_then(|broker| broker.figures.get(&goal.figure)),
    };
    GoalOutcome {
        goal: *goal,
        measured: measured.copied(),
        verdict: goal.verdict(measured.map(|spread| spread.median)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::compare) fn run(figures: &[(Figure, f64)]) -> Run {
        let mut all = Figures::default();
        for (figure, value) in figures {
            all.set(*figure, *value);
        }
        Run {
            figures: Some(all),
            ..Run::default()
        }
    }

    #[test]
    fn the_median_is_in_the_middle_and_nothing_has_none() {
        let of = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.median);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[f64::NAN, 7.0]), Some(7.0));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_without_the_rounds_that_failed() {
        use Figure::{CpuPerGigabyte, ProducedMegabytes};
        let failed = Run {
            failure: Some("it ended".into()),
            ..Run::default()
        };
        let ours = vec![
            run(&[(ProducedMegabytes, 400.0), (CpuPerGigabyte, 0.5)]),
            run(&[(ProducedMegabytes, 300.0), (CpuPerGigabyte, 0.5)]),
            run(&[(ProducedMegabytes, 100.0)]),
            run(&[(ProducedMegabytes, 100.0)]),
        ];
        let theirs = vec![
            run(&[(ProducedMegabytes, 200.0), (CpuPerGigabyte, 0.0)]),
            run(&[(ProducedMegabytes, 100.0)]),
            run(&[(ProducedMegabytes, 100.0)]),
            failed,
        ];
        let workload = Workload::named("librdkafka-1k").expect("it is in the table");
        let outcome = WorkloadOutcome::new(workload, vec![("ours".into(), ours), ("kafka".into(), theirs)]);
        let spread = |median, least, most| Spread { median, least, most };
        assert_eq!(
            outcome.brokers[0].figures[&ProducedMegabytes],
            spread(200.0, 100.0, 400.0)
        );
        assert!(outcome.brokers[0].ratios.is_empty());
        assert_eq!(
            outcome.brokers[1].ratios[&ProducedMegabytes],
            spread(2.0, 1.0, 3.0)
        );
        assert_eq!(outcome.brokers[1].ratios.get(&CpuPerGigabyte), None);
        let verdicts: Vec<_> = outcome.goals.iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Unknown, Verdict::Unknown]);
    }

    #[test]
    fn a_goal_without_another_broker_is_judged_by_the_figure_itself() {
        let workload = Workload::named("idle-1000").expect("it is in the table");
        let runs = vec![run(&[(Figure::IdleShare, 2.1)])];
        let outcome = WorkloadOutcome::new(workload, vec![("ours".into(), runs)]);
        assert_eq!(outcome.goals[0].verdict, Verdict::Missed);
    }
}
