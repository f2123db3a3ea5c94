//! The group cases as a table for a person: a row for each client, a column for each case, and below it what is absent and why.

use std::fmt::Write as _;

use super::{CaseOutcome, GroupRuns, ROWS};

/// Columns, in the order a person asks for them.
const COLUMNS: [&str; 11] = [
    "join",
    "add",
    "leave",
    "kill",
    "cooperative",
    "static",
    "commit",
    "auto-commit",
    "seek-pause",
    "reset",
    "own-producer",
];

/// A Markdown table with notes and totals.
pub fn group_markdown(runs: &GroupRuns) -> String {
    let mut out = format!("| client | version | {} |\n", COLUMNS.join(" | "));
    let _ = writeln!(out, "|{}", " --- |".repeat(COLUMNS.len() + 2));
    let mut notes = Vec::new();
    for row in &ROWS {
        if let Some(skipped) = runs.skipped.iter().find(|one| one.client == row.client) {
            let word = if skipped.unavailable { "SKIPPED" } else { "FAILED" };
            let _ = writeln!(
                out,
                "| {} | {word}: {} |{}",
                row.name,
                clean(&skipped.why),
                " |".repeat(COLUMNS.len())
            );
            continue;
        }
        let of_row: Vec<_> = runs.results.iter().filter(|one| one.row == row.name).collect();
        if of_row.is_empty() {
            continue;
        }
        let version = of_row
            .iter()
            .find_map(|one| one.version.as_deref())
            .unwrap_or("?");
        let _ = write!(out, "| {} | {version} |", row.name);
        for column in COLUMNS {
            let Some(result) = of_row.iter().find(|one| one.case == column) else {
                out.push_str(" |");
                continue;
            };
            let (word, note) = match &result.outcome {
                CaseOutcome::Ok(note) => ("ok", note.as_deref()),
                CaseOutcome::Absent(why) => ("absent", Some(why.as_str())),
                CaseOutcome::Failed(why) => ("FAILED", Some(why.as_str())),
            };
            let _ = write!(out, " {word} |");
            // What only one client has is no gap of the others.
            if let Some(note) = note.filter(|_| word != "absent" || column != "own-producer") {
                notes.push(format!("- {} {column}: {word}, {}", row.name, clean(note)));
            }
        }
        out.push('\n');
    }
    let count = |is: fn(&CaseOutcome) -> bool| runs.results.iter().filter(|one| is(&one.outcome)).count();
    let (ok, absent) = (
        count(|one| matches!(one, CaseOutcome::Ok(_))),
        count(|one| matches!(one, CaseOutcome::Absent(_))),
    );
    let total = runs.results.len();
    let _ = writeln!(
        out,
        "\n{ok} of {} cases green, {absent} absent, {} clients skipped",
        total - absent,
        runs.skipped.len()
    );
    if !notes.is_empty() {
        let _ = writeln!(out, "\n{}", notes.join("\n"));
    }
    out
}

/// One line without the mark that ends a cell.
fn clean(text: &str) -> String {
    text.replace('|', "/").replace('\n', " ")
}

/// Everything that did not go well, a sentence each; skipped clients too when `require_all`.
pub fn group_failures(runs: &GroupRuns, require_all: bool) -> Vec<String> {
    let skipped = runs.skipped.iter().filter(|one| !one.unavailable || require_all);
    let mut out: Vec<_> = skipped
        .map(|one| format!("{}: {}", one.client, one.why))
        .collect();
    for result in &runs.results {
        if let CaseOutcome::Failed(why) = &result.outcome {
            out.push(format!("{} {}: {why}", result.row, result.case));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{GroupResult, RowSkipped};
    use super::*;

    fn runs() -> GroupRuns {
        let result = |case, outcome| GroupResult {
            row: "java-client",
            case,
            version: Some("1".into()),
            outcome,
            seconds: 1.0,
        };
        GroupRuns {
            results: vec![
                result("join", CaseOutcome::Ok(None)),
                result("kill", CaseOutcome::Failed("lost | records".into())),
                result("static", CaseOutcome::Absent("no names".into())),
            ],
            skipped: vec![RowSkipped {
                client: "franz-go",
                unavailable: true,
                why: "no Go".into(),
            }],
        }
    }

    #[test]
    fn a_row_for_a_client_and_a_note_for_what_is_absent() {
        let table = group_markdown(&runs());
        assert!(
            table.contains("| java-client | 1 | ok | | | FAILED | | absent | | | | | |"),
            "{table}"
        );
        assert!(
            table.contains("1 of 2 cases green, 1 absent, 1 clients skipped"),
            "{table}"
        );
        assert!(
            table.contains("- java-client static: absent, no names"),
            "{table}"
        );
        assert!(
            table.contains("- java-client kill: FAILED, lost / records"),
            "{table}"
        );
    }

    #[test]
    fn absent_is_no_failure_and_skipped_only_where_all_are_required() {
        assert_eq!(
            group_failures(&runs(), false),
            ["java-client kill: lost | records"]
        );
        assert_eq!(group_failures(&runs(), true).len(), 2);
    }
}
