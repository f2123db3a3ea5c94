//! Metadata, DescribeCluster, DescribeTopicPartitions: MD numbers and the bug reports about them.

use std::time::Duration;

use protocol::messages::describe_cluster::DescribeClusterRequest;
use protocol::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopicRequest,
};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use protocol::{ErrorCode, Str, Uuid};

use super::super::Case;
use super::super::dialogue::{Dialogue, Topic};
use super::super::target::{RACK, Setup};
use super::versions::NO_TOPIC_ID;
use crate::error::Result;

/// No topic is made by asking for it.
static NO_AUTO_CREATE: Setup = Setup {
    name: "no-auto-create",
    overrides: &["auto.create.topics.enable=false"],
    restarts: false,
};

/// Topics get three partitions, and more replicas than there are brokers.
static MANY_REPLICAS: Setup = Setup {
    name: "many-replicas",
    overrides: &["default.replication.factor=3", "num.partitions=3"],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[
    Case::new("MD-1 all topics, no topics", all_or_none),
    Case::new("MD-3 unknown names and ids", unknown).differs("a topic that is asked for twice is answered twice; the zero id is unknown like any other"),
    Case::new("MD-4 topics made by asking for them (BR-070)", auto_create),
    Case::new("MD-4 asking makes no topic where that is off", no_auto_create).on(&NO_AUTO_CREATE),
    Case::new("MD-4 asking for a topic that cannot have its replicas (BR-126)", too_many_replicas).on(&MANY_REPLICAS),
    Case::new("MD-5 names that can be and cannot be", names),
    Case::new("MD-7 controller, brokers and leaders of one broker with a rack (MD-6, MD-8, MD-11)", one_broker).on(&RACK),
    Case::new("MD-9 authorized operations", operations),
    Case::new("MD-10 names and ids in one request", mixed).differs("each topic is answered by what it is asked by, name or id; Kafka refuses ids before version 12 and then drops names"),
    Case::new("MD-12 DescribeTopicPartitions page by page", pages).differs("a cursor at partition -1 is read as 0, where Kafka refuses the whole request"),
    Case::new("MD-13 DescribeCluster by type of endpoint, and fenced brokers", endpoint_types).on(&RACK),
    Case::new("MD-14 cluster ids are the same in every answer and connection", cluster_id),
];

fn named(names: &[Str], allow_auto_topic_creation: bool) -> MetadataRequest {
    MetadataRequest {
        topics: Some(
            names
                .iter()
                .map(|name| MetadataRequestTopic {
                    name: Some(name.clone()),
                    ..Default::default()
                })
                .collect(),
        ),
        allow_auto_topic_creation,
        ..Default::default()
    }
}

fn all_or_none(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    for version in 0..=13 {
        let mut request = MetadataRequest {
            topics: if version == 0 { Some(Vec::new()) } else { None },
            ..Default::default()
        };
        let mut answer = d.quiet(version, &request)?;
        // Topics of other cases are there too.
        answer.topics.retain(|one| one.name.as_ref() == Some(&topic.name));
        d.note(&format!(
            "> Metadata v{version}: all topics, of which one is shown"
        ));
        d.answered(&answer);
        if version > 0 {
            request.topics = Some(Vec::new());
            d.ask("no topics", version, &request)?;
        }
    }
    Ok(())
}

fn one_broker(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    for version in 0..=13 {
        let one = named(std::slice::from_ref(&topic.name), version < 4);
        d.ask("a topic of two partitions", version, &one)?;
    }
    Ok(())
}

fn endpoint_types(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=2 {
        for endpoint_type in [1, 2, 0, 3, -1, i8::MAX] {
            for include_fenced_brokers in [false, true] {
                if (version == 0 && endpoint_type != 1) || (version < 2 && include_fenced_brokers) {
                    continue;
                }
                let request = DescribeClusterRequest {
                    endpoint_type,
                    include_fenced_brokers,
                    ..Default::default()
                };
                let label =
                    format!("endpoint type {endpoint_type}, fenced ones too: {include_fenced_brokers}");
                d.ask(&label, version, &request)?;
            }
        }
    }
    Ok(())
}

fn unknown(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in [4, 9, 12, 13] {
        let names = [d.name("none"), topic.name.clone(), d.name("no"), Str::from("a b")];
        d.ask("known between unknown", version, &named(&names, false))?;
        d.ask(
            "the same twice",
            version,
            &named(&[topic.name.clone(), topic.name.clone()], false),
        )?;
    }
    for version in [12, 13] {
        for (label, topic_id) in [
            ("good", topic.id),
            ("unknown", NO_TOPIC_ID),
            ("zero", Uuid::default()),
        ] {
            let request = MetadataRequest {
                topics: Some(vec![MetadataRequestTopic { topic_id, name: None }]),
                allow_auto_topic_creation: true,
                ..Default::default()
            };
            d.ask(&format!("{label} id"), version, &request)?;
        }
    }
    Ok(())
}

/// Asks until the topic is there.
fn until_made(d: &mut Dialogue<'_>, name: &Str) -> Result<()> {
    for _ in 0..100 {
        let answer = d.quiet(9, &named(std::slice::from_ref(name), false))?;
        let made = answer
            .topics
            .iter()
            .any(|topic| topic.error_code == ErrorCode::NONE && !topic.partitions.is_empty());
        if made {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    d.note("it was not made in three seconds");
    Ok(())
}

fn auto_create(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [0, 3, 4, 8, 12, 13] {
        let name = d.name(&format!("v{version}"));
        if version >= 4 {
            d.ask(
                "a new name, not to be made",
                version,
                &named(std::slice::from_ref(&name), false),
            )?;
            std::thread::sleep(Duration::from_millis(100));
        }
        let answer = d.quiet(version, &named(std::slice::from_ref(&name), true))?;
        let first = answer.topics.first().cloned().unwrap_or_default();
        // LEADER_NOT_AVAILABLE would be fine too (BR-070), an empty topic without an error would not.
        d.note(&format!(
            "v{version} a new name: {} with {} partitions",
            first.error_code,
            first.partitions.len()
        ));
        until_made(d, &name)?;
        d.ask("again", version, &named(std::slice::from_ref(&name), version < 4))?;
    }
    d.ask(
        "a name that cannot be",
        9,
        &named(&[Str::from("bad name!")], true),
    )?;
    Ok(())
}

fn no_auto_create(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [1, 4, 13] {
        let name = d.name(&format!("v{version}"));
        for _ in 0..2 {
            d.ask("a new name", version, &named(std::slice::from_ref(&name), true))?;
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

fn too_many_replicas(d: &mut Dialogue<'_>) -> Result<()> {
    let name = d.name("a");
    for version in [4, 9] {
        let answer = d.quiet(version, &named(std::slice::from_ref(&name), true))?;
        let first = answer.topics.first().cloned().unwrap_or_default();
        d.note(&format!(
            "v{version}: {} with {} partitions",
            first.error_code,
            first.partitions.len()
        ));
        std::thread::sleep(Duration::from_millis(300));
    }
    Ok(())
}

fn names(d: &mut Dialogue<'_>) -> Result<()> {
    let long = "n".repeat(249);
    let too_long = "n".repeat(250);
    for (label, name) in [
        ("empty", ""),
        (".", "."),
        ("..", ".."),
        ("...", "..."),
        ("249 letters", long.as_str()),
        ("250 letters", too_long.as_str()),
        ("a slash", "a/b"),
        ("a space", "a b"),
        ("a colon", "a:b"),
        ("a tab", "a\tb"),
        ("an umlaut", "ä"),
        ("all kinds", "aZ09._-"),
    ] {
        for version in [4, 13] {
            let answer = d.quiet(version, &named(&[Str::from(name.to_owned())], false))?;
            let code = answer.topics.first().map(|topic| topic.error_code);
            d.note(&format!("v{version} {label}: {code:?}"));
        }
    }
    Ok(())
}

fn operations(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in [8, 10, 11, 13] {
        for (of_topics, of_cluster) in [(false, false), (true, false), (false, true), (true, true)] {
            if of_cluster && version > 10 {
                continue;
            }
            let request = MetadataRequest {
                include_topic_authorized_operations: of_topics,
                include_cluster_authorized_operations: of_cluster,
                ..named(&[topic.name.clone(), d.name("none")], false)
            };
            d.ask(
                &format!("of topics {of_topics}, of the cluster {of_cluster}"),
                version,
                &request,
            )?;
        }
    }
    Ok(())
}

fn mixed(d: &mut Dialogue<'_>) -> Result<()> {
    let (one, two) = (d.topic("a", 1, &[])?, d.topic("b", 1, &[])?);
    for version in [10, 12, 13] {
        let request = MetadataRequest {
            topics: Some(vec![
                MetadataRequestTopic {
                    topic_id: Uuid::default(),
                    name: Some(one.name.clone()),
                },
                MetadataRequestTopic {
                    topic_id: two.id,
                    name: if version < 12 {
                        Some(two.name.clone())
                    } else {
                        None
                    },
                },
            ]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        d.ask("one by name, one by id", version, &request)?;
    }
    Ok(())
}

fn page(topics: &[&Topic], limit: i32, cursor: Option<(&Topic, i32)>) -> DescribeTopicPartitionsRequest {
    DescribeTopicPartitionsRequest {
        topics: topics
            .iter()
            .map(|topic| DescribeTopicPartitionsRequestTopicRequest {
                name: topic.name.clone(),
            })
            .collect(),
        response_partition_limit: limit,
        cursor: cursor.map(|(topic, partition_index)| DescribeTopicPartitionsRequestCursor {
            topic_name: topic.name.clone(),
            partition_index,
        }),
    }
}

fn pages(d: &mut Dialogue<'_>) -> Result<()> {
    let b = d.topic("b", 3, &[])?;
    let a = d.topic("a", 2, &[])?;
    let c = Topic {
        name: d.name("c"),
        id: Uuid::default(),
    };
    let all = [&b, &c, &a];
    d.ask("out of order, one unknown", 0, &page(&all, 100, None))?;
    for limit in [1, 2, 3, 4, 5] {
        d.ask(&format!("limit {limit}"), 0, &page(&all, limit, None))?;
    }
    for limit in [0, -1] {
        d.ask(&format!("limit {limit}"), 0, &page(&[&a], limit, None))?;
    }
    for (label, cursor) in [
        ("from a/1", (&a, 1)),
        ("from b/0", (&b, 0)),
        ("from b/2", (&b, 2)),
        ("from b/3, which is not there", (&b, 3)),
        ("from c, which is not there", (&c, 0)),
        ("from b/-1", (&b, -1)),
    ] {
        d.ask(label, 0, &page(&all, 2, Some(cursor)))?;
    }
    d.ask("a topic twice", 0, &page(&[&a, &a], 100, None))?;
    Ok(())
}

fn cluster_id(d: &mut Dialogue<'_>) -> Result<()> {
    let mut ids = std::collections::BTreeSet::new();
    for version in 2..=13 {
        d.hang_up();
        let answer = d.quiet(version, &named(&[], version < 4))?;
        ids.extend(answer.cluster_id.map(|id| id.to_string()));
    }
    let lengths: Vec<_> = ids.iter().map(String::len).collect();
    d.note(&format!("{} cluster id of {lengths:?} characters", ids.len()));
    Ok(())
}
