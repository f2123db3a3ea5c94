//! Configurations described and altered, and that they take effect at once: AD-8 to AD-12 and the bug reports about them.

use std::time::{Duration, Instant};

use protocol::compression::Codec;
use protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsRequestAlterConfigsResource, AlterConfigsRequestAlterableConfig,
};
use protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig,
};
use protocol::{ErrorCode, Str};

use super::super::Case;
use super::super::batch::{Rec, compressed};
use super::super::dialogue::{Dialogue, Topic};
use super::super::target::Setup;
use crate::error::{Result, failed};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// How long what was altered may take to show, and how long it has to stay so.
const PUBLISH_LIMIT: Duration = Duration::from_secs(5);
const PUBLISH_STILL: Duration = Duration::from_millis(100);

/// Broker settings that its cases change.
static BROKER_SETTINGS: Setup = Setup {
    name: "broker-settings",
    overrides: &["log.retention.ms=7200000"],
    restarts: true,
};

/// Where acknowledgements of ours do not wait for a sync, so that the flush settings have something to do. Kafka does not know
/// the key and never waits.
static WRITTEN: Setup = Setup {
    name: "written",
    overrides: &["penstock.durability=written"],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[
    Case::new("AD-8 the configuration of a topic", describe_topic).differs(
        "retention.ms and segment.ms name log.retention.hours and log.roll.hours as the broker keys behind them, which Kafka \
         leaves out; keys of our own are listed too",
    ),
    Case::new("AD-8 what can be described and what cannot", describe_others),
    Case::new("AD-8 the broker keys that tools read (BR-099)", describe_broker),
    Case::new("AD-9 keys set, deleted, appended and subtracted", incremental),
    Case::new("AD-9 alterations that are refused", incremental_refused).differs("an operation that does not exist is INVALID_REQUEST, where Kafka fails inside with UNKNOWN_SERVER_ERROR"),
    Case::new("AD-10 broker settings by node and for all (BR-115)", broker_settings).on(&BROKER_SETTINGS),
    Case::new("AD-11 the old AlterConfigs replaces everything (BR-047)", replace),
    Case::new("AD-12 min.insync.replicas belongs to the cluster", cluster_min_isr).on(&BROKER_SETTINGS),
    Case::new("AD-20 max.message.bytes takes effect at once", effect_size),
    Case::new("AD-21 compression.type takes effect at once", effect_compression),
    Case::new("AD-22 timestamp settings take effect at once", effect_timestamps),
    Case::new("AD-23 cleanup.policy takes effect at once (BR-096)", effect_policy),
    Case::new("AD-24 segment and retention settings are accepted at once (BR-128)", effect_segments),
    Case::new("AD-25 flush settings take effect at once", effect_flush).on(&WRITTEN),
];

fn describe(resources: &[(i8, &str)], keys: Option<&[&str]>) -> DescribeConfigsRequest {
    DescribeConfigsRequest {
        resources: resources
            .iter()
            .map(|&(resource_type, name)| DescribeConfigsResource {
                resource_type,
                resource_name: Str::from(name.to_owned()),
                configuration_keys: keys
                    .map(|keys| keys.iter().map(|&key| Str::from(key.to_owned())).collect()),
            })
            .collect(),
        include_synonyms: true,
        include_documentation: false,
    }
}

fn alter(resource_type: i8, name: &str, ops: &[(&str, i8, Option<&str>)]) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest {
        resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
            resource_type,
            resource_name: Str::from(name.to_owned()),
            configs: ops
                .iter()
                .map(
                    |&(key, config_operation, value)| IncrementalAlterConfigsRequestAlterableConfig {
                        name: Str::from(key.to_owned()),
                        config_operation,
                        value: value.map(|value| Str::from(value.to_owned())),
                    },
                )
                .collect(),
        }],
        validate_only: false,
    }
}

