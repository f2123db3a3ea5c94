//! `penstock topic` and `penstock group` through a whole life of a topic and a group, and what they say when it goes wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::framing::versioned_bytes;
use protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition, ConsumerProtocolSubscription,
};
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use protocol::{ErrorCode, Str};
use serde_json::{Value, json};

use crate::groups::{commit, find_coordinator};
use crate::stop::produce;
use crate::support::{Broker, Client, free_port, run};

/// The commands against one broker.
struct Commands<'a> {
    dir: &'a Path,
    bootstrap: String,
}

impl<'a> Commands<'a> {
    fn new(dir: &'a Path, broker: &Broker) -> Self {
        Self {
            dir,
            bootstrap: broker.address.to_string(),
        }
    }

    fn run(&self, line: &str) -> (Option<i32>, String, String) {
        let words: Vec<&str> = line.split(' ').chain(["--bootstrap", &self.bootstrap]).collect();
        run(self.dir, &words)
    }

    /// What a command that succeeds says.
    fn says(&self, line: &str) -> String {
        let (code, stdout, stderr) = self.run(line);
        assert_eq!(code, Some(0), "{line}: {stderr}");
        stdout
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.says(&format!("{line} --json"))).unwrap()
    }

    /// A command that fails with this status, and all these parts in its sentence.
    fn fails(&self, line: &str, status: i32, parts: &[&str]) {
        let (code, _, stderr) = self.run(line);
        assert_eq!(code, Some(status), "{line}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{line}: '{part}' is missing in {stderr}");
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }

    /// (topic, partition, committed, log end, lag) of a group.
    fn offsets(&self, group: &str) -> Vec<Value> {
        let described = self.json(&format!("group describe {group}"));
        let offsets = described[0]["offsets"].as_array().unwrap().clone();
        let row = |o: Value| {
            json!([
                o["topic"],
                o["partition"],
                o["committed_offset"],
                o["log_end_offset"],
                o["lag"]
            ])
        };
        offsets.into_iter().map(row).collect()
    }
}

/// Joins as the only member and takes these partitions; the member's id.
fn join(client: &mut Client, group: &str, topic: &str, partitions: &[i32]) -> Str {
    let subscription = ConsumerProtocolSubscription {
        topics: vec![Str::from(topic.to_owned())],
        ..Default::default()
    };
    let request = JoinGroupRequest {
        group_id: Str::from(group.to_owned()),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: Str::from("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: Str::from("range"),
            metadata: versioned_bytes(&subscription, 0).unwrap(),
        }],
        ..Default::default()
    };
    // Up to version 3 no member id is required.
    let joined: JoinGroupResponse = client.call(&request, 3).unwrap();
    assert_eq!(joined.error_code, ErrorCode::NONE);
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: vec![ConsumerProtocolAssignmentTopicPartition {
            topic: Str::from(topic.to_owned()),
            partitions: partitions.to_vec(),
        }],
        ..Default::default()
    };
    let request = SyncGroupRequest {
        group_id: Str::from(group.to_owned()),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: joined.member_id.clone(),
            assignment: versioned_bytes(&assignment, 0).unwrap(),
        }],
        ..Default::default()
    };
    let synced: SyncGroupResponse = client.call(&request, 2).unwrap();
    assert_eq!(synced.error_code, ErrorCode::NONE);
    joined.member_id
}

fn leave(client: &mut Client, group: &str, member: Str) {
    let request = LeaveGroupRequest {
        group_id: Str::from(group.to_owned()),
        member_id: member,
        ..Default::default()
    };
    let left: LeaveGroupResponse = client.call(&request, 1).unwrap();
    assert_eq!(left.error_code, ErrorCode::NONE);
}

