//! Compares our definitions, field by field, with the message JSON inside the jars of Apache Kafka 4.3.1: names, order,
//! types, versions, nullability, tags, defaults, ignorability, valid and flexible versions, keys and listeners.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use std::collections::BTreeMap;

use common::schema::{Base, Field, Kind, Message, StructDef, Versions};
use common::{jars, our_messages, say, skip};
use protocol::api::{APIS, ApiKey, Listener};
use serde_json::Value;

/// Definitions of Kafka's that Penstock has no use for.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "QuorumStateData",
        "a KRaft voter's own file; our quorum keeps its state differently",
    ),
    (
        "RemoteLogSegmentMetadataRecord",
        "tiered storage has its own issue",
    ),
    (
        "RemoteLogSegmentMetadataSnapshotRecord",
        "tiered storage has its own issue",
    ),
    (
        "RemoteLogSegmentMetadataUpdateRecord",
        "tiered storage has its own issue",
    ),
    (
        "RemotePartitionDeleteMetadataRecord",
        "tiered storage has its own issue",
    ),
];

/// Where what we say of an API differs on purpose from the JSON.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "InitProducerId",
        "version 6 is not stable: it is decoded, and is not in the API table",
    ),
    (
        "Produce",
        "advertised from version 0 by the broker (KAFKA-18659); what is decoded starts at 3",
    ),
];

/// What is compared of a field, as text.
#[derive(Debug, PartialEq)]
struct Fact {
    path: String,
    ty: String,
    versions: String,
    nullable: String,
    tag: String,
    default: String,
    ignorable: bool,
    classic: bool,
}

#[test]
fn definitions_equal_those_of_kafka() {
    let dir = match jars::directory() {
        Ok(dir) => dir,
        Err(why) => return skip("definitions_equal_those_of_kafka", &why),
    };
    let (theirs, ours) = (jars::definitions(&dir), our_messages());
    let (mut definitions, mut fields, mut versions, mut differences) = (0, 0, 0, Vec::new());
    for name in theirs.keys().filter(|name| !ours.contains_key(*name)) {
        if !LEFT_OUT.iter().any(|(left_out, _)| left_out == name) {
            differences.push(format!("{name}: missing here"));
        }
    }
    for (name, message) in &ours {
        let Some(their) = theirs.get(name) else {
            differences.push(format!("{name}: not Kafka's"));
            continue;
        };
        definitions += 1;
        versions += usize::try_from(message.versions.hi - message.versions.lo).unwrap() + 1;
        compare_head(message, their, &mut differences);
        let (our_facts, their_facts) = (our_facts(message), their_facts(their));
        fields += our_facts.len();
        if our_facts.len() != their_facts.len() {
            differences.push(format!(
                "{name}: {} fields, Kafka {}",
                our_facts.len(),
                their_facts.len()
            ));
        }
        for (our, their) in our_facts.iter().zip(&their_facts) {
            if our != their {
                differences.push(format!("{name}:\n   ours  {our:?}\n   Kafka {their:?}"));
            }
        }
    }
    for (api, why) in EXCEPTIONS {
        say(&format!("exception: {api}: {why}"));
    }
    say(&format!(
        "definitions compared {definitions}, fields compared {fields}, versions covered {versions}, \
         differences {}",
        differences.len()
    ));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(
        definitions > 250 && fields > 1900,
        "the comparison saw too little"
    );
}

/// The API table against our schema, and by that against Kafka's.
#[test]
fn the_api_table_says_what_the_schema_says() {
    let ours = our_messages();
    let requests: BTreeMap<i16, &Message> = ours
        .values()
        .filter(|m| m.kind == Kind::Request)
        .map(|m| (m.key.unwrap(), m))
        .collect();
    assert_eq!(requests.len(), APIS.len());
    for api in APIS {
        let message = requests[&api.key.as_i16()];
        assert_eq!(message.body.name, format!("{}Request", api.name));
        let max = message
            .unstable
            .map_or(message.versions.hi, |unstable| unstable - 1);
        assert_eq!(api.key.versions(), message.versions.lo..=max, "{}", api.name);
        assert_eq!(api.flexible_version, message.flexible, "{}", api.name);
        let listener = match api.listener {
            Listener::Broker => "broker",
            Listener::Controller => "controller",
            Listener::Both => "both",
        };
        assert_eq!(listener, message.listener, "{}", api.name);
    }
    assert_eq!(ApiKey::InitProducerId.versions(), 0..=5);
}

fn compare_head(ours: &Message, theirs: &Value, differences: &mut Vec<String>) {
    let text = |key: &str| {
        theirs
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("none")
            .to_owned()
    };
    let valid = parse(&text("validVersions")).unwrap();
    let kind = match ours.kind {
        Kind::Request => "request",
        Kind::Response => "response",
        Kind::Key => "coordinator-key",
        Kind::Value => "coordinator-value",
        Kind::Record => "metadata",
        Kind::Data => "data",
        Kind::Header => "header",
    };
    let flexible = parse(&text("flexibleVersions")).map(|f| f.lo);
    let key = theirs.get("apiKey").and_then(Value::as_i64);
    let unstable = theirs
        .get("latestVersionUnstable")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let listeners: Vec<&str> = theirs
        .get("listeners")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let listener = match listeners.as_slice() {
        [] if ours.kind == Kind::Response => ours.listener.as_str(),
        [] => "",
        [only] => only,
        _ => "both",
    };
    let unstable_of_request = ours.unstable.is_some() && ours.kind == Kind::Request;
    for (what, equal) in [
        ("kind", text("type") == kind),
        ("valid versions", valid == ours.versions),
        ("flexible versions", flexible == ours.flexible),
        ("key", key == ours.key.map(i64::from)),
        (
            "unstable version",
            unstable == unstable_of_request || ours.kind == Kind::Response,
        ),
        ("listener", listener == ours.listener),
    ] {
        if !equal {
            differences.push(format!("{}: {what}", ours.body.name));
        }
    }
}