/// Sets keys of a topic, quietly; no value takes one away.
pub(super) fn alter_topic(d: &mut Dialogue<'_>, topic: &Topic, keys: &[(&str, Option<&str>)]) -> Result<()> {
    let ops: Vec<_> = keys
        .iter()
        .map(|&(key, value)| (key, if value.is_some() { SET } else { DELETE }, value))
        .collect();
    let answer = d.quiet(1, &alter(TOPIC, &topic.name, &ops))?;
    match answer.responses.first() {
        Some(altered) if altered.error_code == ErrorCode::NONE => Ok(()),
        _ => failed(format!("settings were refused: {answer:?}")),
    }
}

/// The keys of a topic and where they come from.
fn keys(d: &mut Dialogue<'_>, topic: &Topic, keys: &[&str]) -> Result<()> {
    let answer = d.quiet(4, &describe(&[(TOPIC, &topic.name)], Some(keys)))?;
    let mut rows: Vec<_> = answer
        .results
        .iter()
        .flat_map(|result| &result.configs)
        .map(|one| format!("{}={:?} of {}", one.name, one.value, one.config_source))
        .collect();
    rows.sort();
    d.note(&format!("  now {}", rows.join(", ")));
    Ok(())
}

fn describe_topic(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic(
        "a",
        1,
        &[("retention.ms", "1000"), ("cleanup.policy", "compact,delete")],
    )?;
    for version in [1, 4] {
        d.ask("all keys", version, &describe(&[(TOPIC, &topic.name)], None))?;
    }
    d.ask("no keys", 4, &describe(&[(TOPIC, &topic.name)], Some(&[])))?;
    d.ask(
        "one known, one not",
        4,
        &describe(&[(TOPIC, &topic.name)], Some(&["segment.bytes", "no.such.key"])),
    )?;
    Ok(())
}

fn describe_others(d: &mut Dialogue<'_>) -> Result<()> {
    for (label, kind, name) in [
        ("a name that cannot be", TOPIC, "not/a/topic"),
        ("an empty name", TOPIC, ""),
        ("an unknown broker", BROKER, "77"),
        ("a broker that is no number", BROKER, "one"),
        ("type 0", 0, "x"),
        ("type 3", 3, "x"),
        ("type -1", -1, "x"),
    ] {
        for version in [1, 4] {
            d.ask(label, version, &describe(&[(kind, name)], Some(&["none"])))?;
        }
    }
    d.ask("a broker", 4, &describe(&[(BROKER, "1")], Some(&["none"])))?;
    d.ask("all brokers", 4, &describe(&[(BROKER, "")], Some(&["none"])))?;
    d.ask("no resources", 4, &describe(&[], None))?;
    Ok(())
}

fn describe_broker(d: &mut Dialogue<'_>) -> Result<()> {
    let wanted = [
        "default.replication.factor",
        "num.partitions",
        "auto.create.topics.enable",
        "log.retention.ms",
        "log.retention.hours",
        "min.insync.replicas",
        "message.max.bytes",
        "log.cleanup.policy",
        "compression.type",
        "offsets.topic.replication.factor",
        "nonexistent",
    ];
    let mut answer = d.quiet(4, &describe(&[(BROKER, "1")], Some(&wanted)))?;
    for result in &mut answer.results {
        // The test set-up of Kafka sets it, ours does not.
        result
            .configs
            .retain(|one| &*one.name != "offsets.topic.replication.factor");
        result.configs.sort_by(|a, b| a.name.cmp(&b.name));
    }
    d.answered(&answer);
    Ok(())
}

