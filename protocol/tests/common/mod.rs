//! Shared by the tests of this directory: our schema, Kafka's jars, and loud skipping.

#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used)] // helpers of tests

#[path = "../../src/bin/protocol-gen/schema.rs"]
pub mod schema;

pub mod jars;
pub mod wire;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use schema::{Kind, Message, SchemaFile};

/// Every message of our schema by name.
pub fn our_messages() -> BTreeMap<String, Message> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let mut messages = BTreeMap::new();
    for dir in [dir.clone(), dir.join("internal")] {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ext| ext == "msg") {
                let text = std::fs::read_to_string(&path).unwrap();
                let SchemaFile { messages: found, .. } =
                    schema::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                for message in found {
                    assert!(messages.insert(message.body.name.clone(), message).is_none());
                }
            }
        }
    }
    messages
}

/// Those that code is generated for.
pub fn generated_messages() -> BTreeMap<String, Message> {
    let mut messages = our_messages();
    messages.retain(|_, message| message.kind != Kind::Header);
    messages
}

/// Prints past libtest's capture, so that figures show without `--nocapture`.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Notes that something needed is missing; where everything is required, that is a failure.
pub fn skip(test: &str, why: &str) {
    say(&format!("SKIPPED: {test}: {why}"));
    let required = std::env::var("PENSTOCK_REQUIRE_ALL").is_ok_and(|v| v == "1");
    assert!(!required, "{test}: {why}");
}