#[test]
fn a_topic_is_created_described_altered_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let commands = Commands::new(dir.path(), &broker);
    assert_eq!(commands.json("topic list"), json!([]));
    assert_eq!(
        commands.says("topic create orders --partitions 2 --config retention.ms=1000"),
        "created orders\n"
    );
    commands.fails(
        "topic create orders",
        65,
        &["'orders'", "TOPIC_ALREADY_EXISTS", "penstock topic alter"],
    );
    assert_eq!(commands.says("topic create orders --if-not-exists"), "");
    produce(&mut Client::connect(broker.address), "orders", 1, 5).unwrap();

    let described = &commands.json("topic describe orders")[0];
    let configs = described["configs"].as_array().unwrap();
    let retention = json!({"name": "retention.ms", "value": "1000", "source": "topic"});
    assert!(configs.contains(&retention), "{configs:?}");
    assert!(
        configs.iter().all(|c| c["source"] != "topic" || c == &retention),
        "{configs:?}"
    );
    let partition = &described["partitions"][1];
    assert_eq!(
        (&partition["earliest_offset"], &partition["latest_offset"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(
        (&partition["leader"], &partition["isr"]),
        (&json!(1), &json!([1]))
    );
    assert!(partition["size_bytes"].as_i64().unwrap() > 0, "{partition}");

    let altered = "topic alter orders --partitions 3 --config cleanup.policy=compact --unset retention.ms";
    assert_eq!(commands.says(altered), "altered orders\n");
    let text = commands.says("topic describe");
    assert!(text.starts_with("Topic orders  id "), "{text}");
    assert!(
        text.contains("\n  cleanup.policy = compact  (topic)\n") && !text.contains("retention.ms"),
        "{text}"
    );
    assert_eq!(commands.json("topic list")[0]["partitions"], 3);

    let (code, stdout, stderr) = commands.run("topic delete orders none --yes");
    assert_eq!((code, stdout.as_str()), (Some(65), "deleted orders\n"));
    assert!(
        stderr.contains("'none'") && !stderr.contains("'orders'"),
        "{stderr}"
    );
    assert_eq!(
        commands.json("topic delete none --yes --if-exists"),
        json!({"deleted": []})
    );
    assert_eq!(commands.json("topic list"), json!([]));
}

#[test]
fn what_a_broker_refuses_about_topics_is_told_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders --partitions 3");
    commands.fails(
        "topic alter orders --partitions 2",
        65,
        &["INVALID_PARTITIONS", "not taken away"],
    );
    commands.fails(
        "topic alter orders --config nonsense=1",
        65,
        &["'orders'", "INVALID_CONFIG"],
    );
    // The next step is one that can be taken: the topic is not there to be looked at.
    let (code, _, stderr) = commands.run("topic create other --config retention.ms=soon");
    assert_eq!(code, Some(65));
    assert!(
        stderr.contains("retention.ms=86400000") && !stderr.contains("topic describe"),
        "{stderr}"
    );
    commands.fails("topic alter orders", 64, &["nothing to alter"]);
    commands.fails(
        "topic alter none --partitions 2",
        65,
        &["'none'", "UNKNOWN_TOPIC"],
    );
    commands.fails(
        "topic describe orders none",
        65,
        &["'none'", "penstock topic list"],
    );
    commands.fails("topic create a/b", 65, &["'a/b'", "INVALID_TOPIC"]);
    commands.fails(
        "topic create many --replication-factor 3",
        65,
        &["INVALID_REPLICATION_FACTOR"],
    );
    commands.fails("topic create none --config x", 64, &["NAME=VALUE"]);
    commands.fails("topic delete orders", 64, &["--yes"]);
}

#[test]
fn wrong_numbers_and_names_are_told_with_what_is_right_and_what_is_found_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders --partitions 3");
    for line in [
        "topic create none -p -3",
        "topic create none --partitions=-3",
        "topic alter orders -p 0",
        "topic alter orders -p many",
    ] {
        commands.fails(
            line,
            64,
            &["--partitions <N>", "write a whole number from 1 to 2147483647"],
        );
    }
    commands.fails("topic create none -r -1", 64, &["from 1 to 32767"]);
    commands.fails("topic list --timeout -1", 64, &["from 1 to 86400"]);
    // Kafka's broker, and so ours, unsets what is not there without a word.
    commands.fails(
        "topic alter orders --unset retention.sm --partitions 9",
        65,
        &[
            "'orders'",
            "no topic config retention.sm",
            "did you mean retention.ms?",
        ],
    );
    assert_eq!(
        commands.json("topic list")[0]["partitions"],
        3,
        "nothing was changed"
    );
    let (code, stdout, stderr) = commands.run("topic alter orders -u retention.ms");
    assert_eq!((code, stdout.as_str()), (Some(0), "altered orders\n"));
    assert!(
        stderr.contains("'orders' has no value of its own for retention.ms"),
        "{stderr}"
    );
    // What is there is described beside what is not.
    let (code, stdout, stderr) = commands.run("topic describe none orders --json");
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, &found[0]["topic"]),
        (Some(65), &json!("orders")),
        "{stderr}"
    );
    assert!(
        stderr.contains("'none'") && stderr.contains("UNKNOWN_TOPIC"),
        "{stderr}"
    );
}

