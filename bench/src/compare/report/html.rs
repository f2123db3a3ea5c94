//! Results as one page: the Markdown report's tables, and for each workload of our generator how brokers differ in latency by
//! percentile, and over time. The run of a broker that is drawn is the one in the middle by its throughput or latency.

use super::markdown::{TITLE, goals, head, section, shown};
use crate::compare::drive::Trace;
use crate::compare::figure::Figure;
use crate::compare::outcome::{BrokerOutcome, Outcome, Run, WorkloadOutcome};
use crate::load::report::{Line, Plot, Scale, page, tables};

/// By which figure runs are ordered: the first that a workload has.
const ORDER: [Figure; 4] = [
    Figure::CatchUpMegabytes,
    Figure::EndToEndP99,
    Figure::ProduceP99,
    Figure::ProducedMegabytes,
];

/// The page.
pub fn html(outcome: &Outcome) -> String {
    let mut out = String::new();
    tables(&head(outcome), &mut out);
    tables(&goals(outcome), &mut out);
    for workload in shown(outcome) {
        tables(&section(workload), &mut out);
        for plot in plots(workload) {
            out.push_str(&plot.svg());
            out.push('\n');
        }
    }
    tables(&format!("Repeat, on a quiet host: {}", outcome.command), &mut out);
    page(TITLE, &out)
}

fn plots(workload: &WorkloadOutcome) -> Vec<Plot> {
    let traces: Vec<(&str, &Trace)> = workload
        .brokers
        .iter()
        .filter_map(|broker| Some((broker.name.as_str(), middle(broker)?.trace.as_ref()?)))
        .collect();
    if traces.is_empty() {
        return Vec::new();
    }
    let lines = |of: fn(&Trace) -> &Vec<(f64, f64)>| -> Vec<Line> {
        traces
            .iter()
            .map(|(name, trace)| Line {
                name: (*name).to_owned(),
                points: of(trace).clone(),
            })
            .collect()
    };
    let plot = |title: &str, x, y, lines| Plot {
        title: format!("{}: {title}", workload.name),
        x,
        y,
        lines,
    };
    let seconds = ("seconds", Scale::Linear);
    vec![
        plot(
            "latency",
            ("percentile", Scale::Percentile),
            ("ms", Scale::Logarithmic),
            lines(|trace| &trace.curve),
        ),
        plot(
            "throughput",
            seconds,
            ("MB/s", Scale::Linear),
            lines(|trace| &trace.throughput),
        ),
        plot(
            "p99",
            seconds,
            ("ms", Scale::Logarithmic),
            lines(|trace| &trace.p99),
        ),
    ]
}

/// The run in the middle.
fn middle(broker: &BrokerOutcome) -> Option<&Run> {
    let value = |run: &Run| {
        let figures = run.figures.as_ref()?;
        ORDER.iter().find_map(|figure| figures.get(*figure))
    };
    let mut runs: Vec<(f64, &Run)> = broker
        .runs
        .iter()
        .filter_map(|run| Some((value(run)?, run)))
        .collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    runs.get(runs.len() / 2).map(|(_, run)| *run)
}
