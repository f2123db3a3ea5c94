//! Topics made, enlarged and deleted, records deleted: AD-1 to AD-7 and the bug reports about them.

use protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use protocol::{Str, Uuid};

use super::super::Case;
use super::super::dialogue::{Dialogue, delete_of};
use super::super::target::{RESTARTS, Setup};
use super::versions::NO_TOPIC_ID;
use crate::error::Result;

/// Topics cannot be deleted.
static NO_DELETION: Setup = Setup {
    name: "no-deletion",
    overrides: &["delete.topic.enable=false"],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[
    Case::new("AD-1 topics that can and cannot be made (BR-086)", create),
    Case::new("AD-1 names that collide", collisions),
    Case::new("AD-2 replicas by hand", assignments),
    Case::new("AD-3 validate only, and what a created topic tells", validate_only),
    Case::new("AD-3 too many partitions in one request", too_many),
    Case::new("AD-5 topics deleted by name and by id (BR-086)", delete),
    Case::new("AD-5 deletion is off", no_deletion).on(&NO_DELETION),
    Case::new("AD-6 more partitions (BR-097)", partitions).differs("more partitions than one request may make is POLICY_VIOLATION as in CreateTopics; Kafka fails inside with UNKNOWN_SERVER_ERROR"),
    Case::new("AD-7 records deleted (BR-084)", records),
    Case::new("AD-7 deleted records stay deleted after kill -9 (BR-084)", records_after_kill).on(&RESTARTS).differs("the new log start is durable before DeleteRecords answers; Kafka, killed within a minute of it, falls back"),
    Case::new("BR-026 a created topic can be used at once", usable_at_once),
    Case::new("BR-085 the topics that Kafka Streams makes", streams),
];

fn creatable(name: Str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic {
        name,
        num_partitions,
        replication_factor,
        ..Default::default()
    }
}

fn request(topics: Vec<CreatableTopic>, validate_only: bool) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics,
        timeout_ms: 30_000,
        validate_only,
    }
}

/// Asks and writes the answer down without the topics' configurations, which a case of their own compares.
fn ask(d: &mut Dialogue<'_>, label: &str, version: i16, request: &CreateTopicsRequest) -> Result<()> {
    let mut answer = d.quiet(version, request)?;
    for topic in &mut answer.topics {
        if let Some(configs) = &mut topic.configs {
            configs.truncate(1);
        }
    }
    d.note(&format!("> CreateTopics v{version}: {label}"));
    d.answered(&answer);
    Ok(())
}

fn create(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [2, 4, 5, 7] {
        let name = |d: &Dialogue<'_>, short: &str| d.name(&format!("v{version}-{short}"));
        for (label, partitions, factor) in [
            ("2 partitions", 2, 1),
            ("no partitions", 0, 1),
            ("-2 partitions", -2, 1),
            ("replication factor 0", 1, 0),
            ("replication factor -2", 1, -2),
            ("replication factor 3 of one broker", 1, 3),
            ("10001 partitions", 10_001, 1),
        ] {
            let topic = creatable(name(d, "a"), partitions, factor);
            ask(d, label, version, &request(vec![topic], false))?;
        }
        if version >= 4 {
            let topic = creatable(name(d, "defaults"), -1, -1);
            ask(d, "all defaults", version, &request(vec![topic], false))?;
        }
        let topic = creatable(name(d, "a"), 2, 1);
        ask(d, "it exists", version, &request(vec![topic], false))?;
        let twice = vec![
            creatable(name(d, "b"), 1, 1),
            creatable(name(d, "b"), 2, 1),
            creatable(name(d, "c"), 1, 1),
        ];
        ask(
            d,
            "a name twice, another beside it",
            version,
            &request(twice, false),
        )?;
        ask(d, "no topics", version, &request(Vec::new(), false))?;
        for bad in ["", ".", "..", "a/b", "a b", "ü"] {
            let topic = creatable(Str::from(bad), 1, 1);
            ask(d, &format!("name {bad:?}"), version, &request(vec![topic], false))?;
        }
        let topic = creatable(Str::from("n".repeat(250)), 1, 1);
        ask(d, "250 letters", version, &request(vec![topic], false))?;
    }
    Ok(())
}

