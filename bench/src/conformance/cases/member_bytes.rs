//! What groups keep of their members: metadata and assignments byte for byte (BR-089, BR-123).

use std::collections::BTreeSet;

use bytes::Bytes;
use protocol::Str;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use protocol::messages::sync_group::SyncGroupRequest;

use super::groups::{describe_of, group, join_of, leave_of, sync_of, until_members};
use crate::conformance::Case;
use crate::conformance::dialogue::Dialogue;
use crate::conformance::target::GROUPS;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[Case::new(
    "BR-123 metadata and assignments byte for byte (BR-089)",
    bytes_of_members,
)
.on(&GROUPS)];

/// Ten kilobytes that no version of a subscription is, and that end with more than was announced.
fn odd_bytes(seed: u8) -> Bytes {
    (0..10_240u32)
        .map(|n| (n % 251) as u8 ^ seed)
        .collect::<Vec<_>>()
        .into()
}

/// What each version of DescribeGroups tells of the members of a group of Connect workers.
fn told_of_members(d: &mut Dialogue<'_>, label: &str, group: &Str) -> Result<()> {
    for version in 0..=6 {
        let mut request = describe_of(&[group]);
        let told = d.quiet(version, &request)?.groups.swap_remove(0);
        let members: BTreeSet<_> = told
            .members
            .iter()
            .map(|m| (m.member_metadata.len(), m.member_assignment.len()))
            .collect();
        let known = [odd_bytes(1), odd_bytes(2), odd_bytes(3)];
        let are_whole = told
            .members
            .iter()
            .all(|m| m.member_metadata.is_empty() || known.contains(&m.member_metadata));
        d.note(&format!(
            "{label}, version {version}: {} {} {:?} {:?}, {} members, lengths {members:?}, byte for byte {are_whole}, operations {}",
            told.error_code, told.group_state, told.protocol_type, told.protocol_data, told.members.len(), told.authorized_operations
        ));
        request.include_authorized_operations = version >= 3;
        let told = d.quiet(version, &request)?.groups.swap_remove(0);
        d.note(&format!(
            "  operations when asked for: {}",
            told.authorized_operations
        ));
    }
    Ok(())
}

fn bytes_of_members(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let worker = |seed, member: &Str| {
        let mut join = join_of(&group, member);
        join.protocol_type = "connect".into();
        join.protocols = ["sessioned", "compatible", "default"]
            .map(|name| JoinGroupRequestProtocol {
                name: Str::from_static(name),
                metadata: odd_bytes(seed),
            })
            .into();
        join
    };
    let leader = d.quiet(3, &worker(1, &Str::new()))?.member_id;
    d.knows_member(&leader);
    told_of_members(d, "one, before its assignment", &group)?;
    let mut others = Vec::new();
    for seed in [2, 3] {
        let mut wire = d.connect()?;
        let id = wire.send(3, &worker(seed, &Str::new()))?;
        others.push((wire, id));
        until_members(d, &group, 1 + others.len())?;
    }
    told_of_members(d, "two more join", &group)?;
    let joined = d.quiet(3, &worker(1, &leader))?;
    let known = [odd_bytes(1), odd_bytes(2), odd_bytes(3)];
    let whole = known
        .iter()
        .filter(|bytes| joined.members.iter().any(|m| m.metadata == **bytes));
    d.note(&format!(
        "the leader is told of {} members, {} whole, protocol {:?}",
        joined.members.len(),
        whole.count(),
        joined.protocol_name
    ));
    let mut ids = Vec::new();
    for (wire, id) in &mut others {
        let told = wire.receive::<JoinGroupRequest>(3, *id)?;
        d.note(&format!("another is told of {} members", told.members.len()));
        d.knows_member(&told.member_id);
        ids.push(told.member_id);
    }
    told_of_members(d, "before the assignment", &group)?;
    let sync = |member: &Str, assign: &[(&Str, &'static [u8])]| {
        let mut sync = sync_of(&group, 2, member, assign);
        (sync.protocol_type, sync.protocol_name) = (None, None);
        sync
    };
    d.ask(
        "the third is left out",
        3,
        &sync(&leader, &[(&leader, b"one"), (&ids[0], b"two")]),
    )?;
    for ((wire, _), member) in others.iter_mut().zip(&ids) {
        for version in 0..=4 {
            let id = wire.send(version, &sync(member, &[]))?;
            let told = wire.receive::<SyncGroupRequest>(version, id)?;
            d.show(&format!("version {version}"), &told);
        }
    }
    told_of_members(d, "stable", &group)?;
    let all: Vec<(&str, Option<&'static str>)> = [&leader, &ids[0], &ids[1]]
        .into_iter()
        .map(|m| (&**m, None))
        .collect();
    d.ask("all", 3, &leave_of(&group, &all))?;
    told_of_members(d, "nobody is left", &group)
}
