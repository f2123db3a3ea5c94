//! What the options of `penstock group` mean: `--topic t:0,1`, `--to …`.

use std::collections::BTreeSet;

use super::time;
use crate::client::{TopicPartition, by_topic};

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
        to.ok_or_else(|| FORMS.to_owned())
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
    }
}
