//! `penstock-bench run` against our broker: what was sent is acknowledged and consumed, in each way of sending. Only counts are looked
//! at, never speed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::process::{Broker, Profile};
use serde_json::Value;

/// A run's part of the command line that all have.
const SHORT: [&str; 8] = [
    "--warmup",
    "200ms",
    "--time",
    "600ms",
    "--interval",
    "200ms",
    "--timeout",
    "60s",
];

/// Ways of sending and consuming; PID is the broker's.
const CASES: [&str; 10] = [
    "--rate 2000 --keys zipf:1 --consumers 3 --check-crcs --pid PID",
    "--rate 2000 --linger 0ms --topics 3 --partitions 2 --producers 5 --subscriptions 2",
    "--rate 2000 --codec zstd --acks 1 --threads 2",
    "--rate 1000 --codec gzip --message-size 100 --keys random",
    "--rate 2000 --codec snappy --producers 4",
    "--rate 2000 --codec lz4 --idempotent false",
    "--rate max --pre-encoded --idempotent true --producers 2",
    "--rate max --message-size 100 --batch-size 4KiB",
    "--rate 5000 --backlog 1MB --message-size 1000",
    "--rate 500 --backlog 4MB --backlog-fast --producers 2 --pre-encoded",
];

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_penstock-bench"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the program is built")
}

