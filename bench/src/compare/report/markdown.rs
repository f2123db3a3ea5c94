//! Results as Markdown: what is judged first, then every workload with all its figures.

use std::fmt::Write as _;

use crate::compare::figure::Figure;
use crate::compare::goal::Verdict;
use crate::compare::outcome::{BrokerOutcome, GoalOutcome, Outcome, Spread, WorkloadOutcome};

/// What reports call the whole.
pub(super) const TITLE: &str = "Side by side with Apache Kafka 4.3.1";

/// The whole report.
pub fn markdown(outcome: &Outcome) -> String {
    let mut out = format!("# {TITLE}\n\n");
    out.push_str(&head(outcome));
    out.push_str(&goals(outcome));
    for workload in shown(outcome) {
        out.push_str(&section(workload));
    }
    let _ = writeln!(out, "\nRepeat, on a quiet host: `{}`", outcome.command);
    out
}

/// Workloads of which there is something to tell.
pub(super) fn shown(outcome: &Outcome) -> impl Iterator<Item = &WorkloadOutcome> {
    let has_runs = |workload: &&WorkloadOutcome| workload.brokers.iter().any(|one| !one.runs.is_empty());
    outcome.workloads.iter().filter(has_runs)
}

/// What a reader has to know before the figures.
pub(super) fn head(outcome: &Outcome) -> String {
    let mut out = String::from(
        "The brokers run one at a time on the same processors and disk, beside the clients, in an order that rotates. Penstock answers after \
         fdatasync, kafka from its page cache, kafka-flush after it has synced. Figures are medians of the rounds (least–most), ratios are \
         taken round by round. MB and GB are powers of ten, of keys and values; CPU for each GB and million messages is the broker's, for \
         what is produced and consumed. The CPU of kernel threads that write the page cache back is in none of them. The page cache is the \
         whole host's; the memory with files is that of a control group of the broker's own, where one can be made. Latencies of our \
         generator count from when a message was due, those of librdkafka and Java from the call of the client; at the most that a client can send they are mostly time in its own queue.\n\n",
    );
    let _ = writeln!(out, "Host: {}. Commit {}.\n", outcome.host, outcome.commit);
    for (name, words) in &outcome.brokers {
        let _ = writeln!(out, "- {name}: {words}");
    }
    if !outcome.clients.is_empty() {
        let _ = writeln!(
            out,
            "- clients besides our generator: {}",
            outcome.clients.join(", ")
        );
    }
    let scale = &outcome.scale;
    let _ = writeln!(
        out,
        "- each workload: {} s after {} s of warm-up, or {} GB; backlog {} GB; {} records of Java's clients",
        scale.time.as_secs_f64(),
        scale.warmup.as_secs_f64(),
        scale.bytes_max as f64 / 1e9,
        scale.backlog_bytes as f64 / 1e9,
        scale.java_records
    );
    for what in &outcome.skipped {
        let _ = writeln!(out, "- SKIPPED: {what}");
    }
    for note in &outcome.notes {
        let _ = writeln!(out, "- {note}");
    }
    out
}

/// All goals in one table.
pub(super) fn goals(outcome: &Outcome) -> String {
    let all: Vec<(&str, &GoalOutcome)> = outcome
        .workloads
        .iter()
        .flat_map(|workload| workload.goals.iter().map(|goal| (workload.name, goal)))
        .collect();
    let count = |verdict: Verdict| all.iter().filter(|(_, goal)| goal.verdict == verdict).count();
    let mut out = format!(
        "\n## Goals\n\n{} met, {} missed, {} not measured.\n\n",
        count(Verdict::Met),
        count(Verdict::Missed),
        count(Verdict::Unknown)
    );
    row(&["workload", "figure", "goal", "measured", "verdict"], &mut out);
    row(&["---", "---", "---", "---:", "---"], &mut out);
    for (name, goal) in all {
        let measured = goal.measured.map_or_else(String::new, |spread| spread.show(2));
        let verdict = goal.verdict.to_string();
        let figure = goal.goal.figure.heading();
        row(&[name, figure, &goal.goal.words(), &measured, &verdict], &mut out);
    }
    out
}

/// One workload with all figures.
pub(super) fn section(workload: &WorkloadOutcome) -> String {
    let rounds = workload
        .brokers
        .iter()
        .map(|one| one.runs.len())
        .max()
        .unwrap_or(0);
    let mut out = format!(
        "\n## {}\n\n{}; client: {}; {rounds} {}.\n\n",
        workload.name,
        capital(workload.title),
        workload.client,
        if rounds == 1 { "round" } else { "rounds" }
    );
    let Some((subject, others)) = workload.brokers.split_first() else {
        return out;
    };
    let mut heading = vec!["figure".to_owned()];
    heading.extend(workload.brokers.iter().map(|one| one.name.clone()));
    heading.extend(others.iter().map(|one| format!("÷ {}", one.name)));
    heading.push("goal".to_owned());
    let rule: Vec<&str> = heading
        .iter()
        .enumerate()
        .map(|(place, _)| match place {
            0 => "---",
            last if last + 1 == heading.len() => "---",
            _ => "---:",
        })
        .collect();
    row(&heading, &mut out);
    row(&rule, &mut out);
    let is_there = |figure: &Figure| {
        workload
            .brokers
            .iter()
            .any(|one| one.figures.contains_key(figure))
    };
    for figure in Figure::ALL.into_iter().filter(is_there) {
        row(&cells(figure, subject, others, &workload.goals), &mut out);
    }
    failures(workload, &mut out);
    out
}

fn cells(
    figure: Figure,
    subject: &BrokerOutcome,
    others: &[BrokerOutcome],
    goals: &[GoalOutcome],
) -> Vec<String> {
    let mut cells = vec![figure.heading().to_owned()];
    for broker in std::iter::once(subject).chain(others) {
        let spread = broker.figures.get(&figure);
        cells.push(spread.map_or_else(String::new, |spread| spread.show(figure.decimals())));
    }
    for broker in others {
        let spread = broker.ratios.get(&figure);
        cells.push(spread.map_or_else(String::new, |spread| spread.show(2)));
    }
    let goals = goals.iter().filter(|goal| goal.goal.figure == figure);
    let goals: Vec<String> = goals
        .map(|goal| format!("{}: {}", goal.goal.words(), goal.verdict))
        .collect();
    cells.push(goals.join("; "));
    cells
}

fn failures(workload: &WorkloadOutcome, out: &mut String) {
    let mut is_first = true;
    for broker in &workload.brokers {
        for (number, run) in broker.runs.iter().enumerate() {
            let Some(failure) = &run.failure else { continue };
            let gap = if std::mem::take(&mut is_first) { "\n" } else { "" };
            let line = failure.replace('\n', " ");
            let _ = writeln!(
                out,
                "{gap}- {}, round {}: FAILED: {line}",
                broker.name,
                number + 1
            );
        }
    }
}

fn row(cells: &[impl AsRef<str>], out: &mut String) {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl Spread {
    /// The median, and with several values in parentheses the extremes.
    fn show(&self, decimals: usize) -> String {
        let number = |value: f64| format!("{value:.decimals$}");
        let (median, least, most) = (number(self.median), number(self.least), number(self.most));
        if least == most {
            median
        } else {
            format!("{median} ({least}–{most})")
        }
    }
}
