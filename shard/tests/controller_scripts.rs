//! The controller's rules as golden scripts: requests in, answers and records out (`tests/scripts/controller_*.txt`). The
//! error codes in them were observed on a Kafka 4.3.1 broker; where ours differ, the script says why.

mod metadata;

use std::fmt::Write as _;

use metadata::cluster::{Cluster, registration};
use metadata::script;
use protocol::messages::allocate_producer_ids::AllocateProducerIdsRequest;
use protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsRequestAlterConfigsResource, AlterConfigsRequestAlterableConfig,
};
use protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig,
};
use protocol::messages::unregister_broker::UnregisterBrokerRequest;
use protocol::messages::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use protocol::{ErrorCode, Str, Uuid};
use shard::config::describe;
use shard::controller::{ControllerCommand, ControllerResponse, MetadataRecord};
use shard::ids::BrokerId;
use shard::image::ResourceKind;

#[test]
fn topics_are_created_grown_and_deleted_as_in_kafka() {
    play("controller_topics.txt");
}

#[test]
fn configurations_are_altered_as_in_kafka() {
    play("controller_configs.txt");
}

#[test]
fn brokers_join_and_leave_and_features_and_producer_ids_are_given() {
    play("controller_brokers.txt");
}

fn play(name: &str) {
    let mut cluster = Cluster::new(1);
    script::run(name, |line| step(&mut cluster, line));
}

fn step(cluster: &mut Cluster, line: &str) -> String {
    let words = script::words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((&command, arguments)) = words.split_first() else {
        return String::new();
    };
    match command {
        "cluster" => start(cluster, arguments),
        "set" => set_fixed(cluster, arguments),
        "create" => create(cluster, arguments),
        "delete" => delete(cluster, arguments),
        "grow" => grow(cluster, arguments),
        "alter" => alter(cluster, arguments),
        "replace" => replace(cluster, arguments),
        "describe" => describe_resource(cluster, arguments),
        "topic" => show_topic(cluster, arguments),
        "feature" => feature(cluster, arguments),
        "producer-ids" => producer_ids(cluster, arguments),
        "register" => register(cluster, arguments),
        "heartbeat" => heartbeat(cluster, arguments),
        "unregister" => unregister(cluster, arguments),
        "internal" => internal(cluster, arguments),
        other => panic!("unknown command {other}"),
    }
}

/// `cluster ID[/RACK] ...`: starts anew with these brokers.
fn start(cluster: &mut Cluster, brokers: &[&str]) -> String {
    *cluster = Cluster::new(1);
    for broker in brokers {
        let (id, rack) = broker.split_once('/').unwrap_or((broker, ""));
        cluster.join(id.parse().expect("an id"), rack);
    }
    String::new()
}

fn set_fixed(cluster: &mut Cluster, pairs: &[&str]) -> String {
    for (key, value) in pairs.iter().map(|pair| pair.split_once('=').expect("key=value")) {
        cluster.fixed.insert(key.to_owned(), value.to_owned());
    }
    String::new()
}

/// `create [validate] NAME:PARTITIONS:FACTOR [key=value ...] [@0:1,2 ...] [+ NAME... ]`.
fn create(cluster: &mut Cluster, words: &[&str]) -> String {
    let validate_only = words.first() == Some(&"validate");
    let topics = words[usize::from(validate_only)..]
        .split(|word| *word == "+")
        .map(creatable)
        .collect();
    let command = ControllerCommand::CreateTopics {
        request: CreateTopicsRequest {
            topics,
            timeout_ms: 0,
            validate_only,
        },
        undescribable: Vec::new(),
    };
    outcome(cluster, &command)
}

