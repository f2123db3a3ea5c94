//! The figures of all pairs as a table, with medians and ratios.

use std::fmt::Write as _;

use super::{Kind, Pair, Run, median};

/// A Markdown table: a row for each pair, then the medians, then the median of the ratios of each pair.
pub fn markdown(subject: Kind, baseline: Kind, pairs: &[Pair]) -> String {
    let mut out =
        format!("| pair | {subject}: MB/s | CPU s/GB | RSS MB | {baseline}: MB/s | CPU s/GB | RSS MB |\n");
    out.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (number, pair) in pairs.iter().enumerate() {
        row(&(number + 1).to_string(), &pair.subject, &pair.baseline, &mut out);
    }
    let of = |side: fn(&Pair) -> Run| Run {
        megabytes_per_second: median(pairs.iter().map(|pair| side(pair).megabytes_per_second)),
        cpu_seconds_per_gigabyte: median(pairs.iter().map(|pair| side(pair).cpu_seconds_per_gigabyte)),
        resident_megabytes: median(pairs.iter().map(|pair| side(pair).resident_megabytes)),
        client_cpu_seconds_per_gigabyte: median(
            pairs
                .iter()
                .map(|pair| side(pair).client_cpu_seconds_per_gigabyte),
        ),
    };
    let (subject_median, baseline_median) = (of(|pair| pair.subject), of(|pair| pair.baseline));
    row("median", &subject_median, &baseline_median, &mut out);
    let ratio = |figure: fn(&Run) -> f64| {
        median(
            pairs
                .iter()
                .map(|pair| figure(&pair.subject) / figure(&pair.baseline)),
        )
    };
    let _ = writeln!(
        out,
        "\n{subject} to {baseline}, median of {} pairs: {:.2} of the MB/s, {:.2} of the CPU s/GB, {:.2} of the RSS; \
         client CPU s/GB {:.2} and {:.2}",
        pairs.len(),
        ratio(|run| run.megabytes_per_second),
        ratio(|run| run.cpu_seconds_per_gigabyte),
        ratio(|run| run.resident_megabytes),
        subject_median.client_cpu_seconds_per_gigabyte,
        baseline_median.client_cpu_seconds_per_gigabyte,
    );
    out
}

fn row(name: &str, subject: &Run, baseline: &Run, out: &mut String) {
    let _ = write!(out, "| {name} |");
    for run in [subject, baseline] {
        let Run {
            megabytes_per_second,
            cpu_seconds_per_gigabyte,
            resident_megabytes,
            ..
        } = run;
        let _ = write!(
            out,
            " {megabytes_per_second:.0} | {cpu_seconds_per_gigabyte:.2} | {resident_megabytes:.0} |"
        );
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let run = |mb, cpu, rss| Run {
            megabytes_per_second: mb,
            cpu_seconds_per_gigabyte: cpu,
            resident_megabytes: rss,
            client_cpu_seconds_per_gigabyte: 1.0,
        };
        let pairs = [
            Pair {
                subject: run(400.0, 1.0, 100.0),
                baseline: run(200.0, 2.0, 1000.0),
            },
            Pair {
                subject: run(300.0, 1.0, 100.0),
                baseline: run(100.0, 4.0, 1000.0),
            },
            Pair {
                subject: run(100.0, 1.0, 100.0),
                baseline: run(100.0, 2.0, 1000.0),
            },
        ];
        let text = markdown(Kind::Penstock, Kind::Kafka, &pairs);
        assert!(
            text.contains("| median | 300 | 1.00 | 100 | 100 | 2.00 | 1000 |"),
            "{text}"
        );
        assert!(
            text.contains("2.00 of the MB/s, 0.50 of the CPU s/GB, 0.10 of the RSS"),
            "{text}"
        );
    }
}
