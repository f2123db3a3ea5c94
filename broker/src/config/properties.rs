//! Reads Java's `.properties` format, the form of a Kafka `server.properties`: comments, `=`, `:` or blanks between key
//! and value, continued lines, escapes. Keeps the line of each key for error messages. Source: the load format that
//! `java.util.Properties` documents.

use std::iter::Peekable;
use std::str::Chars;

/// The largest file that is read, bytes; a real one has some kilobytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// One `key=value` of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The key, unescaped.
    pub key: String,
    /// The value, unescaped.
    pub value: String,
    /// The line the key is on, from 1.
    pub line: usize,
}

/// What is wrong with a file, and on which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct PropertiesError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub fault: String,
}

/// Every property of `text` in file order; a key may stand more than once (the last one wins, as in Java).
pub fn parse(text: &str) -> Result<Vec<Property>, PropertiesError> {
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let line_number = index + 1;
        let start = line.trim_start_matches(is_blank);
        if start.is_empty() || start.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = start.to_owned();
        while ends_with_open_backslash(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        let unescaped = |text: &str| {
            unescape(text).map_err(|fault| PropertiesError {
                line: line_number,
                fault,
            })
        };
        let key = unescaped(key)?;
        if key.is_empty() {
            let fault = format!("'{start}' has no key; a line is key=value");
            return Err(PropertiesError {
                line: line_number,
                fault,
            });
        }
        properties.push(Property {
            key,
            value: unescaped(value)?,
            line: line_number,
        });
    }
    Ok(properties)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

fn ends_with_open_backslash(line: &str) -> bool {
    line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// The key ends at the first unescaped `=`, `:` or blank; blanks around one separator are dropped.
fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = line
        .char_indices()
        .find(|(_, c)| {
            let ends = !is_escaped && (matches!(c, '=' | ':') || is_blank(*c));
            is_escaped = *c == '\\' && !is_escaped;
            ends
        })
        .map_or(line.len(), |(at, _)| at);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(is_blank))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => out.push(unicode(&mut chars)?),
            Some(other) => out.push(other),
            None => {}
        }
    }
    Ok(out)
}

fn unicode(chars: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    let digits: String = chars.by_ref().take(4).collect();
    let code = u32::from_str_radix(&digits, 16)
        .ok()
        .filter(|_| digits.len() == 4);
    code.and_then(char::from_u32).ok_or_else(|| {
        format!("'\\u{digits}' is not a character; \\u is followed by four hexadecimal digits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text)
            .expect("well formed")
            .into_iter()
            .map(|p| (p.key, p.value))
            .collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_kafka_server_properties_reads_as_it_is() {
        let text = "# broker\n\nprocess.roles=broker,controller\nlog.dirs = /var/lib/kafka \n  ! note\n\
                    listeners=PLAINTEXT://:9092,\\\n          SSL://:9093\nempty=\nflag\n";
        assert_eq!(
            pairs(text),
            [
                pair("process.roles", "broker,controller"),
                pair("log.dirs", "/var/lib/kafka "),
                pair("listeners", "PLAINTEXT://:9092,SSL://:9093"),
                pair("empty", ""),
                pair("flag", ""),
            ]
        );
    }

    #[test]
    fn separators_and_escapes_are_javas() {
        assert_eq!(pairs("a:b"), [pair("a", "b")]);
        assert_eq!(pairs("a b=c"), [pair("a", "b=c")]);
        assert_eq!(pairs("a\\ b = c\\\\d"), [pair("a b", "c\\d")]);
        assert_eq!(pairs("a\\=b=\\u0041\\t"), [pair("a=b", "A\t")]);
        assert_eq!(pairs("a=b\\"), [pair("a", "b")]);
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse("a=1\n\nb=\\u00zz\n").expect_err("bad escape");
        assert_eq!(error.line, 3);
        assert_eq!(parse("a=1\n=2\n").expect_err("no key").line, 2);
        assert_eq!(parse("x=1\\\n\\\n2\ny=\\u1\n").expect_err("short").line, 4);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
