//! What is known of one configuration key: its type, default, allowed values, and when it may change. Values come as text
//! (a file, a request, a metadata record) and are checked here, against Kafka's own ranges.

use super::value::{ConfigValue, parse_double, parse_integer, split_list};

/// Everything known of one key. The keys themselves are data: `keys/*.keys`.
#[derive(Clone, Debug)]
pub struct ConfigKey {
    /// Kafka's name, or ours with the prefix `penstock.`.
    pub name: &'static str,
    /// How the text is read.
    pub kind: ConfigType,
    /// The default as text; `None` is unset.
    pub default: Option<&'static str>,
    /// Which values are allowed.
    pub check: Check,
    /// How much it matters, for people who read lists of keys.
    pub importance: Importance,
    /// Whether and where it may change while the broker runs.
    pub dynamic: DynamicMode,
    /// Whether it does something here.
    pub standing: Standing,
    /// Whether DescribeConfigs names it.
    pub visibility: Visibility,
    /// What it does, in our words.
    pub doc: &'static str,
}

/// The types of Kafka's configuration values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigType {
    /// `true` or `false`, any case.
    Boolean,
    /// Any text.
    String,
    /// A 32-bit integer.
    Int,
    /// A 16-bit integer.
    Short,
    /// A 64-bit integer.
    Long,
    /// A floating point number.
    Double,
    /// Texts between commas.
    List,
    /// The name of a JVM class: never loaded here.
    Class,
    /// A secret: never shown.
    Password,
}

/// Which values a key allows beside its type.
#[derive(Clone, PartialEq, Debug)]
pub enum Check {
    /// All of the type.
    Any,
    /// Numbers from the first bound to the second, both allowed.
    Between(f64, f64),
    /// Numbers not below the bound.
    AtLeast(f64),
    /// 1 to 9, or −1: the gzip level.
    GzipLevel,
    /// One of these texts.
    OneOf(Vec<&'static str>),
    /// One of these texts in any case.
    OneOfAnyCase(Vec<&'static str>),
    /// A list of these items (any, when none is named) that may be empty or not.
    Items {
        /// The allowed items; none means all but the empty one.
        allowed: Vec<&'static str>,
        /// Whether the empty list is fine.
        empty: bool,
    },
    /// Text that is not empty.
    NonEmpty,
    /// `*` or a list of `partition:broker`.
    ThrottledReplicas,
    /// `latest`, `earliest` or `by_duration:` and an ISO 8601 duration.
    OffsetReset,
}

/// How much a key matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Importance {
    High,
    Medium,
    Low,
}

/// Whether and where a key may change while the broker runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DynamicMode {
    /// At start only.
    Static,
    /// On one broker.
    PerBroker,
    /// On one broker, or on all by the cluster's default.
    ClusterWide,
}

/// Whether a key does something here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It works.
    Used,
    /// It is accepted and will work when its subsystem is there.
    Later,
    /// It is accepted and means nothing here.
    Inert,
}

/// Whether DescribeConfigs names a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// It does.
    Public,
    /// It does not: a key for tests of Kafka's own.
    Internal,
    /// Only while it is set: the key exists as a dynamic value alone.
    DynamicOnly,
}

impl ConfigType {
    /// The number of the type in DescribeConfigs answers.
    #[must_use]
    pub const fn wire(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Short => 4,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
            Self::Class => 8,
            Self::Password => 9,
        }
    }
}

impl ConfigKey {
    /// Whether values are secrets that no answer may hold.
    #[must_use]
    pub fn is_sensitive(&self) -> bool {
        self.kind == ConfigType::Password
    }

