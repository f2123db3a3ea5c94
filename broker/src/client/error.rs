//! What can go wrong between the client and a cluster: one sentence with what, where and a next step, and a kind that
//! decides whether it is tried again and with which status the process ends.

use std::time::Duration;

use protocol::ErrorCode;

use crate::exit::{Failure, Status};

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody accepts connections there.
    Unreachable,
    /// The connection failed before an answer came; the request may be sent again.
    Broken,
    /// The connection failed before an answer came, and whether the request was carried out is not known.
    Unknown,
    /// What came is not the Kafka protocol, or not an answer to what was asked.
    Protocol,
    /// The broker does not serve the API in a version that is needed.
    Unserved,
    /// The broker answered with an error code.
    Answer(ErrorCode),
    /// It did not pass within the time.
    TimedOut,
    /// It is not possible now, and may be later.
    Busy,
    /// What was asked for does not exist, or is not possible as things are.
    Impossible,
}

/// A failure of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// What sort of failure it is.
    pub kind: Kind,
    /// What, where, and what to do.
    pub sentence: String,
}

impl ClientError {
    /// A failure with its sentence, which is cleaned: names and messages in it come from brokers and clients.
    pub fn new(kind: Kind, sentence: impl AsRef<str>) -> Self {
        Self {
            kind,
            sentence: clean(sentence.as_ref()),
        }
    }

    /// The broker answered with a code.
    #[must_use]
    pub fn answer(doing: &str, code: ErrorCode, message: Option<&str>) -> Self {
        let message = message.filter(|m| !m.is_empty());
        let message = message.map(|m| format!(" ({m})")).unwrap_or_default();
        let advice = advice(code).map(|a| format!("; {a}")).unwrap_or_default();
        Self::new(Kind::Answer(code), format!("{doing}: {code}{message}{advice}"))
    }

    /// The broker could not finish a change within the request's own timeout: it may be made all the same, so it is not
    /// asked for again.
    pub(super) fn perhaps_changed(doing: &str) -> Self {
        let code = ErrorCode::REQUEST_TIMED_OUT;
        Self::new(Kind::TimedOut, format!("{doing}: {code}; {MAY_STILL_HAPPEN}"))
    }

    /// An answer that does not fit its request.
    pub(super) fn senseless(api: &str, what: &str) -> Self {
        Self::new(
            Kind::Protocol,
            format!(
                "an answer to {api} makes no sense: {what}; is it a Kafka broker of version 3.0 or later?"
            ),
        )
    }

    /// The same about a broker that has answered before: it may be on its way up again.
    pub(super) fn of_one_that_was_there(mut self) -> Self {
        if self.kind == Kind::Unreachable {
            self.kind = Kind::Broken;
        }
        self
    }

    /// The same about a broker whose address came from another: that says that it is alive.
    pub(super) fn of_broker(self, id: i32) -> Self {
        let mut error = self.of_one_that_was_there();
        error.sentence = format!(
            "broker {id}: {}; its address is the one in its advertised.listeners",
            error.sentence
        );
        error
    }

    /// Whether another attempt may succeed. An unknown topic is retriable for producers, which may be early; here it is
    /// what somebody typed.
    pub(super) fn may_pass(&self) -> bool {
        match self.kind {
            Kind::Broken => true,
            Kind::Answer(code) => code.is_retriable() && code != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            _ => false,
        }
    }

    /// It was tried until the time was over.
    pub(super) fn in_vain(mut self, timeout: Duration) -> Self {
        self.kind = Kind::TimedOut;
        self.sentence = format!(
            "{}; tried for {} s, try again later or with a longer --timeout",
            self.sentence,
            timeout.as_secs()
        );
        self
    }

    fn status(&self) -> Status {
        match self.kind {
            Kind::Unreachable | Kind::Broken | Kind::Unknown | Kind::Unserved => Status::Unavailable,
            Kind::Protocol => Status::Protocol,
            Kind::TimedOut | Kind::Busy => Status::TempFail,
            Kind::Impossible => Status::Data,
            Kind::Answer(
                ErrorCode::TOPIC_AUTHORIZATION_FAILED
                | ErrorCode::GROUP_AUTHORIZATION_FAILED
                | ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            ) => Status::NoPermission,
            Kind::Answer(ErrorCode::NON_EMPTY_GROUP | ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC) => {
                Status::TempFail
            }
            Kind::Answer(_) if self.may_pass() => Status::TempFail,
            Kind::Answer(_) => Status::Data,
        }
    }
}

