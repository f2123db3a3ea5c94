//! The options of `penstock group reset-offsets`, and how one group is named. What kafka-consumer-groups calls otherwise is
//! taken as well: scripts and fingers know it.

use clap::{ArgGroup, Args};

use super::spec::{To, TopicSpec};

/// Above Kafka's spellings in `--help`.
const KAFKAS: &str = "The same as kafka-consumer-groups spells it";

/// One group.
#[derive(Clone, Debug, Args)]
pub(super) struct OneGroup {
    /// Which group
    #[arg(value_name = "GROUP", required_unless_present = "named")]
    group: Option<String>,
    /// Which group
    #[arg(long = "group", value_name = "GROUP", conflicts_with = "group", help_heading = KAFKAS)]
    named: Option<String>,
}

impl OneGroup {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        let name = self.group.as_deref().or(self.named.as_deref());
        name.expect("one of the two is required")
    }
}

/// What is to be reset, and where to.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("target").required(true))]
#[command(group = ArgGroup::new("scope").required(true))]
pub(super) struct ResetArgs {
    #[command(flatten)]
    pub(super) group: OneGroup,
    /// A topic, or some of its partitions; may be repeated
    #[arg(short, long = "topic", group = "scope", value_name = "TOPIC[:0,1,2]", value_parser = TopicSpec::parse)]
    pub(super) topics: Vec<TopicSpec>,
    /// Every topic for which something is committed
    #[arg(long, group = "scope", conflicts_with = "topics")]
    pub(super) all_topics: bool,
    /// earliest, latest, current, an offset, a time (ISO 8601, UTC without a zone) or a duration before now (PT1H)
    #[arg(
        long,
        group = "target",
        value_name = "WHERE",
        value_parser = To::parse,
        // What begins with a hyphen is refused with a sentence of ours: clap would say to write `--` in front of it.
        allow_hyphen_values = true
    )]
    to: Option<To>,
    /// So many records on; back when negative
    #[arg(
        long,
        visible_alias = "shift-by",
        group = "target",
        conflicts_with = "to",
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub(super) shift: Option<i64>,
    #[command(flatten)]
    kafkas: KafkasTargets,
    /// Write the new offsets
    #[arg(long)]
    pub(super) execute: bool,
    /// Only show what would be written; so it is without --execute
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
}

/// `--to` in the words of kafka-consumer-groups.
#[derive(Clone, Debug, Args)]
struct KafkasTargets {
    /// --to earliest
    #[arg(long, group = "target", help_heading = KAFKAS)]
    to_earliest: bool,
    /// --to latest
    #[arg(long, group = "target", help_heading = KAFKAS)]
    to_latest: bool,
    /// --to current
    #[arg(long, group = "target", help_heading = KAFKAS)]
    to_current: bool,
    /// --to N
    #[arg(
        long,
        group = "target",
        value_name = "N",
        value_parser = To::offset,
        allow_hyphen_values = true,
        help_heading = KAFKAS
    )]
    to_offset: Option<To>,
    /// --to TIME
    #[arg(
        long,
        group = "target",
        value_name = "TIME",
        value_parser = To::datetime,
        allow_hyphen_values = true,
        help_heading = KAFKAS
    )]
    to_datetime: Option<To>,
    /// --to DURATION
    #[arg(
        long,
        group = "target",
        value_name = "DURATION",
        value_parser = To::duration,
        allow_hyphen_values = true,
        help_heading = KAFKAS
    )]
    by_duration: Option<To>,
}

impl ResetArgs {
    /// Where to, however it was said; `None` for a shift.
    pub(super) fn to(&self) -> Option<To> {
        let kafkas = &self.kafkas;
        let ways = [
            self.to,
            kafkas.to_offset,
            kafkas.to_datetime,
            kafkas.by_duration,
            kafkas.to_earliest.then_some(To::Earliest),
            kafkas.to_latest.then_some(To::Latest),
            kafkas.to_current.then_some(To::Current),
        ];
        ways.into_iter().flatten().next()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reset: ResetArgs,
    }

    fn read(line: &str) -> Result<ResetArgs, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.reset)
    }

    #[test]
    fn kafkas_spellings_mean_what_ours_do() {
        for (said, to, shift) in [
            ("--to earliest", Some(To::Earliest), None),
            ("--to-earliest", Some(To::Earliest), None),
            ("--to-latest", Some(To::Latest), None),
            ("--to-current", Some(To::Current), None),
            ("--to-offset 42", Some(To::Offset(42)), None),
            (
                "--to-datetime 1970-01-01T00:00:01.000",
                Some(To::Datetime(1000)),
                None,
            ),
            ("--by-duration PT1S", Some(To::Duration(1000)), None),
            ("--shift-by -5", None, Some(-5)),
        ] {
            let reset = read(&format!("x g --topic t {said}")).expect(said);
            assert_eq!((reset.to(), reset.shift), (to, shift), "{said}");
        }
    }

    #[test]
    fn where_to_is_said_exactly_once() {
        let ways = [
            "--to 5",
            "--shift 1",
            "--to-earliest",
            "--to-latest",
            "--to-current",
            "--to-offset 5",
            "--to-datetime 2026-11-30",
            "--by-duration PT1H",
        ];
        for one in ways {
            for other in ways {
                let error = read(&format!("x g --topic t {one} {other}")).expect_err("two ways");
                assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{one} {other}");
            }
        }
        let error = read("x g --topic t").expect_err("no way");
        assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn a_group_is_named_by_a_word_or_by_an_option() {
        for line in ["x g --topic t --to 5", "x --group g --topic t --to-offset 5"] {
            assert_eq!(read(line).expect(line).group.name(), "g", "{line}");
        }
        let error = read("x g --group g --topic t --to 5").expect_err("two groups");
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
        let error = read("x --topic t --to 5").expect_err("no group");
        assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
    }
}
