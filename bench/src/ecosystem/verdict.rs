//! Holds the lines that came out against those that went in.

use std::fmt;

/// What became of numbered lines. Repeated and out of order are counted apart from lost: Connect promises at least once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Lines that went in.
    pub written: u64,
    /// Lines that came out, all copies.
    pub found: u64,
    /// Lines that never came out.
    pub lost: u64,
    /// Copies beyond the first.
    pub repeated: u64,
    /// Lines whose first copy came out after the first copy of a later line.
    pub disordered: u64,
    /// Lines that nobody wrote.
    pub invented: u64,
}

/// Judges the lines 0 to `written - 1` by the numbers of those that came out, in order.
pub fn judge(written: u64, found: impl IntoIterator<Item = u64>) -> Verdict {
    let mut verdict = Verdict {
        written,
        ..Verdict::default()
    };
    let mut seen = vec![false; usize::try_from(written).unwrap_or(usize::MAX)];
    let mut latest = None;
    for number in found {
        verdict.found += 1;
        let place = usize::try_from(number).ok().and_then(|at| seen.get_mut(at));
        match place {
            None => verdict.invented += 1,
            Some(true) => verdict.repeated += 1,
            Some(first) => {
                *first = true;
                if latest.is_some_and(|latest| number < latest) {
                    verdict.disordered += 1;
                }
                latest = latest.max(Some(number));
            }
        }
    }
    verdict.lost = seen.iter().filter(|came| !**came).count() as u64;
    verdict
}

impl Verdict {
    /// What must not happen; repeated lines may.
    pub fn violations(&self) -> u64 {
        self.lost + self.disordered + self.invented
    }

    /// Both together, of two partitions for example.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            written: self.written + other.written,
            found: self.found + other.found,
            lost: self.lost + other.lost,
            repeated: self.repeated + other.repeated,
            disordered: self.disordered + other.disordered,
            invented: self.invented + other.invented,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} written, {} found, lost {}, repeated {}, out of order {}, invented {}",
            self.written, self.found, self.lost, self.repeated, self.disordered, self.invented
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_fault_is_counted_once() {
        assert_eq!(judge(3, [0, 1, 2]).violations(), 0);
        let verdict = judge(5, [0, 2, 1, 2, 2, 9]);
        let expected = Verdict {
            written: 5,
            found: 6,
            lost: 2,
            repeated: 2,
            disordered: 1,
            invented: 1,
        };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn a_batch_that_comes_twice_is_repeated_and_in_order() {
        let verdict = judge(4, [0, 1, 2, 1, 2, 3]);
        assert_eq!((verdict.repeated, verdict.violations()), (2, 0));
    }
}
