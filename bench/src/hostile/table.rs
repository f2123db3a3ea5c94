//! What Apache Kafka 4.3.1 did with each input, recorded in `bench/hostile/expected.txt`, and the table of both brokers.

use std::fmt::Write as _;

use super::Trial;
use crate::error::{Result, failed};

/// A recorded line: what Kafka did, and where ours is meant to differ what it does instead and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Name of the input.
    pub input: String,
    /// What Kafka did.
    pub kafka: String,
    /// What ours does on purpose, with the reason.
    pub ours: Option<(String, String)>,
}

/// Reads the recorded answers: lines `input | Kafka` or `input | Kafka | ours | reason`; `#` begins a comment.
///
/// # Errors
/// A line has another number of fields.
pub fn expected(text: &str) -> Result<Vec<Expected>> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let fields: Vec<_> = line.split('|').map(|field| field.trim().to_owned()).collect();
        match <[String; 2]>::try_from(fields.clone()) {
            Ok([input, kafka]) => Ok(Expected {
                input,
                kafka,
                ours: None,
            }),
            Err(_) => match <[String; 4]>::try_from(fields) {
                Ok([input, kafka, ours, reason]) => Ok(Expected {
                    input,
                    kafka,
                    ours: Some((ours, reason)),
                }),
                Err(_) => failed(format!("neither two nor four fields: {line}")),
            },
        }
    });
    parsed.collect()
}

impl Expected {
    /// Whether this is what ours may do.
    pub fn allows(&self, did: &str) -> bool {
        self.ours.as_ref().map_or(self.kafka.as_str(), |(ours, _)| ours) == did
    }
}

/// A line for each answer that is neither Kafka's nor one that we decided on.
pub fn judge(recorded: &[Expected], trial: &Trial) -> Vec<String> {
    let wrong = trial.rows.iter().filter_map(|row| {
        let line = recorded.iter().find(|line| line.input == row.input);
        match line {
            None => Some(format!("{}: {}, not recorded", row.input, row.did)),
            Some(line) if !line.allows(&row.did) => {
                Some(format!("{}: {}, Kafka: {}", row.input, row.did, line.kafka))
            }
            Some(_) => None,
        }
    });
    wrong.collect()
}

/// The Markdown table input, Kafka, ours; inputs that are not recorded have an empty cell.
pub fn markdown(recorded: &[Expected], trial: &Trial, name: &str) -> String {
    let mut out = format!("| input | Apache Kafka 4.3.1 | {name} | RSS, MB |\n| --- | --- | --- | ---: |\n");
    for row in &trial.rows {
        let line = recorded.iter().find(|line| line.input == row.input);
        let kafka = line.map_or("", |line| line.kafka.as_str());
        let note = line
            .and_then(|line| line.ours.as_ref())
            .map_or_else(String::new, |(_, why)| format!(" ({why})"));
        let _ = writeln!(
            out,
            "| {} | {kafka} | {}{note} | {:+} |",
            row.input, row.did, row.grown_megabytes
        );
    }
    let [before, after, most] = trial.resident_megabytes;
    let seen = &trial.seen;
    let _ = writeln!(
        out,
        "\nResident memory of {name}: {before} MB before, {after} MB after, {most} MB at most. A well-behaved client meanwhile: \
         {} rounds of produce and fetch, {} failed{}, the longest {:.0} ms.",
        seen.rounds,
        seen.failures,
        seen.first_failure
            .as_ref()
            .map_or_else(String::new, |why| format!(" ({why})")),
        seen.longest.as_secs_f64() * 1e3,
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_lines_are_read() {
        let lines = expected("# a comment\na thing | closed\nother | silent | closed | we do not wait\n")
            .expect("well-formed");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].allows("closed") && !lines[0].allows("silent"));
        assert!(lines[1].allows("closed") && !lines[1].allows("silent"));
        assert!(expected("only one field").is_err());
    }
}
