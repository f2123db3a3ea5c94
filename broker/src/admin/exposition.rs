//! Writes the Prometheus text format, version 0.0.4: families of samples with labels. Names are ours or Kafka's, label
//! values may hold anything.

use std::fmt::Write;

/// What the text is, for the HTTP answer.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The quantiles of Kafka's histograms, as the usual exporter rules spell them.
pub(super) const QUANTILES: [(&str, f64); 6] = [
    ("0.50", 0.50),
    ("0.75", 0.75),
    ("0.95", 0.95),
    ("0.98", 0.98),
    ("0.99", 0.99),
    ("0.999", 0.999),
];

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Quantiles, sum and count.
    Summary,
    /// Cumulative buckets, sum and count.
    Histogram,
}

/// A number as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// Counts and sizes.
    Unsigned(u64),
    /// Offsets and the like.
    Signed(i64),
    /// Seconds and shares.
    Float(f64),
}

/// Label names with their values.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// The text being written.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// A family being written: its name is said, samples follow.
#[derive(Debug)]
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Exposition {
    /// Begins a family. All its samples are written before the next one begins.
    pub(super) fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family {
            text: &mut self.text,
            name,
        }
    }

    /// A family of one sample without labels.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Into<Number>) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// One sample.
    pub(super) fn sample(&mut self, labels: &Labels<'_>, value: impl Into<Number>) -> &mut Self {
        self.part("", labels, value)
    }

    /// A sample of a summary or histogram: `suffix` is `_sum`, `_count` or `_bucket`.
    pub(super) fn part(&mut self, suffix: &str, labels: &Labels<'_>, value: impl Into<Number>) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut before = '{';
        for (name, value) in labels {
            self.text.push(before);
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
            before = ',';
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = match value.into() {
            Number::Unsigned(value) => writeln!(self.text, " {value}"),
            Number::Signed(value) => writeln!(self.text, " {value}"),
            Number::Float(value) if value.is_infinite() && value > 0.0 => writeln!(self.text, " +Inf"),
            Number::Float(value) => writeln!(self.text, " {value}"),
        };
        self
    }
}

/// Seconds of so many microseconds.
pub(super) fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            // Prometheus's scanner refuses a whole scrape with one in it; clients choose the names of groups.
            '\0' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Unsigned(value as u64)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Unsigned(u64::from(value))
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_said_once_and_label_values_are_escaped() {
        let mut text = Exposition::default();
        text.family("kafka_log_log_size", Kind::Gauge, "Bytes.")
            .sample(&[("topic", "a\"b\\c\nd\0e"), ("partition", "0")], 7usize)
            .sample(&[], -1i64);
        text.single("x_seconds_total", Kind::Counter, "Seconds.", 0.25);
        text.single("x_max", Kind::Gauge, "No bound.", f64::INFINITY);
        assert_eq!(
            text.finish(),
            "# HELP kafka_log_log_size Bytes.\n# TYPE kafka_log_log_size gauge\n\
             kafka_log_log_size{topic=\"a\\\"b\\\\c\\nd\u{fffd}e\",partition=\"0\"} 7\nkafka_log_log_size -1\n\
             # HELP x_seconds_total Seconds.\n# TYPE x_seconds_total counter\nx_seconds_total 0.25\n\
             # HELP x_max No bound.\n# TYPE x_max gauge\nx_max +Inf\n"
        );
    }
}
