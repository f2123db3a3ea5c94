//! The results of a run for people and programs: JSON, Markdown, and a page with plots that needs nothing else.

mod html;
mod markdown;
mod svg;

pub use html::html;
pub(crate) use html::{page, tables};
pub use markdown::markdown;
#[cfg(test)]
pub(crate) use svg::is_well_formed as check_well_formed;
pub(crate) use svg::{Line, Plot, Scale};

use super::outcome::Outcome;

/// The results as JSON, one object.
pub fn json(outcome: &Outcome) -> String {
    let mut text = serde_json::to_string_pretty(outcome).expect("an outcome has string keys only");
    text.push('\n');
    text
}
