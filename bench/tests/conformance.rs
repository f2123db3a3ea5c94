//! Every conformance case against our broker, compared with what Apache Kafka 4.3.1 answered when it was recorded.

use std::collections::BTreeMap;
use std::path::Path;

use bench::conformance::uncovered::{AREAS, REPORTS, UNCOVERED};
use bench::conformance::{Golden, Who, cases, judge, run};

#[test]
fn answers_are_those_of_apache_kafka_or_differ_for_a_written_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let kafka = Golden::read(&folder.join("kafka")).expect("Kafka's transcripts");
    let ours = Golden::read(&folder.join("penstock")).expect("our committed differences");
    let cases = cases();
    let dir = tempfile::tempdir().expect("a directory");
    let transcripts = run(&Who::Penstock, &cases, dir.path()).expect("the cases run");
    let mut findings = Vec::new();
    for case in &cases {
        let transcript = transcripts.get(case.name).expect("every case ran");
        let verdict = judge(case, &kafka, &ours, transcript);
        if !verdict.is_well() {
            let recorded = kafka.get(case.name).unwrap_or("nothing");
            findings.push(format!(
                "{}: {verdict:?}\n-- Kafka answered\n{recorded}\n-- we answered\n{transcript}",
                case.name
            ));
        }
    }
    assert!(
        findings.is_empty(),
        "{} of {} cases: `cargo run -p bench --bin conformance` shows them one by one\n{}",
        findings.len(),
        cases.len(),
        findings.join("\n")
    );
}

#[test]
fn case_names_are_unique_and_begin_with_a_number() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
    for name in names {
        let (letters, rest) = name.split_once('-').expect("letters, a dash, a number");
        assert!(letters.bytes().all(|b| b.is_ascii_uppercase()), "{name}");
        assert!(rest.starts_with(|c: char| c.is_ascii_digit()), "{name}");
    }
}

#[test]
fn every_number_has_a_case_or_a_reason_why_not() {
    let mut found = BTreeMap::<String, usize>::new();
    for number in cases().iter().flat_map(|case| case.numbers()) {
        found.insert(number.to_owned(), 1);
    }
    for (number, why) in UNCOVERED {
        *found.entry((*number).to_owned()).or_default() += 1;
        assert!(!why.is_empty(), "{number} has no reason");
    }
    let mut numbers: Vec<_> = REPORTS.iter().map(|digits| format!("BR-{digits:03}")).collect();
    for (letters, ranges) in AREAS {
        numbers.extend(
            ranges
                .iter()
                .cloned()
                .flatten()
                .map(|digits| format!("{letters}-{digits}")),
        );
    }
    for number in numbers {
        let count = found.get(&number).copied().unwrap_or(0);
        assert_eq!(
            count, 1,
            "{number}: once among the cases or once among the reasons"
        );
    }
}
