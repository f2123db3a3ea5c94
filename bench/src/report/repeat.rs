//! How a report's figures are repeated, by the command line and the commit, and where they are kept.

use std::path::Path;
use std::process::Command;

use crate::error::{Doing, Result};

/// The command line of this run of the program `name`, with the folder's place left out.
pub fn command(name: &str) -> String {
    let mut words = vec![format!("cargo run --release -p bench --bin {name} --")];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--dir" {
            arguments.next();
            words.push("--dir DIR".to_owned());
        } else if argument.starts_with("--dir=") {
            words.push("--dir DIR".to_owned());
        } else {
            words.push(argument);
        }
    }
    words.join(" ")
}

/// The commit that was measured, with a mark when files differ from it.
pub fn commit() -> String {
    if std::env::var_os("PENSTOCK_BIN").is_some() {
        return "unknown (the binary that PENSTOCK_BIN names)".to_owned();
    }
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude", "*"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match output {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Keeps a report as `bench/results/<name>`.
///
/// # Errors
/// It cannot be written.
pub fn write_result(name: &str, text: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name);
    std::fs::write(&path, text).doing(path.display())
}
