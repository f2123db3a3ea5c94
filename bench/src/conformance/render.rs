//! Turns the `Debug` text of a decoded answer into lines that are the same for the same behaviour: fields that two brokers cannot
//! share (ports, ids, sizes of disks, wordings) are replaced by what they stand for, ids by the order in which they appear.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};

/// Longest line before a value is broken over several, characters.
const LINE_CHARS_MAX: usize = 150;
/// How far a timestamp may lie from the one it is compared with, milliseconds.
const NEAR_MS: i64 = 600_000;
/// Records are stamped this long before the present, so that a broker's own stamps can be told from them, milliseconds.
pub(super) const RECORDS_BEFORE_MS: i64 = 1_800_000;

/// Lists that Kafka answers in the order of a hash map. Ours are in request order (BR-005 has a case of its own).
const UNORDERED: [&str; 8] = [
    "groups",
    "members",
    "results",
    "configs",
    "synonyms",
    "config_resources",
    "partition_responses",
    "partitions",
];

/// What differs from run to run, and what is written in its place.
#[derive(Debug)]
pub(super) struct Masks {
    /// Ending of every topic name of this run.
    ending: String,
    /// The time that records are stamped with, milliseconds since 1970.
    stamp_ms: i64,
    ids: BTreeMap<&'static str, Vec<String>>,
}

impl Masks {
    /// Masks for a run whose names end so and whose records are stamped from this time on.
    pub(super) fn new(ending: &str, stamp_ms: i64) -> Self {
        Self {
            ending: ending.to_owned(),
            stamp_ms,
            ids: BTreeMap::new(),
        }
    }

    /// As [`Self::show`], with the topics of an answer sorted.
    pub(super) fn show_sorted(&mut self, value: &impl Debug) -> String {
        let mut node = self.masked(value);
        if let Node::Struct(fields) = &mut node {
            for (name, list) in fields {
                if let (true, Node::List(items)) = (matches!(name.as_str(), "topics" | "responses"), list) {
                    items.sort_by_cached_key(flat);
                }
            }
        }
        shown(&node)
    }

    fn masked(&mut self, value: &impl Debug) -> Node {
        let mut node = parse(&format!("{value:?}"));
        self.mask(&mut node);
        node
    }

    /// Lines for a value, without what differs from run to run.
    pub(super) fn show(&mut self, value: &impl Debug) -> String {
        shown(&self.masked(value))
    }

    /// Text of a case's own, without this run's names.
    pub(super) fn text(&self, text: &str) -> String {
        text.replace(&self.ending, "")
    }

    /// A time in milliseconds as it is shown.
    pub(super) fn time(&self, ms: i64) -> String {
        let since = ms.wrapping_sub(self.stamp_ms);
        if since.abs() < NEAR_MS {
            format!("T{since:+}")
        } else if (since - RECORDS_BEFORE_MS).abs() < NEAR_MS {
            "now".to_owned()
        } else {
            ms.to_string()
        }
    }

    /// The name of an id: its kind and the order of its first appearance.
    pub(super) fn id(&mut self, kind: &'static str, id: &str) -> String {
        let known = self.ids.entry(kind).or_default();
        let at = known.iter().position(|one| one == id).unwrap_or_else(|| {
            known.push(id.to_owned());
            known.len() - 1
        });
        format!("{kind}{}", at + 1)
    }

    fn mask(&mut self, node: &mut Node) {
        match node {
            Node::Struct(fields) => {
                fields.retain(|(name, value)| !is_noise(name, value));
                forget_log_start(fields);
                for (name, value) in fields {
                    self.mask_field(name, value);
                }
            }
            Node::List(items) => items.iter_mut().for_each(|item| self.mask(item)),
            Node::Text(text) => *text = text.replace(&self.ending, ""),
            Node::Atom(text) => {
                if let Ok(ms) = text.parse::<i64>() {
                    *text = self.time(ms);
                }
            }
        }
    }

