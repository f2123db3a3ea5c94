//! `penstock.moved` in a log's directory: the log was copied here from another log directory, and all of it is here. It also
//! says where the log starts, which the segments do not tell, until a checkpoint of this directory does. Text:
//!
//! ```text
//! version: 0
//! log_start: 4711
//! log_end: 815000
//! ```

use std::path::Path;

use crate::checkpoint::{CheckpointError, TextError, load_text};
use crate::disk::Disk;
use crate::types::Offset;

/// The file's name.
pub const FILE: &str = "penstock.moved";

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Where the log started when it was copied.
    pub start: Offset,
    /// Where it ended.
    pub end: Offset,
}

impl Marker {
    /// The text of the file.
    #[must_use]
    pub fn format(self) -> String {
        format!(
            "version: 0\nlog_start: {}\nlog_end: {}\n",
            self.start.0, self.end.0
        )
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut lines = (1..).zip(text.lines());
        let mut value = |key: &str| {
            let (line, text) = lines.next().unwrap_or((0, ""));
            let value = text.strip_prefix(key).and_then(|rest| rest.strip_prefix(": "));
            let value = value.and_then(|value| value.parse::<i64>().ok());
            value.filter(|value| *value >= 0).ok_or_else(|| {
                TextError::new(line, format!("{text:?} where {key} and a number are expected"))
            })
        };
        let version = value("version")?;
        if version != 0 {
            return Err(TextError::new(
                1,
                format!("version {version} is unknown, known is 0"),
            ));
        }
        let (start, end) = (Offset(value("log_start")?), Offset(value("log_end")?));
        if start > end {
            return Err(TextError::new(
                2,
                format!("the log starts at {start} and ends at {end}"),
            ));
        }
        Ok(Self { start, end })
    }

    /// Reads the file in a log's directory; `None` when there is none.
    ///
    /// # Errors
    /// [`CheckpointError`] with file and line.
    pub async fn load<D: Disk>(disk: &D, dir: &Path) -> Result<Option<Self>, CheckpointError> {
        load_text(disk, &dir.join(FILE), Self::parse).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let marker = Marker {
            start: Offset(4711),
            end: Offset(815_000),
        };
        assert_eq!(Marker::parse(&marker.format()).expect("ours"), marker);
        for wrong in [
            "",
            "version: 0\n",
            "version: 1\nlog_start: 0\nlog_end: 0\n",
            "version: 0\nlog_start: 5\nlog_end: 4\n",
            "version: 0\nlog_start: -1\nlog_end: 4\n",
            "version: 0\nlog_end: 4\nlog_start: 1\n",
            "version: 0\nlog_start: 1\nlog_end: 99999999999999999999\n",
        ] {
            assert!(Marker::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
