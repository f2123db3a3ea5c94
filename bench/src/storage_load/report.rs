//! The figures of the storage benchmarks as they are reported, and bounds of ratios.

use super::host::Figures;
use crate::report::Column;

/// Everything a run of producers tells.
pub(super) const COLUMNS: [Column<Figures>; 11] = [
    Column::new("MB/s", 1, |figures: &Figures| figures.megabytes_per_second),
    Column::new("records/s", 0, |figures| figures.records_per_second),
    Column::new("p50 ms", 2, |figures| figures.latency_ms[0]),
    Column::new("p99 ms", 2, |figures| figures.latency_ms[1]),
    Column::new("p99.9 ms", 2, |figures| figures.latency_ms[2]),
    Column::new("most ms", 1, |figures| figures.latency_ms[3]),
    Column::new("broker cores", 2, |figures| figures.cores),
    Column::new("client cores", 2, |figures| figures.client_cores),
    Column::new("batches per commit", 1, |figures| figures.commit_batches),
    Column::new("KB per commit", 1, |figures| figures.commit_kilobytes),
    Column::new("time in syncs", 2, |figures| figures.sync_share),
];

/// The 95 % points of Student's distribution, one-sided, for 1 to 20 degrees of freedom.
const STUDENT_95: [f64; 20] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725,
];

/// The geometric mean of ratios, and the bound below which it lies with 95 % certainty.
pub(super) fn upper_bound(ratios: &[f64]) -> (f64, f64) {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count.max(1.0);
    if logs.len() < 2 {
        return (mean.exp(), f64::INFINITY);
    }
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let student = STUDENT_95[(logs.len() - 2).min(STUDENT_95.len() - 1)];
    (mean.exp(), (mean + student * (variance / count).sqrt()).exp())
}

/// A sentence with the ratios of `of` between the first two runs of each round.
pub(super) fn ratio_sentence(what: &str, rounds: &[Vec<Figures>], of: fn(&Figures) -> f64) -> String {
    let ratios: Vec<f64> = rounds
        .iter()
        .filter_map(|runs| Some(of(runs.first()?) / of(runs.get(1)?)))
        .collect();
    mean_sentence(what, &ratios)
}

/// A sentence with the mean of ratios and its bound.
pub(super) fn mean_sentence(what: &str, ratios: &[f64]) -> String {
    let (mean, bound) = upper_bound(ratios);
    if bound.is_finite() {
        let count = ratios.len();
        format!("{what}: {mean:.2} on average of {count} pairs, below {bound:.2} with 95 % certainty.\n")
    } else {
        format!("{what}: {mean:.2} of one pair.\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_students() {
        let (mean, bound) = upper_bound(&[1.0, 1.0, 1.0]);
        assert!((mean - 1.0).abs() < 1e-12 && (bound - 1.0).abs() < 1e-12);
        // Logarithms 0 and 0.2: mean 0.1, deviation 0.1414, standard error 0.1.
        let (mean, bound) = upper_bound(&[1.0, 0.2f64.exp()]);
        assert!((mean.ln() - 0.1).abs() < 1e-9);
        assert!((bound.ln() - (0.1 + 0.6314)).abs() < 1e-9);
        assert!(upper_bound(&[1.0]).1.is_infinite());
    }
}
