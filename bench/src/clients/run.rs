//! Runs the clients, a few at a time: most of them mostly wait, and the host of CI has two cores.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use super::{CLIENTS, Case, ClientRun, Outcome};
use crate::bounded;
use crate::error::{Doing, Result, failed};

/// Set-up downloads packages and compiles.
const SETUP_TIMEOUT: Duration = Duration::from_secs(600);
/// All cases of one client; on a busy host the start of a JVM takes ten seconds.
const RUN_TIMEOUT: Duration = Duration::from_secs(900);
/// What a `client` script ends with when its toolchain is missing (`EX_UNAVAILABLE` of sysexits).
const STATUS_UNAVAILABLE: i32 = 69;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT` of the broker.
    pub bootstrap: String,
    /// What the names of all topics begin with.
    pub topic_prefix: String,
    /// Records of each case.
    pub records: u64,
    /// Names out of [`CLIENTS`]; empty means all.
    pub only: Vec<String>,
    /// Clients at the same time.
    pub parallel: usize,
    /// Passed on to the clients when not empty: only these codecs, by comma.
    pub codecs: String,
}

/// Runs the clients and returns their outcomes in the order of [`CLIENTS`].
///
/// # Errors
/// An unknown name in `only`, or no cache directory can be made. What goes wrong with a client is its outcome.
pub fn run_matrix(options: &Options) -> Result<Vec<ClientRun>> {
    if let Some(unknown) = options.only.iter().find(|name| !CLIENTS.contains(&name.as_str())) {
        return failed(format!("no client {unknown}; there are {}", CLIENTS.join(", ")));
    }
    let cache = cache_dir()?;
    let wanted = CLIENTS
        .into_iter()
        .filter(|&name| options.only.is_empty() || options.only.iter().any(|only| only == name));
    let mut runs = in_parallel(wanted, options.parallel, |client| {
        let outcome = run_client(client, &cache.join(client), options)
            .unwrap_or_else(|error| Outcome::Failed(error.to_string(), Vec::new()));
        ClientRun { client, outcome }
    });
    runs.sort_by_key(|run| CLIENTS.iter().position(|&name| name == run.client));
    Ok(runs)
}

/// Does each piece of work, some at the same time; the results as they come.
pub(super) fn in_parallel<T: Send, R: Send>(
    work: impl IntoIterator<Item = T>,
    parallel: usize,
    run: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let (queue, done) = (
        Mutex::new(work.into_iter().collect::<VecDeque<_>>()),
        Mutex::new(Vec::new()),
    );
    std::thread::scope(|scope| {
        for _ in 0..parallel.max(1) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no thread panics with the queue").pop_front();
                    let Some(next) = next else { return };
                    let result = run(next);
                    done.lock()
                        .expect("no thread panics with the results")
                        .push(result);
                }
            });
        }
    });
    done.into_inner().expect("no thread panics with the results")
}

pub(super) fn cache_dir() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/var".into())).join(".cache");
    let dir = base.unwrap_or_else(home).join("penstock/clients");
    std::fs::create_dir_all(&dir).doing(dir.display())?;
    Ok(dir)
}

/// The interpreter that has librdkafka's binding, for programs beside the matrix; `None` when Python is missing here.
///
/// # Errors
/// Its packages cannot be installed.
pub fn librdkafka_python() -> Result<Option<PathBuf>> {
    let cache = cache_dir()?.join("librdkafka");
    match set_up("librdkafka", &cache, &cache.with_extension("log"))? {
        SetUp::Ready(_) => Ok(Some(cache.join("bin/python"))),
        SetUp::Unavailable(_) => Ok(None),
        SetUp::Failed(why) => failed(why),
    }
}

/// What came of setting up a client.
pub(super) enum SetUp {
    /// Its script.
    Ready(PathBuf),
    /// Its toolchain is not on this host.
    Unavailable(String),
    /// Why it could not be set up.
    Failed(String),
}

pub(super) fn set_up(client: &str, cache: &Path, log: &Path) -> Result<SetUp> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(client)
        .join("client");
    // Two runs on one host set up one after the other.
    let lock_path = cache.with_extension("lock");
    let lock = File::create(&lock_path).doing(lock_path.display())?;
    lock.lock().doing(lock_path.display())?;
    let end = bounded::run(Command::new(&script).arg("setup").arg(cache), log, SETUP_TIMEOUT)?;
    Ok(match end.status {
        Some(0) => SetUp::Ready(script),
        Some(STATUS_UNAVAILABLE) => SetUp::Unavailable(last_line(log)),
        _ => SetUp::Failed(format!("set-up {end}, see {}: {}", log.display(), last_line(log))),
    })
}

fn run_client(client: &'static str, cache: &Path, options: &Options) -> Result<Outcome> {
    let log = cache.with_extension("log");
    let script = match set_up(client, cache, &log)? {
        SetUp::Ready(script) => script,
        SetUp::Unavailable(why) => return Ok(Outcome::Skipped(why)),
        SetUp::Failed(why) => return Ok(Outcome::Failed(why, Vec::new())),
    };
    let mut run = Command::new(&script);
    run.arg("run")
        .arg(cache)
        .args(["--bootstrap", &options.bootstrap]);
    run.args([
        "--topic-prefix",
        &options.topic_prefix,
        "--records",
        &options.records.to_string(),
    ]);
    if !options.codecs.is_empty() {
        run.args(["--codecs", &options.codecs]);
    }
    let end = bounded::run(&mut run, &log, RUN_TIMEOUT)?;
    let mut cases = Vec::new();
    for line in &end.lines {
        match serde_json::from_str::<Case>(line) {
            Ok(case) => cases.push(case),
            Err(error) => return Ok(Outcome::Failed(format!("it printed {line:?}: {error}"), cases)),
        }
    }
    // A failed case explains status 1; anything else that is not 0 stands for itself.
    let explained = end.status == Some(1) && cases.iter().any(|case| !case.ok);
    if cases.is_empty() || !(end.status == Some(0) || explained) {
        let words = format!(
            "{end} after {} cases, see {}: {}",
            cases.len(),
            log.display(),
            last_line(&log)
        );
        return Ok(Outcome::Failed(words, cases));
    }
    Ok(Outcome::Ran(cases))
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
        .trim()
        .to_owned()
}
