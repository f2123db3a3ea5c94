//! Tests of `arguments`: what is stronger, and what may not be said together.

use clap::Parser;
use protocol::compression::Codec;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: RunArguments,
}

fn arguments(words: &[&str]) -> RunArguments {
    let words = std::iter::once("run").chain(words.iter().copied());
    Line::try_parse_from(words).expect("a right command line").run
}

fn plan(words: &[&str]) -> Result<Plan, Failure> {
    arguments(words).plan()
}

const WORKLOAD: &str = "name: w\ntopics: 2\npartitionsPerTopic: 8\nkeyDistributor: KEY_ROUND_ROBIN\nmessageSize: 100\nuseRandomizedPayloads: true\nrandomBytesRatio: 0.25\nrandomizedPayloadPoolSize: 7\nsubscriptionsPerTopic: 3\nconsumerPerSubscription: 4\nproducersPerTopic: 5\nproducerRate: 12345\nconsumerBacklogSizeGB: 2\ntestDurationMinutes: 5\nwarmupDurationMinutes: 2\n";

const DRIVER: &str = "name: d\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\nreplicationFactor: 3\ntopicConfig: |\n  min.insync.replicas=2\ncommonConfig: |\n  bootstrap.servers=there:1\nproducerConfig: |\n  acks=1\n  linger.ms=1\n  batch.size=131072\n  compression.type=zstd\nconsumerConfig: |\n  max.partition.fetch.bytes=10485760\n";

#[test]
fn without_anything_it_is_as_kafka_s_clients_are() {
    let plan = plan(&[]).expect("it is right");
    let producers = &plan.producers;
    assert_eq!((producers.batch_bytes, producers.linger.as_millis()), (16_384, 5));
    assert_eq!(
        (producers.acks, producers.in_flight_max, producers.idempotent),
        (-1, 5, true)
    );
    assert_eq!(
        (producers.request_bytes_max, producers.buffer_bytes),
        (1 << 20, 32 << 20)
    );
    assert_eq!(plan.bootstrap[0].to_string(), "localhost:9092");
    assert_eq!(
        (plan.consumers.fetch_bytes_max, plan.consumers.partition_bytes_max),
        (50 << 20, 1 << 20)
    );
    assert!(plan.topics.names[0].starts_with("bench-") && !plan.topics.exist);
}

#[test]
fn files_say_what_flags_do_not() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (workload, driver) = (dir.path().join("w.yaml"), dir.path().join("d.yaml"));
    std::fs::write(&workload, WORKLOAD).expect("written");
    std::fs::write(&driver, DRIVER).expect("written");
    let files = [
        "--workload",
        workload.to_str().expect("text"),
        "--driver",
        driver.to_str().expect("text"),
    ];
    let of_files = plan(&files).expect("it is right");
    assert_eq!(of_files.name, "w, d");
    assert_eq!(
        (
            of_files.producers.count,
            of_files.consumers.count,
            of_files.consumers()
        ),
        (10, 8, 24)
    );
    assert_eq!((of_files.topics.names.len(), of_files.topics.partitions), (2, 8));
    assert_eq!(
        of_files.topics.configs,
        [("min.insync.replicas".to_owned(), "2".to_owned())]
    );
    assert_eq!(of_files.producers.load, Load::Rate(12_345.0));
    assert_eq!(
        (of_files.producers.keys, of_files.message_bytes()),
        (Keys::RoundRobin, 108)
    );
    let payload = Payload::Random {
        random_share: 0.25,
        pool: 7,
    };
    assert_eq!(of_files.producers.payload, payload);
    assert_eq!(
        (of_files.producers.acks, of_files.producers.idempotent),
        (1, false)
    );
    assert_eq!(
        (of_files.producers.codec, of_files.producers.batch_bytes),
        (Codec::Zstd, 131_072)
    );
    assert_eq!(of_files.consumers.partition_bytes_max, 10_485_760);
    assert_eq!(of_files.backlog.map(|backlog| backlog.bytes), Some(2 << 30));
    assert_eq!((of_files.warmup.as_secs(), of_files.time.as_secs()), (120, 300));
    assert_eq!(of_files.bootstrap[0].to_string(), "there:1");

    let flags = [
        "--rate",
        "5",
        "--time",
        "9s",
        "--backlog",
        "0",
        "--topic-config",
        "min.insync.replicas=1",
        "--bootstrap",
        "a:1,b:2",
    ];
    let both = plan(&[&files[..], &flags[..]].concat()).expect("it is right");
    assert_eq!(
        (both.producers.load, both.time.as_secs(), both.backlog),
        (Load::Rate(5.0), 9, None)
    );
    assert_eq!(
        both.topics.configs,
        [("min.insync.replicas".to_owned(), "1".to_owned())]
    );
    assert_eq!(both.bootstrap.len(), 2);
}

