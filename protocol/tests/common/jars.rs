//! The jars of Apache Kafka 4.3.1 and the message definitions inside them. They are in the directory that
//! `KAFKA_LIBS` names, or are fetched once into the cache by `bench/kafka/kafka`; nothing of them is committed.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The jars that hold message definitions.
const JARS: &[&str] = &[
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-share-coordinator",
    "kafka-transaction-coordinator",
    "kafka-storage",
    "kafka-raft",
];

/// Where the jars are, or why they are not.
pub fn directory() -> Result<PathBuf, String> {
    if let Some(dir) = std::env::var_os("KAFKA_LIBS").map(PathBuf::from) {
        return if complete(&dir) {
            Ok(dir)
        } else {
            Err(format!("no Kafka jars in {}", dir.display()))
        };
    }
    let cache = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache"),
        (None, None) => return Err("none of KAFKA_LIBS, XDG_CACHE_HOME and HOME is set".to_owned()),
    };
    let dir = cache.join("penstock/apache-kafka-4.3.1");
    if !complete(&dir) {
        let fetch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/kafka/kafka");
        let output = Command::new(&fetch).arg("jars").output();
        let output = output.map_err(|e| format!("{}: {e}", fetch.display()))?;
        if !complete(&dir) {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!(
                "no Kafka jars in {}, and they could not be fetched: {why}",
                dir.display()
            ));
        }
    }
    Ok(dir)
}

fn complete(dir: &Path) -> bool {
    JARS.iter().all(|jar| jar_path(dir, jar).exists())
}

fn jar_path(dir: &Path, jar: &str) -> PathBuf {
    dir.join(format!("{jar}-4.3.1.jar"))
}

/// Kafka's message definitions by name. Those of removed APIs, which have no fields, are left out.
pub fn definitions(dir: &Path) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for jar in JARS {
        for (path, text) in read_zip(&jar_path(dir, jar), ".json") {
            let text: String = text
                .lines()
                .filter(|l| !l.trim_start().starts_with("//"))
                .collect();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
            if value.get("validVersions").is_some_and(|v| v != "none") {
                let name = value["name"].as_str().unwrap().to_owned();
                assert!(found.insert(name, value).is_none(), "{path}: twice");
            }
        }
    }
    found
}

/// The files of a zip archive whose names end in `suffix`. Just enough of the format for jars: the directory at the
/// end, stored and deflated entries.
fn read_zip(path: &Path, suffix: &str) -> Vec<(String, String)> {
    let zip = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([zip[at], zip[at + 1]]));
    let u32_at = |at: usize| u16_at(at) | u16_at(at + 2) << 16;
    let end = zip
        .windows(4)
        .rposition(|w| w == b"PK\x05\x06")
        .expect("end of the zip directory");
    let (count, mut at) = (u16_at(end + 10), u32_at(end + 16));
    let mut files = Vec::new();
    for _ in 0..count {
        let (method, size) = (u16_at(at + 10), u32_at(at + 20));
        let (name_len, extra_len, comment_len) = (u16_at(at + 28), u16_at(at + 30), u16_at(at + 32));
        let local = u32_at(at + 42);
        let name = String::from_utf8_lossy(&zip[at + 46..at + 46 + name_len]).into_owned();
        if name.ends_with(suffix) {
            let start = local + 30 + u16_at(local + 26) + u16_at(local + 28);
            let packed = &zip[start..start + size];
            let mut text = String::new();
            match method {
                0 => text.push_str(std::str::from_utf8(packed).unwrap()),
                _ => {
                    flate2::read::DeflateDecoder::new(packed)
                        .read_to_string(&mut text)
                        .unwrap();
                }
            }
            files.push((name, text));
        }
        at += 46 + name_len + extra_len + comment_len;
    }
    files
}