/// Dry runs for a group with 7 of 10 and 4 of 4 committed.
fn each_target_is_planned(commands: &Commands<'_>) {
    for (to, new) in [
        ("--to earliest", [0, 0]),
        ("--to latest", [10, 4]),
        ("--to current", [7, 4]),
        ("--to 3", [3, 3]),
        ("--to offset:99", [10, 4]),
        ("--shift -5", [2, 0]),
        ("--shift=+2", [9, 4]),
        ("--shift-by -5", [2, 0]),
        ("--shift-by=-5", [2, 0]),
        // The records are of now.
        ("--to 2023-11-14T22:13:20Z", [0, 0]),
        ("--to 2023-11-14T23:13:20.001+01:00", [0, 0]),
        ("--to PT1H", [0, 0]),
        ("--to PT0S", [10, 4]),
    ] {
        let plan = commands.json(&format!("group reset-offsets readers --all-topics {to}"));
        let planned = [
            &plan["offsets"][0]["new_offset"],
            &plan["offsets"][1]["new_offset"],
        ];
        assert_eq!(planned, [&json!(new[0]), &json!(new[1])], "{to}");
    }
}

/// From a group with 2 of 10 and 4 of 4 committed to nothing.
fn offsets_and_group_are_deleted(commands: &Commands<'_>) {
    // Partition 2 has no committed offset.
    commands.fails(
        "group reset-offsets readers --topic orders --shift 1",
        65,
        &["orders-2", "nothing is committed"],
    );
    commands.says("group delete-offsets readers --topic orders:1 --yes");
    assert_eq!(commands.offsets("readers"), [json!(["orders", 0, 2, 10, 8])]);
    commands.fails(
        "group delete-offsets readers --topic orders:1 --yes",
        65,
        &["orders-1", "nothing committed"],
    );
    assert_eq!(commands.json("group list")[0]["group"], "readers");
    assert_eq!(commands.json("group list --state Stable"), json!([]));
    assert_eq!(commands.json("group list --state empty")[0]["group"], "readers");
    assert_eq!(
        commands.json("group list --state Empty --type classic")[0]["type"],
        "classic"
    );

    assert_eq!(
        commands.json("group delete readers --yes"),
        json!({"deleted": ["readers"]})
    );
    commands.fails(
        "group delete readers --yes",
        65,
        &["'readers'", "GROUP_ID_NOT_FOUND"],
    );
    assert_eq!(commands.says("topic delete orders --yes"), "deleted orders\n");
}

#[test]
fn a_group_is_described_reset_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(
        dir.path(),
        &["penstock.shards=2", "group.initial.rebalance.delay.ms=0"],
    );
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders --partitions 3");
    let mut client = Client::connect(broker.address);
    produce(&mut client, "orders", 0, 10).unwrap();
    produce(&mut client, "orders", 1, 4).unwrap();
    assert_eq!(commands.json("group list"), json!([]));

    // A group that does not exist is created by its offsets, as with Kafka's tool; without --execute nothing is written.
    let plan = commands.json("group reset-offsets readers --topic orders:0 --to latest");
    assert_eq!(plan["executed"], false);
    assert_eq!(
        plan["offsets"][0],
        json!({"topic": "orders", "partition": 0, "offset": null, "new_offset": 10})
    );
    commands.fails(
        "group describe readers",
        65,
        &[
            "'readers'",
            "GROUP_ID_NOT_FOUND",
            "penstock group list",
            "classic and consumer groups only",
        ],
    );

    find_coordinator(&mut client, "readers");
    commit(&mut client, "readers", "orders", &[(0, 7), (1, 4)]);
    assert_eq!(
        commands.offsets("readers"),
        [json!(["orders", 0, 7, 10, 3]), json!(["orders", 1, 4, 4, 0])]
    );
    let described = &commands.json("group describe readers")[0];
    assert_eq!(
        (&described["state"], &described["total_lag"]),
        (&json!("Empty"), &json!(3))
    );
    assert_eq!(described["uncommitted_partitions"], 0);
    assert_eq!(described["offsets"][0]["metadata"], "");
    assert_eq!(described["coordinator"]["port"], json!(broker.address.port()));
    let (code, stdout, stderr) = commands.run("group describe none readers neither --json");
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 1, "{stdout}");
    assert_eq!((code, &found[0]["group"]), (Some(65), &json!("readers")));
    for missing in [
        "group 'none': GROUP_ID_NOT_FOUND",
        "group 'neither': GROUP_ID_NOT_FOUND",
    ] {
        assert!(stderr.contains(missing), "{missing}: {stderr}");
    }
    let (code, stdout, _) = commands.run("group describe none --json");
    assert_eq!((code, stdout.as_str()), (Some(65), "[]\n"));

    each_target_is_planned(&commands);
    assert_eq!(
        commands.offsets("readers")[0],
        json!(["orders", 0, 7, 10, 3]),
        "dry runs write nothing"
    );
    let text = commands.says("group reset-offsets readers --topic orders:0 --to 2 --execute");
    assert_eq!(
        text,
        "TOPIC   PARTITION  OFFSET  NEW-OFFSET\norders          0       7           2\n"
    );
    assert_eq!(commands.offsets("readers")[0], json!(["orders", 0, 2, 10, 8]));

    offsets_and_group_are_deleted(&commands);
}

