//! `penstock config`: the effective configuration on standard output, remarks about it on standard error.

use super::say;
use crate::config::layers::AsWritten;
use crate::config::report::{as_table, report};
use crate::config::resolve::Resolved;
use crate::exit::{Failure, Status};

pub(super) fn print(written: &AsWritten, resolved: &Resolved, json: bool) -> Result<(), Failure> {
    let report = report(written, &resolved.settings);
    if json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| {
            Failure::new(
                Status::Software,
                format!("the report cannot be written as JSON: {e}"),
            )
        })?;
        say(&text);
        say("\n");
    } else {
        say(&as_table(&report));
    }
    resolved.remarks.log();
    Ok(())
}
