//! What `topic` and `group` share: the options that say which cluster, output for people or for scripts, progress, the
//! question before something is deleted.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::say;
use super::table::{Column, named, table};
use crate::client::{Address, Client, ClientError, Kind, clean};
use crate::exit::{Failure, Status};

/// Exit codes of both commands, below their `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes (sysexits):
  0   done
  64  wrong command line, or not `yes` to the question
  65  no such topic, partition or group, or the broker refuses what was asked
  69  no broker can be reached
  75  may succeed later: the group has members, or --timeout is over
  76  what answers is no Kafka broker
  77  the cluster does not allow it";

/// The longest `--timeout`: a day, seconds.
const TIMEOUT_MAX_S: i64 = 86_400;

/// Which cluster, how long, how it is said.
#[derive(Clone, Debug, Args)]
pub(super) struct Remote {
    /// A broker to begin with, or several with commas between
    #[arg(
        short,
        long,
        visible_alias = "bootstrap-server",
        global = true,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9092"
    )]
    bootstrap: String,
    /// Seconds within which everything has to be done
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = seconds, allow_negative_numbers = true)]
    timeout: u64,
    /// As JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
}

impl Remote {
    /// A client of the cluster. Connects later.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let seeds: Option<Vec<Address>> = self
            .bootstrap
            .split(',')
            .map(|a| Address::parse(a.trim()))
            .collect();
        let seeds = seeds.ok_or_else(|| {
            Failure::new(
                Status::Usage,
                format!(
                    "--bootstrap {}: write HOST:PORT, or several with commas between",
                    clean(&self.bootstrap)
                ),
            )
        })?;
        Ok(Client::new(seeds, Duration::from_secs(self.timeout), note))
    }

    /// Says the outcome on standard output.
    pub(super) fn print(&self, report: &Report) {
        if self.json {
            say(&format!("{:#}\n", report.json));
        } else {
            say(&report.text);
        }
    }

    /// Says all that is known of several things asked one after the other, and fails with what of them failed.
    ///
    /// # Errors
    /// As [`all_done`].
    pub(super) fn print_each(
        &self,
        parts: impl IntoIterator<Item = Result<Report, ClientError>>,
    ) -> Result<(), Failure> {
        let (found, failures) = Report::of_all(parts);
        let count = found.json.as_array().map_or(0, Vec::len);
        if !is_in_vain(count, failures.first()) {
            self.print(&found);
        }
        all_done(failures.into_iter().map(Err))
    }

    /// Says which of several things were done, and fails with what failed, the ignored code apart.
    ///
    /// # Errors
    /// As [`all_done`].
    pub(super) fn print_done(
        &self,
        verb: &str,
        outcomes: Vec<(impl AsRef<str>, Result<(), ClientError>)>,
        ignored: Option<protocol::ErrorCode>,
    ) -> Result<(), Failure> {
        let succeeded = outcomes.iter().filter(|(_, outcome)| outcome.is_ok());
        let names: Vec<&str> = succeeded.map(|(name, _)| name.as_ref()).collect();
        let first = outcomes.iter().find_map(|(_, outcome)| outcome.as_ref().err());
        if !is_in_vain(names.len(), first) {
            self.print(&Report::done(verb, &names));
        }
        let is_ignored = |error: &ClientError| ignored.is_some_and(|code| error.kind == Kind::Answer(code));
        all_done(outcomes.into_iter().map(|(_, outcome)| match outcome {
            Err(error) if is_ignored(&error) => Ok(()),
            outcome => outcome,
        }))
    }
}

/// What a command says, in both forms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    /// For people.
    pub(super) text: String,
    /// For scripts.
    pub(super) json: Value,
}

impl Report {
    /// Several as one, an empty line between, an array for scripts; and the failures. What comes after a failure that is not about
    /// one of them alone is not asked for.
    fn of_all(parts: impl IntoIterator<Item = Result<Self, ClientError>>) -> (Self, Vec<ClientError>) {
        let (mut texts, mut json, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match part {
                Ok(part) => {
                    texts.push(part.text);
                    json.push(part.json);
                }
                Err(error) => {
                    let goes_on = concerns_one(&error);
                    failures.push(error);
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        let found = Self {
            text: texts.join("\n"),
            json: json.into(),
        };
        (found, failures)
    }

    /// A table, and an array for scripts.
    pub(super) fn listing<const N: usize>(
        columns: [Column; N],
        rows: impl IntoIterator<Item = ([String; N], Value)>,
    ) -> Self {
        let (cells, json): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        Self {
            text: table(columns, cells),
            json: json.into(),
        }
    }

    /// What was done, to these: `deleted orders`.
    pub(super) fn done(verb: &str, names: &[&str]) -> Self {
        let line = |name: &&str| format!("{verb} {}\n", named(name));
        Self {
            text: names.iter().map(line).collect(),
            json: json!({ verb: names }),
        }
    }
}

/// Whether it is about one of several things, not about the way to the cluster.
fn concerns_one(error: &ClientError) -> bool {
    matches!(error.kind, Kind::Answer(_) | Kind::Impossible | Kind::Busy)
}

/// Whether the cluster has not been reached before anything was found or done: an empty list would look like its answer.
fn is_in_vain(count: usize, first: Option<&ClientError>) -> bool {
    count == 0 && first.is_some_and(|error| !concerns_one(error))
}

/// A line on standard error: progress, remarks.
pub(super) fn note(sentence: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr().lock(), "penstock: {}", clean(sentence));
}

/// Asks before something is deleted. Without a terminal `--yes` has to be given.
pub(super) fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            Status::Usage,
            format!("{what}: nobody can be asked here; say --yes"),
        ));
    }
    let _ = write!(io::stderr().lock(), "{what}? Type yes to go on: ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    if answer.trim() == "yes" {
        Ok(())
    } else {
        Err(Failure::new(Status::Usage, format!("{what}: not done")))
    }
}

