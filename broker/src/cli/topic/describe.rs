//! `penstock topic describe`: what is asked for each topic, and how it is shown.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::remote::{Remote, Report};
use super::super::table::{left, list, number, right, table};
use crate::client::{
    Client, ClientError, ConfigValue, EARLIEST, LATEST, PartitionView, TopicPartition, TopicView, clean,
};
use crate::exit::Failure;

/// Everything that is known about a topic.
struct Described {
    topic: TopicView,
    earliest: BTreeMap<TopicPartition, i64>,
    latest: BTreeMap<TopicPartition, i64>,
    sizes: BTreeMap<i32, i64>,
    configs: Vec<ConfigValue>,
}

pub(super) fn run(remote: &Remote, client: &mut Client, names: &[String]) -> Result<(), Failure> {
    if names.is_empty() {
        let all = client.topics(None)?.into_values();
        return remote.print_each(
            all.filter(|topic| !topic.is_internal)
                .map(|topic| show(client, topic)),
        );
    }
    remote.print_each(names.iter().map(|name| {
        let topic = client.topic(name)?;
        show(client, topic)
    }))
}

fn show(client: &mut Client, topic: TopicView) -> Result<Report, ClientError> {
    let described = describe(client, topic)?;
    Ok(Report {
        text: as_text(&described),
        json: as_json(&described),
    })
}

/// Offsets only of partitions with a leader: the others are shown without, not waited for.
fn describe(client: &mut Client, topic: TopicView) -> Result<Described, ClientError> {
    let led: BTreeSet<TopicPartition> = topic
        .partitions
        .iter()
        .filter(|(_, partition)| partition.leader.is_some())
        .map(|(number, _)| (topic.name.clone(), *number))
        .collect();
    Ok(Described {
        earliest: client.offsets(&led, EARLIEST)?,
        latest: client.offsets(&led, LATEST)?,
        sizes: client.sizes(&topic)?,
        configs: client.configs(&topic.name)?,
        topic,
    })
}

fn as_text(of: &Described) -> String {
    let topic = &of.topic;
    let replicas = topic.replication_factor();
    let bytes: i64 = of.sizes.values().fold(0, |sum, &size| sum.saturating_add(size));
    let mut text = format!(
        "Topic {}  id {}  partitions {}  replicas {replicas}  bytes {bytes}\n",
        clean(&topic.name),
        topic.id,
        topic.partitions.len()
    );
    for config in &of.configs {
        let value = config
            .value
            .as_deref()
            .map_or_else(|| "[hidden]".to_owned(), clean);
        text.push_str(&format!(
            "  {} = {value}  ({})\n",
            clean(&config.name),
            config.source
        ));
    }
    let columns = [
        right("PARTITION"),
        right("LEADER"),
        left("REPLICAS"),
        left("ISR"),
        right("EARLIEST"),
        right("LATEST"),
        right("BYTES"),
    ];
    let row = |(index, partition): (&i32, &PartitionView)| {
        let key = (topic.name.clone(), *index);
        [
            index.to_string(),
            number(partition.leader.map(i64::from)),
            list(&partition.replicas),
            list(&partition.isr),
            number(of.earliest.get(&key).copied()),
            number(of.latest.get(&key).copied()),
            number(of.sizes.get(index).copied()),
        ]
    };
    text.push_str(&table(columns, topic.partitions.iter().map(row)));
    text
}

fn as_json(of: &Described) -> Value {
    let topic = &of.topic;
    let partitions: Vec<Value> = topic
        .partitions
        .iter()
        .map(|(index, partition)| {
            let key = (topic.name.clone(), *index);
            json!({
                "partition": index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline_replicas": partition.offline,
                "earliest_offset": of.earliest.get(&key),
                "latest_offset": of.latest.get(&key),
                "size_bytes": of.sizes.get(index),
            })
        })
        .collect();
    let configs: Vec<Value> = of
        .configs
        .iter()
        .map(|config| json!({"name": config.name, "value": config.value, "source": config.source}))
        .collect();
    json!({
        "topic": topic.name,
        "topic_id": topic.id.to_string(),
        "internal": topic.is_internal,
        "partitions": partitions,
        "configs": configs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_without_a_leader_is_shown_without_offsets() {
        let partition = |leader| PartitionView {
            leader,
            leader_epoch: 4,
            replicas: vec![1],
            isr: vec![1],
            offline: Vec::new(),
        };
        let key = ("orders".to_owned(), 0);
        let described = Described {
            topic: TopicView {
                name: "orders".to_owned(),
                id: protocol::Uuid([0; 16]),
                is_internal: false,
                partitions: [(0, partition(Some(1))), (1, partition(None))].into(),
            },
            earliest: [(key.clone(), 5)].into(),
            latest: [(key, 17)].into(),
            sizes: [(0, 4096)].into(),
            configs: vec![ConfigValue {
                name: "cleanup.policy".to_owned(),
                value: Some("compact".to_owned()),
                source: "topic".to_owned(),
            }],
        };
        let text = as_text(&described);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "  cleanup.policy = compact  (topic)");
        assert_eq!(
            lines[3],
            "        0       1  1         1           5      17   4096"
        );
        assert_eq!(
            lines[4],
            "        1       -  1         1           -       -      -"
        );
        let json = as_json(&described);
        assert_eq!(json["partitions"][0]["latest_offset"], 17);
        assert_eq!(json["partitions"][1]["leader"], Value::Null);
        assert_eq!(json["configs"][0]["source"], "topic");
    }
}
