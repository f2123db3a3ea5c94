//! What holds for the repository as a whole: which crate may depend on which, where glommio may be named, how long a file may
//! be, and that no leftovers of writing (debug prints, marks, paths of one machine) are committed. Each rule has a test of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a source file without its tests (STYLE.md, "one responsibility per file").
const FILE_LINES_MAX: usize = 600;

/// Crates of the workspace, each with those of the workspace it may name (DESIGN.md §3).
const LAYERS: [(&str, &[&str]); 5] = [
    ("protocol", &[]),
    ("storage", &["protocol"]),
    ("shard", &["protocol", "storage"]),
    ("broker", &["protocol", "storage", "shard"]),
    ("bench", &["protocol", "storage", "shard", "broker"]),
];

/// The only places that call glommio: the direct-I/O disk, the executor's own folder, and measuring programs that are no part of the broker.
const GLOMMIO_PLACES: [&str; 3] = [
    "storage/src/disk/direct",
    "shard/src/runtime/",
    "storage/examples/",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("bench lies in the workspace")
        .to_path_buf()
}

/// Every file of the repository, also new ones not yet added, as (path from the root, text). Binary files are left out.
fn texts() -> Vec<(String, String)> {
    let out = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .expect("git is needed to list the repository's files");
    assert!(
        out.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let names = String::from_utf8(out.stdout).expect("file names are UTF-8");
    let files: Vec<_> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .filter_map(|name| Some((name.to_owned(), std::fs::read_to_string(root().join(name)).ok()?)))
        .collect();
    assert!(
        files.len() > 10,
        "found only {} files: the test looks at the wrong place",
        files.len()
    );
    files
}

fn rust_sources() -> Vec<(String, String)> {
    texts()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".rs"))
        .collect()
}

fn is_generated(text: &str) -> bool {
    text.lines()
        .take(15)
        .any(|line| line.contains("@generated") || line.contains("enerated by protocol-gen"))
}

fn is_test_file(name: &str) -> bool {
    name.split('/').any(|part| matches!(part, "tests" | "benches"))
        || name.ends_with("/tests.rs")
        || name.ends_with("_tests.rs")
}

/// Fails with every finding at once, so that one run shows all there is to mend.
fn expect_none(rule: &str, findings: &[String]) {
    let mut message = String::new();
    for finding in findings {
        let _ = writeln!(message, "  {finding}");
    }
    assert!(findings.is_empty(), "{rule}: {} found\n{message}", findings.len());
}

