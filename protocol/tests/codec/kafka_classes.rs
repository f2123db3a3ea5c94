//! Our codec against the generated classes of Apache Kafka 4.3.1 itself, for every message and version, the records of
//! internal topics included. Also compares what happens when a message is encoded in a version that lacks some of its
//! fields: the same bytes, or an error on both sides.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::codecs::codecs;
use crate::common::wire::{FILLS, Fill, Rng, bytes_of};
use crate::common::{generated_messages, jars, say, skip};
use bytes::Bytes;
use protocol::{ApiKey, ErrorCode, Uuid};

/// A message in bytes, to be decoded in one version and encoded in another.
struct Case {
    name: String,
    decode: i16,
    encode: i16,
    bytes: Bytes,
}

/// Same-version cases for all fillings, then from the highest version to each lower one.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, definition) in generated_messages() {
        let mut add = |decode, encode, fill, seed| {
            let bytes = Bytes::from(bytes_of(&definition, decode, fill, &mut Rng(seed)));
            cases.push(Case {
                name: name.clone(),
                decode,
                encode,
                bytes,
            });
        };
        let last = definition.versions.hi;
        for version in definition.versions.lo..=last {
            for fill in FILLS {
                for seed in 0..if fill == Fill::Random { 6 } else { 1 } {
                    add(version, version, fill, seed);
                }
            }
        }
        for version in definition.versions.lo..last {
            for seed in 0..4 {
                add(last, version, Fill::Random, seed);
            }
            add(last, version, Fill::Empty, 0);
            add(last, version, Fill::One, 0);
        }
    }
    cases
}

/// What Kafka's classes make of the cases, a line each; `Err` when they cannot be run.
fn kafka_recodes(cases: &[Case]) -> Result<Vec<String>, String> {
    let libs = jars::directory()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/codec/Recode.java");
    let mut java = Command::new("java")
        .arg("-cp")
        .arg(libs.join("*"))
        .arg(source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("java: {e}"))?;
    let mut input = String::new();
    for case in cases {
        let hex: String = case.bytes.iter().map(|b| format!("{b:02x}")).collect();
        input.push_str(&format!("{} {} {} {hex}\n", case.name, case.decode, case.encode));
    }
    let mut stdin = java.stdin.take().expect("stdin is piped");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = java.wait_with_output().map_err(|e| format!("java: {e}"))?;
    writer
        .join()
        .expect("the writer does not panic")
        .map_err(|e| format!("java: {e}"))?;
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    if lines.len() == cases.len() {
        Ok(lines)
    } else {
        Err(format!("java: {} answers", lines.len()))
    }
}

#[test]
fn every_message_is_the_same_to_kafkas_classes() {
    let cases = cases();
    let answers = match kafka_recodes(&cases) {
        Ok(answers) => answers,
        Err(why) => return skip("every_message_is_the_same_to_kafkas_classes", &why),
    };
    let codecs = codecs();
    let (mut same, mut refused, mut differences) = (0, 0, Vec::new());
    for (case, theirs) in cases.iter().zip(answers) {
        let ours = (codecs[case.name.as_str()].recode)(case.bytes.clone(), case.decode, case.encode);
        let ours_hex = ours
            .as_ref()
            .map(|b| b.iter().map(|b| format!("{b:02x}")).collect::<String>());
        let kept = case.decode != case.encode || ours.as_ref() == Ok(&case.bytes);
        match &ours_hex {
            Ok(hex) if *hex == theirs && kept => same += 1,
            Err(why) if why.starts_with("encoding") && theirs.starts_with("error encoding") => refused += 1,
            _ => differences.push(format!(
                "{} v{} to v{}\n  ours  {ours_hex:?}\n  Kafka {theirs}",
                case.name, case.decode, case.encode
            )),
        }
    }
    say(&format!(
        "Kafka's classes: {} values, {same} the same bytes, {refused} refused by both, {} differences",
        cases.len(),
        differences.len()
    ));
    differences.truncate(20);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(same > 7_000 && refused > 100, "the comparison saw too little");
}

/// Error codes, header versions and the text of UUIDs.
#[test]
fn facts_outside_of_messages_are_kafkas() {
    let libs = match jars::directory() {
        Ok(libs) => libs,
        Err(why) => return skip("facts_outside_of_messages_are_kafkas", &why),
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/codec/Facts.java");
    let output = match Command::new("java")
        .arg("-cp")
        .arg(libs.join("*"))
        .arg(source)
        .output()
    {
        Ok(output) => output,
        Err(why) => return skip("facts_outside_of_messages_are_kafkas", &why.to_string()),
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut errors, mut headers, mut uuids) = (0, 0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["error", code, name, retriable] => {
                let code = ErrorCode(code.parse().unwrap());
                assert_eq!(code.name(), Some(*name));
                assert_eq!(code.is_retriable().to_string(), *retriable, "{name}");
                errors += 1;
            }
            ["api", key, version, request, response, stable] => {
                let api = ApiKey::from_i16(key.parse().unwrap()).unwrap();
                let version = version.parse().unwrap();
                assert_eq!(
                    api.request_header_version(version).to_string(),
                    *request,
                    "{line}"
                );
                assert_eq!(
                    api.response_header_version(version).to_string(),
                    *response,
                    "{line}"
                );
                // Produce is advertised from 0 and served from 3.
                let stable = *stable == "true" && !(api == ApiKey::Produce && version < 3);
                assert_eq!(api.versions().contains(&version), stable, "{line}");
                headers += 1;
            }
            ["uuid", high, low, id] => {
                let (high, low): (i64, i64) = (high.parse().unwrap(), low.parse().unwrap());
                let uuid = Uuid::from_u128(u128::from(high as u64) << 64 | u128::from(low as u64));
                assert_eq!(uuid.to_string(), *id);
                assert_eq!(id.parse(), Ok(uuid));
                uuids += 1;
            }
            _ => panic!("{line}"),
        }
    }
    say(&format!(
        "Kafka's classes: {errors} error codes, {headers} header versions, {uuids} UUIDs, all equal"
    ));
    assert_eq!(errors, ErrorCode::ALL.len());
    assert!(headers > 250 && uuids == 64);
}