fn creatable(words: &[&str]) -> CreatableTopic {
    let (head, rest) = words.split_first().expect("a topic");
    let mut parts = head.rsplitn(3, ':');
    let (factor, partitions, name) = (parts.next(), parts.next(), parts.next());
    let mut topic = CreatableTopic {
        name: text(name.expect("name:partitions:factor")),
        num_partitions: partitions.and_then(|n| n.parse().ok()).expect("a count"),
        replication_factor: factor.and_then(|n| n.parse().ok()).expect("a factor"),
        ..CreatableTopic::default()
    };
    for word in rest {
        if let Some(assignment) = word.strip_prefix('@') {
            let (index, brokers) = assignment.split_once(':').expect("@index:brokers");
            topic.assignments.push(CreatableReplicaAssignment {
                partition_index: index.parse().expect("an index"),
                broker_ids: ids(brokers),
            });
        } else {
            let (name, value) = pair(word);
            topic.configs.push(CreatableTopicConfig {
                name: text(name),
                value,
            });
        }
    }
    topic
}

fn ids(list: &str) -> Vec<i32> {
    list.split(',')
        .filter(|id| !id.is_empty())
        .map(|id| id.parse().expect("an id"))
        .collect()
}

fn text(text: &str) -> Str {
    // Long values are written as 40000*x.
    match text.split_once('*') {
        Some((count, letter)) if count.len() > 2 && count.bytes().all(|b| b.is_ascii_digit()) => {
            Str::from(letter.repeat(count.parse().expect("a count")))
        }
        _ => Str::from(text.to_owned()),
    }
}

/// `key=value`, or `key` alone for a null value.
fn pair(word: &str) -> (&str, Option<Str>) {
    match word.split_once('=') {
        Some((key, value)) => (key, Some(text(value))),
        None => (word, None),
    }
}

/// `delete NAME|#NAME ...`: by name, or by the id of the topic of that name; `#` alone is the zero id.
fn delete(cluster: &mut Cluster, words: &[&str]) -> String {
    let topics = words.iter().map(|word| match word.strip_prefix('#') {
        None => DeleteTopicState {
            name: Some(text(word)),
            topic_id: Uuid::ZERO,
        },
        Some("") => DeleteTopicState {
            name: None,
            topic_id: Uuid::ZERO,
        },
        Some(name) => DeleteTopicState {
            name: None,
            topic_id: cluster
                .image
                .topics
                .by_name(name)
                .map_or(Uuid::from_u128(123_456), |topic| Uuid(topic.id.0)),
        },
    });
    let request = DeleteTopicsRequest {
        topics: topics.collect(),
        ..DeleteTopicsRequest::default()
    };
    outcome(cluster, &ControllerCommand::DeleteTopics { request, version: 6 })
}

/// `grow [validate] NAME COUNT [@1,2 ...]`.
fn grow(cluster: &mut Cluster, words: &[&str]) -> String {
    let validate_only = words.first() == Some(&"validate");
    let words = &words[usize::from(validate_only)..];
    let assignments: Vec<CreatePartitionsAssignment> = words[2..]
        .iter()
        .map(|word| CreatePartitionsAssignment {
            broker_ids: ids(word.strip_prefix('@').expect("@brokers")),
        })
        .collect();
    let command = ControllerCommand::CreatePartitions(CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: text(words[0]),
            count: words[1].parse().expect("a count"),
            assignments: (!assignments.is_empty()).then_some(assignments),
        }],
        timeout_ms: 0,
        validate_only,
    });
    outcome(cluster, &command)
}

fn resource_type(name: &str) -> i8 {
    match name {
        "topic" => 2,
        "broker" => 4,
        "metrics" => 16,
        "group" => 32,
        number => number.parse().expect("a resource type"),
    }
}

/// `alter [validate] TYPE NAME [key=value] [-key] [+key=items] [~key=items] [?key=value] [& TYPE NAME ...]`.
fn alter(cluster: &mut Cluster, words: &[&str]) -> String {
    let validate_only = words.first() == Some(&"validate");
    let resources = words[usize::from(validate_only)..]
        .split(|word| *word == "&")
        .map(|words| IncrementalAlterConfigsRequestAlterConfigsResource {
            resource_type: resource_type(words[0]),
            resource_name: text(words[1]),
            configs: words[2..].iter().map(|word| alterable(word)).collect(),
        })
        .collect();
    let command = ControllerCommand::IncrementalAlterConfigs {
        request: IncrementalAlterConfigsRequest {
            resources,
            validate_only,
        },
        receiver: BrokerId(1),
    };
    outcome(cluster, &command)
}

