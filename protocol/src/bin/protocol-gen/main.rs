//! Writes `protocol/src/messages/*.rs` from `protocol/schema/**/*.msg`. Run it after a change of the schema:
//! `cargo run -p protocol --bin protocol-gen`. The output is committed; a test says when it is stale.
//!
//! Cargo builds the library first: should generated code not compile, restore `src/messages` from git before the next run.

mod emit;
mod output;
mod rust;
mod schema;

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    match run(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        Ok(count) => {
            eprintln!("{count} files written");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("protocol-gen: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(protocol: &Path) -> Result<usize, String> {
    let target = protocol.join("src/messages");
    let files = output::generate(&protocol.join("schema"))?;
    if target.exists() {
        std::fs::remove_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
    }
    std::fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
    for (name, code) in &files {
        let path = target.join(name);
        std::fs::write(&path, code).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let format = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .arg(target.join("mod.rs"))
        .status();
    match format {
        Ok(status) if status.success() => Ok(files.len()),
        other => Err(format!("rustfmt: {other:?}")),
    }
}
