//! The figures of all rounds as tables: every run, then medians with extremes, then ratios.

use std::fmt::Write as _;

use super::Run;

/// A figure of a run with its heading and the decimals it is shown with.
struct Column {
    heading: &'static str,
    decimals: usize,
    of: fn(&Run) -> f64,
}

const COLUMNS: [Column; 9] = [
    Column::new("MB/s", 0, |run| run.megabytes_per_second),
    Column::new("broker CPU s/GB", 2, |run| run.cpu_seconds_per_gigabyte),
    Column::new("RSS MB", 0, |run| run.resident_megabytes),
    Column::new("p50 ms", 1, |run| run.latency_ms[0]),
    Column::new("p99 ms", 1, |run| run.latency_ms[1]),
    Column::new("p99.9 ms", 1, |run| run.latency_ms[2]),
    Column::new("client CPU s/GB", 2, |run| run.client_cpu_seconds_per_gigabyte),
    Column::new("ready after ms", 0, |run| run.ready_ms),
    Column::new("RSS MB idle", 0, |run| run.idle_megabytes),
];

impl Column {
    const fn new(heading: &'static str, decimals: usize, of: fn(&Run) -> f64) -> Self {
        Self {
            heading,
            decimals,
            of,
        }
    }
}

/// Markdown of rounds; each has one run of each of `names`, in that order. The first is the one that is held against the others, and
/// its ratios are taken round by round, so that what changes on the host between rounds does not count.
pub fn markdown(names: &[&str], rounds: &[Vec<Run>]) -> String {
    let mut out = String::from("Every run:\n\n");
    header("round | broker", &mut out);
    for (number, runs) in rounds.iter().enumerate() {
        for (name, run) in names.iter().zip(runs) {
            let cells = COLUMNS
                .iter()
                .map(|column| format!("{:.*}", column.decimals, (column.of)(run)));
            line(&format!("{} | {name}", number + 1), cells, &mut out);
        }
    }
    let _ = writeln!(out, "\nMedian of {} rounds (least to most):\n", rounds.len());
    header("broker", &mut out);
    for (index, name) in names.iter().enumerate() {
        let cells = COLUMNS.iter().map(|column| {
            let values = rounds.iter().filter_map(|runs| runs.get(index)).map(column.of);
            spread(values, column.decimals)
        });
        line(name, cells, &mut out);
    }
    let Some((subject, others)) = names.split_first() else {
        return out;
    };
    let _ = writeln!(
        out,
        "\n{subject} divided by the other, median of the ratios of each round (least to most):\n"
    );
    header("other", &mut out);
    for (index, name) in others.iter().enumerate() {
        let cells = COLUMNS.iter().map(|column| {
            let pairs = rounds
                .iter()
                .filter_map(|runs| runs.first().zip(runs.get(index + 1)));
            spread(
                pairs.map(|(subject, other)| (column.of)(subject) / (column.of)(other)),
                2,
            )
        });
        line(name, cells, &mut out);
    }
    out
}

fn header(first: &str, out: &mut String) {
    line(first, COLUMNS.iter().map(|column| column.heading.to_owned()), out);
    let left = first.split('|').map(|_| "---").collect::<Vec<_>>().join(" | ");
    line(&left, COLUMNS.iter().map(|_| "---:".to_owned()), out);
}

fn line(first: &str, cells: impl Iterator<Item = String>, out: &mut String) {
    let _ = write!(out, "| {first} |");
    for cell in cells {
        let _ = write!(out, " {cell} |");
    }
    out.push('\n');
}

/// The median, and in parentheses the extremes.
fn spread(values: impl Iterator<Item = f64>, decimals: usize) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.first(), values.last()) {
        (Some(least), Some(most)) => {
            format!(
                "{:.decimals$} ({least:.decimals$}–{most:.decimals$})",
                median(&values)
            )
        }
        _ => String::new(),
    }
}

/// The middle of sorted values, or the mean of the two middle ones; 0 of nothing.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.get(middle.wrapping_sub(1))) {
        (Some(&high), Some(&low)) if sorted.len().is_multiple_of(2) => f64::midpoint(low, high),
        (Some(&high), _) => high,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[1.0, 2.0, 3.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[1.0, 2.0, 3.0, 4.0]) - 2.5).abs() < 1e-12);
        assert!(median(&[]).abs() < 1e-12);
        assert!((median(&[7.0]) - 7.0).abs() < 1e-12);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let run = |mb, cpu, rss| Run {
            megabytes_per_second: mb,
            cpu_seconds_per_gigabyte: cpu,
            resident_megabytes: rss,
            idle_megabytes: 50.0,
            latency_ms: [1.0, 2.0, 4.0],
            ready_ms: 100.0,
            client_cpu_seconds_per_gigabyte: 1.0,
            client_version: String::new(),
        };
        let rounds = [
            vec![run(400.0, 1.0, 100.0), run(200.0, 2.0, 1000.0)],
            vec![run(300.0, 1.0, 100.0), run(100.0, 4.0, 1000.0)],
            vec![run(100.0, 1.0, 100.0), run(100.0, 2.0, 1000.0)],
        ];
        let text = markdown(&["ours", "theirs"], &rounds);
        assert!(
            text.contains("| ours | 300 (100–400) | 1.00 (1.00–1.00) | 100 (100–100) | 1.0 (1.0–1.0) |"),
            "{text}"
        );
        assert!(
            text.contains("| theirs | 2.00 (1.00–3.00) | 0.50 (0.25–0.50) | 0.10 (0.10–0.10) |"),
            "{text}"
        );
        assert!(
            text.contains("| 2 | theirs | 100 | 4.00 | 1000 | 1.0 | 2.0 | 4.0 |"),
            "{text}"
        );
    }
}
