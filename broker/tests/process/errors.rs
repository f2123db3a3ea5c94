//! Starts that fail: which status, and one sentence that says what and what to do.

use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::support::{Broker, free_port, run};

/// The last line of standard error, which is the sentence.
fn sentence(stderr: &str) -> &str {
    stderr.lines().last().unwrap_or_default()
}

fn refused(arguments: &[&str], status: i32, parts: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = run(dir.path(), arguments);
    assert_eq!(code, Some(status), "{arguments:?}: {stderr}");
    assert_eq!(stdout, "", "nothing is ready");
    let sentence = sentence(&stderr);
    assert!(sentence.starts_with("penstock: "), "{stderr}");
    for part in parts {
        assert!(sentence.contains(part), "{part} is missing in: {sentence}");
    }
}

#[test]
fn a_port_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let listeners = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
    let free = format!("penstock.admin.listener=127.0.0.1:{}", free_port());
    refused(
        &["-o", &listeners, "-o", &free],
        69,
        &[
            &format!("127.0.0.1:{port}"),
            "in use",
            &format!("process {}", std::process::id()),
            "`listeners`",
        ],
    );
}

#[test]
fn an_admin_port_in_use_is_named_with_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("penstock.admin.listener={}", taken.local_addr().unwrap());
    refused(
        &["-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", &admin],
        69,
        &[
            &taken.local_addr().unwrap().to_string(),
            "in use",
            &format!("process {}", std::process::id()),
            "penstock.admin.listener",
        ],
    );
}

#[test]
fn a_second_broker_on_the_same_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Broker::start(dir.path(), &[]);
    let (code, _, stderr) = run(
        dir.path(),
        &[
            "-o",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "-o",
            "penstock.admin.listener=",
        ],
    );
    assert_eq!(code, Some(78), "{stderr}");
    assert!(
        sentence(&stderr).contains("another broker uses the log directory"),
        "{stderr}"
    );
    let holder = format!("(process {}, penstock)", first.pid());
    for part in [
        &holder,
        "stop it",
        "log.dirs",
        "listeners",
        "penstock.admin.listener",
    ] {
        assert!(sentence(&stderr).contains(part), "{part}: {stderr}");
    }
    assert!(
        first.get("/health/live").0.contains("200"),
        "the first one goes on"
    );
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let below = format!("log.dirs={}", file.join("data").display());
    refused(&["-o", &below], 78, &["file/data", "log.dirs", "Not a directory"]);
}

#[test]
fn a_wrong_value_is_named_with_file_line_and_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.properties");
    std::fs::write(&path, "node.id=1\n# a comment\nnum.partitions=none\n").unwrap();
    let path = path.display().to_string();
    refused(
        &["--config", &path],
        78,
        &[
            "server.properties, line 3",
            "num.partitions",
            "none",
            "whole number",
        ],
    );
    refused(
        &["-o", "log.segment.bytes=7"],
        78,
        &["--override", "at least 1048576"],
    );
    refused(&["-o", "listeners=SSL://:9093"], 78, &["only PLAINTEXT"]);
}

#[test]
fn a_missing_file_is_named() {
    refused(
        &["--config", "nowhere.properties"],
        78,
        &["nowhere.properties", "--config"],
    );
}

#[test]
fn a_wrong_command_line_has_a_status_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(dir.path(), &["--no-such-option"]);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(
        stderr.contains("--no-such-option") && stderr.contains("--help"),
        "{stderr}"
    );
    refused(&["--log", "broker=loud"], 64, &["broker=loud", "debug"]);
}

/// Starts on the data that a broker leaves when it ends by `signal` and `change` is done to it; gives the status and sentence.
fn start_after(signal: Signal, change: impl FnOnce(&Path)) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log_dirs = format!("log.dirs={}", data.display());
    let broker = Broker::start(dir.path(), &[&log_dirs]);
    broker.signal(signal);
    broker.end();
    change(&data);
    let listeners = "listeners=PLAINTEXT://127.0.0.1:0";
    let arguments = ["-o", listeners, "-o", "penstock.admin.listener=", "-o", &log_dirs];
    let (code, stdout, stderr) = run(dir.path(), &arguments);
    assert_eq!(stdout, "", "nothing is ready: {stderr}");
    let (again, ..) = run(dir.path(), &arguments);
    assert_eq!(again, code, "the second start is refused as well");
    (code, sentence(&stderr).to_owned())
}

#[test]
fn data_without_meta_properties_is_refused_with_what_to_do() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let remove = |data: &Path| std::fs::remove_file(data.join("meta.properties")).unwrap();
        let (code, sentence) = start_after(signal, remove);
        assert_eq!(code, Some(78), "{sentence}");
        for part in ["__cluster_metadata-0", "no readable meta.properties", "log.dirs"] {
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}

#[test]
fn a_lost_metadata_log_is_refused() {
    let remove = |data: &Path| std::fs::remove_dir_all(data.join("__cluster_metadata-0")).unwrap();
    let (code, sentence) = start_after(Signal::SIGTERM, remove);
    assert_eq!(code, Some(65), "{sentence}");
    assert!(sentence.contains("__cluster_metadata-0"), "{sentence}");
    assert!(sentence.contains("no directory"), "{sentence}");
}

#[test]
fn a_damaged_or_missing_journal_is_refused() {
    const JOURNAL: &str = ".penstock/journal/shard-0/00000000000000000001.journal";
    let damage = |data: &Path| {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(data.join(JOURNAL))
            .unwrap();
        file.write_all_at(&[0xff; 3], 10).unwrap();
    };
    let (code, sentence) = start_after(Signal::SIGKILL, damage);
    assert_eq!(code, Some(65), "{sentence}");
    for part in [
        JOURNAL,
        "at byte 0:",
        "expected the header of a journal file",
        "found a header with another checksum",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let remove = |data: &Path| std::fs::remove_dir_all(data.join(".penstock")).unwrap();
    let (code, sentence) = start_after(Signal::SIGKILL, remove);
    assert_eq!(code, Some(65), "{sentence}");
    assert!(sentence.contains(".kafka_cleanshutdown"), "{sentence}");
}
