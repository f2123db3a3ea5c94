//! "Did you mean …": the known name most like a mistyped one.

/// The name of `known` with the smallest edit distance to `name`, if it differs in at most a third of its letters
/// (and five at most).
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 3).min(EDITS_MAX);
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= limit)
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits beyond which two names are not the same word mistyped.
const EDITS_MAX: usize = 5;

/// Letters to insert, remove, replace or swap with their neighbour to come from `a` to `b` (optimal string alignment).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &letter) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, &other) in b.iter().enumerate() {
            let replace = above[j] + usize::from(letter != other);
            let mut best = replace.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && letter == b[j - 1] && a[i - 1] == other {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_meant() {
        let known = [
            "log.retention.hours",
            "log.retention.ms",
            "log.dirs",
            "log.dir",
            "num.partitions",
        ];
        assert_eq!(nearest("log.retention.hors", known), Some("log.retention.hours"));
        assert_eq!(nearest("log.dris", known), Some("log.dirs"));
        assert_eq!(nearest("lgo.dir", known), Some("log.dir"));
        assert_eq!(nearest("totally.else", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn distance_counts_single_edits() {
        assert_eq!(distance(b"abc", b"abc"), 0);
        assert_eq!(distance(b"abc", b"acb"), 1);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