fn parse(text: &str) -> Option<Versions> {
    if text == "none" {
        None
    } else {
        Some(Versions::parse(text).unwrap_or_else(|| panic!("{text}")))
    }
}

/// A range as text, cut to the message's versions.
fn show(versions: Option<Versions>) -> String {
    versions.map_or_else(|| "none".to_owned(), |v| format!("{}-{}", v.lo, v.hi))
}

fn our_facts(message: &Message) -> Vec<Fact> {
    let mut facts = Vec::new();
    let defs = std::iter::once(&message.body).chain(&message.structs);
    for def in defs {
        facts.extend(
            def.fields
                .iter()
                .filter(|f| !f.private)
                .map(|field| our_fact(def, field)),
        );
    }
    facts.sort_by(|a, b| struct_of(&a.path).cmp(struct_of(&b.path)));
    facts
}

fn struct_of(path: &str) -> &str {
    path.split_once('.').map_or(path, |(name, _)| name)
}

fn our_fact(def: &StructDef, field: &Field) -> Fact {
    let base = match &field.base {
        Base::Bool => "bool",
        Base::I8 => "int8",
        Base::I16 | Base::Error => "int16",
        Base::U16 => "uint16",
        Base::I32 => "int32",
        Base::U32 => "uint32",
        Base::I64 => "int64",
        Base::F64 => "float64",
        Base::String => "string",
        Base::Bytes => "bytes",
        Base::Records => "records",
        Base::Uuid => "uuid",
        Base::Struct(name) => name,
    };
    Fact {
        path: format!("{}.{}", def.name, field.name),
        ty: format!("{}{base}", if field.array { "[]" } else { "" }),
        versions: show(Some(field.versions)),
        nullable: show(field.nullable),
        tag: field.tag.map_or(String::new(), |tag| tag.to_string()),
        default: field.default.clone().unwrap_or_default(),
        ignorable: field.ignorable,
        classic: field.classic,
    }
}

/// Kafka's fields in the same form: fields of removed versions left out, ranges cut to what is valid, defaults of zero,
/// empty and false left out.
fn their_facts(message: &Value) -> Vec<Fact> {
    let valid = parse(message["validVersions"].as_str().unwrap()).unwrap();
    let mut facts = Vec::new();
    their_fields(
        message["name"].as_str().unwrap(),
        &message["fields"],
        valid,
        &mut facts,
    );
    for common in message
        .get("commonStructs")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let versions = parse(common["versions"].as_str().unwrap()).and_then(|v| v.intersect(valid));
        their_fields(
            common["name"].as_str().unwrap(),
            &common["fields"],
            versions.unwrap(),
            &mut facts,
        );
    }
    facts.sort_by(|a, b| struct_of(&a.path).cmp(struct_of(&b.path)));
    facts
}

fn their_fields(owner: &str, fields: &Value, outer: Versions, facts: &mut Vec<Fact>) {
    for field in fields.as_array().into_iter().flatten() {
        let text = |key: &str| field.get(key).and_then(Value::as_str);
        // A tagged field may leave its versions out.
        let versions = text("versions")
            .or_else(|| text("taggedVersions"))
            .and_then(parse);
        let Some(versions) = versions.and_then(|v| v.intersect(outer)) else {
            continue;
        };
        let (name, ty) = (text("name").unwrap(), text("type").unwrap());
        let tagged = text("taggedVersions")
            .and_then(parse)
            .and_then(|v| v.intersect(versions));
        assert!(
            tagged.is_none_or(|tagged| tagged == versions),
            "{owner}.{name}: tagged in some versions only"
        );
        let nullable = text("nullableVersions")
            .and_then(parse)
            .and_then(|v| v.intersect(versions));
        facts.push(Fact {
            path: format!("{owner}.{name}"),
            ty: ty.to_owned(),
            versions: show(Some(versions)),
            nullable: show(nullable),
            tag: field.get("tag").map_or(String::new(), ToString::to_string),
            default: their_default(field, ty, nullable.is_some()),
            ignorable: field.get("ignorable").and_then(Value::as_bool).unwrap_or(false),
            classic: text("flexibleVersions") == Some("none"),
        });
        their_fields(
            ty.trim_start_matches("[]"),
            field.get("fields").unwrap_or(&Value::Null),
            versions,
            facts,
        );
    }
}

fn their_default(field: &Value, ty: &str, nullable: bool) -> String {
    if ty == "records" && nullable {
        return "null".to_owned();
    }
    let text = match field.get("default") {
        // A JSON null is no default at all, unlike the string "null".
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    match (ty, text.as_str()) {
        ("bool", "false") | (_, "0") => String::new(),
        (_, hex) if hex.starts_with("0x") => i64::from_str_radix(&hex[2..], 16).unwrap().to_string(),
        _ => text,
    }
}
