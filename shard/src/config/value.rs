//! Configuration values after reading, and their text in Kafka's spelling (DescribeConfigs answers with it).

use std::fmt;

/// A value that has the type its key asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum ConfigValue {
    /// Of type boolean.
    Bool(bool),
    /// Of type short, int or long.
    Integer(i64),
    /// Of type double.
    Double(f64),
    /// Of type string, class or password.
    Text(String),
    /// Of type list; items keep their order and come once.
    List(Vec<String>),
}

impl ConfigValue {
    /// The number, for numeric types.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss)]
            // bounds are small numbers: a rounded huge value stays on its side
            Self::Integer(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, for integer types.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The boolean, for that type.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, for text types.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The items, for lists.
    #[must_use]
    pub fn as_list(&self) -> Option<&[String]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

/// Kafka's spelling: lists between commas, doubles as Java prints them.
impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Double(value) => f.write_str(&java_double(*value)),
            Self::Text(value) => f.write_str(value),
            Self::List(items) => f.write_str(&items.join(",")),
        }
    }
}

/// A decimal integer within bounds; a leading `+` is fine, as in Java.
pub(super) fn parse_integer(text: &str, low: i64, high: i64) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("it must be a whole number from {low} to {high}")),
    }
}

pub(super) fn parse_double(text: &str) -> Result<f64, String> {
    // Java takes a trailing type letter; "inf" and "nan" in Rust's spelling it does not.
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let numeric = digits
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    match digits.parse::<f64>() {
        Ok(value) if numeric && value.is_finite() => Ok(value),
        _ => Err("it must be a number".into()),
    }
}

/// The items between commas, spaces around them cut, later repetitions left out; the empty text has none.
pub(super) fn split_list(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    if text.is_empty() {
        return items;
    }
    for item in text.split(',').map(str::trim) {
        if item.is_empty() || !items.iter().any(|earlier| earlier == item) {
            items.push(item.to_owned());
        }
    }
    items
}

/// A double as Java's `Double.toString` spells it: plain from 0.001 up to ten million, else with an exponent.
fn java_double(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{value:?}");
    }
    let text = format!("{value:E}");
    match text.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_spelled_as_java_spells_them() {
        for (value, text) in [
            (0.5, "0.5"),
            (1.0, "1.0"),
            (0.0, "0.0"),
            (1e7, "1.0E7"),
            (1.5e-4, "1.5E-4"),
            (f64::MAX, "1.7976931348623157E308"),
            (123_456.75, "123456.75"),
        ] {
            assert_eq!(java_double(value), text);
        }
    }

    #[test]
    fn list_items_are_trimmed_and_come_once() {
        assert_eq!(split_list("delete , compact,delete"), ["delete", "compact"]);
        assert_eq!(split_list(""), Vec::<String>::new());
        assert_eq!(split_list(","), ["", ""]);
    }

    #[test]
    fn numbers_follow_java() {
        assert_eq!(parse_integer("+5", i64::MIN, i64::MAX), Ok(5));
        assert!(parse_integer("1e3", i64::MIN, i64::MAX).is_err());
        assert!(parse_integer("0x10", i64::MIN, i64::MAX).is_err());
        assert!(parse_integer("9223372036854775808", i64::MIN, i64::MAX).is_err());
        assert_eq!(parse_double("0.5f"), Ok(0.5));
        assert_eq!(parse_double(".5"), Ok(0.5));
        assert!(parse_double("infinity").is_err());
    }
}