fn incremental(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let name = topic.name.clone();
    let watched = ["cleanup.policy", "retention.ms", "max.message.bytes"];
    for (label, ops) in [
        (
            "set two",
            vec![
                ("retention.ms", SET, Some("5000")),
                ("max.message.bytes", SET, Some("77")),
            ],
        ),
        ("append", vec![("cleanup.policy", APPEND, Some("compact"))]),
        (
            "append what is there",
            vec![("cleanup.policy", APPEND, Some("compact"))],
        ),
        ("subtract", vec![("cleanup.policy", SUBTRACT, Some("delete"))]),
        (
            "subtract what is not there",
            vec![("cleanup.policy", SUBTRACT, Some("delete"))],
        ),
        (
            "delete",
            vec![("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None)],
        ),
        ("delete what is not set", vec![("retention.ms", DELETE, None)]),
        (
            "delete with a value",
            vec![("max.message.bytes", DELETE, Some("5"))],
        ),
        ("nothing", vec![]),
    ] {
        d.ask(label, 1, &alter(TOPIC, &name, &ops))?;
        keys(d, &topic, &watched)?;
    }
    let mut validate = alter(TOPIC, &name, &[("retention.ms", SET, Some("9"))]);
    validate.validate_only = true;
    d.ask("validate only", 1, &validate)?;
    keys(d, &topic, &watched)
}

fn incremental_refused(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let name = topic.name.clone();
    for (label, ops) in [
        ("unknown key", vec![("no.such.key", SET, Some("1"))]),
        ("null value", vec![("retention.ms", SET, None)]),
        (
            "a key twice",
            vec![("retention.ms", SET, Some("1")), ("retention.ms", SET, Some("2"))],
        ),
        ("operation 9", vec![("retention.ms", 9, Some("1"))]),
        ("append to a number", vec![("retention.ms", APPEND, Some("1"))]),
        (
            "subtract from a number",
            vec![("retention.ms", SUBTRACT, Some("1"))],
        ),
        ("not a number", vec![("retention.ms", SET, Some("x"))]),
        ("below the least", vec![("retention.ms", SET, Some("-2"))]),
        ("not in the list", vec![("cleanup.policy", SET, Some("shred"))]),
        (
            "one good, one bad",
            vec![
                ("max.message.bytes", SET, Some("5")),
                ("retention.ms", SET, Some("x")),
            ],
        ),
        ("an empty key", vec![("", SET, Some("1"))]),
    ] {
        d.ask(label, 1, &alter(TOPIC, &name, &ops))?;
    }
    keys(d, &topic, &["retention.ms", "max.message.bytes"])?;
    let mut twice = alter(TOPIC, &name, &[("retention.ms", SET, Some("1"))]);
    twice.resources.push(twice.resources[0].clone());
    d.ask("a resource twice", 1, &twice)?;
    for (label, kind, name) in [
        ("no such topic", TOPIC, "no-such-topic"),
        ("empty name", TOPIC, ""),
        ("type 77", 77, "x"),
    ] {
        d.ask(label, 1, &alter(kind, name, &[("retention.ms", SET, Some("1"))]))?;
    }
    Ok(())
}

fn cluster_min_isr(d: &mut Dialogue<'_>) -> Result<()> {
    const KEY: &str = "min.insync.replicas";
    for (label, name, ops) in [
        ("set for this node", "1", [(KEY, SET, Some("1"))]),
        ("deleted for this node", "1", [(KEY, DELETE, None)]),
        ("set for all", "", [(KEY, SET, Some("2"))]),
        ("not a number, for all", "", [(KEY, SET, Some("many"))]),
        ("zero for all", "", [(KEY, SET, Some("0"))]),
        ("deleted for all", "", [(KEY, DELETE, None)]),
        ("set back for all", "", [(KEY, SET, Some("1"))]),
    ] {
        alter_brokers(d, label, name, &ops)?;
        for (name, rows) in brokers(d, KEY)? {
            d.note(&format!("  broker {name:?}: {}", rows.join(", ")));
        }
    }
    Ok(())
}

/// A setting as this node and as all have it, each with where it comes from.
fn brokers(d: &mut Dialogue<'_>, key: &str) -> Result<[(&'static str, Vec<String>); 2]> {
    let mut of = |name| {
        let answer = d.quiet(4, &describe(&[(BROKER, name)], Some(&[key])))?;
        let configs = answer.results.iter().flat_map(|result| &result.configs);
        let rows = configs.map(|one| format!("{:?} of {}", one.value, one.config_source));
        Ok((name, rows.collect::<Vec<_>>()))
    };
    Ok([of("1")?, of("")?])
}

/// Asks for an alteration of the broker's settings, and waits until what was taken shows and stays so: it is published a little
/// after the answer.
fn alter_brokers(
    d: &mut Dialogue<'_>,
    label: &str,
    name: &str,
    ops: &[(&str, i8, Option<&str>)],
) -> Result<()> {
    let Some(&(key, ..)) = ops.first() else {
        return Ok(());
    };
    let before = brokers(d, key)?;
    let answer = d.ask(label, 1, &alter(BROKER, name, ops))?;
    let taken = answer
        .responses
        .iter()
        .all(|one| one.error_code == ErrorCode::NONE);
    let asked = Instant::now();
    let mut last = before.clone();
    while taken && asked.elapsed() < PUBLISH_LIMIT {
        std::thread::sleep(PUBLISH_STILL);
        let now = brokers(d, key)?;
        if now == last && now != before {
            break;
        }
        last = now;
    }
    Ok(())
}

fn broker_settings(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let shown = |d: &mut Dialogue<'_>, topic: &Topic| -> Result<()> {
        for (name, rows) in brokers(d, "message.max.bytes")? {
            d.note(&format!("  broker {name:?}: {}", rows.join(", ")));
        }
        keys(d, topic, &["max.message.bytes"])
    };
    shown(d, &topic)?;
    for (label, name, ops) in [
        ("for all", "", vec![("message.max.bytes", SET, Some("200000"))]),
        (
            "for this node",
            "1",
            vec![("message.max.bytes", SET, Some("100000"))],
        ),
        (
            "deleted for this node",
            "1",
            vec![("message.max.bytes", DELETE, None)],
        ),
        ("deleted for all", "", vec![("message.max.bytes", DELETE, None)]),
        (
            "a key that cannot change",
            "1",
            vec![("process.roles", SET, Some("broker"))],
        ),
        (
            "a key that cannot change, for all",
            "",
            vec![("log.dirs", SET, Some("x"))],
        ),
        ("another node", "77", vec![("message.max.bytes", SET, Some("5"))]),
        ("no number", "one", vec![("message.max.bytes", SET, Some("5"))]),
        ("a bad value", "1", vec![("message.max.bytes", SET, Some("x"))]),
    ] {
        alter_brokers(d, label, name, &ops)?;
        shown(d, &topic)?;
    }
    Ok(())
}

