//! The order of start and stop of the process. Start: host, directories and their lock, listeners bound, executors, then
//! on each shard its storage, metadata, requests; connections last. Stop is the reverse: no new connections, what has
//! begun is finished, logs are closed.

pub(crate) mod lock;
pub mod shard;
mod sockets;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::shard::ids::{LogDir, ShardId};
use ::shard::router::ShardMessage;
use ::shard::runtime::executor::{Runtime, RuntimeOptions};
use ::shard::runtime::mailbox::{MailboxLimits, mailboxes};
use ::shard::runtime::net::{Acceptor, doors};

use self::lock::DirectoryLock;
use self::shard::{Report, ShardInput, shard_main};
use self::sockets::{accept, bind};
use crate::admin::{Admin, AdminListener, Facts, Running};
use crate::config::settings::Settings;
use crate::descriptors::{self, Descriptors};
use crate::exit::{self, Failure, Status};
use crate::log_dirs::{LogDirs, METADATA_DIR};
use crate::memory;
use crate::node::NodeMessage;
use crate::shutdown::StopSignal;
use crate::stores::Gate;
use crate::system::{HostReport, Verdict};

/// A graceful stop takes at most this long; then the process ends as it is, and the next start recovers.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Runs the broker until it is told to stop.
///
/// # Errors
/// [`Failure`] with the exit status and a sentence.
#[allow(
    clippy::too_many_lines,
    reason = "the order of start and stop, told in one place"
)]
pub fn run(settings: Settings, stop: &flume::Receiver<StopSignal>) -> Result<(), Failure> {
    let began = Instant::now();
    let host = examine(&settings)?;
    let memory_bytes = memory_budget(&settings, &host)?;
    let mut settings = settings;
    let log_dirs = prepare_directories(&settings.log_dirs)?;
    for (number, path, is_online) in log_dirs.iter() {
        if is_online {
            match DirectoryLock::take(path) {
                Ok(lock) => lock.keep(),
                Err(taken) if number == METADATA_DIR || taken.is_taken() => return Err(taken.into()),
                Err(broken) => offline(&log_dirs, number, &broken),
            }
        }
    }
    let listeners = bind(&mut settings)?;
    let admin_listener = settings.admin.map(AdminListener::bind).transpose()?;
    settings.admin = admin_listener.as_ref().and_then(AdminListener::local);
    let settings = Arc::new(settings);

    let mut options = RuntimeOptions::on(host.cpus.clone());
    options.pinned = host.pinned;
    options.io_memory_bytes = usize::try_from(host.io_memory_bytes).unwrap_or(usize::MAX);
    let shards =
        u16::try_from(host.cpus.len()).map_err(|_| Failure::new(Status::Config, "more than 65535 shards"))?;
    let (boxes, gauges) = mailboxes::<ShardMessage<NodeMessage>>(shards, MailboxLimits::default());
    let port = boxes
        .first()
        .map(::shard::runtime::mailbox::Mailbox::port)
        .expect("at least one shard");
    let descriptors = Descriptors::divide(host.descriptors_free, u64::from(shards));
    let (doors, shard_doors) = doors(shards, descriptors.connections);
    let (report, reports) = flume::unbounded();
    let gates = crate::stores::gates(shards);
    let memory = memory::divide(memory_bytes, shards, settings.request_bytes_max);
    let progress = gates.first().map(Gate::progress).unwrap_or_default();
    let admin = Admin::new(Facts {
        host,
        settings: settings.clone(),
        began,
        progress: progress.clone(),
    });
    if let Some(listener) = admin_listener {
        admin.serve(listener, descriptors.admin_connections)?;
    }
    let inputs = boxes
        .into_iter()
        .zip(shard_doors)
        .zip(gates)
        .zip(crate::assembly::last_calls(shards))
        .map(|(((mailbox, door), gate), last_call)| {
            let input = ShardInput {
                last_call,
                mailbox,
                gate,
                settings: settings.clone(),
                log_dirs: log_dirs.clone(),
                memory,
                open_files: descriptors.segment_files,
                shards,
                report: report.clone(),
            };
            (input, door)
        })
        .collect();
    drop(report);
    // On a thread of its own: the kernel may take seconds to give many executors their memory.
    let (up, is_up) = flume::bounded(1);
    std::thread::Builder::new()
        .name("start".into())
        .spawn(move || up.send(Runtime::start(&options, inputs, shard_main)))
        .map_err(|e| Failure::new(Status::System, format!("no thread for the start: {e}")))?;
    let runtime = match unless_stopped(stop, &is_up) {
        Some(Ok(runtime)) => runtime,
        Some(Err(e)) => {
            let sentence = format!("{e}; see the host check with `penstock check`");
            return Err(Failure::new(Status::System, sentence));
        }
        None => return Err(Failure::new(Status::Software, "the start ended by itself")),
    };
    admin.shards_run(Running {
        port: port.clone(),
        pulses: runtime.pulses(),
        gauges,
    });
    for _ in 0..shards {
        match unless_stopped(stop, &reports) {
            Some(Report::Ready) => {}
            Some(Report::Failed(failure)) => return Err(failure),
            None => return Err(Failure::new(Status::Software, "a shard ended while starting")),
        }
    }
    descriptors::some_are_free().map_err(|e| {
        let sentence = format!(
            "no client could connect: {e}; raise the limit on open files, of the process or of the host"
        );
        Failure::new(Status::System, sentence)
    })?;
    progress.end();
    let acceptors = accept(listeners, &doors)?;
    let took = began.elapsed();
    admin.serves(acceptors.iter().map(|a| a.counters().clone()).collect(), took);
    say_ready(&settings, &log_dirs.shown(), &acceptors, shards, took);
    let outcome = wait(stop, &reports);
    admin.stops();
    drop(acceptors);
    drop(doors);
    for shard in 0..shards {
        let _ = port.send(ShardId(shard), ShardMessage::Node(NodeMessage::Stop));
    }
    finish(runtime, outcome, &reports)
}

