//! A real text file through the broker, line by line with kcat, and back: byte-identical or a failure.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Doing, Result, failed};

/// Codecs that kcat has.
pub const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// Bytes compared at a time.
const COMPARE_BYTES: usize = 1 << 20;

/// One file through one topic.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// Size of the file.
    pub bytes: u64,
    /// From the start of kcat to its end, with every line acknowledged.
    pub write: Duration,
    /// The same for reading it back.
    pub read: Duration,
}

/// Whether kcat is installed.
pub fn kcat_installed() -> bool {
    let quiet = Command::new("kcat")
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// Makes a text file of at least `bytes` at `path` out of the sources of the crates that cargo has downloaded: lines that people wrote,
/// without the empty ones, which kcat leaves out when it sends.
///
/// # Errors
/// There are none, or the file cannot be written.
pub fn make_text(path: &Path, bytes: u64) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let default = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo");
    let mut sources = Vec::new();
    collect_sources(&home.unwrap_or_else(default).join("registry/src"), &mut sources)?;
    sources.sort();
    if sources.is_empty() {
        return failed("cargo has downloaded no crates to take text from");
    }
    let mut out = BufWriter::new(File::create(path).doing(path.display())?);
    let mut written = 0;
    while written < bytes {
        let before = written;
        for source in &sources {
            let text = std::fs::read(source).doing(source.display())?;
            for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                out.write_all(line).doing(path.display())?;
                out.write_all(b"\n").doing(path.display())?;
                written += line.len() as u64 + 1;
            }
            if written >= bytes {
                break;
            }
        }
        if written == before {
            return failed("the sources that cargo has downloaded are empty");
        }
    }
    out.into_inner()
        .map_err(std::io::IntoInnerError::into_error)
        .doing(path.display())?
        .sync_all()
        .doing(path.display())
}

fn collect_sources(dir: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir).doing(dir.display())? {
        let entry = entry.doing(dir.display())?;
        let kind = entry.file_type().doing(dir.display())?;
        let path = entry.path();
        if kind.is_dir() {
            collect_sources(&path, into)?;
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "rs" || end == "md") {
            into.push(path);
        }
    }
    Ok(())
}

/// Sends `file` (no line of it empty, the last one ended) line by line to `topic` (created by the broker on the way), reads it back into `dir`, and compares.
///
/// # Errors
/// kcat fails, or the bytes differ.
pub fn round_trip(bootstrap: &str, topic: &str, codec: &str, file: &Path, dir: &Path) -> Result<RoundTrip> {
    let started = Instant::now();
    let mut produce = Command::new("kcat");
    produce.args(["-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec]);
    produce.args([
        "-X",
        "enable.idempotence=true",
        "-X",
        "linger.ms=5",
        "-X",
        "queue.buffering.max.messages=1000000",
    ]);
    run(produce
        .stdin(File::open(file).doing(file.display())?)
        .stdout(Stdio::null()))?;
    let write = started.elapsed();
    let back = dir.join(format!("{topic}.back"));
    let started = Instant::now();
    let mut consume = Command::new("kcat");
    consume.args([
        "-C",
        "-b",
        bootstrap,
        "-t",
        topic,
        "-p",
        "0",
        "-o",
        "beginning",
        "-e",
        "-q",
    ]);
    consume.args(["-X", "check.crcs=true"]);
    run(consume
        .stdin(Stdio::null())
        .stdout(File::create(&back).doing(back.display())?))?;
    let read = started.elapsed();
    let bytes = compare(file, &back)?;
    std::fs::remove_file(&back).doing(back.display())?;
    Ok(RoundTrip { bytes, write, read })
}

fn run(command: &mut Command) -> Result<()> {
    let child = command.stderr(Stdio::piped()).spawn().doing("kcat")?;
    let out = child.wait_with_output().doing("kcat")?;
    if out.status.success() {
        return Ok(());
    }
    failed(format!(
        "{command:?} ended with {}: {}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    ))
}

/// Size of two equal files.
fn compare(one: &Path, two: &Path) -> Result<u64> {
    let sizes = [one, two].map(|path| std::fs::metadata(path).map(|metadata| metadata.len()));
    let [size_one, size_two] = sizes;
    let (size_one, size_two) = (size_one.doing(one.display())?, size_two.doing(two.display())?);
    let (mut file_one, mut file_two) = (
        File::open(one).doing(one.display())?,
        File::open(two).doing(two.display())?,
    );
    let (mut buffer_one, mut buffer_two) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut at = 0;
    loop {
        let left = size_one.min(size_two) - at;
        let count = COMPARE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            break;
        }
        file_one
            .read_exact(&mut buffer_one[..count])
            .doing(one.display())?;
        file_two
            .read_exact(&mut buffer_two[..count])
            .doing(two.display())?;
        if let Some(differs) = buffer_one
            .iter()
            .zip(&buffer_two)
            .take(count)
            .position(|(a, b)| a != b)
        {
            return failed(format!(
                "{} differs at byte {}",
                two.display(),
                at + differs as u64
            ));
        }
        at += count as u64;
    }
    if size_one != size_two {
        return failed(format!("{size_one} bytes were sent, {size_two} read"));
    }
    Ok(size_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_are_told_apart() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let one = path("one", b"a line\nanother\n");
        assert_eq!(
            compare(&one, &path("same", b"a line\nanother\n")).expect("equal"),
            15
        );
        let differs = compare(&one, &path("differs", b"a line\nanothes\n")).expect_err("a byte differs");
        assert!(differs.to_string().contains("byte 13"), "{differs}");
        let short = compare(&one, &path("short", b"a line\n")).expect_err("one is shorter");
        assert!(
            short.to_string().contains("15 bytes were sent, 7 read"),
            "{short}"
        );
    }
}
