//! What the options of `penstock group` mean: `--topic t:0,1`, `--to …`, `--state`, `--type`.

use std::collections::BTreeSet;

use super::time;
use crate::client::{TopicPartition, by_topic};

/// The states of groups of any type, as Kafka spells them.
const STATES: [&str; 8] = [
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
];
/// The types of groups.
const TYPES: [&str; 4] = ["classic", "consumer", "share", "streams"];

/// `--state`: a state as Kafka spells it, from any case. A broker finds no group in a state that it does not know, so a typing
/// error would look like a cluster without groups.
pub(super) fn state_named(text: &str) -> Result<String, String> {
    one_of(&STATES, text)
}

/// `--type`, likewise.
pub(super) fn type_named(text: &str) -> Result<String, String> {
    one_of(&TYPES, text)
}

fn one_of(known: &[&str], text: &str) -> Result<String, String> {
    let found = known.iter().find(|name| name.eq_ignore_ascii_case(text.trim()));
    let found = found.ok_or_else(|| format!("write one of {}", known.join(", ")))?;
    Ok((*found).to_owned())
}

/// `--topic`: a topic, with some of its partitions or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicSpec {
    /// The topic.
    pub(super) topic: String,
    /// Its partitions; `None` for all.
    pub(super) partitions: Option<BTreeSet<i32>>,
}

impl TopicSpec {
    /// One for each topic of these partitions, with just them.
    pub(super) fn all_of<'a>(partitions: impl Iterator<Item = &'a TopicPartition>) -> Vec<Self> {
        let spec = |(topic, numbers): (&str, BTreeSet<i32>)| Self {
            topic: topic.to_owned(),
            partitions: Some(numbers),
        };
        by_topic(partitions).into_iter().map(spec).collect()
    }

    /// Reads `TOPIC` or `TOPIC:0,1,2`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write TOPIC or TOPIC:0,1,2";
        let (topic, partitions) = match text.split_once(':') {
            Some((topic, numbers)) => (topic, Some(numbers)),
            None => (text, None),
        };
        if topic.is_empty() {
            return Err(FORM.to_owned());
        }
        let number = |n: &str| n.trim().parse().ok().filter(|n: &i32| *n >= 0);
        let partitions = partitions
            .map(|numbers| {
                numbers
                    .split(',')
                    .map(number)
                    .collect::<Option<BTreeSet<i32>>>()
                    .ok_or(FORM)
            })
            .transpose()?;
        Ok(Self {
            topic: topic.to_owned(),
            partitions,
        })
    }
}

/// Why an amount below zero is refused.
const NEGATIVE: &str = "nothing lies before offset 0 or after now; to move back from what is committed say --shift, like --shift -5";

/// `--to`: where a group shall go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// The first record there is.
    Earliest,
    /// Behind the last record.
    Latest,
    /// What is committed.
    Current,
    /// This offset.
    Offset(i64),
    /// The first record of this time or later, ms since 1970.
    Datetime(i64),
    /// The first record not older than so many ms.
    Duration(i64),
}