fn replace(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("retention.ms", "1000"), ("cleanup.policy", "compact")])?;
    let watched = ["retention.ms", "cleanup.policy"];
    let request = |configs: &[(&str, Option<&str>)], validate_only| AlterConfigsRequest {
        resources: vec![AlterConfigsRequestAlterConfigsResource {
            resource_type: TOPIC,
            resource_name: topic.name.clone(),
            configs: configs
                .iter()
                .map(|&(name, value)| AlterConfigsRequestAlterableConfig {
                    name: Str::from(name.to_owned()),
                    value: value.map(|value| Str::from(value.to_owned())),
                })
                .collect(),
        }],
        validate_only,
    };
    for version in 0..=2 {
        for (label, configs, validate_only) in [
            ("validate only", vec![("retention.ms", Some("2000"))], true),
            ("one key", vec![("retention.ms", Some("2000"))], false),
            ("null", vec![("retention.ms", None)], false),
            (
                "a key twice",
                vec![("retention.ms", Some("3")), ("retention.ms", Some("4"))],
                false,
            ),
            ("unknown key", vec![("no.such.key", Some("3"))], false),
            (
                "both",
                vec![("retention.ms", Some("5")), ("cleanup.policy", Some("compact"))],
                false,
            ),
            ("none", vec![], false),
        ] {
            d.ask(label, version, &request(&configs, validate_only))?;
            keys(d, &topic, &watched)?;
        }
    }
    Ok(())
}

/// Sets a topic's keys and waits until the broker serves by them: Kafka answers a little earlier.
fn set(d: &mut Dialogue<'_>, topic: &Topic, settings: &[(&str, &str)]) -> Result<()> {
    let ops: Vec<_> = settings
        .iter()
        .map(|&(key, value)| (key, SET, Some(value)))
        .collect();
    let answer = d.quiet(1, &alter(TOPIC, &topic.name, &ops))?;
    let code = answer.responses.first().map(|one| one.error_code);
    d.note(&format!("set {settings:?}: {code:?}"));
    std::thread::sleep(Duration::from_millis(250));
    Ok(())
}