fn collisions(d: &mut Dialogue<'_>) -> Result<()> {
    for (first, second) in [("a.b", "a_b"), ("c_d.e", "c.d_e"), ("f.g", "f.g"), ("h", "H")] {
        let topic = creatable(d.name(first), 1, 1);
        ask(d, first, 7, &request(vec![topic], false))?;
        let topic = creatable(d.name(second), 1, 1);
        ask(d, &format!("{second} beside it"), 7, &request(vec![topic], false))?;
    }
    Ok(())
}

fn assignments(d: &mut Dialogue<'_>) -> Result<()> {
    let by_hand = |parts: &[(i32, &[i32])]| -> Vec<CreatableReplicaAssignment> {
        parts
            .iter()
            .map(|&(partition_index, ids)| CreatableReplicaAssignment {
                partition_index,
                broker_ids: ids.to_vec(),
            })
            .collect()
    };
    for (number, (label, count, factor, parts)) in [
        ("two partitions", -1, -1, by_hand(&[(0, &[1]), (1, &[1])])),
        ("counts beside them", 2, 1, by_hand(&[(0, &[1]), (1, &[1])])),
        (
            "a partition count beside them",
            2,
            -1,
            by_hand(&[(0, &[1]), (1, &[1])]),
        ),
        ("a gap", -1, -1, by_hand(&[(0, &[1]), (2, &[1])])),
        ("not from 0", -1, -1, by_hand(&[(1, &[1])])),
        ("a partition twice", -1, -1, by_hand(&[(0, &[1]), (0, &[1])])),
        ("a broker twice", -1, -1, by_hand(&[(0, &[1, 1])])),
        ("an unknown broker", -1, -1, by_hand(&[(0, &[9])])),
        ("no brokers", -1, -1, by_hand(&[(0, &[])])),
        ("uneven factors", -1, -1, by_hand(&[(0, &[1]), (1, &[1, 9])])),
        ("a negative broker", -1, -1, by_hand(&[(0, &[-1])])),
    ]
    .into_iter()
    .enumerate()
    {
        for version in [2, 7] {
            let topic = CreatableTopic {
                assignments: parts.clone(),
                ..creatable(d.name(&format!("t{number}v{version}")), count, factor)
            };
            ask(d, label, version, &request(vec![topic], false))?;
        }
    }
    Ok(())
}

fn validate_only(d: &mut Dialogue<'_>) -> Result<()> {
    let name = d.name("a");
    for version in [2, 5, 7] {
        let topic = CreatableTopic {
            configs: vec![CreatableTopicConfig {
                name: Str::from("retention.ms"),
                value: Some(Str::from("1234")),
            }],
            ..creatable(name.clone(), 3, 1)
        };
        ask(d, "good", version, &request(vec![topic], true))?;
        let wrong = creatable(name.clone(), 0, 1);
        ask(d, "no partitions", version, &request(vec![wrong], true))?;
    }
    let metadata = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.clone()),
            ..Default::default()
        }]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    d.ask("it is not there", 9, &metadata)?;
    Ok(())
}

fn too_many(d: &mut Dialogue<'_>) -> Result<()> {
    let topics = vec![creatable(d.name("a"), 6000, 1), creatable(d.name("b"), 6000, 1)];
    ask(d, "twice 6000 partitions", 7, &request(topics, true))?;
    Ok(())
}