fn alterable(word: &str) -> IncrementalAlterConfigsRequestAlterableConfig {
    let (config_operation, word) = match word.split_at(1) {
        ("-", rest) => (1, rest),
        ("+", rest) => (2, rest),
        ("~", rest) => (3, rest),
        ("?", rest) => (9, rest),
        _ => (0, word),
    };
    let (name, value) = pair(word);
    IncrementalAlterConfigsRequestAlterableConfig {
        name: text(name),
        config_operation,
        value,
    }
}

/// `replace [validate] TYPE NAME [key=value ...]`: the old AlterConfigs.
fn replace(cluster: &mut Cluster, words: &[&str]) -> String {
    let validate_only = words.first() == Some(&"validate");
    let words = &words[usize::from(validate_only)..];
    let configs = words[2..].iter().map(|word| {
        let (name, value) = pair(word);
        AlterConfigsRequestAlterableConfig {
            name: text(name),
            value,
        }
    });
    let command = ControllerCommand::AlterConfigs {
        request: AlterConfigsRequest {
            resources: vec![AlterConfigsRequestAlterConfigsResource {
                resource_type: resource_type(words[0]),
                resource_name: text(words[1]),
                configs: configs.collect(),
            }],
            validate_only,
        },
        receiver: BrokerId(1),
    };
    outcome(cluster, &command)
}

/// `describe TYPE NAME KEY ...`: value, source and what stands behind it.
fn describe_resource(cluster: &mut Cluster, words: &[&str]) -> String {
    let (kind, name, keys) = (words[0], words[1], &words[2..]);
    let configs = &cluster.image.configs;
    let layers = configs.layers(cluster.node, &cluster.fixed);
    let entries = match kind {
        "topic" => describe::topic(&layers, configs.topic(name)),
        "broker" if name.is_empty() => describe::cluster_default(configs.cluster_default()),
        "broker" => describe::broker(&layers),
        "group" => describe::group(&layers, configs.of(ResourceKind::Group, name)),
        "metrics" => describe::client_metrics(configs.of(ResourceKind::ClientMetrics, name)),
        other => panic!("unknown resource {other}"),
    };
    let mut out = String::new();
    for entry in entries
        .iter()
        .filter(|entry| keys.is_empty() || keys.contains(&&*entry.name))
    {
        let behind: Vec<String> = entry
            .synonyms
            .iter()
            .map(|s| {
                format!(
                    "{}={}@{}",
                    s.name,
                    s.value.as_deref().unwrap_or("null"),
                    s.source.wire()
                )
            })
            .collect();
        writeln!(
            out,
            "{}={} source={}{}{} [{}]",
            entry.name,
            entry.value.as_deref().unwrap_or("null"),
            entry.source.wire(),
            if entry.read_only { " read-only" } else { "" },
            if entry.sensitive { " sensitive" } else { "" },
            behind.join(" ")
        )
        .expect("a string takes text");
    }
    out
}

