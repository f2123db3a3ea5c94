//! Changes of topics: creating, deleting, adding partitions, configs.

use protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource as AlteredResource,
    IncrementalAlterConfigsRequestAlterableConfig as AlteredConfig,
};
use protocol::{ApiKey, ErrorCode};

use super::topics::RESOURCE_TOPIC;
use super::{Client, ClientError, Place, check, complete, text};

/// Operations of IncrementalAlterConfigs.
const OPERATION_SET: i8 = 0;
const OPERATION_DELETE: i8 = 1;

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// How many partitions; -1 for the broker's default.
    pub partitions: i32,
    /// How many replicas; -1 for the broker's default.
    pub replication_factor: i16,
    /// Configs.
    pub configs: Vec<(String, String)>,
}

/// The outcome for each of several names.
type PerName = Vec<(String, Result<(), ClientError>)>;

impl Client {
    /// Creates topics; the outcome for each.
    ///
    /// # Errors
    /// As any request.
    pub fn create_topics(&mut self, topics: &[NewTopic]) -> Result<PerName, ClientError> {
        // Without a number a broker's default holds from version 4 on (KIP-464).
        let answer = self.patiently(|client| {
            let answer = client.at_controller(4..=7, |_| CreateTopicsRequest {
                topics: topics.iter().map(creatable).collect(),
                timeout_ms: 30_000,
                validate_only: false,
            })?;
            controlled(ApiKey::CreateTopics, answer.topics.iter().map(|t| t.error_code))?;
            Ok(answer)
        })?;
        let asked = topics.iter().map(|topic| topic.name.as_str());
        complete(
            ApiKey::CreateTopics,
            asked,
            answer.topics.iter().map(|t| t.name.as_str()),
        )?;
        Ok(answer
            .topics
            .into_iter()
            .map(|topic| {
                let doing = || format!("creating topic '{}'", topic.name);
                let outcome = check_change(topic.error_code, topic.error_message.as_deref(), doing);
                (topic.name.to_string(), outcome)
            })
            .collect())
    }

    /// Deletes topics; the outcome for each.
    ///
    /// # Errors
    /// As any request.
    pub fn delete_topics(&mut self, names: &[String]) -> Result<PerName, ClientError> {
        let answer = self.patiently(|client| {
            let answer = client.at_controller(1..=6, |version| {
                let mut request = DeleteTopicsRequest {
                    timeout_ms: 30_000,
                    ..DeleteTopicsRequest::default()
                };
                if version >= 6 {
                    let state = |name: &String| DeleteTopicState {
                        name: Some(text(name)),
                        ..DeleteTopicState::default()
                    };
                    request.topics = names.iter().map(state).collect();
                } else {
                    request.topic_names = names.iter().map(|name| text(name)).collect();
                }
                request
            })?;
            controlled(
                ApiKey::DeleteTopics,
                answer.responses.iter().map(|t| t.error_code),
            )?;
            Ok(answer)
        })?;
        let asked = names.iter().map(|name| Some(name.as_str()));
        let answered = answer.responses.iter().map(|t| t.name.as_deref());
        complete(ApiKey::DeleteTopics, asked, answered)?;
        Ok(answer
            .responses
            .into_iter()
            .map(|topic| {
                let name = topic.name.as_ref().map_or_else(String::new, |n| n.to_string());
                let doing = || format!("deleting topic '{name}'");
                let outcome = check_change(topic.error_code, topic.error_message.as_deref(), doing);
                (name.clone(), outcome)
            })
            .collect())
    }

    /// Gives a topic more partitions: `count` in all.
    ///
    /// # Errors
    /// As any request, and the code of the answer.
    pub fn add_partitions(&mut self, topic: &str, count: i32) -> Result<(), ClientError> {
        self.patiently(|client| {
            let answer = client.at_controller(0..=3, |_| CreatePartitionsRequest {
                topics: vec![CreatePartitionsTopic {
                    name: text(topic),
                    count,
                    assignments: None,
                }],
                timeout_ms: 30_000,
                validate_only: false,
            })?;
            let answered = answer.results.iter().map(|r| r.name.as_str());
            complete(ApiKey::CreatePartitions, [topic], answered)?;
            let doing = || format!("giving topic '{topic}' {count} partitions");
            let mut results = answer.results.into_iter();
            results.try_for_each(|r| check_change(r.error_code, r.error_message.as_deref(), doing))
        })
    }

    /// Sets and unsets configs of a topic, all or none.
    ///
    /// # Errors
    /// As any request, and the code of the answer.
    pub fn alter_configs(
        &mut self,
        topic: &str,
        set: &[(String, String)],
        unset: &[String],
    ) -> Result<(), ClientError> {
        let configs: Vec<AlteredConfig> = set
            .iter()
            .map(|(name, value)| (name, OPERATION_SET, Some(text(value))))
            .chain(unset.iter().map(|name| (name, OPERATION_DELETE, None)))
            .map(|(name, config_operation, value)| AlteredConfig {
                name: text(name),
                config_operation,
                value,
            })
            .collect();
        self.patiently(|client| {
            let answer = client.call(Place::Any, 0..=1, |_| IncrementalAlterConfigsRequest {
                resources: vec![AlteredResource {
                    resource_type: RESOURCE_TOPIC,
                    resource_name: text(topic),
                    configs: configs.clone(),
                }],
                validate_only: false,
            })?;
            let answered = answer.responses.iter().map(|r| r.resource_name.as_str());
            complete(ApiKey::IncrementalAlterConfigs, [topic], answered)?;
            let doing = || format!("changing the configs of topic '{topic}'");
            let mut results = answer.responses.into_iter();
            results.try_for_each(|r| check(r.error_code, r.error_message.as_deref(), doing))
        })
    }
}

/// `Err` when a broker has done nothing because it is not the controller: another one may be by now.
fn controlled(key: ApiKey, codes: impl Iterator<Item = ErrorCode>) -> Result<(), ClientError> {
    let mut codes = codes.peekable();
    let code = ErrorCode::NOT_CONTROLLER;
    if codes.peek().is_some() && codes.all(|c| c == code) {
        return Err(ClientError::answer(&format!("asking for {key}"), code, None));
    }
    Ok(())
}

/// As [`check`], for a change that must not be asked for twice.
fn check_change(
    code: ErrorCode,
    message: Option<&str>,
    doing: impl Fn() -> String,
) -> Result<(), ClientError> {
    if code == ErrorCode::REQUEST_TIMED_OUT {
        return Err(ClientError::perhaps_changed(&doing()));
    }
    check(code, message, doing)
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let config = |(name, value): &(String, String)| CreatableTopicConfig {
        name: text(name),
        value: Some(text(value)),
    };
    CreatableTopic {
        name: text(&topic.name),
        num_partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        configs: topic.configs.iter().map(config).collect(),
        ..CreatableTopic::default()
    }
}
