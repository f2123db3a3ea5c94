//! Sends bytes to a broker and says in a word what it does: the same words for any broker, so that two can be compared.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use protocol::ErrorCode;

use crate::error::{Doing, Result};

/// A broker that has not answered by then is called silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger answers are not read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// One thing to do on the connection.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    /// Each byte for itself, with a pause after it.
    Drip(Vec<u8>, Duration),
    /// No more bytes will come: a half-closed connection.
    End,
}

/// How the answer shows an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Any answer counts.
    Any,
    /// ApiVersions.
    ApiVersions,
    /// Produce version 8 with one partition.
    Produce,
    /// Fetch version 4 with one partition.
    Fetch,
    /// ListOffsets version 1 with one partition.
    ListOffsets,
}

/// Does the steps on a new connection and tells what comes of it: `closed`, `silent`, `ok`, or an error code.
///
/// # Errors
/// No connection can be made: the broker is gone.
pub(super) fn probe(bootstrap: &str, steps: &[Step], answer: Answer) -> Result<String> {
    let mut stream = connect(bootstrap)?;
    for step in steps {
        let sent = match step {
            Step::Send(bytes) => stream.write_all(bytes),
            Step::Drip(bytes, pause) => bytes.iter().try_for_each(|&byte| {
                std::thread::sleep(*pause);
                stream.write_all(&[byte])
            }),
            Step::End => stream.shutdown(Shutdown::Write),
        };
        // A broker may close before it has read everything; its answer may still be there.
        if sent.is_err() {
            break;
        }
    }
    Ok(match read_frame(&mut stream) {
        Ok(payload) => verdict(&payload, answer),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "silent".into(),
            ErrorKind::InvalidData => format!("nonsense ({error})"),
            _ => "closed".into(),
        },
    })
}

/// A connection to the broker whose reads end after a while.
pub(super) fn connect(bootstrap: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(bootstrap).doing(bootstrap)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).doing(bootstrap)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT)).doing(bootstrap)?;
    stream.set_nodelay(true).doing(bootstrap)?;
    Ok(stream)
}

/// One frame without its size.
pub(super) fn read_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size))
        .ok()
        .filter(|&size| size <= ANSWER_BYTES_MAX);
    let Some(size) = size else {
        return Err(std::io::Error::new(
            ErrorKind::InvalidData,
            "a frame of impossible size",
        ));
    };
    let mut payload = vec![0; size];
    stream.read_exact(&mut payload)?;
    Ok(payload)
}

/// What an answer says in a word: `ok`, an error code, or `nonsense`.
pub(super) fn verdict(payload: &[u8], answer: Answer) -> String {
    let code = match answer {
        Answer::Any => Some(0),
        Answer::ApiVersions => i16_at(payload, 4),
        Answer::Produce => partition_at(payload, 4).and_then(|at| i16_at(payload, at)),
        // The throttle time comes first.
        Answer::Fetch => partition_at(payload, 8).and_then(|at| i16_at(payload, at)),
        Answer::ListOffsets => partition_at(payload, 4).and_then(|at| i16_at(payload, at)),
    };
    match code {
        None => format!("nonsense ({} bytes)", payload.len()),
        Some(0) => "ok".into(),
        Some(code) => format!("error {code} {}", ErrorCode(code).name().unwrap_or_default())
            .trim_end()
            .to_owned(),
    }
}

fn i16_at(payload: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(payload.get(at..at + 2)?.try_into().ok()?))
}

/// Behind an array of one topic, its name, an array of one partition and its index.
fn partition_at(payload: &[u8], topics_at: usize) -> Option<usize> {
    let one = |at: usize| payload.get(at..at + 4) == Some(&[0, 0, 0, 1]);
    let name_at = topics_at + 4;
    let partitions_at = name_at + 2 + usize::try_from(i16_at(payload, name_at)?).ok()?;
    (one(topics_at) && one(partitions_at)).then_some(partitions_at + 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_found_in_answers() {
        assert_eq!(
            verdict(&[0, 0, 0, 7, 0, 35, 0, 0], Answer::ApiVersions),
            "error 35 UNSUPPORTED_VERSION"
        );
        let produced = [
            0, 0, 0, 7, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 9, 9,
        ];
        assert_eq!(verdict(&produced, Answer::Produce), "error 2 CORRUPT_MESSAGE");
        assert_eq!(verdict(&[0, 0, 0, 7], Answer::Produce), "nonsense (4 bytes)");
        assert_eq!(verdict(&[], Answer::Any), "ok");
    }
}