#[test]
#[allow(clippy::too_many_lines, reason = "one story, told in order")]
fn a_group_with_members_is_described_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(
        dir.path(),
        &["penstock.shards=2", "group.initial.rebalance.delay.ms=0"],
    );
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders --partitions 2");
    let mut client = Client::connect(broker.address);
    produce(&mut client, "orders", 1, 6).unwrap();
    find_coordinator(&mut client, "readers");
    // A group whose id is empty can have offsets, and is told from one that has no id.
    commit(&mut client, "", "orders", &[(0, 0)]);
    let listed = commands.says("group list");
    let nameless = listed.lines().nth(1).unwrap_or_default();
    assert_eq!(
        nameless.split_whitespace().collect::<Vec<_>>(),
        ["\"\"", "classic", "Empty", "-", "1"],
        "{listed}"
    );
    commit(&mut client, "readers", "orders", &[(0, 0)]);
    let member = join(&mut client, "readers", "orders", &[0, 1]);
    let text = commands.says("group describe readers");
    assert!(
        text.starts_with(
            "Group readers  state Stable  type classic  protocol-type consumer  protocol range  "
        ),
        "{text}"
    );

    let described = &commands.json("group describe readers")[0];
    assert_eq!(
        (&described["state"], &described["protocol"]),
        (&json!("Stable"), &json!("range"))
    );
    let found = &described["members"][0];
    assert_eq!(
        (&found["member_id"], &found["client_id"]),
        (&json!(member.as_str()), &json!("test"))
    );
    assert_eq!(
        found["assignment"],
        json!([{"topic": "orders", "partitions": [0, 1]}])
    );
    let offset = &described["offsets"][1];
    assert_eq!(
        (&offset["committed_offset"], &offset["log_end_offset"]),
        (&json!(null), &json!(6))
    );
    assert_eq!(offset["member_id"], json!(member.as_str()));

    // What a member says that it has need not be a topic's name.
    find_coordinator(&mut client, "strange");
    commit(&mut client, "strange", "orders", &[(1, 4)]);
    join(&mut client, "strange", "no/topic\x1b[2J", &[0]);
    assert_eq!(
        commands.offsets("strange"),
        [
            json!(["no/topic\x1b[2J", 0, null, null, null]),
            json!(["orders", 1, 4, 6, 2])
        ]
    );
    let text = commands.says("group describe strange");
    assert!(
        text.contains("no/topic\\u{1b}[2J") && !text.contains('\x1b'),
        "{text}"
    );

    let reset = "group reset-offsets readers --all-topics --to earliest";
    let (_, plan, _) = commands.run(reset);
    assert!(plan.contains("orders          0       0           0"), "{plan}");
    for line in [reset, &format!("{reset} --execute")] {
        commands.fails(
            line,
            75,
            &["'readers'", "Stable", "1 member,", "stop its consumers"],
        );
    }
    commands.fails(
        "group delete readers --yes",
        75,
        &["NON_EMPTY_GROUP", "stop them"],
    );
    commands.fails(
        "group delete-offsets readers --topic orders --yes",
        75,
        &["orders-0", "GROUP_SUBSCRIBED"],
    );
    leave(&mut client, "readers", member);
    commands.says(&format!("{reset} --execute"));

    // Nothing committed is no lag of 0.
    join(&mut client, "idle", "orders", &[0]);
    assert_eq!(commands.json("group describe idle")[0]["total_lag"], json!(null));
    let text = commands.says("group describe idle");
    let head = text.lines().next().unwrap();
    assert!(head.ends_with("lag - (1 partition without a commit)"), "{text}");
}

