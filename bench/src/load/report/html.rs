//! Results as one page: the Markdown report's figures as tables, and plots of latency by percentile and of throughput and latency over
//! time. It needs no other file, script or font.

use std::fmt::Write as _;

use super::svg::{Line, Plot, Scale, escape};
use crate::load::outcome::{Outcome, PhaseOutcome, Point};
use crate::load::run::MEASURED;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}\
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto;margin:.5em 0}code{background:#f4f4f4;padding:.1em .3em}";

/// The page.
pub fn html(outcome: &Outcome) -> String {
    let mut out = format!(
        "<p>On {}.<br/>Measured with <code>{}</code>.</p>\n<ul>",
        escape(&outcome.host),
        escape(&outcome.command)
    );
    for (name, value) in &outcome.plan.lines {
        let _ = write!(out, "<li>{}: {}</li>", escape(name), escape(value));
    }
    out.push_str("</ul>\n");
    for plot in plots(outcome) {
        out.push_str(&plot.svg());
        out.push('\n');
    }
    let text = super::markdown(outcome);
    let from = text.find("\n## ").unwrap_or(0);
    tables(&text[from..], &mut out);
    page(&outcome.name, &out)
}

/// A page that needs nothing else.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n{body}</body></html>\n",
        escape(title)
    )
}

/// Headings, tables and paragraphs of a Markdown report.
pub(crate) fn tables(text: &str, out: &mut String) {
    let mut in_table = false;
    for line in text.lines() {
        if !line.starts_with('|') && in_table {
            out.push_str("</table>\n");
            in_table = false;
        }
        if let Some(heading) = line.strip_prefix("## ") {
            let _ = writeln!(out, "<h2>{}</h2>", escape(heading));
        } else if let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) {
            if row.starts_with("---") {
                continue;
            }
            let cell = if in_table { "td" } else { "th" };
            if !in_table {
                out.push_str("<table>");
                in_table = true;
            }
            out.push_str("<tr>");
            for text in row.split(" | ") {
                let _ = write!(out, "<{cell}>{}</{cell}>", escape(text));
            }
            out.push_str("</tr>\n");
        } else if !line.is_empty() {
            let _ = writeln!(out, "<p>{}</p>", escape(line));
        }
    }
    if in_table {
        out.push_str("</table>\n");
    }
}

fn plots(outcome: &Outcome) -> Vec<Plot> {
    let measured: Vec<&PhaseOutcome> = outcome
        .phases
        .iter()
        .filter(|phase| matches!(phase.name.as_str(), MEASURED | "build" | "drain"))
        .collect();
    let mut curves = Vec::new();
    for phase in &measured {
        for (to, latency) in [
            ("acknowledged", &phase.produce_latency),
            ("consumed", &phase.end_to_end_latency),
        ] {
            if latency.count > 0 {
                curves.push(Line {
                    name: format!("{}, {to}", phase.name),
                    points: latency.curve.clone(),
                });
            }
        }
    }
    let series = |name: &str, of: fn(&Point) -> f64| Line {
        name: name.to_owned(),
        points: outcome
            .series
            .iter()
            .map(|point| (point.at_s, of(point)))
            .collect(),
    };
    let has_consumers = outcome.totals.to_consume > 0;
    let over_time = |title: &str, y: (&'static str, Scale), lines: Vec<Line>| Plot {
        title: title.to_owned(),
        x: ("seconds", Scale::Linear),
        y,
        lines,
    };
    let mut throughput = vec![series("produced", |point| point.produced_mb_per_second)];
    let mut waiting = vec![series("unsent", |point| point.unsent as f64)];
    let mut latency = vec![
        series("p50", |point| point.p50_ms),
        series("p99", |point| point.p99_ms),
        series("most", |point| point.max_ms),
    ];
    if has_consumers {
        throughput.push(series("consumed", |point| point.consumed_mb_per_second));
        waiting.push(series("consumers behind", |point| point.behind as f64));
        latency.push(series("p99 to consumed", |point| point.end_to_end_p99_ms));
    }
    let mut plots = vec![
        Plot {
            title: "Latency".into(),
            x: ("percentile", Scale::Percentile),
            y: ("ms", Scale::Logarithmic),
            lines: curves,
        },
        over_time("Throughput", ("MB/s", Scale::Linear), throughput),
        over_time("Latency", ("ms", Scale::Logarithmic), latency),
        over_time("Messages that wait", ("messages", Scale::Linear), waiting),
    ];
    if outcome.series.iter().any(|point| point.broker_cores.is_some()) {
        let cores = series("broker", |point| point.broker_cores.unwrap_or(f64::NAN));
        plots.push(over_time(
            "CPU of the broker",
            ("cores", Scale::Linear),
            vec![cores],
        ));
    }
    plots
}
