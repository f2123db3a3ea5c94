//! Results as Markdown tables.

use std::fmt::Write as _;

use crate::load::latency::LatencySummary;
use crate::load::outcome::{Outcome, PhaseOutcome};

/// The whole report.
pub fn markdown(outcome: &Outcome) -> String {
    let mut out = format!(
        "# {}\n\nOn {}.\nMeasured with `{}`.\n\n",
        outcome.name, outcome.host, outcome.command
    );
    for (name, value) in &outcome.plan.lines {
        let _ = writeln!(out, "- {name}: {value}");
    }
    out.push_str("\n## Throughput\n\n");
    throughput(outcome, &mut out);
    out.push_str("\n## Latency from when a message was due, milliseconds\n\n");
    latencies(outcome, &mut out);
    if !outcome.search.is_empty() {
        out.push_str("\n## Search for the highest rate\n\n");
        search(outcome, &mut out);
    }
    if let Some(backlog) = outcome.backlog {
        let _ = writeln!(
            out,
            "\n## Backlog\n\n{} messages in {:.1} s; drained in {:.1} s at {:.1} MB/s.",
            backlog.messages, backlog.build_s, backlog.drain_s, backlog.drain_mb_per_second
        );
    }
    let _ = writeln!(
        out,
        "\n## What was used\n\nPer GB (10^9 bytes of keys and values) and million messages, produced and consumed.\n"
    );
    used(outcome, &mut out);
    totals(outcome, &mut out);
    out
}

fn row(cells: &[String], out: &mut String) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

/// The heading of a table whose first columns are words.
fn heading(columns: &[&str], words: usize, out: &mut String) {
    row(
        &columns
            .iter()
            .map(|&column| column.to_owned())
            .collect::<Vec<_>>(),
        out,
    );
    let rule = |place: usize| if place < words { "---" } else { "---:" };
    row(
        &(0..columns.len())
            .map(|place| rule(place).to_owned())
            .collect::<Vec<_>>(),
        out,
    );
}

fn shown(outcome: &Outcome) -> impl Iterator<Item = &PhaseOutcome> {
    outcome.phases.iter().filter(|phase| phase.seconds > 0.0)
}

fn throughput(outcome: &Outcome, out: &mut String) {
    let columns = [
        "phase",
        "s",
        "asked msg/s",
        "produced msg/s",
        "MB/s",
        "wire MB/s",
        "requests/s",
        "consumed msg/s",
        "MB/s",
        "fetches/s",
    ];
    heading(&columns, 1, out);
    for phase in shown(outcome) {
        let cells = [
            phase.name.clone(),
            format!("{:.1}", phase.seconds),
            phase
                .asked_per_second
                .map_or_else(|| "maximum".to_owned(), |rate| format!("{rate:.0}")),
            format!("{:.0}", phase.produced_per_second),
            format!("{:.1}", phase.produced_mb_per_second),
            format!("{:.1}", phase.produced_wire_mb_per_second),
            format!("{:.0}", phase.produce_requests_per_second),
            format!("{:.0}", phase.consumed_per_second),
            format!("{:.1}", phase.consumed_mb_per_second),
            format!("{:.0}", phase.fetches_per_second),
        ];
        row(&cells, out);
    }
}

fn latencies(outcome: &Outcome, out: &mut String) {
    let columns = [
        "phase", "to", "messages", "mean", "p50", "p75", "p95", "p99", "p99.9", "p99.99", "most",
    ];
    heading(&columns, 2, out);
    for phase in shown(outcome) {
        for (to, latency) in [
            ("acknowledged", &phase.produce_latency),
            ("consumed", &phase.end_to_end_latency),
        ] {
            if latency.count > 0 {
                row(&latency_cells(&phase.name, to, latency), out);
            }
        }
    }
}

fn latency_cells(phase: &str, to: &str, latency: &LatencySummary) -> Vec<String> {
    let mut cells = vec![phase.to_owned(), to.to_owned(), latency.count.to_string()];
    let figures = [
        latency.mean_ms,
        latency.p50_ms,
        latency.p75_ms,
        latency.p95_ms,
        latency.p99_ms,
        latency.p99_9_ms,
        latency.p99_99_ms,
        latency.max_ms,
    ];
    cells.extend(figures.iter().map(|figure| format!("{figure:.3}")));
    cells
}

fn search(outcome: &Outcome, out: &mut String) {
    heading(
        &[
            "asked msg/s",
            "acknowledged msg/s",
            "p99 ms",
            "consumers behind s",
            "verdict",
        ],
        0,
        out,
    );
    for step in &outcome.search {
        let cells = [
            format!("{:.0}", step.asked_per_second),
            format!("{:.0}", step.produced_per_second),
            format!("{:.2}", step.p99_ms),
            format!("{:.2}", step.behind_s),
            step.too_high.clone().unwrap_or_else(|| "holds".to_owned()),
        ];
        row(&cells, out);
    }
}

fn used(outcome: &Outcome, out: &mut String) {
    let columns = [
        "phase",
        "process",
        "CPU s",
        "in the kernel",
        "cores",
        "CPU s/GB",
        "CPU s/million",
        "peak RSS MB",
        "written MB",
    ];
    heading(&columns, 2, out);
    for phase in shown(outcome) {
        let processes = [("broker", phase.broker), ("this program", Some(phase.generator))];
        for (process, used) in processes
            .into_iter()
            .filter_map(|(process, used)| Some((process, used?)))
        {
            let cells = [
                phase.name.clone(),
                process.to_owned(),
                format!("{:.2}", used.cpu_seconds),
                format!("{:.2}", used.system_seconds),
                format!("{:.3}", used.cores),
                format!("{:.3}", used.cpu_seconds_per_gb),
                format!("{:.2}", used.cpu_seconds_per_million),
                format!("{:.0}", used.resident_peak_bytes as f64 / 1e6),
                used.written_bytes
                    .map_or_else(String::new, |bytes| format!("{:.0}", bytes as f64 / 1e6)),
            ];
            row(&cells, out);
        }
    }
}

fn totals(outcome: &Outcome, out: &mut String) {
    let totals = &outcome.totals;
    let _ = writeln!(
        out,
        "\nWhole run: {} messages sent, {} acknowledged, {} refused, {} given up; {} of {} consumed.",
        totals.sent, totals.acknowledged, totals.refused, totals.given_up, totals.consumed, totals.to_consume
    );
    for (error, messages) in &totals.errors {
        let _ = writeln!(out, "- refused with {error}: {messages} messages");
    }
}