fn delete(d: &mut Dialogue<'_>) -> Result<()> {
    let by_name = |name: &Str| DeleteTopicState {
        name: Some(name.clone()),
        ..Default::default()
    };
    let by_id = |topic_id| DeleteTopicState { name: None, topic_id };
    let state = |topics| DeleteTopicsRequest {
        topics,
        timeout_ms: 30_000,
        ..Default::default()
    };
    for version in [1, 3, 5] {
        let topic = d.topic(&format!("v{version}"), 1, &[])?;
        let names = |names: Vec<Str>| DeleteTopicsRequest {
            topic_names: names,
            timeout_ms: 30_000,
            ..Default::default()
        };
        d.ask(
            "a topic twice",
            version,
            &names(vec![topic.name.clone(), topic.name.clone()]),
        )?;
        d.ask("once", version, &names(vec![topic.name.clone()]))?;
        d.ask("again", version, &names(vec![topic.name.clone()]))?;
        d.ask("no topics", version, &names(Vec::new()))?;
        d.ask(
            "a name that cannot be",
            version,
            &names(vec![Str::from("not/a/topic")]),
        )?;
    }
    let one = d.topic("one", 1, &[])?;
    let two = d.topic("two", 2, &[])?;
    d.ask(
        "by name and by id",
        6,
        &state(vec![by_name(&one.name), by_id(two.id)]),
    )?;
    d.ask("again", 6, &state(vec![by_name(&one.name), by_id(two.id)]))?;
    let three = d.topic("three", 1, &[])?;
    d.ask(
        "the same by name and by id",
        6,
        &state(vec![by_name(&three.name), by_id(three.id)]),
    )?;
    d.ask("an id twice", 6, &state(vec![by_id(three.id), by_id(three.id)]))?;
    d.ask(
        "unknown and zero ids",
        6,
        &state(vec![by_id(NO_TOPIC_ID), by_id(Uuid::default())]),
    )?;
    let both = DeleteTopicState {
        name: Some(three.name.clone()),
        topic_id: three.id,
    };
    d.ask("a name with an id", 6, &state(vec![both]))?;
    // A topic of the same name is another topic.
    let again = d.topic("two", 1, &[])?;
    d.note(&format!(
        "made anew under the old name, with another id: {}",
        again.id != two.id
    ));
    d.fetch("it is empty", &again, 0, 0)?;
    Ok(())
}

fn no_deletion(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in [1, 3, 5] {
        let request = DeleteTopicsRequest {
            topic_names: vec![topic.name.clone(), d.name("none")],
            timeout_ms: 30_000,
            ..Default::default()
        };
        d.ask("deletion is off", version, &request)?;
    }
    Ok(())
}

fn partitions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 3, &[])?;
    let batch = d.batch(&["x"]);
    d.written(&topic, 2, batch)?;
    let assigned = |ids: &[&[i32]]| {
        let list = ids.iter().map(|ids| CreatePartitionsAssignment {
            broker_ids: ids.to_vec(),
        });
        Some(list.collect::<Vec<_>>())
    };
    let name = topic.name.clone();
    for (label, count, assignments, validate_only) in [
        ("3 to 6, validate only", 6, None, true),
        ("3 to 6", 6, None, false),
        ("6 to 3", 3, None, false),
        ("6 to 6", 6, None, false),
        ("to 0", 0, None, false),
        ("to -1", -1, None, false),
        ("to 7 with one assignment", 7, assigned(&[&[1]]), false),
        ("to 9 with one assignment", 9, assigned(&[&[1]]), false),
        ("to 8 on an unknown broker", 8, assigned(&[&[7]]), false),
        ("to 8 on two brokers", 8, assigned(&[&[1, 1]]), false),
        ("to 8 with no broker", 8, assigned(&[&[]]), false),
        ("to 8 with an empty list", 8, assigned(&[]), false),
        ("to 20000", 20_000, None, true),
    ] {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: name.clone(),
                count,
                assignments,
            }],
            timeout_ms: 30_000,
            validate_only,
        };
        d.ask(label, 3, &request)?;
    }
    let entry = |name: &Str, count| CreatePartitionsTopic {
        name: name.clone(),
        count,
        assignments: None,
    };
    let request = CreatePartitionsRequest {
        topics: vec![entry(&name, 10), entry(&name, 11), entry(&d.name("none"), 3)],
        timeout_ms: 30_000,
        validate_only: false,
    };
    d.ask("a topic twice, an unknown one", 3, &request)?;
    let end = d.quiet(
        9,
        &MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(name),
                ..Default::default()
            }]),
            allow_auto_topic_creation: false,
            ..Default::default()
        },
    )?;
    let epochs: Vec<_> = end
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|part| (part.leader_id, part.leader_epoch))
        .collect();
    d.note(&format!("leaders and epochs: {epochs:?}"));
    d.fetch("a new partition", &topic, 5, 0)?;
    d.fetch("an old one", &topic, 2, 0)?;
    Ok(())
}

const TEN: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

