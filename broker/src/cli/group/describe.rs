//! `penstock group describe`: offsets, log ends, lag and members of groups.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::remote::{Remote, Report, note};
use super::super::table::{counted, left, list, named, number, right, table};
use crate::client::{
    Address, Client, ClientError, Committed, GroupView, Kind, LATEST, MemberView, TopicPartition, by_topic,
    clean,
};
use crate::exit::Failure;

/// Everything that is known about a group.
struct Described {
    group: GroupView,
    coordinator: Option<Address>,
    committed: BTreeMap<TopicPartition, Committed>,
    /// Log ends, where the partition exists and has a leader.
    ends: BTreeMap<TopicPartition, i64>,
}

/// A partition of a group: one that is committed, or assigned, or both.
struct Row<'a> {
    partition: &'a TopicPartition,
    committed: Option<&'a Committed>,
    end: Option<i64>,
    /// Records behind the committed offset, as Kafka's tool counts them; negative when the log was cut.
    lag: Option<i64>,
    member: Option<&'a MemberView>,
}

/// Shows the groups of these names, or all.
pub(super) fn run(remote: &Remote, client: &mut Client, names: Vec<String>) -> Result<(), Failure> {
    let are_all = names.is_empty();
    let names = if are_all { every(client)? } else { names };
    let reports = names.iter().map(|name| report(client, name));
    // One that has ended since the list was made was not asked for by name.
    remote.print_each(reports.filter(|report| !(are_all && is_gone(report))))
}

/// The groups that can be described, by name.
fn every(client: &mut Client) -> Result<Vec<String>, ClientError> {
    let is_other = |kind: &str| {
        ["share", "streams"]
            .iter()
            .any(|other| kind.eq_ignore_ascii_case(other))
    };
    let mut groups = client.groups(&[], &[])?;
    let count = groups.len();
    groups.retain(|group| !is_other(&group.kind));
    if groups.len() < count {
        let left_out = counted(count - groups.len(), "group");
        note(&format!(
            "{left_out} left out; describe shows classic and consumer groups only"
        ));
    }
    Ok(groups.into_iter().map(|group| group.group).collect())
}

fn report(client: &mut Client, name: &str) -> Result<Report, ClientError> {
    let described = describe(client, name)?;
    Ok(Report {
        text: as_text(&described),
        json: as_json(&described),
    })
}

fn is_gone(report: &Result<Report, ClientError>) -> bool {
    let code = protocol::ErrorCode::GROUP_ID_NOT_FOUND;
    report
        .as_ref()
        .is_err_and(|error| error.kind == Kind::Answer(code))
}

fn describe(client: &mut Client, name: &str) -> Result<Described, ClientError> {
    let group = client.group(name)?.ok_or_else(|| unknown(name))?;
    let committed = client.committed(name)?;
    let mut wanted: BTreeSet<TopicPartition> = committed.keys().cloned().collect();
    wanted.extend(
        group
            .members
            .iter()
            .flat_map(|member| member.assignment.iter().cloned()),
    );
    let names: BTreeSet<String> = wanted.iter().map(|(topic, _)| topic.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    // A topic may be gone, and a leader away, and what a member says that it has may be no topic's name: all are shown
    // without a log end.
    let topics = client.known_topics(&names)?;
    wanted.retain(|(topic, index)| {
        let partition = topics.get(topic).and_then(|t| t.partitions.get(index));
        partition.is_some_and(|p| p.leader.is_some())
    });
    Ok(Described {
        ends: client.offsets(&wanted, LATEST)?,
        coordinator: client.address_of(group.coordinator).cloned(),
        group,
        committed,
    })
}

/// A share or streams group is in the list, and its coordinator says that there is none of these types.
fn unknown(name: &str) -> ClientError {
    let mut error = super::unknown(name);
    error
        .sentence
        .push_str("; describe shows classic and consumer groups only");
    error
}

fn rows(of: &Described) -> Vec<Row<'_>> {
    let mut owners: BTreeMap<&TopicPartition, &MemberView> = BTreeMap::new();
    for member in &of.group.members {
        owners.extend(member.assignment.iter().map(|partition| (partition, member)));
    }
    let partitions: BTreeSet<&TopicPartition> = of.committed.keys().chain(owners.keys().copied()).collect();
    partitions
        .into_iter()
        .map(|partition| {
            let committed = of.committed.get(partition);
            let end = of.ends.get(partition).copied();
            Row {
                partition,
                committed,
                end,
                lag: committed.and_then(|c| end?.checked_sub(c.offset)),
                member: owners.get(partition).copied(),
            }
        })
        .collect()
}