#[test]
fn a_payload_file_is_found_beside_the_workload_and_has_to_have_the_size() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for folder in ["workloads", "payload"] {
        std::fs::create_dir(dir.path().join(folder)).expect("made");
    }
    let workload = dir.path().join("workloads/w.yaml");
    let text = "topics: 1\npartitionsPerTopic: 1\nmessageSize: 10\npayloadFile: \"payload/p.data\"\nproducersPerTopic: 1\nproducerRate: 0\ntestDurationMinutes: 1\n";
    std::fs::write(&workload, text).expect("written");
    let words = ["--workload", workload.to_str().expect("text")];
    let missing = plan(&words).expect_err("it is not there");
    assert!(
        missing
            .sentence
            .contains("payload/p.data: the payload file cannot be read"),
        "{missing}"
    );
    std::fs::write(dir.path().join("payload/p.data"), [7; 10]).expect("written");
    let found = plan(&words).expect("it is there");
    assert_eq!(found.producers.payload, Payload::Given(vec![7; 10].into()));
    assert!(
        matches!(found.producers.load, Load::Search(_)),
        "a rate of 0 asks for the highest"
    );
    std::fs::write(dir.path().join("payload/p.data"), [7; 11]).expect("written");
    let other = plan(&words).expect_err("another size");
    assert!(
        other.status == Status::Data
            && other
                .sentence
                .contains("has 11 bytes, and a message is to have 10"),
        "{other}"
    );
}

#[test]
fn a_rate_that_means_unlimited_is_the_maximum() {
    assert_eq!(
        plan(&["--rate", "10000000"]).expect("right").producers.load,
        Load::Maximum
    );
    assert_eq!(
        plan(&["--rate", "9999999"]).expect("right").producers.load,
        Load::Rate(9_999_999.0)
    );
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() {
    for (words, expected) in [
        (&["--bootstrap", "a:b:c"][..], "'a:b:c' is no HOST:PORT"),
        (&["--acks", "2"], "all, 1 or 0"),
        (&["--idempotent", "true", "--acks", "1"], "needs acks=all"),
        (&["--producers", "0"], "at least one producer"),
        (&["--producers", "70000"], "more than 60000"),
        (&["--topics", "0"], "at least one topic"),
        (&["--threads", "65"], "from 1 to 64"),
        (&["--message-size", "4"], "--consumers 0"),
        (&["--consumers", "0", "--backlog", "1GB"], "--consumers is 0"),
        (&["--rate", "search", "--backlog", "1GB"], "known rate"),
        (
            &["--rate", "search", "--search-p99-ms", "0"],
            "--search-p99-ms is 0",
        ),
        (&["--pre-encoded", "--keys", "random"], "no keys"),
        (&["--random-bytes-ratio", "1.5"], "from 0 to 1"),
        (&["--backlog-drain-ratio", "2"], "from 0 to 1"),
        (&["--interval", "1ms"], "50ms at least"),
        (&["--pid", "4294967295"], "a process of this host"),
    ] {
        let failure = plan(words).expect_err(expected);
        assert_eq!(failure.status, Status::Usage, "{failure}");
        assert!(failure.sentence.contains(expected), "{failure}");
    }
}
