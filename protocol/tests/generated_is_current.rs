//! The committed code in `protocol/src/messages` is what the generator makes of `protocol/schema`.

#[path = "../src/bin/protocol-gen/emit.rs"]
mod emit;
#[path = "../src/bin/protocol-gen/output.rs"]
mod output;
#[path = "../src/bin/protocol-gen/rust.rs"]
mod rust;
#[path = "../src/bin/protocol-gen/schema.rs"]
#[allow(dead_code)]
mod schema;

use std::collections::BTreeSet;
use std::path::Path;

const ADVICE: &str = "run cargo run -p protocol --bin protocol-gen";

/// The text without what rustfmt may change, so that the test needs no rustfmt.
fn bare(code: &str) -> String {
    code.chars()
        .filter(|c| !c.is_whitespace() && !",{}".contains(*c))
        .collect()
}

#[test]
fn generated_code_is_current() {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = output::generate(&protocol.join("schema")).expect("the schema parses");
    let messages = protocol.join("src/messages");
    let present: BTreeSet<String> = std::fs::read_dir(&messages)
        .expect("generated code is committed")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected: BTreeSet<String> = files.keys().cloned().collect();
    assert_eq!(present, expected, "{ADVICE}");
    for (name, code) in &files {
        let committed = std::fs::read_to_string(messages.join(name)).unwrap();
        assert!(bare(&committed) == bare(code), "{name} is stale: {ADVICE}");
    }
}

#[test]
fn mistakes_in_the_notation_are_named() {
    for (text, message) in [
        ("  Field: i8", "line 1: a field outside of a message"),
        ("data M versions 0\n  A: i7", "line 2: i7: unknown type"),
        (
            "data M versions 0\n  A: i8\n    B: i8",
            "line 3: fields inside something that is no struct",
        ),
        ("data M versions 0\n  A: B", "line 1: M.A: no struct B"),
        (
            "data M versions 0-3\n  A: i8 4+",
            "line 2: 4+: outside of the struct's versions",
        ),
        (
            "data M versions 0\n  A: string = null",
            "line 2: A: null is no default",
        ),
        (
            "data M versions 0 flexible 0+\n  A: i8 tag 3 private",
            "line 2: A: private fields, and only they",
        ),
        (
            "data M versions 0 flexible 0+\n  A: i8 tag 10000",
            "line 2: A: private fields, and only they",
        ),
        ("data M\n  A: i8", "line 1: versions are missing"),
        ("request\n  A: i8", "line 1: no api line above"),
    ] {
        let error = schema::parse(text).err().unwrap_or_default();
        assert!(error.starts_with(message), "{text:?}: {error}");
    }
}

#[test]
fn a_private_field_is_a_tagged_field_like_any_other() {
    let text =
        "data M versions 0-2 flexible 1+\n  A: i8\n  B: i64 2+ tag 10000 = -1 ignorable private # ours";
    let file = schema::parse(text).unwrap();
    let names = emit::count_names([&file]);
    let code = emit::emit_file("x.msg", &file, &names);
    assert!(
        code.contains("/// Versions 2+. Tag 10000. ours\npub b: i64,"),
        "{code}"
    );
    assert!(code.contains("10000 if v >= 2 => self.b = r.i64()?,"), "{code}");
    assert!(
        code.contains("w.tagged_field(10000, |w| w.i64(self.b));"),
        "{code}"
    );
}

#[test]
fn names_become_snake_case() {
    for (name, snake) in [
        ("LogAppendTimeMs", "log_append_time_ms"),
        ("KRaftVersion", "k_raft_version"),
        ("Enable2Pc", "enable_2pc"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("SourceTopicRegex", "source_topic_regex"),
    ] {
        assert_eq!(rust::snake_case(name), snake);
    }
}