/// Runs it and gives the results.
fn run(broker: &Broker, dir: &Path, words: &[&str]) -> Value {
    let (json, bootstrap) = (dir.join("out.json"), broker.bootstrap());
    let files = ["--json", json.to_str().expect("text"), "--bootstrap", &bootstrap];
    let out = bench(&[&["run", "--quiet"][..], &SHORT, &files, words].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{words:?}: {said}\n{}", broker.last_words());
    let text = std::fs::read_to_string(&json).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// All that was sent was acknowledged and consumed.
fn is_whole(results: &Value, words: &[&str]) {
    let totals = &results["totals"];
    let count = |name: &str| totals[name].as_u64().unwrap_or(u64::MAX);
    assert!(count("sent") > 100, "{words:?}: {totals}");
    assert_eq!(count("sent"), count("acknowledged"), "{words:?}: {totals}");
    assert_eq!(count("to_consume"), count("consumed"), "{words:?}: {totals}");
    assert_eq!(count("refused"), 0, "{words:?}: {totals}");
}

/// A run that is bounded in bytes ends long before its time.
fn ends_at_its_bytes(broker: &Broker, dir: &Path) {
    let (json, bootstrap) = (dir.join("bounded.json"), broker.bootstrap());
    let mut words = "run --quiet --rate max --warmup 100ms --time 10m --interval 100ms --max-bytes 2MB"
        .split(' ')
        .collect::<Vec<_>>();
    words.extend(["--json", json.to_str().expect("text"), "--bootstrap", &bootstrap]);
    let out = bench(&words);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(&json).expect("it was written");
    let results: Value = serde_json::from_str(&text).expect("it is JSON");
    is_whole(&results, &words);
    let measured = results["phases"].as_array().and_then(|phases| phases.last());
    let seconds = measured.and_then(|measured| measured["seconds"].as_f64());
    assert!(seconds.is_some_and(|seconds| seconds < 300.0), "{measured:?}");
}

#[test]
fn what_is_sent_is_acknowledged_and_consumed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::new(Profile::Dev, &dir.path().join("broker"), &[]).expect("prepared");
    broker.start(Some(2)).expect("it starts");
    for case in CASES {
        let pid = broker.pid().expect("it runs").to_string();
        let words: Vec<&str> = case
            .split(' ')
            .map(|word| if word == "PID" { &pid } else { word })
            .collect();
        let results = run(&broker, dir.path(), &words);
        is_whole(&results, &words);
        let phases = results["phases"].as_array();
        let measured = phases.and_then(|phases| phases.last()).expect("phases");
        assert_eq!(measured["name"], "measured");
        let latencies = measured["end_to_end_latency"]["count"].as_u64();
        assert!(latencies.is_some_and(|count| count > 0), "{case}: {measured}");
        assert_eq!(measured["broker"].is_null(), !case.contains("--pid"));
        assert_eq!(results["backlog"].is_null(), !case.contains("--backlog"));
    }
    ends_at_its_bytes(&broker, dir.path());
    // Without acknowledgements some may be lost, though not by a broker that is well.
    let words = ["--rate", "1000", "--acks", "0"];
    is_whole(&run(&broker, dir.path(), &words), &words);
    // The topics of the runs are gone.
    let topics = std::fs::read_dir(broker.data_dir()).expect("its folder");
    let left: Vec<_> = topics
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("bench-") && !name.ends_with("-delete"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn files_of_the_openmessaging_benchmark_are_run_as_they_are() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::new(Profile::Dev, &dir.path().join("broker"), &[]).expect("prepared");
    broker.start(None).expect("it starts");
    let (workload, driver) = (dir.path().join("workload.yaml"), dir.path().join("driver.yaml"));
    let workload_text = "# As the benchmark has them.\nname: 1 topic / 4 partitions / 100b\n\ntopics: 1\npartitionsPerTopic: 4\nkeyDistributor: \"NO_KEY\"\nmessageSize: 100\nuseRandomizedPayloads: true\nrandomBytesRatio: 0.5\nrandomizedPayloadPoolSize: 100\n\nsubscriptionsPerTopic: 1\nconsumerPerSubscription: 2\nproducersPerTopic: 2\nproducerRate: 2000\n\nconsumerBacklogSizeGB: 0\ntestDurationMinutes: 5\n";
    let driver_text = "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\nreplicationFactor: 1\n\ntopicConfig: |\n  min.insync.replicas=1\n\ncommonConfig: |\n  bootstrap.servers=nowhere:1\n\nproducerConfig: |\n  acks=all\n  linger.ms=1\n  batch.size=131072\n\nconsumerConfig: |\n  auto.offset.reset=earliest\n  enable.auto.commit=false\n  max.partition.fetch.bytes=10485760\n";
    std::fs::write(&workload, workload_text).expect("written");
    std::fs::write(&driver, driver_text).expect("written");
    let page = dir.path().join("out.html");
    let words = [
        "--workload",
        workload.to_str().expect("text"),
        "--driver",
        driver.to_str().expect("text"),
        "--html",
        page.to_str().expect("text"),
    ];
    let results = run(&broker, dir.path(), &words);
    is_whole(&results, &words);
    assert_eq!(results["name"], "1 topic / 4 partitions / 100b, Kafka");
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains("<svg") && page.contains("1 topic / 4 partitions / 100b"));
}

#[test]
fn what_is_wrong_is_said_with_a_status_of_its_own() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bad = dir.path().join("bad.yaml");
    std::fs::write(&bad, "topics: 1\nproducerRat: 5\n").expect("written");
    let (bad, folder) = (bad.to_str().expect("text"), dir.path().to_str().expect("text"));
    let free = bench::process::free_port().expect("a free port");
    let nobody = format!("127.0.0.1:{free}");
    for (words, status, said) in [
        (
            &["run", "--rate", "fast"][..],
            64,
            "a number of messages a second above 0, max or search",
        ),
        (&["run", "--bootstrap", "a:b:c"], 64, "'a:b:c' is no HOST:PORT"),
        (
            &["run", "--workload", bad],
            65,
            "bad.yaml:2: 'producerRat' is no key of a workload",
        ),
        (
            &["run", "--workload", "no-such-file"],
            65,
            "no-such-file: cannot be read",
        ),
        (&["run", "--json", folder], 74, "cannot be written"),
        (&["run", "--bootstrap", &nobody, "--timeout", "5s"], 69, &nobody),
    ] {
        let out = bench(words);
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{words:?}: {error}");
        assert!(error.contains(said), "{words:?}: {error}");
    }
    let help = bench(&["run", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(
        help.contains("Examples:") && help.contains("--pre-encoded") && help.contains("Exit status"),
        "{help}"
    );
}