fn records(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&TEN);
    d.written(&topic, 0, batch)?;
    for offset in [5, 5, 3, 0, 11, -2, i64::MAX, -1, 10] {
        d.ask(&format!("to {offset}"), 2, &delete_of(&topic, &[(0, offset)]))?;
    }
    d.fetch("4", &topic, 0, 4)?;
    d.fetch("10", &topic, 0, 10)?;
    let batch = d.batch(&["new"]);
    d.produce("one more", &topic, 0, batch)?;
    let two = d.topic("b", 2, &[])?;
    let batch = d.batch(&TEN);
    d.written(&two, 0, batch)?;
    d.ask(
        "good, empty and unknown partitions",
        2,
        &delete_of(&two, &[(0, 4), (1, 0), (7, 0)]),
    )?;
    d.fetch("from the middle of a batch on", &two, 0, 4)?;
    for policy in ["compact", "compact,delete"] {
        let topic = d.topic(&policy.replace(',', "-"), 1, &[("cleanup.policy", policy)])?;
        let records: Vec<_> = d.records(&TEN).into_iter().map(|one| one.key("k")).collect();
        let batch = super::super::batch::compressed(protocol::compression::Codec::None, &records);
        d.written(&topic, 0, batch)?;
        d.ask(policy, 2, &delete_of(&topic, &[(0, 2)]))?;
    }
    Ok(())
}

fn records_after_kill(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&TEN);
    d.written(&topic, 0, batch)?;
    d.ask("to 5", 2, &delete_of(&topic, &[(0, 5)]))?;
    d.hang_up();
    d.target().kill_and_start()?;
    d.ask("to 3 after kill -9", 2, &delete_of(&topic, &[(0, 3)]))?;
    for offset in [4, 5] {
        let answer = d.quiet(12, &super::super::dialogue::fetch_of([(&topic, 0, offset)], 0))?;
        let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
        let rows: Vec<_> = parts
            .map(|part| (part.error_code, part.high_watermark, part.log_start_offset))
            .collect();
        d.note(&format!("fetch {offset}: {rows:?}"));
    }
    Ok(())
}

fn usable_at_once(d: &mut Dialogue<'_>) -> Result<()> {
    let names: Vec<_> = (0..20).map(|number| d.name(&format!("t{number}"))).collect();
    let topics = names.iter().map(|name| creatable(name.clone(), 3, 1)).collect();
    let answer = d.quiet(7, &request(topics, false))?;
    let made = answer
        .topics
        .iter()
        .filter(|topic| topic.error_code.0 == 0)
        .count();
    let asked = MetadataRequest {
        topics: Some(
            names
                .iter()
                .rev()
                .map(|name| MetadataRequestTopic {
                    name: Some(name.clone()),
                    ..Default::default()
                })
                .collect(),
        ),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let answer = d.quiet(9, &asked)?;
    let led = answer
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .filter(|part| part.leader_id == 1)
        .count();
    d.note(&format!(
        "{made} of 20 topics made; {led} of 60 partitions have a leader in the next answer"
    ));
    Ok(())
}

fn streams(d: &mut Dialogue<'_>) -> Result<()> {
    let config = |name: &'static str, value: &'static str| CreatableTopicConfig {
        name: Str::from(name),
        value: Some(Str::from(value)),
    };
    for (number, configs) in [
        vec![config("cleanup.policy", "compact")],
        vec![
            config("cleanup.policy", "compact,delete"),
            config("retention.ms", "86400000"),
        ],
        vec![
            config("cleanup.policy", "delete"),
            config("segment.bytes", "52428800"),
            config("retention.ms", "-1"),
            config("message.timestamp.type", "CreateTime"),
        ],
        vec![
            config("cleanup.policy", "compact"),
            config("min.compaction.lag.ms", "1000"),
            config("segment.bytes", "1048576"),
        ],
        vec![config("no.such.key", "1")],
        vec![config("cleanup.policy", "shred")],
        vec![config("retention.ms", "soon")],
        vec![config("retention.ms", "-2")],
        vec![config("segment.bytes", "13")],
        vec![config("compression.type", "bzip2")],
        vec![config("min.insync.replicas", "0")],
        vec![config("message.timestamp.type", "Yesterday")],
        vec![CreatableTopicConfig {
            name: Str::from("retention.ms"),
            value: None,
        }],
        vec![config("retention.ms", "1"), config("retention.ms", "2")],
    ]
    .into_iter()
    .enumerate()
    {
        let label = configs
            .iter()
            .map(|one| format!("{}={}", one.name, one.value.as_ref().map_or("null", Str::as_str)))
            .collect::<Vec<_>>()
            .join(" ");
        let topic = CreatableTopic {
            configs,
            ..creatable(d.name(&format!("t{number}")), 1, 1)
        };
        ask(d, &label, 7, &request(vec![topic], false))?;
    }
    Ok(())
}