impl To {
    /// Reads `earliest`, `latest`, `current`, an offset, a point in time or a duration. `offset:`, `datetime:` and
    /// `duration:` may stand in front.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str = "write earliest, latest, current, an offset like 42, a time like 2026-11-30T04:00:00Z (without a zone it is UTC), or a duration before now like PT1H";
        let offset = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).map(Self::Offset)
        };
        let datetime = |text: &str| time::datetime(text).map(Self::Datetime);
        let duration = |text: &str| time::duration(text).map(Self::Duration);
        let text = text.trim();
        let kind = text.split_once([':', ' ', '=']);
        let to = match (text, kind) {
            ("earliest", _) => Some(Self::Earliest),
            ("latest", _) => Some(Self::Latest),
            ("current", _) => Some(Self::Current),
            (_, Some(("offset", value))) => offset(value),
            (_, Some(("datetime", value))) => datetime(value),
            (_, Some(("duration", value))) => duration(value),
            (text, _) => offset(text).or_else(|| datetime(text)).or_else(|| duration(text)),
        };
        let value = kind.map_or(text, |(_, value)| value);
        let begins_amount = |c: char| c.is_ascii_digit() || matches!(c, 'P' | 'p');
        let is_negative = value
            .strip_prefix('-')
            .is_some_and(|v| v.starts_with(begins_amount));
        let refusal = if is_negative { NEGATIVE } else { FORMS };
        to.ok_or_else(|| refusal.to_owned())
    }

    /// Reads `--to-offset`.
    pub(super) fn offset(text: &str) -> Result<Self, String> {
        Self::of_kind("offset", text, "write an offset like 42")
    }

    /// Reads `--to-datetime`.
    pub(super) fn datetime(text: &str) -> Result<Self, String> {
        Self::of_kind(
            "datetime",
            text,
            "write a time like 2026-11-30T04:00:00Z (without a zone it is UTC)",
        )
    }

    /// Reads `--by-duration`.
    pub(super) fn duration(text: &str) -> Result<Self, String> {
        Self::of_kind("duration", text, "write a duration before now like PT1H")
    }

    fn of_kind(kind: &str, text: &str, form: &str) -> Result<Self, String> {
        let read = Self::parse(&format!("{kind}:{}", text.trim()));
        read.map_err(|why| if why == NEGATIVE { why } else { form.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_with_and_without_partitions() {
        let spec = |topic: &str, partitions: Option<&[i32]>| {
            Ok(TopicSpec {
                topic: topic.to_owned(),
                partitions: partitions.map(|p| p.iter().copied().collect()),
            })
        };
        assert_eq!(TopicSpec::parse("t"), spec("t", None));
        assert_eq!(TopicSpec::parse("t:2,0,2"), spec("t", Some(&[0, 2])));
        for wrong in ["", ":0", "t:", "t:a", "t:-1", "t:0,", "t:99999999999", "t:0:1"] {
            assert!(TopicSpec::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn where_to_go_on() {
        for (text, to) in [
            ("earliest", To::Earliest),
            ("latest", To::Latest),
            ("current", To::Current),
            ("42", To::Offset(42)),
            ("offset:42", To::Offset(42)),
            ("offset 42", To::Offset(42)),
            ("1970-01-01T00:00:01Z", To::Datetime(1000)),
            ("datetime:1970-01-01T00:00:01Z", To::Datetime(1000)),
            ("PT1S", To::Duration(1000)),
            ("duration=PT1S", To::Duration(1000)),
        ] {
            assert_eq!(To::parse(text), Ok(to), "{text}");
        }
        for wrong in [
            "",
            "first",
            "-1",
            "+1",
            "offset:PT1S",
            "2026-02-30",
            "PT",
            "99999999999999999999",
        ] {
            assert!(To::parse(wrong).is_err(), "{wrong}");
        }
        for negative in ["-1", "offset:-1", "-PT1H", "duration=-PT1H"] {
            let refusal = To::parse(negative).expect_err(negative);
            assert!(refusal.contains("--shift -5"), "{negative}: {refusal}");
        }
        for other in ["-", "--execute", "-t", "PT-1H"] {
            let refusal = To::parse(other).expect_err(other);
            assert!(refusal.starts_with("write earliest"), "{other}: {refusal}");
        }
    }

    #[test]
    fn kafkas_options_take_their_kind_only() {
        assert_eq!(To::offset("42"), Ok(To::Offset(42)));
        assert_eq!(To::datetime("1970-01-01T00:00:01.000"), Ok(To::Datetime(1000)));
        assert_eq!(To::duration("PT1S"), Ok(To::Duration(1000)));
        assert!(To::offset("-5").is_err_and(|why| why.contains("--shift -5")));
        for (read, form) in [
            (To::offset("latest"), "write an offset"),
            (To::offset("offset:42"), "write an offset"),
            (To::datetime("42"), "write a time"),
            (To::duration("1h"), "write a duration"),
        ] {
            assert!(read.as_ref().is_err_and(|why| why.starts_with(form)), "{read:?}");
        }
    }

    #[test]
    fn states_and_types_are_kafkas_in_any_case() {
        assert_eq!(state_named("stable"), Ok("Stable".to_owned()));
        assert_eq!(
            state_named("PREPARINGREBALANCE"),
            Ok("PreparingRebalance".to_owned())
        );
        assert_eq!(type_named("Classic"), Ok("classic".to_owned()));
        for refused in [state_named("bogus"), state_named(""), state_named("Unknown")] {
            assert!(refused.is_err_and(|why| why.contains("Stable, Empty,")));
        }
        assert!(type_named("queue").is_err_and(|why| why.contains("classic, consumer, share, streams")));
    }
}
