//! Goals: which figure of ours is to be how much of another broker's, and whether it is.

use serde::{Serialize, Serializer};

use super::figure::Figure;

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The figure.
    pub figure: Figure,
    /// Whose it is divided by.
    pub against: Against,
    /// The bound of the result.
    pub bound: Bound,
}

/// What a figure of ours is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// That of Apache Kafka with its defaults, which answers from the page cache.
    Kafka,
    /// That of Apache Kafka that syncs before it answers, as we do.
    KafkaFlush,
    /// Nothing: the figure itself.
    Itself,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
}

/// What came of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Reached by the median.
    Met,
    /// Not reached.
    Missed,
    /// Not measured.
    Unknown,
}

impl Goal {
    pub(super) const fn new(figure: Figure, against: Against, bound: Bound) -> Self {
        Self {
            figure,
            against,
            bound,
        }
    }

    /// Whether a ratio, or the figure itself, reaches it.
    pub fn verdict(&self, measured: Option<f64>) -> Verdict {
        let Some(measured) = measured else {
            return Verdict::Unknown;
        };
        let is_met = match self.bound {
            Bound::AtLeast(least) => measured >= least,
            Bound::AtMost(most) => measured <= most,
        };
        if is_met { Verdict::Met } else { Verdict::Missed }
    }

    /// It in words, without its figure: `≤ 0.2 × kafka`.
    pub fn words(&self) -> String {
        let (sign, bound) = match self.bound {
            Bound::AtLeast(least) => ('≥', least),
            Bound::AtMost(most) => ('≤', most),
        };
        match self.against.name() {
            Some(name) => format!("{sign} {bound} × {name}"),
            None => format!("{sign} {bound}"),
        }
    }
}

impl Against {
    /// The broker that is meant, as plans call it.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Kafka => Some("kafka"),
            Self::KafkaFlush => Some("kafka-flush"),
            Self::Itself => None,
        }
    }
}

impl Serialize for Goal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{} {}", self.figure.key(), self.words()))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Unknown => "not measured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_at_its_edge_and_unknown_without_a_figure() {
        let most = Goal::new(Figure::CpuPerGigabyte, Against::Kafka, Bound::AtMost(0.2));
        let least = Goal::new(Figure::ProducedMegabytes, Against::Itself, Bound::AtLeast(2.0));
        let verdicts = |goal: Goal| [Some(0.2), Some(0.21), Some(2.0), None].map(|found| goal.verdict(found));
        use Verdict::{Met, Missed, Unknown};
        assert_eq!(verdicts(most), [Met, Missed, Missed, Unknown]);
        assert_eq!(verdicts(least), [Missed, Missed, Met, Unknown]);
        assert_eq!(
            (most.words(), least.words()),
            ("≤ 0.2 × kafka".into(), "≥ 2".into())
        );
    }
}
