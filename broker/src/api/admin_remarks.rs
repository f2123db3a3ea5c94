//! What the broker says in its log about changes that clients ask for and an operator should know of: topic configs that are
//! stored and do nothing here, and internal topics that are deleted. On the shard of the client's connection.

use std::sync::Arc;

use protocol::messages::alter_configs::AlterConfigsRequest;
use protocol::messages::create_topics::CreateTopicsRequest;
use protocol::messages::delete_topics::DeletableTopicResult;
use protocol::messages::incremental_alter_configs::IncrementalAlterConfigsRequest;
use protocol::{ErrorCode, Str};
use shard::config::{Standing, topic_keys};
use shard::env::Env;
use shard::image::ResourceKind;

use crate::request::RequestContext;

/// Settings that one log line names; of more the number is told.
const NAMED_MAX: usize = 8;

/// The topic configs of a request that would be stored without effect, with their topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ineffective(Vec<(Str, &'static str)>);

impl Ineffective {
    /// Those of topics to be created.
    pub(super) fn of_creation(request: &CreateTopicsRequest) -> Self {
        let topics = request.topics.iter().filter(|_| !request.validate_only);
        Self::of(topics.flat_map(|topic| {
            let configs = topic.configs.iter();
            configs.map(|config| (&topic.name, &config.name, &config.value))
        }))
    }

    /// Those that AlterConfigs sets.
    pub(super) fn of_alteration(request: &AlterConfigsRequest) -> Self {
        let is_meant = |kind: i8| !request.validate_only && is_topic(kind);
        let resources = request.resources.iter().filter(|r| is_meant(r.resource_type));
        Self::of(resources.flat_map(|resource| {
            let configs = resource.configs.iter();
            configs.map(|config| (&resource.resource_name, &config.name, &config.value))
        }))
    }

    /// Those that IncrementalAlterConfigs sets; what it removes has no value.
    pub(super) fn of_incremental(request: &IncrementalAlterConfigsRequest) -> Self {
        let is_meant = |kind: i8| !request.validate_only && is_topic(kind);
        let resources = request.resources.iter().filter(|r| is_meant(r.resource_type));
        Self::of(resources.flat_map(|resource| {
            let configs = resource.configs.iter();
            configs.map(|config| (&resource.resource_name, &config.name, &config.value))
        }))
    }

    /// A config that has its default is none that somebody waits for.
    fn of<'a>(set: impl Iterator<Item = (&'a Str, &'a Str, &'a Option<Str>)>) -> Self {
        let ineffective = |(topic, name, value): (&Str, &Str, &Option<Str>)| {
            let key = topic_keys().get(name)?;
            let value = key.parse(value.as_deref()?).ok()?;
            let says_something = key.standing != Standing::Used && Some(value) != key.default_value();
            says_something.then(|| (topic.clone(), key.name))
        };
        Self(set.filter_map(ineffective).collect())
    }

    /// Says which of them are stored now: those of the topics for which `outcomes` has no error. At most one line a second.
    pub(super) fn say<'a, E: Env>(
        mut self,
        context: &RequestContext<E>,
        outcomes: impl Iterator<Item = (&'a Str, ErrorCode)>,
    ) {
        if self.0.is_empty() {
            return;
        }
        let done: Vec<&Str> = outcomes
            .filter_map(|(topic, code)| code.is_none().then_some(topic))
            .collect();
        self.0.retain(|(topic, _)| done.contains(&topic));
        if self.0.is_empty() {
            return;
        }
        let subject: Arc<str> = Arc::from("topic configs without effect");
        let now = context.broker.env.now();
        if let Some(unsaid) = context.broker.complaints.borrow_mut().may_say(&subject, now) {
            tracing::warn!(
                settings = self.text(),
                others_since_last_line = unsaid,
                "topic configs were stored that have no effect here; docs/OPERATIONS.md lists them"
            );
        }
    }

    fn text(&self) -> String {
        let named = self.0.iter().take(NAMED_MAX);
        let mut text: Vec<String> = named.map(|(topic, key)| format!("{topic}: {key}")).collect();
        if let Some(more) = self.0.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
            text.push(format!("{more} more"));
        }
        text.join(", ")
    }
}

fn is_topic(kind: i8) -> bool {
    ResourceKind::from_wire(kind) == Some(ResourceKind::Topic)
}

/// Says which of the cluster's own topics were deleted, and by whom: Kafka deletes them like any other.
pub(super) fn say_deleted<E: Env>(context: &RequestContext<E>, outcomes: &[DeletableTopicResult]) {
    let is_internal = |name: &Str| shard::image::is_internal(name);
    let deleted = outcomes.iter().filter(|outcome| outcome.error_code.is_none());
    for topic in deleted
        .filter_map(|outcome| outcome.name.as_ref())
        .filter(|name| is_internal(name))
    {
        tracing::warn!(
            topic = topic.as_str(),
            peer = %context.connection.peer,
            client_id = context.client_id.as_deref().unwrap_or_default(),
            "an internal topic was deleted, and what it held is lost; it is created anew when it is needed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig};

    fn creation(configs: &[(&str, &str)]) -> CreateTopicsRequest {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: Str::from((*name).to_owned()),
            value: Some(Str::from((*value).to_owned())),
        };
        CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from("t"),
                configs: configs.iter().map(config).collect(),
                ..CreatableTopic::default()
            }],
            ..CreateTopicsRequest::default()
        }
    }

    #[test]
    fn what_does_nothing_is_noticed_unless_it_has_its_default() {
        let request = creation(&[
            ("local.retention.ms", "1000"),
            ("retention.ms", "1000"),
            ("preallocate", "false"),
            ("leader.replication.throttled.replicas", "*"),
            ("no.such.key", "1"),
            ("local.retention.bytes", "many"),
        ]);
        let found = Ineffective::of_creation(&request);
        assert_eq!(
            found.text(),
            "t: local.retention.ms, t: leader.replication.throttled.replicas"
        );
        let only_checked = CreateTopicsRequest {
            validate_only: true,
            ..request
        };
        assert_eq!(Ineffective::of_creation(&only_checked), Ineffective::default());
    }

    #[test]
    fn a_line_names_some_and_counts_the_rest() {
        let all = Ineffective(vec![(Str::from("t"), "preallocate"); NAMED_MAX + 3]);
        assert!(all.text().ends_with("t: preallocate, 3 more"), "{}", all.text());
    }

    /// The operator finds every such key in the documentation.
    #[test]
    fn the_documentation_lists_the_topic_configs_without_effect() {
        let text = include_str!("../../../docs/OPERATIONS.md");
        let (_, section) = text
            .split_once("## Topic configs without effect\n")
            .expect("its heading");
        let section = section.split("\n## ").next().unwrap_or_default();
        for key in topic_keys().iter() {
            let is_listed = section.contains(&format!("`{}`", key.name));
            assert!(is_listed || key.standing == Standing::Used, "{}", key.name);
        }
    }
}
