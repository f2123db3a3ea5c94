//! Aligned tables for people: columns as wide as their widest cell, numbers to the right, two spaces between.

use crate::client::clean;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table that is filled row by row.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells come from clients and brokers: control characters are shown as escapes, so that a name cannot
    /// write to the terminal; an empty cell is a dash.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        let cells = cells.iter().map(|cell| match clean(cell) {
            cell if cell.is_empty() => "-".to_owned(),
            cell => cell,
        });
        self.rows.push(cells.collect());
    }

    /// The table as text, with its head.
    pub(super) fn text(&self) -> String {
        let head: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let lines = || std::iter::once(&head).chain(&self.rows);
        let mut widths = vec![0; self.columns.len()];
        for line in lines() {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for line in lines() {
            let cells = line.iter().zip(&widths).zip(&self.columns);
            let cells: Vec<String> = cells
                .map(|((cell, &width), (_, align))| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number that may not be known.
pub(super) fn number(number: Option<i64>) -> String {
    number.map(|n| n.to_string()).unwrap_or_default()
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
        let mut table = Table::new(&[
            ("TOPIC", Align::Left),
            ("LAG", Align::Right),
            ("HOST", Align::Left),
        ]);
        table.row(vec!["größe".to_owned(), "12345".to_owned(), String::new()]);
        table.row(vec!["a\x1b[2J".to_owned(), "7".to_owned(), "h".to_owned()]);
        assert_eq!(
            table.text(),
            "TOPIC         LAG  HOST\ngröße       12345  -\na\\u{1b}[2J      7  h\n"
        );
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_lists_have_commas() {
        assert_eq!(number(None), "");
        assert_eq!(number(Some(-3)), "-3");
        assert_eq!(list(&[2, 0, 1]), "2,0,1");
    }
}
