//! The figures of all rounds as tables: every run, then medians with extremes, then ratios.

use std::fmt::Write as _;

/// A figure of a run `R` with its heading and the decimals it is shown with.
#[derive(Debug)]
pub struct Column<R> {
    heading: &'static str,
    decimals: usize,
    of: fn(&R) -> f64,
}

impl<R> Column<R> {
    /// A figure under this heading.
    pub const fn new(heading: &'static str, decimals: usize, of: fn(&R) -> f64) -> Self {
        Self {
            heading,
            decimals,
            of,
        }
    }
}

/// Markdown of rounds; each has one run of each of `names`, in that order. The first is the one that is held against the others, and
/// its ratios are taken round by round, so that what changes on the host between rounds does not count.
pub fn markdown<R>(columns: &[Column<R>], names: &[&str], rounds: &[Vec<R>]) -> String {
    let mut out = String::from("Every run:\n\n");
    header(columns, "round | broker", &mut out);
    for (number, runs) in rounds.iter().enumerate() {
        for (name, run) in names.iter().zip(runs) {
            let cells = columns
                .iter()
                .map(|column| format!("{:.*}", column.decimals, (column.of)(run)));
            line(&format!("{} | {name}", number + 1), cells, &mut out);
        }
    }
    let _ = writeln!(out, "\nMedian of {} rounds (least to most):\n", rounds.len());
    header(columns, "broker", &mut out);
    for (index, name) in names.iter().enumerate() {
        let cells = columns.iter().map(|column| {
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
    header(columns, "other", &mut out);
    for (index, name) in others.iter().enumerate() {
        let cells = columns.iter().map(|column| {
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

fn header<R>(columns: &[Column<R>], first: &str, out: &mut String) {
    line(first, columns.iter().map(|column| column.heading.to_owned()), out);
    let left = first.split('|').map(|_| "---").collect::<Vec<_>>().join(" | ");
    line(&left, columns.iter().map(|_| "---:".to_owned()), out);
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

/// The value below which `share` of the sorted values lie; 0 of nothing.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(place.saturating_sub(1).min(last))
        .copied()
        .unwrap_or(0.0)
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
    fn percentiles_are_values() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert!((percentile(&values, 0.5) - 500.0).abs() < 1e-12);
        assert!((percentile(&values, 0.999) - 999.0).abs() < 1e-12);
        assert!((percentile(&values[..1], 0.99) - 1.0).abs() < 1e-12);
        assert!(percentile(&[], 0.99).abs() < 1e-12);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let columns = [
            Column::new("MB/s", 0, |run: &[f64; 2]| run[0]),
            Column::new("CPU", 2, |run| run[1]),
        ];
        let rounds = [
            vec![[400.0, 1.0], [200.0, 2.0]],
            vec![[300.0, 1.0], [100.0, 4.0]],
            vec![[100.0, 1.0], [100.0, 2.0]],
        ];
        let text = markdown(&columns, &["ours", "theirs"], &rounds);
        assert!(
            text.contains("| ours | 300 (100–400) | 1.00 (1.00–1.00) |"),
            "{text}"
        );
        assert!(
            text.contains("| theirs | 2.00 (1.00–3.00) | 0.50 (0.25–0.50) |"),
            "{text}"
        );
        assert!(text.contains("| 2 | theirs | 100 | 4.00 |"), "{text}");
    }
}
