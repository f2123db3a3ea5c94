//! What the measuring programs are told: positions on the command line.
#![allow(dead_code)] // each program uses a part
#![allow(unreachable_pub)] // shared by several programs

use std::path::PathBuf;
use std::str::FromStr;

/// The argument at `index`, `default` if there is none that can be read.
pub fn argument<T: FromStr>(index: usize, default: T) -> T {
    std::env::args()
        .nth(index)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// The directory that the first argument names; it is made if it is not there.
pub fn directory() -> PathBuf {
    let dir = std::env::args().nth(1).expect("a directory");
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    std::fs::canonicalize(dir).expect("it exists")
}
