//! What groups tell of themselves (CG-60…63).

use bytes::Bytes;
use protocol::messages::describe_groups::{DescribeGroupsResponseDescribedGroup, DescribedGroupMember};
use protocol::messages::list_groups::ListedGroup;
use protocol::{ErrorCode, Str};

use super::GroupCoordinator;
use super::classic::{ClassicGroup, GroupState};
use super::request::GroupReply;
use crate::message::ReplyTo;

impl GroupCoordinator {
    pub(super) fn describe(&mut self, to: ReplyTo, id: &Str) {
        let group = self.groups.get(id);
        let told = group.map_or_else(|| dead(id), |group| group.classic.describe());
        self.reply(to, GroupReply::Describe(told));
    }

    pub(super) fn list(&mut self, to: ReplyTo) {
        let listed = self.groups.values().map(|g| g.classic.listed()).collect();
        self.reply(to, GroupReply::List(listed));
    }
}

impl ClassicGroup {
    /// For DescribeGroups. Metadata and assignments are shown of a stable group (CG-61).
    pub(super) fn describe(&self) -> DescribeGroupsResponseDescribedGroup {
        let protocol = match self.state {
            GroupState::Stable => self.protocol.clone(),
            _ => None,
        };
        DescribeGroupsResponseDescribedGroup {
            group_id: self.id.clone(),
            group_state: Str::from_static(self.state.name()),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: self
                .members()
                .map(|m| DescribedGroupMember {
                    member_id: m.id.clone(),
                    group_instance_id: m.instance.clone(),
                    client_id: m.client.client_id.clone(),
                    client_host: m.client.host.clone(),
                    member_metadata: protocol.as_deref().map(|p| m.metadata_of(p)).unwrap_or_default(),
                    member_assignment: match protocol {
                        Some(_) => m.assignment.clone(),
                        None => Bytes::new(),
                    },
                })
                .collect(),
            protocol_data: protocol.unwrap_or_default(),
            ..DescribeGroupsResponseDescribedGroup::default()
        }
    }

    /// For ListGroups.
    pub(super) fn listed(&self) -> ListedGroup {
        ListedGroup {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            group_state: Str::from_static(self.state.name()),
            group_type: Str::from_static("classic"),
        }
    }
}

/// For DescribeGroups of a group that does not exist: it is dead, in every version; from 6 on that is an error, which is the
/// caller's to say.
fn dead(group: &Str) -> DescribeGroupsResponseDescribedGroup {
    DescribeGroupsResponseDescribedGroup {
        group_id: group.clone(),
        group_state: Str::from_static("Dead"),
        error_code: ErrorCode::GROUP_ID_NOT_FOUND,
        ..DescribeGroupsResponseDescribedGroup::default()
    }
}