#[test]
fn crates_depend_downwards_only() {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(
        out.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let allowed: BTreeMap<_, _> = LAYERS.into_iter().collect();
    let packages = metadata["packages"].as_array().expect("packages");
    let mut seen = Vec::new();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("name");
        let Some(may) = allowed.get(name) else {
            findings.push(format!("{name} is not one of the five crates"));
            continue;
        };
        seen.push(name.to_owned());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("dependency name");
            if allowed.contains_key(on) && on != name && !may.contains(&on) {
                findings.push(format!("{name} depends on {on}"));
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, ["bench", "broker", "protocol", "shard", "storage"]);
    expect_none("a crate depends on one above it", &findings);
}

#[test]
fn glommio_is_named_in_two_places_only() {
    let mut findings = Vec::new();
    for (name, text) in rust_sources() {
        if GLOMMIO_PLACES.iter().any(|place| name.starts_with(place)) || name.ends_with("tests/tidy.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("glommio::")
                || code.contains("use glommio")
                || code.contains("extern crate glommio")
            {
                findings.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    expect_none("glommio outside its two places", &findings);
}

#[test]
fn storage_and_shard_build_without_glommio() {
    for package in ["storage", "shard"] {
        let out = Command::new(env!("CARGO"))
            .args([
                "tree",
                "-p",
                package,
                "--no-default-features",
                "-e",
                "normal,build",
                "--prefix",
                "none",
                "--offline",
            ])
            .current_dir(root())
            .output()
            .expect("cargo tree");
        assert!(
            out.status.success(),
            "cargo tree: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let tree = String::from_utf8_lossy(&out.stdout);
        assert!(
            tree.contains("protocol v"),
            "cargo tree -p {package} shows no dependencies:\n{tree}"
        );
        let found: Vec<_> = tree
            .lines()
            .filter(|line| line.starts_with("glommio "))
            .map(str::to_owned)
            .collect();
        expect_none(
            &format!("{package} without its features still needs glommio"),
            &found,
        );
    }
}

#[test]
fn files_are_short() {
    let mut findings = Vec::new();
    for (name, text) in rust_sources() {
        if is_generated(&text) || is_test_file(&name) {
            continue;
        }
        let lines = lines_without_tests(&text);
        if lines > FILE_LINES_MAX {
            findings.push(format!(
                "{name}: {lines} lines without tests, at most {FILE_LINES_MAX}"
            ));
        }
    }
    expect_none("files too long", &findings);
}

/// Lines up to the test module at the end of a file, or all of them.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        let test_only = pair[0].starts_with("#[cfg(test)]") || pair[0].starts_with("#[cfg(all(test");
        test_only && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

#[test]
fn every_source_file_says_what_it_holds() {
    let findings: Vec<_> = rust_sources()
        .into_iter()
        .filter(|(_, text)| !text.lines().take(6).any(|line| line.starts_with("//!")))
        .map(|(name, _)| name)
        .collect();
    expect_none("files that do not open with //!", &findings);
}

#[test]
fn no_leftovers() {
    // Joined at compile time, so that this file does not find itself.
    let banned = [
        concat!("dbg", "!("),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("TO", "DO"),
        concat!("<<<<", "<<< "),
        concat!(">>>>", ">>> "),
    ];
    let mut findings = Vec::new();
    for (name, text) in texts() {
        if is_data(&name) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = banned.iter().find(|word| contains_word(line, word)) {
                findings.push(format!("{name}:{}: {word} in: {}", number + 1, line.trim()));
            }
        }
    }
    expect_none("leftovers", &findings);
}

#[test]
fn no_machine_paths_and_no_registry_hosts() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("registry.npmjs", ".org"),
        concat!("registry.yarnpkg", ".com"),
        concat!("proxy.golang", ".org"),
        concat!("sum.golang", ".org"),
        concat!("files.pythonhosted", ".org"),
        concat!("pypi", ".org"),
        concat!("repo1.maven", ".org"),
        concat!("repo.maven.apache", ".org"),
        concat!("deb.debian", ".org"),
    ];
    let mut findings = Vec::new();
    for (name, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = banned.iter().find(|word| contains_word(line, word)) {
                findings.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    expect_none("paths of one machine or registry hosts", &findings);
}

#[test]
fn no_trailing_spaces_and_a_newline_at_the_end() {
    let mut findings = Vec::new();
    for (name, text) in texts() {
        if is_data(&name) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                findings.push(format!("{name}:{}: space at the end of the line", number + 1));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            findings.push(format!("{name}: no newline at the end"));
        }
    }
    expect_none("stray white space", &findings);
}

/// Captured bytes and fixtures happen to be readable text sometimes; nobody writes them by hand.
fn is_data(name: &str) -> bool {
    name.split('/')
        .any(|part| matches!(part, "corpus" | "fixtures" | "captures" | "conformance"))
        || [".bin", ".log", ".index", ".timeindex"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// `word` in `line`, not as a part of a longer word: `X` marks in a hash or `/a/work/` in a path are none.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back().is_some_and(joins);
        let after = line[at + word.len()..].chars().next().is_some_and(joins);
        let open_ended = !word.ends_with(|c: char| c.is_alphanumeric());
        !before && (open_ended || !after)
    })
}

#[test]
fn words_are_found_as_words() {
    let mark = concat!("XX", "X");
    assert!(contains_word(&format!("// {mark}: later"), mark));
    assert!(!contains_word(&format!("a{mark}b"), mark));
    assert!(contains_word(concat!("cd /wo", "rk/main"), concat!("/wo", "rk/")));
    assert!(!contains_word(
        concat!("target/wo", "rk/main"),
        concat!("/wo", "rk/")
    ));
}

#[test]
fn test_modules_do_not_count_as_lines() {
    assert_eq!(lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
    assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
}