/// The memory that all shards share, bytes.
fn memory_budget(settings: &Settings, host: &HostReport) -> Result<u64, Failure> {
    let shards = u16::try_from(host.cpus.len()).unwrap_or(u16::MAX);
    let chosen = memory::budget(
        host.memory_bytes,
        settings.memory_bytes,
        shards,
        settings.request_bytes_max,
    )
    .map_err(|sentence| Failure::new(Status::Config, sentence))?;
    if let Some(warning) = chosen.warning {
        tracing::warn!("{warning}");
    }
    Ok(chosen.bytes)
}

fn examine(settings: &Settings) -> Result<HostReport, Failure> {
    let host = HostReport::examine(settings.shards.map(usize::from), &settings.log_dirs);
    for finding in host.troubles() {
        match finding.verdict {
            Verdict::Refuse => return Err(Failure::new(Status::System, finding.to_string())),
            Verdict::Degraded => tracing::warn!("{finding}"),
            Verdict::Ok => {}
        }
    }
    Ok(host)
}

/// The log directories, created and absolute. One that cannot be used is offline, unless it is the metadata log's or the last.
fn prepare_directories(paths: &[PathBuf]) -> Result<LogDirs, Failure> {
    let mut absolute = Vec::with_capacity(paths.len());
    let mut broken = Vec::new();
    for (number, path) in (0..).map(LogDir).zip(paths) {
        let made = std::fs::create_dir_all(path).and_then(|()| std::fs::canonicalize(path));
        match made {
            Ok(path) if absolute.contains(&path) => {
                let sentence = format!("log.dirs names {} twice", path.display());
                return Err(Failure::new(Status::Config, sentence));
            }
            Ok(path) => absolute.push(path),
            Err(e) => {
                let advice = "create it, or name another one with log.dirs";
                let shown = path.display();
                let sentence = format!("the log directory {shown} cannot be used: {e}; {advice}");
                let failure = Failure::new(Status::Config, sentence);
                if number == METADATA_DIR {
                    return Err(failure);
                }
                absolute.push(path.clone());
                broken.push((number, failure));
            }
        }
    }
    if absolute.is_empty() {
        return Err(Failure::new(Status::Config, "log.dirs names no directory"));
    }
    let dirs = LogDirs::new(absolute);
    for (number, failure) in broken {
        offline(&dirs, number, &failure);
    }
    Ok(dirs)
}

