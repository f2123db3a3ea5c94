//! The one error of the bench programs: a sentence for the person who runs them, with the system's reason where there is one.

use std::fmt::Display;

/// Why a bench program could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried, with the path or address.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program that was run, or a broker, did something else than was asked.
    #[error("{0}")]
    Failed(String),
}

/// Results of the bench programs.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what was tried when an I/O operation fails.
pub trait Doing<T> {
    /// Adds what was tried to an I/O error.
    ///
    /// # Errors
    /// The error itself, with the words added.
    fn doing(self, what: impl Display) -> Result<T>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.map_err(|source| Error::Io {
            doing: what.to_string(),
            source,
        })
    }
}

/// Ends a program: what failed goes to standard error.
pub fn end(outcome: Result<()>) -> std::process::ExitCode {
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// An [`Error::Failed`] with these words.
pub fn failed<T>(words: impl Into<String>) -> Result<T> {
    Err(Error::Failed(words.into()))
}
