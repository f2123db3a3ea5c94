//! Files of the OpenMessaging benchmark, read as they are: a workload says what is sent, a driver says how the client and the topics
//! are configured.

mod driver;
mod workload;
mod yaml;

pub use driver::Driver;
pub(crate) use driver::acks;
pub use workload::{KeyDistributor, Workload};

use std::path::Path;

use broker::exit::{Failure, Status};

/// Status of a file that cannot be read: EX_NOINPUT has no place in the broker's list, EX_DATAERR is what scripts get.
fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::new(
            Status::Data,
            format!("{}: cannot be read ({error})", path.display()),
        )
    })
}

fn wrong(path: &Path, line: usize, what: impl std::fmt::Display) -> Failure {
    Failure::new(Status::Data, format!("{}:{line}: {what}", path.display()))
}