#[test]
fn without_a_name_all_groups_are_described_and_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(
        dir.path(),
        &["penstock.shards=2", "group.initial.rebalance.delay.ms=0"],
    );
    let commands = Commands::new(dir.path(), &broker);
    assert_eq!(commands.json("group describe"), json!([]));
    commands.says("topic create orders --partitions 2");
    let mut client = Client::connect(broker.address);
    find_coordinator(&mut client, "readers");
    commit(&mut client, "readers", "orders", &[(0, 0)]);
    find_coordinator(&mut client, "idle");
    let member = join(&mut client, "idle", "orders", &[0, 1]);
    let idle = &commands.json("group describe --group idle")[0];
    assert_eq!(
        (
            &idle["protocol"],
            &idle["total_lag"],
            &idle["uncommitted_partitions"]
        ),
        (&json!("range"), &json!(null), &json!(2))
    );
    leave(&mut client, "idle", member);
    for line in [
        "group describe",
        "group describe --all",
        "group describe --all-groups",
        "group describe idle readers idle --group readers",
        "group describe --group idle --group readers",
    ] {
        let described = commands.json(line);
        let names: Vec<&Value> = described
            .as_array()
            .unwrap()
            .iter()
            .map(|g| &g["group"])
            .collect();
        assert_eq!(names, [&json!("idle"), &json!("readers")], "{line}");
        assert_eq!(described[0]["protocol"], json!(null), "{line}");
        assert_eq!(described[0]["uncommitted_partitions"], 0, "{line}");
    }
    let text = commands.says("group describe idle");
    assert!(text.ends_with("  lag -\nnothing committed\n"), "{text}");

    commands.fails(
        "group delete-offsets --group readers --topic orders",
        64,
        &["Delete 1 committed offset of readers (orders-0)", "--yes"],
    );
    commands.says("group delete-offsets --group readers --topic orders --yes");
    assert_eq!(
        commands.json("group delete --group idle idle --yes"),
        json!({"deleted": ["idle"]})
    );
}

#[test]
fn what_a_reset_takes_instead_of_what_was_meant_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders --partitions 2");
    let mut client = Client::connect(broker.address);
    produce(&mut client, "orders", 0, 10).unwrap();
    find_coordinator(&mut client, "readers");
    commit(&mut client, "readers", "orders", &[(0, 7)]);
    let remarks = |line: &str| {
        let (code, _, stderr) = commands.run(&format!("group reset-offsets {line}"));
        assert_eq!(code, Some(0), "{line}: {stderr}");
        stderr
    };
    let told = remarks("--group readers --topic orders --to-offset 99");
    for part in [
        "offset 99 lies outside of orders-0, which has 0 to 10; 10 is taken",
        "offset 99 lies outside of orders-1, which has 0 to 0; 0 is taken",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = remarks("readers --topic orders --to-current");
    assert!(
        told.contains("nothing is committed for orders-1; its end, 0, is taken")
            && !told.contains("orders-0"),
        "{told}"
    );
    for to in [
        "--to 1764561930000",
        "--to-offset 1764561930000",
        "--to 1764561930000 --execute",
    ] {
        commands.fails(
            &format!("group reset-offsets readers --topic orders {to}"),
            64,
            &["1764561930000", "write a time like 2025-12-01T04:05:30Z"],
        );
    }
    assert_eq!(commands.offsets("readers"), [json!(["orders", 0, 7, 10, 3])]);

    let missing = "group 'nosuch' does not exist; --execute creates it";
    let told = remarks("nosuch --topic orders:0 --to-earliest");
    assert!(told.contains(missing), "{told}");
    let told = remarks("nosuch --topic orders:0 --to-earliest --execute");
    assert!(!told.contains("does not exist"), "{told}");
    let told = remarks("nosuch --topic orders:0 --to-latest");
    assert!(!told.contains("does not exist"), "{told}");
}

