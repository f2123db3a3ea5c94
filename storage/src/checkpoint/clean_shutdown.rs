//! Kafka's `.kafka_cleanshutdown`: written at a clean stop, removed at the next start; without it every log is checked.
//! It holds the epoch under which the broker was registered (RP-11), as JSON: `{"version":0,"brokerEpoch":7}`.

use std::path::Path;

use super::{read_small, write_atomic};
use crate::disk::{Disk, DiskError};

/// No epoch known.
pub const BROKER_EPOCH_UNKNOWN: i64 = -1;

/// A file of more bytes is not ours.
const BYTES_MAX: usize = 4096;

/// Reads the file: the broker epoch in it, [`BROKER_EPOCH_UNKNOWN`] when it holds none (older Kafka wrote an empty
/// file), `None` when there is no file, so the stop was not clean.
///
/// # Errors
/// From the disk.
pub async fn load<D: Disk>(disk: &D, path: &Path) -> Result<Option<i64>, DiskError> {
    match read_small(disk, path, BYTES_MAX).await {
        Ok(bytes) => Ok(Some(parse(&bytes))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the file, atomically and durably.
///
/// # Errors
/// From the disk.
pub async fn save<D: Disk>(disk: &D, path: &Path, broker_epoch: i64) -> Result<(), DiskError> {
    write_atomic(disk, path, format(broker_epoch).as_bytes()).await
}

/// The text of the file.
#[must_use]
pub fn format(broker_epoch: i64) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
}

/// The number after `"brokerEpoch":`. A whole JSON parser would be more than one number is worth: whatever cannot be
/// read counts as unknown, as in Kafka.
#[must_use]
pub fn parse(bytes: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(bytes);
    let value = text.split_once("\"brokerEpoch\"").and_then(|(_, rest)| {
        let rest = rest.trim_start().strip_prefix(':')?.trim_start();
        let end = rest.find(|char: char| char != '-' && !char.is_ascii_digit());
        rest.get(..end.unwrap_or(rest.len()))?.parse().ok()
    });
    value.unwrap_or(BROKER_EPOCH_UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_found_or_unknown() {
        for (text, epoch) in [
            ("{\"version\":0,\"brokerEpoch\":7}", 7),
            (
                "{ \"brokerEpoch\" : 9007199254740993 , \"version\" : 0 }",
                9_007_199_254_740_993,
            ),
            ("{\"version\":0,\"brokerEpoch\":-1}", -1),
            ("", -1),
            ("{\"version\":0}", -1),
            ("{\"brokerEpoch\":\"7\"}", -1),
            ("{\"brokerEpoch\":99999999999999999999}", -1),
        ] {
            assert_eq!(parse(text.as_bytes()), epoch, "{text}");
        }
    }
}
