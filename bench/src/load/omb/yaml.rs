//! The part of YAML that workload and driver files use: one mapping of scalars, plain or quoted, and of literal blocks. Anything else
//! is refused with its line; no crate of this workspace reads YAML, and the whole language is not needed for it.

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    /// Line of the key, from 1.
    pub(super) line: usize,
}

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) what: String,
}

fn fault<T>(line: usize, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault {
        line,
        what: what.into(),
    })
}

/// The entries of a document in their order.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, Fault> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut lines = text.lines().zip(1..).peekable();
    while let Some((text, line)) = lines.next() {
        if without_comment(text).trim().is_empty() || text.trim_end() == "---" {
            continue;
        }
        if text.starts_with([' ', '\t', '-', '[', '{']) {
            return fault(
                line,
                format!(
                    "'{}' is no 'key: value' at the begin of a line; lists and nested mappings are not read",
                    text.trim()
                ),
            );
        }
        let Some((key, rest)) = key_of(text) else {
            return fault(line, format!("'{}' is no 'key: value'", text.trim_end()));
        };
        if entries.iter().any(|entry| entry.key == key) {
            return fault(line, format!("'{key}' is there twice"));
        }
        let rest = without_comment(rest).trim();
        let value = match rest {
            "|" | "|-" | "|+" => {
                let mut block = Vec::new();
                while let Some((text, _)) =
                    lines.next_if(|(text, _)| text.starts_with(' ') || text.trim().is_empty())
                {
                    block.push(text.trim());
                }
                block.join("\n").trim_end().to_owned()
            }
            _ => scalar(rest).or_else(|what| fault(line, format!("the value of '{key}': {what}")))?,
        };
        entries.push(Entry {
            key: key.to_owned(),
            value,
            line,
        });
    }
    Ok(entries)
}

fn key_of(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = text.split_once(':')?;
    let is_plain = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    (is_plain && (rest.is_empty() || rest.starts_with([' ', '\t']))).then_some((key, rest))
}

/// The line without a comment, which begins with a `#` at its begin or after a space, outside quotes.
fn without_comment(text: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if (c == '"' || c == '\'') && before.is_whitespace() => quote = Some(c),
            None if c == '#' && before.is_whitespace() => return &text[..at],
            _ => {}
        }
        before = c;
    }
    text
}

fn scalar(text: &str) -> Result<String, String> {
    for quote in ['"', '\''] {
        let Some(rest) = text.strip_prefix(quote) else {
            continue;
        };
        return match rest.strip_suffix(quote) {
            Some(inner) if inner.contains('\\') && quote == '"' => Err("escapes are not read".into()),
            Some(inner) if quote == '\'' => Ok(inner.replace("''", "'")),
            Some(inner) => Ok(inner.to_owned()),
            None => Err("its quote is not closed".into()),
        };
    }
    match text.chars().next() {
        Some(first @ ('[' | '{' | '&' | '*' | '!' | '>' | '%' | '@' | '`')) => Err(format!(
            "what begins with '{first}' is not read, only plain and quoted values and '|' blocks"
        )),
        _ if matches!(text, "~" | "null") => Ok(String::new()),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_quotes_comments_and_blocks() {
        let text = "---\n# a comment\nname: Backlog for 200k rate / 1 topic  # more\nempty:\nquoted: \"a # b\"\nsingle: 'it''s'\nhash: a#b\nblock: |\n  acks=all\n\n  linger.ms=1\nlast: 1\n";
        let entries = parse(text).expect("it is right");
        let found: Vec<(&str, &str, usize)> = entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.value.as_str(), entry.line))
            .collect();
        assert_eq!(
            found,
            [
                ("name", "Backlog for 200k rate / 1 topic", 3),
                ("empty", "", 4),
                ("quoted", "a # b", 5),
                ("single", "it's", 6),
                ("hash", "a#b", 7),
                ("block", "acks=all\n\nlinger.ms=1", 8),
                ("last", "1", 12),
            ]
        );
    }

    #[test]
    fn what_is_not_read_is_named_with_its_line() {
        for (text, line, word) in [
            ("a: 1\n- b\n", 2, "- b"),
            ("a:\n  b: 1\n", 2, "b: 1"),
            ("a: [1, 2]\n", 1, "'['"),
            ("a: &x 1\n", 1, "'&'"),
            ("a: \"open\n", 1, "quote"),
            ("a: \"x\\n\"\n", 1, "escapes"),
            ("a: 1\na: 2\n", 2, "twice"),
            ("words\n", 1, "words"),
        ] {
            let fault = parse(text).expect_err(text);
            assert!(
                fault.line == line && fault.what.contains(word),
                "{text}: {fault:?}"
            );
        }
    }
}