#[test]
fn an_internal_topic_is_deleted_only_when_that_is_said_and_the_broker_logs_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(
        dir.path(),
        &["penstock.shards=1", "offsets.topic.num.partitions=2"],
    );
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders");
    let mut client = Client::connect(broker.address);
    find_coordinator(&mut client, "readers");
    commit(&mut client, "readers", "orders", &[(0, 0)]);
    commands.fails(
        "topic delete orders __consumer_offsets --yes",
        64,
        &["'__consumer_offsets'", "committed offsets", "--internal"],
    );
    assert_eq!(
        commands.json("topic list --internal").as_array().unwrap().len(),
        2
    );
    assert_eq!(
        commands.says("topic delete __consumer_offsets --yes --internal"),
        "deleted __consumer_offsets\n"
    );
    broker.logged(&["WARN", "an internal topic was deleted", "__consumer_offsets"]);
    // Groups go on with a new topic.
    find_coordinator(&mut client, "readers");
    commit(&mut client, "readers", "orders", &[(0, 0)]);
    assert_eq!(commands.offsets("readers"), [json!(["orders", 0, 0, 0, 0])]);
}

#[test]
fn topic_configs_without_effect_are_stored_and_logged() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create quiet --config preallocate=false --config retention.ms=1000");
    commands.fails(
        "topic create refused --config local.retention.ms=1 --config nonsense=1",
        65,
        &[],
    );
    commands.says("topic create orders --config local.retention.ms=1000 --config retention.ms=2000");
    // Nothing was said of the two before.
    let lines = broker.logged(&["have no effect here"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("settings=\"orders: local.retention.ms\""),
        "{lines:?}"
    );
    let described = &commands.json("topic describe orders")[0];
    let stored = json!({"name": "local.retention.ms", "value": "1000", "source": "topic"});
    assert!(described["configs"].as_array().unwrap().contains(&stored));
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let commands = Commands::new(dir.path(), &broker);
    commands.says("topic create orders");
    for line in [
        "group reset-offsets g --topic orders --to 2026-02-30",
        "group reset-offsets g --topic orders --to yesterday",
        "group reset-offsets g --topic orders:x --to latest",
        "group reset-offsets g --topic orders",
        "group reset-offsets g --to latest",
        "group reset-offsets g --topic orders --all-topics --to latest",
        "group reset-offsets g --topic orders --to latest --shift 1",
        "group reset-offsets g --topic orders --to latest --execute --dry-run",
        "group reset-offsets g --topic orders --to 1969-01-01",
        "group list --state bogus",
        "group list --state Stable,bogus",
        "group list --type queue",
        "group reset-offsets g --topic orders --to-earliest --to-latest",
        "group describe g --all",
        "group delete",
        "group delete g",
        "topic create orders --partitions 0",
        "topic list --timeout 0",
        "topic list --bootstrap",
        "topic unknown",
    ] {
        commands.fails(line, 64, &[]);
    }
    commands.fails(
        "group list --state bogus",
        64,
        &["'bogus'", "Stable, Empty, PreparingRebalance"],
    );
    commands.fails(
        "group list --type queue",
        64,
        &["'queue'", "classic, consumer, share, streams"],
    );
    for to in ["--to -5", "--to=-5", "--to offset:-5", "--to -PT1H"] {
        let line = format!("group reset-offsets g --topic orders {to}");
        commands.fails(&line, 64, &["nothing lies before offset 0", "--shift -5"]);
    }
    commands.fails(
        "group reset-offsets g --topic orders:1 --to latest",
        65,
        &["partition 1", "'orders'", "0 to 0"],
    );
    commands.fails("group reset-offsets g --topic none --to latest", 65, &["'none'"]);
    commands.fails(
        "group reset-offsets g --all-topics --to latest",
        65,
        &["'g'", "--topic"],
    );
    commands.fails(
        "group delete-offsets g --topic orders --yes",
        65,
        &["'g'", "GROUP_ID_NOT_FOUND"],
    );
    commands.fails("group delete g --yes", 65, &["'g'", "GROUP_ID_NOT_FOUND"]);
    let (code, _, stderr) = run(dir.path(), &["-o", "num.partitions=3", "topic", "list"]);
    assert_eq!(code, Some(64), "{stderr}");
    let (code, _, stderr) = run(dir.path(), &["topic", "list", "--bootstrap-server", "::1"]);
    assert_eq!(code, Some(64), "{stderr}");
    let (code, stdout, _) = run(dir.path(), &["group", "--help"]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("reset-offsets readers --all-topics") && stdout.contains("Exit codes"),
        "{stdout}"
    );
}