/// The outcomes of several things as one: what failed, in one sentence, with the status of the first.
pub(super) fn all_done(outcomes: impl IntoIterator<Item = Result<(), ClientError>>) -> Result<(), Failure> {
    let failures: Vec<Failure> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(Failure::from)
        .collect();
    let Some(first) = failures.first() else {
        return Ok(());
    };
    let sentences: Vec<&str> = failures.iter().map(|f| f.sentence.as_str()).collect();
    Err(Failure::new(first.status, sentences.join("\npenstock: ")))
}

/// Reads how many there shall be, at least one. Flags that take one allow negative numbers: clap would say to write `--` in
/// front of them.
pub(super) fn count<N: TryFrom<i64>>(text: &str, max: i64) -> Result<N, String> {
    let read = text.parse().ok().filter(|number| (1..=max).contains(number));
    read.and_then(|number: i64| number.try_into().ok())
        .ok_or_else(|| format!("write a whole number from 1 to {max}"))
}

/// Reads `--timeout`.
fn seconds(text: &str) -> Result<u64, String> {
    count(text, TIMEOUT_MAX_S)
}

/// Reads `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_may_have_an_equals_sign_in_the_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }

    fn report(n: i32) -> Result<Report, ClientError> {
        Ok(Report {
            text: format!("{n}\n"),
            json: n.into(),
        })
    }

    #[test]
    fn several_reports_have_an_empty_line_between_and_are_an_array() {
        let (all, failures) = Report::of_all([report(1), report(2)]);
        assert_eq!(
            (all.text.as_str(), all.json),
            ("1\n\n2\n", Value::from(vec![1, 2]))
        );
        assert_eq!(failures, []);
    }

    #[test]
    fn what_is_found_is_shown_beside_what_is_missing() {
        let missing = || ClientError::answer("x", protocol::ErrorCode::GROUP_ID_NOT_FOUND, None);
        let (found, failures) = Report::of_all([Err(missing()), report(1), Err(missing()), report(2)]);
        assert_eq!(
            (found.text.as_str(), found.json),
            ("1\n\n2\n", Value::from(vec![1, 2]))
        );
        assert_eq!(failures.len(), 2);
        // A script gets an array also when it is empty.
        let (found, _) = Report::of_all([Err(missing())]);
        assert_eq!(
            (found.text.as_str(), found.json.to_string()),
            ("", "[]".to_owned())
        );
        // A broker that is not there is waited for once.
        let gone = ClientError::new(Kind::Unreachable, "gone");
        let (found, failures) = Report::of_all([report(1), Err(gone.clone()), report(2)]);
        assert_eq!((found.json, failures), (Value::from(vec![1]), vec![gone]));
    }

    #[test]
    fn an_empty_list_is_an_answer_of_the_cluster_only() {
        let missing = ClientError::answer("x", protocol::ErrorCode::GROUP_ID_NOT_FOUND, None);
        let gone = ClientError::new(Kind::Unreachable, "gone");
        assert!(is_in_vain(0, Some(&gone)));
        assert!(!is_in_vain(1, Some(&gone)));
        assert!(!is_in_vain(0, Some(&missing)));
        assert!(!is_in_vain(0, None));
    }

    #[test]
    fn numbers_that_are_no_counts_are_refused_with_what_is_one() {
        assert_eq!(count("12", 12), Ok(12_i16));
        assert_eq!(seconds("86400"), Ok(86_400));
        for text in ["-3", "0", "x", "1.5", "", "86401"] {
            let sentence = seconds(text).unwrap_err();
            assert_eq!(sentence, "write a whole number from 1 to 86400", "{text}");
        }
    }

    #[test]
    fn an_empty_name_among_what_was_done_can_be_seen() {
        let report = Report::done("deleted", &["readers", ""]);
        assert_eq!(report.text, "deleted readers\ndeleted \"\"\n");
        assert_eq!(report.json, json!({"deleted": ["readers", ""]}));
    }

    #[test]
    fn several_failures_are_told_together_with_the_status_of_the_first() {
        let error = |text: &str| Err(ClientError::new(Kind::Impossible, text));
        let failure = all_done([Ok(()), error("one"), error("two")]).unwrap_err();
        assert_eq!(
            (failure.status, failure.sentence.as_str()),
            (Status::Data, "one\npenstock: two")
        );
        assert_eq!(all_done([Ok(())]), Ok(()));
    }
}
