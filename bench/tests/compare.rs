//! `penstock-bench compare` with a workload of half a second: what has to be in its reports is there, and what it started is gone. Only
//! that there are figures is looked at, never how good they are.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::clients::report_skip;
use bench::kafka;
use bench::process::{Broker, Profile, binary};
use serde_json::Value;

/// One short round of a workload.
const SHORT: [&str; 8] = [
    "--workloads",
    "steady-10k,peak-memory",
    "--rounds",
    "1",
    "--warmup",
    "200ms",
    "--time",
    "600ms",
];

/// Runs it on our broker as the tests build it.
fn compare(words: &[&str], set: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock-bench"));
    command.arg("compare").args(words).stdin(Stdio::null());
    command.env("PENSTOCK_BIN", binary(Profile::Dev).expect("our broker is built"));
    command.env_remove("PENSTOCK_REQUIRE_ALL");
    set(&mut command);
    command.output().expect("the program is built")
}

fn read(json: &Path) -> Value {
    let text = std::fs::read_to_string(json).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The figures of a broker's only run are there and above 0.
fn has_figures(broker: &Value, names: &[&str]) {
    let runs = broker["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 1, "{broker}");
    assert!(runs[0]["failure"].is_null(), "{broker}");
    for name in names {
        let value = runs[0]["figures"][name].as_f64();
        assert!(value.is_some_and(|value| value > 0.0), "{name}: {broker}");
    }
}

#[test]
fn both_brokers_have_figures_ratios_and_verdicts() {
    if let Some(why) = kafka::missing() {
        return report_skip("penstock-bench compare", why);
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (data, json, page) = (
        dir.path().join("data"),
        dir.path().join("out.json"),
        dir.path().join("out.html"),
    );
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let (data_text, json_text, page_text) = (text(&data), text(&json), text(&page));
    let files = ["--dir", &data_text, "--json", &json_text, "--html", &page_text];
    let words = [&["--brokers", "penstock,kafka"][..], &SHORT, &files].concat();
    let out = compare(&words, |_| {});
    assert!(out.status.success(), "{}", said(&out));
    let results = read(&json);
    let steady = &results["workloads"][0];
    assert_eq!(
        (steady["name"].as_str(), steady["brokers"][1]["name"].as_str()),
        (Some("steady-10k"), Some("kafka"))
    );
    for broker in 0..2 {
        let names = [
            "produced_mb_per_second",
            "produce_p50_ms",
            "produce_p99_ms",
            "produce_p99_9_ms",
            "cpu_seconds_per_gb",
            "system_seconds_per_gb",
            "cpu_seconds_per_million",
            "peak_resident_mb",
        ];
        has_figures(&steady["brokers"][broker], &names);
        has_figures(&results["workloads"][1]["brokers"][broker], &["peak_resident_mb"]);
    }
    let ratio = steady["brokers"][1]["ratios"]["produce_p99_ms"]["median"].as_f64();
    assert!(ratio.is_some_and(|ratio| ratio > 0.0), "{steady}");
    let goals = steady["goals"].as_array().expect("goals");
    let judged = |goal: &Value| matches!(goal["verdict"].as_str(), Some("met" | "missed"));
    assert!(goals.len() == 4 && goals.iter().all(judged), "{steady}");
    assert_eq!(results["skipped"].as_array().map(Vec::len), Some(0));
    let markdown = String::from_utf8_lossy(&out.stdout);
    assert!(
        markdown.contains("| figure | penstock | kafka | ÷ kafka | goal |"),
        "{markdown}"
    );
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains("steady-10k: latency"));
    assert!(!data.join("broker").exists(), "the data of brokers are removed");
}

#[test]
fn without_java_kafka_is_skipped_loudly_and_a_peer_takes_part() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::new(Profile::Dev, &dir.path().join("peer"), &[]).expect("prepared");
    broker.start(Some(1)).expect("it starts");
    let (peer, json) = (
        format!("other={}", broker.bootstrap()),
        dir.path().join("out.json"),
    );
    let (data, json_text) = (dir.path().join("data"), json.to_str().expect("text").to_owned());
    let files = ["--dir", data.to_str().expect("text"), "--json", &json_text];
    let words = [
        &["--brokers", "penstock,kafka", "--peer", &peer][..],
        &SHORT,
        &files,
    ]
    .concat();
    let nowhere = |command: &mut Command| {
        command.env("PATH", dir.path());
    };
    let out = compare(&words, nowhere);
    assert!(out.status.success(), "{}", said(&out));
    assert!(
        said(&out).contains("SKIPPED: kafka: java is missing"),
        "{}",
        said(&out)
    );
    let results = read(&json);
    assert_eq!(results["skipped"][0], "kafka: java is missing");
    let brokers = &results["workloads"][0]["brokers"];
    assert_eq!(brokers.as_array().map(Vec::len), Some(2), "{brokers}");
    has_figures(&brokers[0], &["produce_p99_ms", "cpu_seconds_per_gb"]);
    has_figures(&brokers[1], &["produce_p99_ms"]);
    // Its process is not known.
    assert!(brokers[1]["figures"]["cpu_seconds_per_gb"].is_null(), "{brokers}");
    assert!(
        brokers[1]["ratios"]["produce_p99_ms"]["median"].is_number(),
        "{brokers}"
    );
    // Where nothing may be left out, that is a failure.
    let out = compare(&words, |command| {
        nowhere(command);
        command.env("PENSTOCK_REQUIRE_ALL", "1");
    });
    assert_eq!(out.status.code(), Some(69), "{}", said(&out));
}

#[test]
fn the_list_shows_workloads_and_a_wrong_flag_has_its_status() {
    let out = compare(&["--list"], |_| {});
    let list = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success() && list.contains("steady-10k: ") && list.contains("goal: "),
        "{list}"
    );
    let out = compare(&["--dir", "unused", "--workloads", "nothing"], |_| {});
    assert_eq!(out.status.code(), Some(64), "{}", said(&out));
    assert!(said(&out).contains("'nothing' is none"), "{}", said(&out));
}