/// A server that answers the first bytes of each connection with `answer`, then reads until the peer is gone.
fn server(answer: &'static [u8], stays: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut bytes = [0; 1024];
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(answer);
            while stays && stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
    });
    address
}

#[test]
fn a_server_that_does_not_speak_kafka_is_told_within_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    // ApiVersions of version 0 that serves nothing but itself; correlation id 1 is the first.
    const ONLY_VERSIONS: &[u8] = b"\0\0\0\x10\0\0\0\x01\0\0\0\0\0\x01\0\x12\0\0\0\x03";
    let cases: [(&str, &'static [u8], bool, i32, &str); 9] = [
        (
            "http",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            true,
            76,
            "not the Kafka protocol",
        ),
        ("negative length", b"\xff\xff\xff\xff", true, 76, "-1 bytes"),
        (
            "huge length",
            b"\x7f\xff\xff\xffabc",
            true,
            76,
            "2147483647 bytes",
        ),
        ("empty frame", b"\0\0\0\0", true, 76, "not the Kafka protocol"),
        (
            "wrong correlation id",
            b"\0\0\0\x0c\0\0\0\x09\0\0\0\0\0\0\0\0",
            true,
            76,
            "correlation id",
        ),
        (
            "too many elements",
            b"\0\0\0\x0e\0\0\0\x01\0\0\x7f\xff\xff\xff\0\0\0\0",
            true,
            76,
            "not the Kafka protocol",
        ),
        ("an API is missing", ONLY_VERSIONS, true, 69, "Metadata is needed"),
        (
            "half a frame",
            b"\0\0\x01\0\0\0\0\x01",
            false,
            75,
            "closed the connection",
        ),
        ("silence", b"", true, 75, "did not answer"),
    ];
    for (name, answer, stays, status, part) in cases {
        let address = server(answer, stays);
        let began = Instant::now();
        let line = ["topic", "list", "--timeout", "2", "-b", &address];
        let (code, stdout, stderr) = run(dir.path(), &line);
        assert_eq!((code, stdout.as_str()), (Some(status), ""), "{name}: {stderr}");
        assert!(
            stderr.contains(part) && stderr.contains(&address),
            "{name}: {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{name}: {stderr}");
        assert_eq!(
            stderr.contains("1 s: waiting for"),
            name == "silence",
            "{name}: {stderr}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{name}: {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn without_a_broker_the_address_and_a_next_step_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    for line in [["topic", "list"], ["group", "list"]] {
        let (code, stdout, stderr) = run(dir.path(), &[line[0], line[1], "-b", &address]);
        assert_eq!((code, stdout.as_str()), (Some(69), ""), "{stderr}");
        assert!(
            stderr.contains(&address) && stderr.contains("--bootstrap"),
            "{stderr}"
        );
    }
    // An empty list would be an answer.
    for line in [
        "group list",
        "group describe",
        "group describe g",
        "group delete g --yes",
        "group delete-offsets g --topic t --yes",
        "group reset-offsets g --topic t --to latest",
        "topic list",
        "topic describe",
        "topic describe t",
        "topic create t",
        "topic alter t --partitions 2",
        "topic delete t --yes",
    ] {
        let words: Vec<&str> = line.split(' ').chain(["--json", "-b", &address]).collect();
        let (code, stdout, stderr) = run(dir.path(), &words);
        assert_eq!((code, stdout.as_str()), (Some(69), ""), "{line}: {stderr}");
    }
    let (code, _, stderr) = run(dir.path(), &["-b", &address, "group", "list"]);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(
        stderr.contains("tip: options of the connection stand behind topic or group"),
        "{stderr}"
    );
    // The first address that answers is enough.
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let both = format!("{address},{}", broker.address);
    let (code, stdout, stderr) = run(dir.path(), &["topic", "list", "--json", "-b", &both]);
    assert_eq!((code, stdout.trim()), (Some(0), "[]"), "{stderr}");
}
