//! Makes two answers of a tool comparable: addresses and ids become words, rows of a table get an order, and what only repeats
//! where in the tool's own code an error came up goes.

use std::path::Path;

/// The answer without what differs from run to run.
pub fn normal(output: &str, bootstrap: &str, folder: &Path) -> String {
    let folder = folder.display().to_string();
    let lines = output
        .lines()
        .filter(|line| !line.starts_with("\tat ") && !line.trim_start().starts_with("... "))
        .map(|line| {
            let line = line.replace(bootstrap, "HOST:PORT").replace(&folder, "DIR");
            columns(&mask_uuids(&line))
        });
    let mut text = String::new();
    let mut block = Vec::new();
    for line in lines.chain([String::new()]) {
        if line.is_empty() {
            flush(&mut block, &mut text);
        } else {
            block.push(line);
        }
    }
    text
}

/// Writes a block of lines out: a heading stays first, the rows come in order.
fn flush(block: &mut Vec<String>, text: &mut String) {
    if block.is_empty() {
        return;
    }
    let is_heading =
        |line: &String| !line.chars().any(char::is_lowercase) && line.contains(char::is_uppercase);
    let from = block.iter().position(is_heading).map_or(0, |heading| heading + 1);
    block[from..].sort_unstable();
    if !text.is_empty() {
        text.push('\n');
    }
    for line in block.drain(..) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// Columns of a table are as wide as their longest value, and that has a port in it: one distance for all.
fn columns(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut spaces = 0;
    for c in line.trim_end().chars() {
        if c == ' ' {
            spaces += 1;
            continue;
        }
        out.push_str(match spaces {
            0 => "",
            1 => " ",
            _ => "  ",
        });
        spaces = 0;
        out.push(c);
    }
    out
}

/// Puts `UUID` where 36 characters in that form stand.
fn mask_uuids(line: &str) -> String {
    let bytes = line.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes.get(at..at + 36).is_some_and(is_uuid) {
            out.extend_from_slice(b"UUID");
            at += 36;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).expect("whole characters were copied, and ASCII put in the place of ASCII")
}

fn is_uuid(text: &[u8]) -> bool {
    text.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_an_order_and_ids_are_words() {
        let said =
            "\nGROUP   ID\ng  b-820b56bc-d96a-44a5-b1ca-5029e3077f8b\ng  a   127.0.0.1:4711 (1)\n\tat x\n";
        assert_eq!(
            normal(said, "127.0.0.1:4711", Path::new("/f")),
            "GROUP  ID\ng  a  HOST:PORT (1)\ng  b-UUID\n"
        );
    }

    #[test]
    fn a_list_without_a_heading_has_an_order_too() {
        assert_eq!(normal("b\na\n", "h:1", Path::new("/f")), "a\nb\n");
    }
}