/// `topic NAME`: its partitions.
fn show_topic(cluster: &mut Cluster, words: &[&str]) -> String {
    let Some(topic) = cluster.image.topics.by_name(words[0]) else {
        return "none".to_owned();
    };
    let mut out = String::new();
    for (index, partition) in topic.indexed() {
        let list = |brokers: &[BrokerId]| -> String {
            brokers
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        writeln!(
            out,
            "{index}: replicas={} isr={} elr={} leader={} epochs={:?}/{}",
            list(&partition.replicas),
            list(&partition.isr),
            list(&partition.elr),
            partition.leader.map_or(-1, |leader| leader.0),
            partition.leader_epoch,
            partition.partition_epoch
        )
        .expect("a string takes text");
    }
    out
}

/// `feature NAME LEVEL [TYPE]`: type 1 upgrade, 2 safe downgrade, 3 unsafe downgrade.
fn feature(cluster: &mut Cluster, words: &[&str]) -> String {
    let command = ControllerCommand::UpdateFeatures {
        request: UpdateFeaturesRequest {
            timeout_ms: 0,
            feature_updates: vec![FeatureUpdateKey {
                feature: text(words[0]),
                max_version_level: words[1].parse().expect("a level"),
                allow_downgrade: false,
                upgrade_type: words.get(2).map_or(1, |kind| kind.parse().expect("a type")),
            }],
            validate_only: false,
        },
        version: 1,
    };
    outcome(cluster, &command)
}

fn producer_ids(cluster: &mut Cluster, words: &[&str]) -> String {
    let broker_id: i32 = words[0].parse().expect("an id");
    let epoch = cluster
        .image
        .brokers
        .get(BrokerId(broker_id))
        .map_or(0, |broker| broker.epoch);
    let off: i64 = words.get(1).map_or(0, |off| off.parse().expect("a number"));
    outcome(
        cluster,
        &ControllerCommand::AllocateProducerIds(AllocateProducerIdsRequest {
            broker_id,
            broker_epoch: epoch + off,
        }),
    )
}

/// `register ID INCARNATION [clean] [dir=N] [cluster=NAME]`.
fn register(cluster: &mut Cluster, words: &[&str]) -> String {
    let id: i32 = words[0].parse().expect("an id");
    let incarnation = words[1].parse().expect("an incarnation");
    let epoch = cluster
        .image
        .brokers
        .get(BrokerId(id))
        .map_or(-1, |broker| broker.epoch);
    let previous = if words.contains(&"clean") { epoch } else { -1 };
    let mut request = registration(id, "", incarnation, previous);
    for word in &words[2..] {
        if let Some(directory) = word.strip_prefix("dir=") {
            request.log_dirs = ids(directory)
                .into_iter()
                .map(|n| Uuid::from_u128(u128::from(n.unsigned_abs())))
                .collect();
        }
        if let Some(name) = word.strip_prefix("cluster=") {
            request.cluster_id = text(name);
        }
        if *word == "no-features" {
            request.features.clear();
        }
    }
    outcome(cluster, &ControllerCommand::RegisterBroker(request))
}

/// `heartbeat ID serve|fence|stop`.
fn heartbeat(cluster: &mut Cluster, words: &[&str]) -> String {
    let id = words[0].parse().expect("an id");
    let records = cluster.heartbeat(id, words[1] == "fence", words[1] == "stop");
    shown_records(&records)
}

fn unregister(cluster: &mut Cluster, words: &[&str]) -> String {
    let broker_id = words[0].parse().expect("an id");
    outcome(
        cluster,
        &ControllerCommand::UnregisterBroker(UnregisterBrokerRequest { broker_id }),
    )
}

fn internal(cluster: &mut Cluster, words: &[&str]) -> String {
    outcome(
        cluster,
        &ControllerCommand::CreateInternalTopic { name: text(words[0]) },
    )
}

/// Runs a command; prints the answer and the records it committed.
fn outcome(cluster: &mut Cluster, command: &ControllerCommand) -> String {
    let (response, records) = cluster.run(command);
    shown_response(&response) + &shown_records(&records)
}

fn shown_response(response: &ControllerResponse) -> String {
    let mut out = String::new();
    let mut line = |what: &str, code: ErrorCode, message: &Option<Str>| {
        let message = message
            .as_deref()
            .map(|text| format!(": {}", text.get(..160).unwrap_or(text)));
        let code = code.name().unwrap_or("?");
        writeln!(out, "{what} {code}{}", message.unwrap_or_default()).expect("a string takes text");
    };
    match response {
        ControllerResponse::CreateTopics(response) => {
            for topic in &response.topics {
                let what = format!(
                    "'{}' partitions={} factor={} configs={} id={}",
                    shortened(&topic.name),
                    topic.num_partitions,
                    topic.replication_factor,
                    topic.configs.as_ref().map_or(0, Vec::len),
                    !topic.topic_id.is_zero()
                );
                line(&what, topic.error_code, &topic.error_message);
            }
        }
        ControllerResponse::DeleteTopics(response) => {
            for topic in &response.responses {
                let what = format!("{:?} id={}", topic.name.as_deref(), !topic.topic_id.is_zero());
                line(&what, topic.error_code, &topic.error_message);
            }
        }
        ControllerResponse::CreatePartitions(response) => {
            for topic in &response.results {
                line(&topic.name, topic.error_code, &topic.error_message);
            }
        }
        ControllerResponse::IncrementalAlterConfigs(response) => {
            for resource in &response.responses {
                let what = format!("{} '{}'", resource.resource_type, &*resource.resource_name);
                line(&what, resource.error_code, &resource.error_message);
            }
        }
        ControllerResponse::AlterConfigs(response) => {
            for resource in &response.responses {
                let what = format!("{} '{}'", resource.resource_type, &*resource.resource_name);
                line(&what, resource.error_code, &resource.error_message);
            }
        }
        ControllerResponse::UpdateFeatures(response) => {
            line("features", response.error_code, &response.error_message);
        }
        ControllerResponse::AllocateProducerIds(response) => {
            let what = format!(
                "from {} count {}",
                response.producer_id_start, response.producer_id_len
            );
            line(&what, response.error_code, &None);
        }
        ControllerResponse::RegisterBroker(response) => {
            line(
                &format!("epoch {}", response.broker_epoch),
                response.error_code,
                &None,
            );
        }
        ControllerResponse::UnregisterBroker(response) => {
            line("unregister", response.error_code, &response.error_message);
        }
        ControllerResponse::BrokerHeartbeat(_)
        | ControllerResponse::FenceBroker
        | ControllerResponse::LogsOffline => {}
    }
    out
}

fn shortened(name: &str) -> String {
    name.get(..20)
        .map_or_else(|| name.to_owned(), |start| format!("{start}…"))
}

/// One line per record; ids are random and left out, and of more than eight records only the count is shown.
fn shown_records(records: &[MetadataRecord]) -> String {
    if records.len() > 8 {
        return format!("  {} records\n", records.len());
    }
    let mut out = String::new();
    for record in records {
        let detail = match record {
            MetadataRecord::Topic(record) => record.name.to_string(),
            MetadataRecord::Partition(record) => format!(
                "{} replicas={:?} isr={:?} leader={}",
                record.partition_id, record.replicas, record.isr, record.leader
            ),
            MetadataRecord::PartitionChange(record) => format!(
                "{} isr={:?} elr={:?} leader={}",
                record.partition_id, record.isr, record.eligible_leader_replicas, record.leader
            ),
            MetadataRecord::Config(record) => format!(
                "{} '{}' {}={}",
                record.resource_type,
                &*record.resource_name,
                &*record.name,
                record
                    .value
                    .as_deref()
                    .map_or_else(|| "null".to_owned(), shortened)
            ),
            MetadataRecord::FeatureLevel(record) => format!("{} {}", &*record.name, record.feature_level),
            MetadataRecord::ProducerIds(record) => format!("next={}", record.next_producer_id),
            MetadataRecord::RegisterBroker(record) => {
                format!(
                    "{} epoch={} fenced={}",
                    record.broker_id, record.broker_epoch, record.fenced
                )
            }
            MetadataRecord::BrokerRegistrationChange(record) => format!(
                "{} fenced={} stopping={}",
                record.broker_id, record.fenced, record.in_controlled_shutdown
            ),
            MetadataRecord::UnregisterBroker(record) => record.broker_id.to_string(),
            _ => String::new(),
        };
        writeln!(out, "  {} {detail}", record.name().trim_end_matches("Record"))
            .expect("a string takes text");
    }
    out
}
