//! What only prints: help, version, the effective configuration, the host report.

use crate::support::run;

#[test]
fn help_teaches_by_examples_precedence_and_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, _) = run(dir.path(), &["--help"]);
    assert_eq!(code, Some(0));
    for part in [
        "Examples:",
        "--config server.properties",
        "built-in default < file",
        "78",
        "PENSTOCK_NUM_PARTITIONS",
    ] {
        assert!(stdout.contains(part), "{part} is missing in {stdout}");
    }
    let (code, stdout, _) = run(dir.path(), &["--version"]);
    assert_eq!(
        (code, stdout.trim()),
        (Some(0), concat!("penstock ", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn config_names_the_origin_of_each_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.properties");
    std::fs::write(
        &path,
        "num.partitions=3\nlog.retention.hour=1\nnum.io.threads=8\n",
    )
    .unwrap();
    let path = path.display().to_string();
    let (code, stdout, stderr) = run(dir.path(), &["config", "--config", &path, "-o", "broker.rack=r1"]);
    assert_eq!(code, Some(0), "{stderr}");
    let line = |key: &str| {
        let of_key = |l: &&str| l.split(' ').next() == Some(key);
        stdout
            .lines()
            .find(of_key)
            .unwrap_or_else(|| panic!("{key} is missing in {stdout}"))
    };
    assert!(line("num.partitions").contains(" 3 ") && line("num.partitions").ends_with("line 1"));
    assert!(line("broker.rack").ends_with("--override"));
    assert!(line("log.retention.hours").ends_with("default"));
    assert!(stderr.contains("did you mean log.retention.hours?"), "{stderr}");
    assert!(stderr.contains("num.io.threads"), "{stderr}");

    let (code, stdout, _) = run(
        dir.path(),
        &["--config", &path, "--log", "error", "config", "--json"],
    );
    assert_eq!(code, Some(0));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let entry = report
        .as_array()
        .and_then(|all| all.iter().find(|e| e["name"] == "num.partitions"))
        .unwrap();
    assert_eq!((&entry["value"], &entry["type"]), (&"3".into(), &"int".into()));
}

#[test]
fn check_reports_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = run(dir.path(), &["check"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    for subject in ["io_uring", "locked memory", "open files", "CPUs", "memory"] {
        assert!(stdout.contains(subject), "{subject} is missing in {stdout}");
    }
    let (_, stdout, _) = run(dir.path(), &["check", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(
        report["findings"].as_array().is_some_and(|f| f.len() >= 5),
        "{report}"
    );
}