/// The next step after a change of which nobody knows whether it will be made.
pub(super) const MAY_STILL_HAPPEN: &str = "it may still be carried out, so look before you repeat it";

/// Text from outside as it may be shown on a terminal: characters that control it, or turn the direction of what stands
/// beside them, become escapes.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.status(), error.sentence)
    }
}

/// What to do about a code, where that is known.
fn advice(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
            "`penstock topic list --internal` shows which topics there are"
        }
        ErrorCode::TOPIC_ALREADY_EXISTS => "choose another name, or change it with `penstock topic alter`",
        ErrorCode::INVALID_TOPIC_EXCEPTION => "a name has up to 249 letters, digits, '.', '_' and '-'",
        ErrorCode::INVALID_REPLICATION_FACTOR => "there must be as many brokers as replicas",
        ErrorCode::INVALID_PARTITIONS => "partitions can be added, not taken away",
        ErrorCode::INVALID_CONFIG => {
            "names and values are those of Kafka's topic configs, like retention.ms=86400000"
        }
        ErrorCode::GROUP_ID_NOT_FOUND => "`penstock group list` shows which groups there are",
        ErrorCode::NON_EMPTY_GROUP => {
            "the group has members: stop them first, `penstock group describe` names them"
        }
        ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC => "a member of the group consumes the topic: stop it first",
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::GROUP_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED => "this client is not allowed to do that",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_end_with_the_status_that_a_script_can_act_on() {
        let status = |code| Failure::from(ClientError::answer("x", code, None)).status;
        assert_eq!(status(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), Status::Data);
        assert_eq!(status(ErrorCode::TOPIC_ALREADY_EXISTS), Status::Data);
        assert_eq!(status(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS), Status::TempFail);
        assert_eq!(status(ErrorCode::NON_EMPTY_GROUP), Status::TempFail);
        assert_eq!(
            status(ErrorCode::GROUP_AUTHORIZATION_FAILED),
            Status::NoPermission
        );
    }

    #[test]
    fn a_sentence_has_what_where_why_and_a_next_step() {
        let error = ClientError::answer(
            "describing group 'g'",
            ErrorCode::GROUP_ID_NOT_FOUND,
            Some("gone\x1b[2J"),
        );
        assert_eq!(
            error.sentence,
            "describing group 'g': GROUP_ID_NOT_FOUND (gone\\u{1b}[2J); `penstock group list` shows which groups there are"
        );
        assert!(!error.may_pass());
        let error = ClientError::answer("x", ErrorCode::NOT_COORDINATOR, None);
        assert!(error.may_pass());
        let unsure = ClientError::perhaps_changed("giving topic 't' 3 partitions");
        assert!(!unsure.may_pass());
        assert_eq!(Failure::from(unsure).status, Status::TempFail);
        let late = error.in_vain(Duration::from_secs(30));
        assert!(late.sentence.contains("tried for 30 s") && !late.may_pass());
    }

    #[test]
    fn no_name_in_a_sentence_writes_to_the_terminal() {
        let name = "größe \"a\\b\" 'c'\x1b]0;x\x07\n\u{9b}2J\u{202e}";
        let shown = "größe \"a\\b\" 'c'\\u{1b}]0;x\\u{7}\\n\\u{9b}2J\\u{202e}";
        assert_eq!(clean(name), shown);
        for error in [
            ClientError::new(Kind::Busy, format!("{name} is busy")),
            ClientError::answer(
                &format!("looking for topic {name}"),
                ErrorCode::NOT_CONTROLLER,
                None,
            ),
            ClientError::answer("x", ErrorCode::NOT_CONTROLLER, Some(name)),
            ClientError::senseless("Metadata", name),
            ClientError::perhaps_changed(name),
        ] {
            assert!(error.sentence.contains(shown), "{}", error.sentence);
            assert!(
                !error.sentence.chars().any(char::is_control),
                "{}",
                error.sentence
            );
        }
    }
}
