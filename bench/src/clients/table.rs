//! The matrix as a table for a person: one row for each client and codec, the three levels of acks beside each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Case, ClientRun, Outcome};

/// A Markdown table of all cases with the totals below it.
pub fn markdown(runs: &[ClientRun]) -> String {
    let mut out =
        String::from("| client | version | codec | acks=0 | acks=1 | acks=all | records | seconds |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- | ---: | ---: |\n");
    let (mut green, mut total, mut skipped) = (0, 0, 0);
    for run in runs {
        let (cases, note) = match &run.outcome {
            Outcome::Ran(cases) => (cases.as_slice(), None),
            Outcome::Skipped(why) => (&[][..], Some(format!("SKIPPED: {why}"))),
            Outcome::Failed(why, cases) => (cases.as_slice(), Some(format!("FAILED: {why}"))),
        };
        green += cases.iter().filter(|case| case.ok).count();
        total += cases.len();
        skipped += usize::from(matches!(run.outcome, Outcome::Skipped(_)));
        rows(cases, &mut out);
        if let Some(note) = note {
            let _ = writeln!(out, "| {} | {} | | | | | | |", run.client, note.replace('|', "/"));
        }
    }
    let _ = writeln!(out, "\n{green} of {total} cases green, {skipped} clients skipped");
    out
}

/// Client, version and codec of a row, and its cases by acks.
type Row<'a> = ((&'a str, &'a str, &'a str), BTreeMap<&'a str, &'a Case>);

fn rows(cases: &[Case], out: &mut String) {
    let mut by_codec: Vec<Row<'_>> = Vec::new();
    for case in cases {
        let name = (case.client.as_str(), case.version.as_str(), case.codec.as_str());
        match by_codec.iter_mut().find(|(known, _)| *known == name) {
            Some((_, acks)) => {
                acks.insert(&case.acks, case);
            }
            None => by_codec.push((name, BTreeMap::from([(case.acks.as_str(), case)]))),
        }
    }
    for ((client, version, codec), acks) in by_codec {
        let cell = |level: &str| match acks.get(level) {
            None => "-",
            Some(case) if case.ok => "ok",
            Some(_) => "FAILED",
        };
        let records: u64 = acks.values().map(|case| case.read).sum();
        let seconds: f64 = acks.values().map(|case| case.seconds).sum();
        let (zero, one, all) = (cell("0"), cell("1"), cell("all"));
        let _ = writeln!(
            out,
            "| {client} | {version} | {codec} | {zero} | {one} | {all} | {records} | {seconds:.1} |"
        );
    }
}

/// Everything that did not go well, a sentence each; skipped clients too when `require_all`.
pub fn failures(runs: &[ClientRun], require_all: bool) -> Vec<String> {
    let mut out = Vec::new();
    for run in runs {
        let cases = match &run.outcome {
            Outcome::Ran(cases) => cases.as_slice(),
            Outcome::Skipped(why) => {
                if require_all {
                    out.push(format!("{} is missing: {why}", run.client));
                }
                continue;
            }
            Outcome::Failed(why, cases) => {
                out.push(format!("{}: {why}", run.client));
                cases.as_slice()
            }
        };
        for case in cases.iter().filter(|case| !case.ok) {
            let why = case.error.as_deref().unwrap_or("no reason given");
            out.push(format!(
                "{} {} acks={}: {why}",
                case.client, case.codec, case.acks
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(acks: &str, ok: bool) -> Case {
        Case {
            client: "c".into(),
            version: "1".into(),
            codec: "gzip".into(),
            acks: acks.into(),
            produced: 10,
            read: 10,
            ok,
            error: (!ok).then(|| "broken".into()),
            seconds: 0.5,
        }
    }

    #[test]
    fn one_row_for_a_codec() {
        let cases = vec![case("0", true), case("1", false), case("all", true)];
        let table = markdown(&[ClientRun {
            client: "c",
            outcome: Outcome::Ran(cases),
        }]);
        assert!(
            table.contains("| c | 1 | gzip | ok | FAILED | ok | 30 | 1.5 |"),
            "{table}"
        );
        assert!(
            table.ends_with("2 of 3 cases green, 0 clients skipped\n"),
            "{table}"
        );
    }

    #[test]
    fn skipped_counts_as_failed_only_where_all_are_required() {
        let runs = [
            ClientRun {
                client: "a",
                outcome: Outcome::Skipped("no Go".into()),
            },
            ClientRun {
                client: "c",
                outcome: Outcome::Ran(vec![case("1", false)]),
            },
        ];
        assert_eq!(failures(&runs, false), ["c gzip acks=1: broken"]);
        assert_eq!(
            failures(&runs, true),
            ["a is missing: no Go", "c gzip acks=1: broken"]
        );
    }
}
