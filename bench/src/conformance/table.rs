//! The cases as a table: what Kafka answered, what we answered, equal or why not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Case;
use super::golden::{Golden, Verdict, judge};
use super::uncovered::UNCOVERED;

/// Longest summary of a transcript, characters.
const SUMMARY_CHARS_MAX: usize = 110;

/// Markdown of all cases that were run.
pub fn markdown(
    cases: &[Case],
    kafka: &Golden,
    ours: &Golden,
    transcripts: &BTreeMap<&'static str, String>,
) -> String {
    let mut rows = String::new();
    let mut counts = [0usize; 3];
    for case in cases {
        let Some(transcript) = transcripts.get(case.name) else {
            continue;
        };
        let theirs = summary(kafka.get(case.name).unwrap_or_default());
        let (column, said) = match judge(case, kafka, ours, transcript) {
            Verdict::Equal => (0, "equal".to_owned()),
            Verdict::Differs(reason) => (1, format!("differs: {reason}")),
            Verdict::Wrong => (2, "DIFFERS WITHOUT A REASON".to_owned()),
            Verdict::ReasonOutdated => (2, "EQUAL, the reason is outdated".to_owned()),
            Verdict::Unrecorded => (2, "KAFKA NOT RECORDED".to_owned()),
        };
        counts[column] += 1;
        let our_summary = if column == 0 {
            "same".to_owned()
        } else {
            summary(transcript)
        };
        let name = case.name.replace('|', "\\|");
        let _ = writeln!(rows, "| {name} | {theirs} | {our_summary} | {said} |");
    }
    let without = UNCOVERED
        .iter()
        .map(|(number, why)| format!("| {number} | {why} |\n"));
    let without: String = without.collect();
    format!(
        "# The same requests to Apache Kafka 4.3.1 and to Penstock\n\n\
         Written by `cargo run -p bench --bin conformance -- --table`. Each case is a sequence of requests; the whole transcripts \
         are in `bench/tests/conformance/`. The columns show the error codes in the order in which they came.\n\n\
         {} cases: {} equal, {} differ for a written reason, {} wrong. What has no case is listed below the table.\n\n\
         | case | Kafka | Penstock | |\n|---|---|---|---|\n{rows}\n\
         ## Numbers without a case of their own, and why\n\n\
         | number | why |\n|---|---|\n{without}",
        counts.iter().sum::<usize>(),
        counts[0],
        counts[1],
        counts[2]
    )
}

/// The error codes of a transcript with how often each came in a row, closed connections, and whatever ended it early.
fn summary(transcript: &str) -> String {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    let mut add = |word| match seen.last_mut() {
        Some((last, count)) if *last == word => *count += 1,
        _ => seen.push((word, 1)),
    };
    for line in transcript.lines() {
        if line == "< closed" {
            add("closed");
        }
        if line.starts_with("! ") {
            add("STOPPED");
        }
        for part in line.split("error_code: ").skip(1) {
            add(part.split([',', '}']).next().unwrap_or_default());
        }
    }
    let words = seen.iter().map(|(word, count)| match count {
        1 => (*word).to_owned(),
        _ => format!("{word} ×{count}"),
    });
    let mut text = words.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        text = format!("{} lines", transcript.lines().count());
    }
    if text.chars().count() > SUMMARY_CHARS_MAX {
        text = text.chars().take(SUMMARY_CHARS_MAX - 1).collect();
        text.push('…');
    }
    text
}