    fn mask_field(&mut self, name: &str, value: &mut Node) {
        let replaced = match (name, &*value) {
            (_, Node::Atom(atom)) if atom == "null" => None,
            ("port", Node::Atom(port)) if port != "-1" => Some("PORT".to_owned()),
            ("cluster_id", Node::Text(_)) => Some("CLUSTER".to_owned()),
            ("log_dir", Node::Text(_)) => Some("DIR".to_owned()),
            ("total_bytes" | "usable_bytes", Node::Atom(bytes)) if bytes != "-1" => Some("BYTES".to_owned()),
            ("finalized_features_epoch", Node::Atom(epoch)) if epoch != "-1" => Some("EPOCH".to_owned()),
            ("topic_id", Node::Atom(id)) => Some(self.id("topic", id)),
            ("member_id" | "leader", Node::Text(id)) if is_given(id) => Some(self.id("member", id)),
            ("producer_id", Node::Atom(id)) if id != "-1" => Some(self.id("producer", id)),
            ("session_id", Node::Atom(id)) if id != "0" => Some(self.id("session", id)),
            ("error_message" | "batch_index_error_message" | "documentation", Node::Text(text)) => {
                // The same width as null: a text where Kafka has none is no difference (golden.rs).
                Some(if text.is_empty() { "VOID" } else { "TEXT" }.to_owned())
            }
            _ => None,
        };
        match replaced {
            Some(text) => *value = Node::Atom(text),
            None => self.mask(value),
        }
        if let (true, Node::List(items)) = (UNORDERED.contains(&name), value) {
            items.sort_by_cached_key(flat);
        }
    }
}

/// Whether a member id was given by a coordinator: it ends with a UUID.
fn is_given(id: &str) -> bool {
    let mut parts = id.rsplitn(6, '-').take(5).map(str::len);
    [12, 4, 4, 4]
        .into_iter()
        .all(|length| parts.next() == Some(length))
        && parts.next() >= Some(8)
}

/// Fields that say nothing while they have this value: left out, to keep the lines readable.
fn is_noise(name: &str, value: &Node) -> bool {
    let text = flat(value);
    match name {
        "throttle_time_ms" => text == "0",
        "topic_id" => text == "AAAAAAAAAAAAAAAAAAAAAA",
        "current_leader" => text == "{leader_id: -1, leader_epoch: -1}",
        "diverging_epoch" => text == "{epoch: -1, end_offset: -1}",
        "snapshot_id" => text == "{end_offset: -1, epoch: -1}",
        "node_endpoints" => text == "[]",
        "zk_migration_ready" => text == "false",
        _ => false,
    }
}

/// A refused produce may tell the log's start or not: Kafka does for some errors. No client reads it there, and the shard of a
/// connection, which refuses batches, does not know it.
fn forget_log_start(fields: &mut [(String, Node)]) {
    let is_failed = |(name, value): &(String, Node)| name == "error_code" && flat(value) != "NONE";
    if fields.iter().any(is_failed) && fields.iter().any(|(name, _)| name == "base_offset") {
        for (name, value) in fields {
            if name == "log_start_offset" {
                *value = Node::Atom("ANY".to_owned());
            }
        }
    }
}

/// A value of derived `Debug` text.
#[derive(Debug)]
enum Node {
    Struct(Vec<(String, Self)>),
    List(Vec<Self>),
    Text(String),
    Atom(String),
}

/// Reads what `#[derive(Debug)]` writes in one line. `Some(x)` is x, `None` is null, names of structs are dropped.
fn parse(text: &str) -> Node {
    let mut parser = Parser { rest: text };
    parser.value()
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn value(&mut self) -> Node {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('"') {
            return Node::Text(self.quoted());
        }
        if self.rest.starts_with("b\"") {
            self.rest = &self.rest[1..];
            return Node::Text(self.quoted());
        }
        if let Some(inner) = self.rest.strip_prefix('[') {
            self.rest = inner;
            return Node::List(self.items(']'));
        }
        let end = self
            .rest
            .find([',', '{', '}', '(', ')', '[', ']'])
            .unwrap_or(self.rest.len());
        let (head, rest) = self.rest.split_at(end);
        let head = head.trim();
        self.rest = rest;
        if let Some(inner) = rest.strip_prefix('{') {
            self.rest = inner;
            return fold_records(head, self.fields());
        }
        if let Some(inner) = rest.strip_prefix('(') {
            self.rest = inner;
            let mut items = self.items(')');
            return match items.len() {
                1 => items.remove(0),
                _ => Node::List(items),
            };
        }
        Node::Atom(if head == "None" { "null" } else { head }.to_owned())
    }

    fn items(&mut self, close: char) -> Vec<Node> {
        let mut items = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([',', ' ']);
            match self.rest.strip_prefix(close) {
                Some(rest) => {
                    self.rest = rest;
                    return items;
                }
                None if self.rest.is_empty() => return items,
                None => items.push(self.value()),
            }
        }
    }

    fn fields(&mut self) -> Vec<(String, Node)> {
        let mut fields = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([',', ' ']);
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                return fields;
            }
            let Some((name, rest)) = self.rest.split_once(": ") else {
                return fields;
            };
            let name = name.to_owned();
            self.rest = rest;
            fields.push((name, self.value()));
        }
    }

    /// The content of a quoted text as it is escaped; `rest` begins with the quote.
    fn quoted(&mut self) -> String {
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    let content = self.rest[1..at].to_owned();
                    self.rest = &self.rest[at + 1..];
                    return content;
                }
                _ => {}
            }
        }
        std::mem::take(&mut self.rest).to_owned()
    }
}

