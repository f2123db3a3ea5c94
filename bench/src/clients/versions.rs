//! sarama set to each Kafka release it knows (BR-037): it picks the versions of its requests by that setting, so that one client
//! speaks all dialects that clients of ten years speak.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::run::{SetUp, cache_dir, set_up};
use crate::bounded;
use crate::error::{Result, failed};

/// All releases, a few at the same time.
const RUN_TIMEOUT: Duration = Duration::from_secs(240);

/// One release, with or without asking the broker for its versions first.
#[derive(Clone, Debug, Deserialize)]
pub struct Release {
    /// `2.4.1`, or `2.4.1-unasked` where sarama did not ask for ApiVersions.
    pub version: String,
    /// Whether Apache Kafka 4 still serves what this release speaks.
    pub served: bool,
    /// A topic was made, produced to, read, committed and deleted.
    pub ok: bool,
    /// It came to its end, well or refused, within its time.
    pub in_time: bool,
    /// What went wrong.
    pub error: Option<String>,
}

impl Release {
    /// What is served works, and what is not is refused, both in time.
    pub fn is_well(&self) -> bool {
        self.ok == self.served && self.in_time
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Releases {
    /// It ran.
    Ran(Vec<Release>),
    /// Go is not on this host.
    Skipped(String),
}

/// Runs sarama as a client of each release against the broker.
///
/// # Errors
/// It cannot be built or does not end in order; what goes wrong with a release is in its line.
pub fn sarama_releases(bootstrap: &str, topic_prefix: &str) -> Result<Releases> {
    let cache = cache_dir()?.join("sarama");
    let log = cache.with_extension("versions.log");
    let script = match set_up("sarama", &cache, &log)? {
        SetUp::Ready(script) => script,
        SetUp::Unavailable(why) => return Ok(Releases::Skipped(why)),
        SetUp::Failed(why) => return failed(why),
    };
    let mut run = Command::new(script);
    run.arg("run").arg(&cache).arg("versions");
    run.args(["--bootstrap", bootstrap, "--topic-prefix", topic_prefix]);
    let end = bounded::run(&mut run, &log, RUN_TIMEOUT)?;
    let lines = end.lines.iter().map(|line| serde_json::from_str(line));
    match lines.collect::<std::result::Result<Vec<Release>, _>>() {
        // It ends with 1 when a line is not as it should be, and only then.
        Ok(releases) if end.status == Some(i32::from(!releases.iter().all(Release::is_well))) => {
            Ok(Releases::Ran(releases))
        }
        Ok(_) => failed(format!("sarama {end}, see {}", log.display())),
        Err(error) => failed(format!("sarama printed what is no line of its own: {error}")),
    }
}
