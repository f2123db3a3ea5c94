//! `kafka-reassign-partitions` with `log_dirs` and `kafka-log-dirs` move a partition between two log directories and tell where it is,
//! with the same words on our broker and on Apache Kafka.

use std::path::Path;
use std::time::{Duration, Instant};

use bench::clients::{report_skip, require_all};
use bench::kafka;
use bench::process::Profile;
use bench::target::{Kind, Target};

const TOPIC_TOOL: &str = "org.apache.kafka.tools.TopicCommand";
const REASSIGN: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
const LOG_DIRS: &str = "org.apache.kafka.tools.LogDirsCommand";

/// How long a move of a partition without records may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a tool says, with the folder masked.
fn say(target: &Target, dir: &Path, class: &str, arguments: &[&str]) -> String {
    let out = kafka::tool(class)
        .args(["--bootstrap-server", &target.bootstrap()])
        .args(arguments)
        .output()
        .expect("the tool runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{class} {arguments:?}: {said}{errors}");
    said.replace(&dir.display().to_string(), "DIR")
}

/// In which directory the partition is, by what `kafka-log-dirs` says.
fn place(described: &str) -> &'static str {
    let json = described
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("JSON");
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let dirs = json["brokers"][0]["logDirs"].as_array().expect("directories");
    let holds = |dir: &&serde_json::Value| {
        let partitions = dir["partitions"].as_array().expect("partitions");
        partitions
            .iter()
            .any(|p| p["partition"] == "t-0" && p["isFuture"] == false)
    };
    let dir = dirs.iter().find(holds).expect("it is somewhere");
    match dir["logDir"].as_str().expect("a name") {
        "DIR/data" => "data",
        "DIR/data-two" => "data-two",
        other => panic!("{other}"),
    }
}

/// What the tools say, and where the partition ends up.
fn story(kind: Kind, dir: &Path) -> Vec<String> {
    let overrides = [
        "node.id=1",
        &format!("log.dirs={0}/data,{0}/data-two", dir.display()),
    ];
    let overrides = match kind {
        Kind::Kafka => &overrides[1..],
        Kind::Penstock(_) => &overrides[..],
    };
    std::fs::create_dir_all(dir).expect("a folder");
    let mut target = Target::new(kind, dir, overrides).expect("a target");
    target.start(None).expect("it starts");
    say(
        &target,
        dir,
        TOPIC_TOOL,
        &["--create", "--topic", "t", "--partitions", "1"],
    );
    let describe = ["--describe", "--topic-list", "t"];
    let before = place(&say(&target, dir, LOG_DIRS, &describe));
    let to = if before == "data" { "data-two" } else { "data" };
    let plan = dir.join("plan.json");
    let text = format!(
        r#"{{"version":1,"partitions":[{{"topic":"t","partition":0,"replicas":[1],"log_dirs":["{}/{to}"]}}]}}"#,
        dir.display()
    );
    std::fs::write(&plan, text).expect("written");
    let plan = plan.display().to_string();
    let with_plan = |word| ["--reassignment-json-file", plan.as_str(), word];
    let neutral = |said: String| said.replace("data-two", "data");
    let mut told = vec![neutral(say(&target, dir, REASSIGN, &with_plan("--execute")))];
    let began = Instant::now();
    loop {
        let verified = neutral(say(&target, dir, REASSIGN, &with_plan("--verify")));
        if verified.contains("completed successfully") {
            told.push(verified);
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{verified}");
    }
    told.push(say(&target, dir, REASSIGN, &["--list"]));
    let described = say(&target, dir, LOG_DIRS, &describe);
    assert_eq!(place(&described), to);
    target.terminate().expect("it stops");
    told
}

#[test]
fn the_tools_move_a_partition_as_on_apache_kafka() {
    if let Some(why) = kafka::missing() {
        assert!(!require_all(), "{why}");
        report_skip("the_tools_move_a_partition_as_on_apache_kafka", why);
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let kafka = story(Kind::Kafka, &dir.path().join("kafka"));
    let ours = story(Kind::Penstock(Profile::Dev), &dir.path().join("penstock"));
    assert_eq!(ours, kafka);
}