fn offline(dirs: &LogDirs, dir: LogDir, why: &impl std::fmt::Display) {
    if dirs.fail(dir) {
        tracing::error!(dir = dirs.path(dir), %why, "the log directory is offline");
    }
}

/// The ready line: one line on standard output that scripts wait for.
fn say_ready(settings: &Settings, dirs: &str, acceptors: &[Acceptor], shards: u16, took: Duration) {
    let listeners: Vec<String> = settings
        .listeners
        .iter()
        .zip(acceptors)
        .map(|(listener, acceptor)| format!("{}://{}", listener.name, acceptor.local()))
        .collect();
    let admin = settings.admin.map_or_else(|| "off".to_owned(), |a| a.to_string());
    let line = format!(
        "penstock ready: listeners {} admin {admin} data {dirs} shards {shards} ({} ms)",
        listeners.join(","),
        took.as_millis()
    );
    // Standard output may be closed; that is no reason to stop.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Waits for a step of the start; `None` when whoever was to bring it has ended. A signal to stop ends the process: that is
/// safe, as nobody was told of anything yet, and what was being recovered the next start recovers.
fn unless_stopped<T>(stop: &flume::Receiver<StopSignal>, step: &flume::Receiver<T>) -> Option<T> {
    flume::Selector::new()
        .recv(stop, |signal| exit::give_up(signal.map_or("no signal", |s| s.0)))
        .recv(step, Result::ok)
        .wait()
}

/// Why the broker stops.
enum Outcome {
    Asked,
    Failed(Failure),
}

fn wait(stop: &flume::Receiver<StopSignal>, reports: &flume::Receiver<Report>) -> Outcome {
    flume::Selector::new()
        .recv(stop, |signal| {
            tracing::info!(
                signal = signal.map_or("none", |s| s.0),
                "stopping: finishing what has begun"
            );
            Outcome::Asked
        })
        .recv(reports, |report| match report {
            Ok(Report::Failed(failure)) => Outcome::Failed(failure),
            _ => Outcome::Failed(Failure::new(Status::Software, "a shard ended by itself")),
        })
        .wait()
}

/// Waits for the shards to end, within bounds. A stop that was asked for ends well only when every shard has closed what it had:
/// on a full disk, or on one that fails, the next start has something to recover, and that is said.
fn finish(runtime: Runtime, outcome: Outcome, reports: &flume::Receiver<Report>) -> Result<(), Failure> {
    let (ended, has_ended) = flume::bounded(1);
    let waiter = std::thread::Builder::new().name("stop".into()).spawn(move || {
        runtime.join();
        let _ = ended.send(());
    });
    if waiter.is_err() || has_ended.recv_timeout(STOP_MAX).is_err() {
        if let Outcome::Failed(failure) = outcome {
            tracing::warn!("the shards did not stop within {} s", STOP_MAX.as_secs());
            return Err(failure); // what began it says more
        }
        let sentence = format!(
            "the shards did not stop within {} s; the next start recovers",
            STOP_MAX.as_secs()
        );
        return Err(Failure::new(Status::Software, sentence));
    }
    let failed = reports.try_iter().find_map(|report| match report {
        Report::Failed(failure) => Some(failure),
        Report::Ready => None,
    });
    match (outcome, failed) {
        (Outcome::Failed(failure), _) | (Outcome::Asked, Some(failure)) => Err(failure),
        (Outcome::Asked, None) => {
            tracing::info!("stopped: logs are closed");
            Ok(())
        }
    }
}
