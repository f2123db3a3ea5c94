//! What `topic` and `group` share: the options that say which cluster, output for people or for scripts, progress, the
//! question before something is deleted.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::say;
use crate::client::{Address, Client, ClientError, clean};
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
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
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
    /// Several as one: an empty line between, an array for scripts.
    pub(super) fn of_all<E>(parts: impl IntoIterator<Item = Result<Self, E>>) -> Result<Self, E> {
        let (mut texts, mut json) = (Vec::new(), Vec::new());
        for part in parts {
            let part = part?;
            texts.push(part.text);
            json.push(part.json);
        }
        Ok(Self {
            text: texts.join("\n"),
            json: json.into(),
        })
    }
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
    use crate::client::Kind;

    #[test]
    fn pairs_may_have_an_equals_sign_in_the_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }

    #[test]
    fn several_reports_have_an_empty_line_between_and_are_an_array() {
        let report = |n: i32| {
            Ok(Report {
                text: format!("{n}\n"),
                json: n.into(),
            })
        };
        let all = Report::of_all([report(1), report(2)]).and_then(|all| {
            assert_eq!(
                (all.text.as_str(), all.json),
                ("1\n\n2\n", Value::from(vec![1, 2]))
            );
            Report::of_all([report(1), Err("gone")])
        });
        assert_eq!(all, Err("gone"));
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