/// Record fields are shown as their bytes, whatever pieces they came in.
fn fold_records(name: &str, fields: Vec<(String, Node)>) -> Node {
    let mut fields = fields;
    if name == "RecordBytes" && !fields.is_empty() {
        return match fields.remove(0).1 {
            Node::Text(text) if text.is_empty() => Node::Atom("EMPTY".to_owned()),
            Node::Text(text) => Node::Atom(text),
            other => other,
        };
    }
    Node::Struct(fields)
}

fn flat(node: &Node) -> String {
    match node {
        Node::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", flat(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Node::List(items) => format!("[{}]", items.iter().map(flat).collect::<Vec<_>>().join(", ")),
        Node::Text(text) => format!("\"{text}\""),
        Node::Atom(text) => text.clone(),
    }
}

fn shown(node: &Node) -> String {
    let mut out = String::new();
    pretty(node, 2, &mut out);
    out
}

fn pretty(node: &Node, indent: usize, out: &mut String) {
    let line = flat(node);
    if line.len() + indent <= LINE_CHARS_MAX {
        out.push_str(&line);
        return;
    }
    let pad = " ".repeat(indent + 2);
    match node {
        Node::Struct(fields) => {
            out.push('{');
            // What fits stays together: only the fields that do not fit get lines of their own.
            let mut small = Vec::new();
            for (name, value) in fields {
                let text = flat(value);
                if text.len() + indent <= LINE_CHARS_MAX / 2 {
                    small.push(format!("{name}: {text}"));
                    continue;
                }
                if !small.is_empty() {
                    let _ = write!(out, "\n{pad}{}", std::mem::take(&mut small).join(", "));
                }
                let _ = write!(out, "\n{pad}{name}: ");
                pretty(value, indent + 2, out);
            }
            if !small.is_empty() {
                let _ = write!(out, "\n{pad}{}", small.join(", "));
            }
            let _ = write!(out, "\n{}}}", " ".repeat(indent));
        }
        Node::List(items) => {
            out.push('[');
            for item in items {
                let _ = write!(out, "\n{pad}");
                pretty(item, indent + 2, out);
            }
            let _ = write!(out, "\n{}]", " ".repeat(indent));
        }
        Node::Text(_) | Node::Atom(_) => out.push_str(&line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[allow(dead_code, reason = "read through Debug")]
    struct Answer {
        error_message: Option<&'static str>,
        port: i32,
        producer_id: i64,
        name: &'static str,
        time: i64,
        list: Vec<(i32, Option<i32>)>,
    }

    #[test]
    fn what_differs_from_run_to_run_is_replaced() {
        let mut masks = Masks::new("-x1", 1_000_000_000);
        let answer = |producer_id, time| Answer {
            error_message: Some("any, words"),
            port: 9092,
            producer_id,
            name: "a \"b\"-x1",
            time,
            list: vec![(1, None), (2, Some(3))],
        };
        assert_eq!(
            masks.show(&answer(77, 1_000_000_005)),
            "{error_message: TEXT, port: PORT, producer_id: producer1, name: \"a \\\"b\\\"\", time: T+5, \
             list: [[1, null], [2, 3]]}"
        );
        assert!(
            masks
                .show(&answer(78, 1_001_800_100))
                .contains("producer_id: producer2, ")
        );
        assert!(masks.show(&answer(77, 1_001_800_100)).contains("time: now"));
        assert!(masks.show(&answer(-1, 5)).contains("producer_id: -1"));
    }
}