fn effect_size(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = compressed(Codec::None, &[Rec::of(d.stamp_ms(), vec![b'v'; 500])]);
    for limit in ["100", "1000", "200", "1048588"] {
        set(d, &topic, &[("max.message.bytes", limit)])?;
        d.produce("500 bytes", &topic, 0, bytes.clone())?;
    }
    Ok(())
}

fn effect_compression(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for setting in ["gzip", "uncompressed", "zstd", "lz4", "snappy", "producer"] {
        set(d, &topic, &[("compression.type", setting)])?;
        let bytes = compressed(Codec::Gzip, &d.records(&["x", "y"]));
        d.produce(setting, &topic, 0, bytes)?;
    }
    set(
        d,
        &topic,
        &[("compression.type", "zstd"), ("compression.zstd.level", "19")],
    )?;
    let bytes = compressed(Codec::Gzip, &d.records(&["x", "y"]));
    d.produce("zstd 19", &topic, 0, bytes)?;
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn effect_timestamps(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for (key, value) in [
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.type", "CreateTime"),
        ("message.timestamp.before.max.ms", "60000"),
        ("message.timestamp.before.max.ms", "86400000"),
    ] {
        set(d, &topic, &[(key, value)])?;
        let bytes = d.batch(&["half an hour old"]);
        d.produce(value, &topic, 0, bytes)?;
    }
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn effect_policy(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for policy in ["compact", "delete", "compact,delete", "delete"] {
        set(d, &topic, &[("cleanup.policy", policy)])?;
        let bytes = d.batch(&["no key"]);
        d.produce(policy, &topic, 0, bytes)?;
    }
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn effect_flush(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("flush.messages", "2"), ("flush.ms", "100")])?;
    for (key, value) in [
        ("flush.messages", "1"),
        ("flush.messages", "0"),
        ("flush.messages", "-1"),
        ("flush.messages", "3"),
        ("flush.messages", "9223372036854775807"),
        ("flush.ms", "0"),
        ("flush.ms", "-1"),
        ("flush.ms", "20"),
        ("flush.ms", "soon"),
        ("flush.ms", "9223372036854775807"),
    ] {
        set(d, &topic, &[(key, value)])?;
        keys(d, &topic, &[key])?;
        for number in 0..4 {
            let bytes = d.batch(&["x", "y"]);
            d.produce(&format!("{value}, batch {number}"), &topic, 0, bytes)?;
        }
    }
    let deleted = [("flush.messages", DELETE, None), ("flush.ms", DELETE, None)];
    d.ask("deleted", 1, &alter(TOPIC, &topic.name, &deleted))?;
    keys(d, &topic, &["flush.messages", "flush.ms"])?;
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn effect_segments(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for (key, value) in [
        ("segment.bytes", "1048576"),
        ("segment.bytes", "1048575"),
        ("segment.ms", "1000"),
        ("segment.ms", "0"),
        ("segment.jitter.ms", "10"),
        ("segment.index.bytes", "4096"),
        ("index.interval.bytes", "100"),
        ("retention.ms", "-1"),
        ("retention.ms", "315360000000"),
        ("retention.bytes", "-1"),
        ("retention.bytes", "-2"),
        ("min.insync.replicas", "2"),
        ("min.insync.replicas", "0"),
        ("flush.messages", "1"),
        ("flush.ms", "1000"),
        ("delete.retention.ms", "0"),
        ("min.cleanable.dirty.ratio", "0.99"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.compaction.lag.ms", "5"),
        ("max.compaction.lag.ms", "1"),
        ("file.delete.delay.ms", "0"),
        ("preallocate", "true"),
        ("preallocate", "maybe"),
        ("unclean.leader.election.enable", "true"),
        ("leader.replication.throttled.replicas", "0:1"),
        ("follower.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "x"),
        ("remote.storage.enable", "false"),
        ("message.format.version", "3.0"),
    ] {
        set(d, &topic, &[(key, value)])?;
        keys(d, &topic, &[key])?;
        let bytes = d.batch(&["x"]);
        d.written(&topic, 0, bytes)?;
    }
    Ok(())
}