/// The sum of the lags that are known; `None` where none is, as in a group that has committed nothing.
fn total_lag(rows: &[Row<'_>]) -> Option<i64> {
    rows.iter().filter_map(|row| row.lag).reduce(i64::saturating_add)
}

/// How many partitions have nothing committed. They have no lag, so the sum is not all that the group has before it.
fn uncommitted(rows: &[Row<'_>]) -> usize {
    rows.iter().filter(|row| row.committed.is_none()).count()
}

fn as_text(of: &Described) -> String {
    let rows = rows(of);
    let mut text = head(of, &rows);
    if !rows.is_empty() {
        text.push_str(&offsets(&rows));
    } else if of.group.members.is_empty() {
        text.push_str("nothing committed\n");
    }
    if !of.group.members.is_empty() {
        text.push_str(&members(&of.group.members));
    }
    text
}

fn head(of: &Described, rows: &[Row<'_>]) -> String {
    let group = &of.group;
    let at = of
        .coordinator
        .as_ref()
        .map(|at| format!(" at {}", clean(&at.to_string())))
        .unwrap_or_default();
    let or_dash = |text: &str| match text {
        "" => "-".to_owned(),
        text => clean(text),
    };
    format!(
        "Group {}  state {}  type {}  protocol-type {}  protocol {}  coordinator {}{at}  members {}  lag {}\n",
        named(&group.group),
        clean(&group.state),
        group.kind,
        or_dash(&group.protocol_type),
        or_dash(&group.protocol),
        group.coordinator,
        group.members.len(),
        lag(rows),
    )
}

fn lag(rows: &[Row<'_>]) -> String {
    let total = total_lag(rows).map_or_else(|| "-".to_owned(), |lag| lag.to_string());
    match uncommitted(rows) {
        0 => total,
        count => format!("{total} ({} without a commit)", counted(count, "partition")),
    }
}

fn offsets(rows: &[Row<'_>]) -> String {
    let columns = [
        left("TOPIC"),
        right("PARTITION"),
        right("COMMITTED"),
        right("LOG-END"),
        right("LAG"),
        left("MEMBER"),
    ];
    let cells = |row: &Row<'_>| {
        [
            row.partition.0.clone(),
            row.partition.1.to_string(),
            number(row.committed.map(|c| c.offset)),
            number(row.end),
            number(row.lag),
            row.member.map(|m| m.member.clone()).unwrap_or_default(),
        ]
    };
    table(columns, rows.iter().map(cells))
}

fn members(members: &[MemberView]) -> String {
    let columns = ["MEMBER", "INSTANCE", "CLIENT", "HOST", "ASSIGNMENT"].map(left);
    let cells = |member: &MemberView| {
        [
            member.member.clone(),
            member.instance.clone().unwrap_or_default(),
            member.client.clone(),
            member.host.clone(),
            assignment(member),
        ]
    };
    table(columns, members.iter().map(cells))
}

/// What a member has, by topic: `orders:0,1 payments:2`.
fn assignment(member: &MemberView) -> String {
    let topics: Vec<String> = by_topic(&member.assignment)
        .into_iter()
        .map(|(topic, numbers)| format!("{topic}:{}", list(&numbers)))
        .collect();
    topics.join(" ")
}

fn as_json(of: &Described) -> Value {
    let group = &of.group;
    let rows = rows(of);
    let offsets: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "topic": row.partition.0,
                "partition": row.partition.1,
                "committed_offset": row.committed.map(|c| c.offset),
                "metadata": row.committed.map(|c| c.metadata.as_str()),
                "log_end_offset": row.end,
                "lag": row.lag,
                "member_id": row.member.map(|m| m.member.as_str()),
                "client_id": row.member.map(|m| m.client.as_str()),
                "host": row.member.map(|m| m.host.as_str()),
            })
        })
        .collect();
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|member| {
            let assignment: Vec<Value> = by_topic(&member.assignment)
                .into_iter()
                .map(|(topic, partitions)| json!({"topic": topic, "partitions": partitions}))
                .collect();
            json!({
                "member_id": member.member,
                "instance_id": member.instance,
                "client_id": member.client,
                "host": member.host,
                "assignment": assignment,
            })
        })
        .collect();
    json!({
        "group": group.group,
        "type": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": Some(&group.protocol).filter(|protocol| !protocol.is_empty()),
        "coordinator": {
            "id": group.coordinator,
            "host": of.coordinator.as_ref().map(|at| at.host.as_str()),
            "port": of.coordinator.as_ref().map(|at| at.port),
        },
        "total_lag": total_lag(&rows),
        "uncommitted_partitions": uncommitted(&rows),
        "members": members,
        "offsets": offsets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Described {
        let key = |topic: &str, index: i32| (topic.to_owned(), index);
        let committed = |offset| Committed {
            offset,
            metadata: String::new(),
        };
        Described {
            group: GroupView {
                group: "readers".to_owned(),
                kind: "classic",
                state: "Stable".to_owned(),
                protocol_type: "consumer".to_owned(),
                protocol: "range".to_owned(),
                coordinator: 1,
                members: vec![MemberView {
                    member: "m1".to_owned(),
                    instance: None,
                    client: "c".to_owned(),
                    host: "/127.0.0.1".to_owned(),
                    assignment: vec![key("t", 2), key("t", 0)],
                }],
            },
            coordinator: Address::parse("127.0.0.1:9092"),
            committed: [
                (key("gone", 0), committed(3)),
                (key("t", 0), committed(4)),
                (key("t", 1), committed(9)),
            ]
            .into(),
            ends: [(key("t", 0), 10), (key("t", 1), 7), (key("t", 2), 5)].into(),
        }
    }

    #[test]
    fn committed_and_assigned_partitions_are_shown_with_kafkas_lag() {
        let text = as_text(&described());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "Group readers  state Stable  type classic  protocol-type consumer  protocol range  coordinator 1 at 127.0.0.1:9092  members 1  lag 4 (1 partition without a commit)"
        );
        assert_eq!(lines[2], "gone           0          3        -    -  -");
        assert_eq!(lines[3], "t              0          4       10    6  m1");
        assert_eq!(lines[4], "t              1          9        7   -2  -");
        assert_eq!(lines[5], "t              2          -        5    -  m1");
        assert_eq!(lines[7], "m1      -         c       /127.0.0.1  t:0,2");
    }

    #[test]
    fn scripts_find_null_where_nothing_is_known() {
        let json = as_json(&described());
        assert_eq!(json["total_lag"], 4);
        assert_eq!(json["uncommitted_partitions"], 1);
        assert_eq!(json["protocol"], "range");
        assert_eq!(json["offsets"][0]["log_end_offset"], Value::Null);
        assert_eq!(json["offsets"][1]["lag"], 6);
        assert_eq!(json["offsets"][3]["committed_offset"], Value::Null);
        assert_eq!(json["members"][0]["assignment"][0]["partitions"], json!([0, 2]));
        assert_eq!(json["coordinator"]["port"], 9092);
    }

    #[test]
    fn an_empty_group_id_can_be_seen_and_what_is_not_chosen_is_a_dash() {
        let mut of = described();
        of.group.group = String::new();
        of.group.protocol_type = "connect".to_owned();
        of.group.protocol = String::new();
        let text = as_text(&of);
        assert!(
            text.starts_with("Group \"\"  state Stable  type classic  protocol-type connect  protocol -  "),
            "{text}"
        );
        of.group.protocol_type = String::new();
        assert!(as_text(&of).contains("  protocol-type -  protocol -  "));
        assert_eq!(as_json(&of)["group"], "");
        assert_eq!(as_json(&of)["protocol"], Value::Null);
    }

    #[test]
    fn a_group_that_has_nothing_says_so() {
        let mut of = described();
        of.committed.clear();
        of.group.members[0].assignment.clear();
        // Where members are, they are shown.
        assert!(!as_text(&of).contains("nothing committed"), "{}", as_text(&of));
        of.group.members.clear();
        assert!(
            as_text(&of).ends_with("members 0  lag -\nnothing committed\n"),
            "{}",
            as_text(&of)
        );
        assert_eq!(as_json(&of)["uncommitted_partitions"], 0);
    }

    #[test]
    fn a_group_without_a_commit_has_no_lag_rather_than_none_left() {
        let mut of = described();
        of.committed.clear();
        assert!(
            as_text(&of).contains("members 1  lag - (2 partitions without a commit)\n"),
            "{}",
            as_text(&of)
        );
        assert_eq!(as_json(&of)["total_lag"], Value::Null);
        // What is committed for a topic that is gone says nothing either.
        of = described();
        of.ends.clear();
        assert_eq!(as_json(&of)["total_lag"], Value::Null);
    }
}
