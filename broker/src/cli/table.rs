//! Aligned tables for people: columns as wide as their widest cell, numbers to the right, two spaces between.

use crate::client::clean;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A column: its head, and how it is aligned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column(&'static str, Align);

/// A column of words.
pub(super) const fn left(head: &'static str) -> Column {
    Column(head, Align::Left)
}

/// A column of numbers.
pub(super) const fn right(head: &'static str) -> Column {
    Column(head, Align::Right)
}

/// A table with its head. Cells come from clients and brokers: control characters are shown as escapes, so that a name cannot
/// write to the terminal; an empty cell is a dash.
pub(super) fn table<const N: usize>(
    columns: [Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let head = columns.map(|column| column.0.to_owned());
    let lines: Vec<[String; N]> = std::iter::once(head)
        .chain(rows.into_iter().map(|cells| cells.map(shown)))
        .collect();
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths).zip(columns);
        let cells: Vec<String> = cells
            .map(|((cell, width), Column(_, align))| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn shown(cell: String) -> String {
    match clean(&cell) {
        cell if cell.is_empty() => "-".to_owned(),
        cell => cell,
    }
}

/// A number that may not be known.
pub(super) fn number(number: Option<i64>) -> String {
    number.map(|n| n.to_string()).unwrap_or_default()
}

/// A name that may be empty, which is not the same as none: a group's id.
pub(super) fn named(name: &str) -> String {
    if name.is_empty() {
        return "\"\"".to_owned();
    }
    clean(name)
}

/// How many of what there are: `1 partition`, `2 partitions`.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Numbers of partitions or brokers in a row: `0,1,2`.
pub(super) fn list<'a>(numbers: impl IntoIterator<Item = &'a i32>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(i32::to_string).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_spaces() {
        let text = table(
            [left("TOPIC"), right("LAG"), left("HOST")],
            [
                ["größe".to_owned(), "12345".to_owned(), String::new()],
                ["a\x1b[2J".to_owned(), "7".to_owned(), "h".to_owned()],
            ],
        );
        assert_eq!(
            text,
            "TOPIC         LAG  HOST\ngröße       12345  -\na\\u{1b}[2J      7  h\n"
        );
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_lists_have_commas() {
        assert_eq!(number(None), "");
        assert_eq!(number(Some(-3)), "-3");
        assert_eq!(list(&[2, 0, 1]), "2,0,1");
    }

    #[test]
    fn only_one_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|n| counted(n, "group")),
            ["0 groups", "1 group", "2 groups"]
        );
    }

    #[test]
    fn an_empty_name_is_told_from_none() {
        assert_eq!(named(""), "\"\"");
        assert_eq!(named("a\x1b"), "a\\u{1b}");
    }
}
