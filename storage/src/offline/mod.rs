//! What an operator's tools need of a log directory that no broker has open: reading segments whatever their state
//! ([`reader`]), holding every file against the log ([`verify`]), repairing what can be ([`repair`]). Blocking file I/O on the
//! calling thread and bounded memory; formats and their parsers are the log engine's own. The node's view of its disk.

pub mod directory;
mod epochs;
pub mod finding;
mod indexes;
pub mod journals;
mod producers;
pub mod reader;
pub mod repair;
#[cfg(test)]
pub(crate) mod testing;
pub mod verify;

use std::io;
use std::path::Path;

use crate::disk::DiskError;
use crate::error::StorageError;

/// The largest index, snapshot or checkpoint file that is read whole, bytes.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 20;

/// A whole small file; `None` when there is none.
///
/// # Errors
/// From the file system, and for a file of more than 64 MiB.
pub fn read_small(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    let read = || {
        let size = std::fs::metadata(path)?.len();
        if size > SMALL_FILE_BYTES_MAX {
            let reason = format!("{size} bytes where at most {SMALL_FILE_BYTES_MAX} are expected");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        std::fs::read(path)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, error)),
    }
}

pub(crate) fn failed(operation: &'static str, path: &Path, error: io::Error) -> StorageError {
    DiskError::new(operation, path, error).into()
}
