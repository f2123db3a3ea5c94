//! Golden text scripts: a line is a command, `----` follows, then what it must print, then an empty line. Lines that begin
//! with `#` are prose. With `UPDATE_SCRIPTS=1` in the environment the outputs are written anew; read the difference before
//! you commit it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Runs `tests/scripts/<name>` with `step` and compares.
pub fn run(name: &str, mut step: impl FnMut(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scripts")
        .join(name);
    let script = fs::read_to_string(&path).expect("the script is readable");
    let mut written = String::new();
    let mut lines = script.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') || line.is_empty() {
            written.push_str(line);
            written.push('\n');
            continue;
        }
        let output = step(line);
        write!(written, "{line}\n----\n{}", output.trim_end()).expect("a string takes text");
        if !output.trim_end().is_empty() {
            written.push('\n');
        }
        if lines.peek() == Some(&"----") {
            while lines.next_if(|expected| !expected.is_empty()).is_some() {}
        }
    }
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        fs::write(&path, &written).expect("the script is writable");
    }
    let first_difference = script.lines().zip(written.lines()).position(|(a, b)| a != b);
    assert!(
        script == written || std::env::var_os("UPDATE_SCRIPTS").is_some(),
        "{name} differs at line {:?}\nexpected: {:?}\ngot:      {:?}",
        first_difference.map(|at| at + 1),
        first_difference.and_then(|at| script.lines().nth(at)),
        first_difference.and_then(|at| written.lines().nth(at)),
    );
}

/// The words of a line; quotes hold spaces together.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut any = false;
    for letter in line.chars() {
        match letter {
            '"' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            letter => {
                word.push(letter);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}
