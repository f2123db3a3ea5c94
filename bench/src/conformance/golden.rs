//! The committed transcripts: Kafka's for every case, ours where a case differs on purpose. One file per area (the letters of
//! the case numbers), cases in order, each under a line with its name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Case;
use crate::error::{Doing, Result, failed};

/// What stands before a case's name.
const HEAD: &str = "=== ";

/// Transcripts by case name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Golden {
    cases: BTreeMap<String, String>,
}

/// How a case came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As Kafka.
    Equal,
    /// Not as Kafka, for the case's reason, and as committed.
    Differs(&'static str),
    /// Not as Kafka, and nobody said why; or not as the committed difference.
    Wrong,
    /// As Kafka, though the case gives a reason why it is not.
    ReasonOutdated,
    /// Kafka's answer was never recorded.
    Unrecorded,
}

impl Verdict {
    /// Whether it is as it should be.
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Equal | Self::Differs(_))
    }
}

impl Golden {
    /// Reads all files of a folder; none if it does not exist.
    ///
    /// # Errors
    /// A file cannot be read or has text before the first case.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut golden = Self::default();
        let Ok(files) = std::fs::read_dir(folder) else {
            return Ok(golden);
        };
        for file in files {
            let path = file.doing(folder.display())?.path();
            let text = std::fs::read_to_string(&path).doing(path.display())?;
            let mut parts = text.split(HEAD);
            if parts.next().is_some_and(|before| !before.is_empty()) {
                return failed(format!("{} does not begin with a case", path.display()));
            }
            for part in parts {
                let (name, transcript) = part.split_once('\n').unwrap_or((part, ""));
                golden.cases.insert(name.to_owned(), transcript.to_owned());
            }
        }
        Ok(golden)
    }

    /// The transcript of a case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.cases.get(name).map(String::as_str)
    }

    /// Puts a case's transcript in.
    pub fn set(&mut self, name: &str, transcript: &str) {
        self.cases.insert(name.to_owned(), transcript.to_owned());
    }

    /// Drops what none of these cases wrote.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.cases.retain(|name, _| keep(name));
    }

    /// Writes all files anew.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).doing(folder.display())?;
        let mut files = BTreeMap::<String, Vec<(&String, &String)>>::new();
        for (name, transcript) in &self.cases {
            files.entry(file_of(name)).or_default().push((name, transcript));
        }
        for old in std::fs::read_dir(folder).doing(folder.display())? {
            let path: PathBuf = old.doing(folder.display())?.path();
            std::fs::remove_file(&path).doing(path.display())?;
        }
        for (file, mut cases) in files {
            cases.sort_by_key(|(name, _)| order_of(name));
            let text: String = cases
                .iter()
                .map(|(name, transcript)| format!("{HEAD}{name}\n{transcript}"))
                .collect();
            let path = folder.join(file);
            std::fs::write(&path, text).doing(path.display())?;
        }
        Ok(())
    }
}

/// The letters of a case's number name its file.
fn file_of(name: &str) -> String {
    let letters: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
    format!("{}.txt", letters.to_lowercase())
}

/// Cases in the order of their numbers.
fn order_of(name: &str) -> (u32, &str) {
    let digits: String = name
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    (digits.parse().unwrap_or(u32::MAX), name)
}

/// Compares our transcript of a case with Kafka's, and with our committed one where the case differs.
pub fn judge(case: &Case, kafka: &Golden, ours: &Golden, transcript: &str) -> Verdict {
    match (kafka.get(case.name), case.differs) {
        (None, _) => Verdict::Unrecorded,
        (Some(golden), None) if is_same(golden, transcript) => Verdict::Equal,
        (Some(_), None) => Verdict::Wrong,
        (Some(golden), Some(_)) if is_same(golden, transcript) => Verdict::ReasonOutdated,
        (Some(_), Some(reason)) if ours.get(case.name) == Some(transcript) => Verdict::Differs(reason),
        (Some(_), Some(_)) => Verdict::Wrong,
    }
}

/// Equal, but that an error may carry a text where Kafka has none. The words have the same width (render.rs).
fn is_same(golden: &str, ours: &str) -> bool {
    const FIELD: &str = "error_message: ";
    const TEXT: &str = "TEXT";
    if golden.len() != ours.len() {
        return false;
    }
    let (mut golden, mut ours) = (golden, ours);
    while golden != ours {
        let Some(at) = golden.find(FIELD) else {
            return false;
        };
        let at = at + FIELD.len();
        let (Some(before), Some(our_before)) = (golden.get(..at), ours.get(..at)) else {
            return false;
        };
        let (Some(word), Some(our_word)) = (golden.get(at..at + TEXT.len()), ours.get(at..at + TEXT.len()))
        else {
            return false;
        };
        let may_differ = our_word == TEXT && matches!(word, "null" | "VOID");
        if before != our_before || (word != our_word && !may_differ) {
            return false;
        }
        (golden, ours) = (&golden[at + TEXT.len()..], &ours[at + TEXT.len()..]);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_stand_where_kafka_has_none_and_not_the_other_way() {
        let line =
            |code: &str, word: &str| format!("{{error_code: {code}, error_message: {word}, port: 1}}\nend\n");
        assert!(is_same(&line("A", "null"), &line("A", "null")));
        assert!(is_same(&line("A", "null"), &line("A", "TEXT")));
        assert!(is_same(&line("A", "VOID"), &line("A", "TEXT")));
        assert!(!is_same(&line("A", "TEXT"), &line("A", "null")));
        assert!(!is_same(&line("A", "null"), &line("B", "TEXT")));
        assert!(!is_same("a", "b"));
    }
}