    /// Whether a running broker cannot change it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.dynamic == DynamicMode::Static
    }

    /// Reads and checks `text`.
    ///
    /// # Errors
    /// One sentence that names the key, the value (secrets apart) and what would be right.
    pub fn parse(&self, text: &str) -> Result<ConfigValue, String> {
        let value = self.read(text).map_err(|reason| self.complaint(text, &reason))?;
        self.check_value(&value)
            .map_err(|(shown, reason)| self.complaint(&shown, &reason))?;
        Ok(value)
    }

    /// The default, read; `None` when the key is unset by default.
    #[must_use]
    pub fn default_value(&self) -> Option<ConfigValue> {
        // Every default in the tables is read and checked by a test, so a failure here cannot happen.
        self.default.and_then(|text| self.read(text).ok())
    }

    fn complaint(&self, shown: &str, reason: &str) -> String {
        let shown = if self.is_sensitive() { "[hidden]" } else { shown };
        format!("Invalid value {shown} for configuration {}: {reason}", self.name)
    }

    fn read(&self, text: &str) -> Result<ConfigValue, String> {
        let trimmed = text.trim();
        match self.kind {
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => Ok(ConfigValue::Bool(true)),
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => Ok(ConfigValue::Bool(false)),
            ConfigType::Boolean => Err("it must be true or false".into()),
            ConfigType::String | ConfigType::Class | ConfigType::Password => {
                Ok(ConfigValue::Text(trimmed.to_owned()))
            }
            ConfigType::Short => {
                parse_integer(trimmed, i16::MIN.into(), i16::MAX.into()).map(ConfigValue::Integer)
            }
            ConfigType::Int => {
                parse_integer(trimmed, i32::MIN.into(), i32::MAX.into()).map(ConfigValue::Integer)
            }
            ConfigType::Long => parse_integer(trimmed, i64::MIN, i64::MAX).map(ConfigValue::Integer),
            ConfigType::Double => parse_double(trimmed).map(ConfigValue::Double),
            ConfigType::List => Ok(ConfigValue::List(split_list(trimmed))),
        }
    }

    /// The value that is wrong, as text, and why.
    fn check_value(&self, value: &ConfigValue) -> Result<(), (String, String)> {
        let refuse = |reason: String| Err((value.to_string(), reason));
        match (&self.check, value) {
            (Check::AtLeast(low), _) if value.as_number().is_some_and(|n| n < *low) => {
                refuse(format!("it must be at least {low}"))
            }
            (Check::Between(low, high), _) if value.as_number().is_some_and(|n| n < *low || n > *high) => {
                refuse(format!("it must be between {low} and {high}"))
            }
            (Check::GzipLevel, ConfigValue::Integer(level)) if *level != -1 && !(1..=9).contains(level) => {
                refuse("it must be between 1 and 9, or -1".into())
            }
            (Check::OneOf(allowed), ConfigValue::Text(text)) if !allowed.contains(&text.as_str()) => {
                refuse(format!("it must be one of {}", allowed.join(", ")))
            }
            (Check::OneOfAnyCase(allowed), ConfigValue::Text(text))
                if !allowed.iter().any(|item| item.eq_ignore_ascii_case(text)) =>
            {
                refuse(format!("it must be one of {} (any case)", allowed.join(", ")))
            }
            (Check::NonEmpty, ConfigValue::Text(text)) if text.is_empty() => {
                refuse("it must not be empty".into())
            }
            (Check::Items { allowed, empty }, ConfigValue::List(items)) => {
                check_items(items, allowed, *empty)
            }
            (Check::ThrottledReplicas, ConfigValue::List(items)) if !are_throttled_replicas(items) => {
                refuse("it must be * or a list like partition:broker,partition:broker".into())
            }
            (Check::OffsetReset, ConfigValue::Text(text)) if !is_offset_reset(text) => {
                refuse("it must be earliest, latest or by_duration:PnDTnHnMn.nS".into())
            }
            _ => Ok(()),
        }
    }
}

fn check_items(items: &[String], allowed: &[&str], empty: bool) -> Result<(), (String, String)> {
    if items.is_empty() && !empty {
        return Err((String::new(), "the list must not be empty".into()));
    }
    for item in items {
        if item.is_empty() {
            return Err((String::new(), "the list must not hold empty items".into()));
        }
        if !allowed.is_empty() && !allowed.contains(&item.as_str()) {
            return Err((item.clone(), format!("it must be one of {}", allowed.join(", "))));
        }
    }
    Ok(())
}

fn are_throttled_replicas(items: &[String]) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match items {
        [single] if single == "*" => true,
        _ => items.iter().all(|item| {
            item.split_once(':')
                .is_some_and(|(partition, broker)| number(partition) && number(broker))
        }),
    }
}

fn is_offset_reset(text: &str) -> bool {
    match text.strip_prefix("by_duration:") {
        Some(duration) => is_iso_duration(duration),
        None => text == "earliest" || text == "latest",
    }
}

/// `PnDTnHnMn.nS` with at least one part, not negative (ISO 8601 as Java's `Duration` reads it).
fn is_iso_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(['P', 'p']) else {
        return false;
    };
    let (date, time) = match rest.split_once(['T', 't']) {
        Some((_, "")) => return false,
        Some((date, time)) => (date, Some(time)),
        None => (rest, None),
    };
    let date_is_fine = date.is_empty() || has_units(date, "D");
    let time_is_fine = time.is_none_or(|time| has_units(time, "HMS"));
    date_is_fine && time_is_fine && !rest.is_empty()
}

/// Whether `text` is numbers, each followed by a unit of `units`, units in that order and each at most once.
fn has_units(text: &str, units: &str) -> bool {
    let mut left = units;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (number, tail) = rest.split_at(digits);
        let Some(unit) = tail.chars().next() else {
            return false;
        };
        let Some(at) = left.find(unit.to_ascii_uppercase()) else {
            return false;
        };
        let whole = number.bytes().all(|b| b.is_ascii_digit());
        let fraction_is_fine = unit.eq_ignore_ascii_case(&'S') && number.matches('.').count() == 1;
        if number.is_empty() || !(whole || fraction_is_fine) {
            return false;
        }
        left = left.get(at + 1..).unwrap_or("");
        rest = tail.get(unit.len_utf8()..).unwrap_or("");
    }
    true
}
