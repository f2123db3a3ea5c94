//! The results of a comparison for people and programs: JSON, Markdown, and a page with plots that needs nothing else.

mod html;
mod markdown;

pub use html::html;
pub use markdown::markdown;

use super::outcome::Outcome;

/// The results as JSON, one object.
pub fn json(outcome: &Outcome) -> String {
    let mut text = serde_json::to_string_pretty(outcome).expect("an outcome has string keys only");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
