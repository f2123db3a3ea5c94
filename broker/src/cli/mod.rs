//! The command line: what can be asked of the `penstock` binary, and the text that teaches it. Options may stand before
//! or after the command.

mod check;
mod config;
mod group;
mod log;
pub mod logging;
mod remote;
mod table;
mod topic;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

use crate::config::layers::AsWritten;
use crate::config::resolve::{Resolved, Surroundings, is_known, resolve};
use crate::exit::{Failure, Status};

use self::logging::LogFormat;

/// Shown below the options of `penstock --help`.
const EXAMPLES: &str = "\
Examples:
  penstock                                     listens on 127.0.0.1:9092, data in ./data of the working directory
  penstock --config server.properties          a Kafka server.properties as it is
  penstock --override listeners=PLAINTEXT://:9092 --override log.dirs=/var/lib/penstock
  PENSTOCK_LOG_DIRS=/var/lib/penstock penstock the same key from the environment
  penstock config --config server.properties   every effective value and where it comes from
  penstock check                               what this host allows, and what to change
  penstock topic list                          topics of a running broker; `topic --help` has more
  penstock group describe readers              a group's offsets, lag and members; `group --help`
  penstock log verify /var/lib/penstock        checks the files of a stopped broker; `log --help`

Settings have Kafka's names and units; our own begin with `penstock.`. Where a key is set in several places, the strongest wins:
  built-in default < file < PENSTOCK_… environment < --override < dynamic configs (kafka-configs)
A key's variable is its name in upper case with `_` for `.`: num.partitions is PENSTOCK_NUM_PARTITIONS, penstock.shards is PENSTOCK_SHARDS.

Once it serves, the broker prints one line on standard output:
  penstock ready: listeners PLAINTEXT://127.0.0.1:9092 admin 127.0.0.1:9644 data /srv/data shards 4 (120 ms)
The log goes to standard error. SIGTERM or SIGINT stops it in order, within 10 seconds; a second one ends it at once.

Metrics and health: http://127.0.0.1:9644/metrics, /health/live, /health/ready

Exit codes (sysexits):
  0   stopped as asked         71  the system refuses: memory, io_uring
  64  wrong command line       74  reading or writing failed
  65  damaged files            78  wrong configuration, or the data are in use
  69  a port is in use         75–77  `penstock topic --help`
  70  a bug of ours            128+n  ended by a second signal n";

/// The command line as it was given.
#[derive(Debug, Parser)]
#[command(
    name = "penstock",
    version,
    about = "A Kafka broker: one shard per core, durable acknowledgements.",
    after_help = "`penstock --help` has examples, precedence and exit codes.",
    after_long_help = EXAMPLES
)]
pub struct CommandLine {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker; this is what happens without a command
    Start {
        #[command(flatten)]
        options: Options,
    },
    /// Print every effective setting and where it comes from
    Config {
        #[command(flatten)]
        options: Options,
        /// As JSON: name, value, origin, type, doc
        #[arg(long)]
        json: bool,
    },
    /// Look at the host and say what is not as it should be
    Check {
        #[command(flatten)]
        options: Options,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Topics of a running broker: list, describe, create, alter, delete
    Topic(topic::TopicArgs),
    /// Consumer groups of a running broker: list, describe with lag, reset and delete offsets
    Group(group::GroupArgs),
    /// Files of a stopped broker, ours or Apache Kafka's: verify, dump, repair, import
    Log(log::LogArgs),
}

/// Options of the commands that are about the broker of this host.
#[derive(Clone, Debug, Default, Args)]
struct Options {
    /// A file in the form of Kafka's server.properties [env: PENSTOCK_CONFIG]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, stronger than file and environment; may be repeated
    #[arg(short, long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// What to log: error, warn, info, debug, or a filter like info,broker=debug [env: PENSTOCK_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How log lines look [env: PENSTOCK_LOG_FORMAT]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the broker.
    Start,
    /// Print the effective configuration.
    Config {
        /// As JSON.
        json: bool,
    },
    /// Print the host report.
    Check {
        /// As JSON.
        json: bool,
    },
    /// Ask a running broker something, or have it do something.
    Remote,
    /// Work on the files of a stopped broker.
    Offline,
}

impl CommandLine {
    /// Reads the arguments of the process. `Err` is the process's end: help and version were printed, or a mistake was.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        Self::try_parse_from(arguments).map_err(|mut error| {
            add_tip(&mut error);
            // A closed standard output is no reason for another message.
            let _ = error.print();
            if error.use_stderr() {
                ExitCode::from(Status::Usage as u8)
            } else {
                ExitCode::SUCCESS
            }
        })
    }

    /// What is to be done.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.command {
            None | Some(Command::Start { .. }) => Action::Start,
            Some(Command::Config { json, .. }) => Action::Config { json },
            Some(Command::Check { json, .. }) => Action::Check { json },
            Some(Command::Topic(_) | Command::Group(_)) => Action::Remote,
            Some(Command::Log(_)) => Action::Offline,
        }
    }

    /// The options before and after the command together; those after are stronger.
    fn options(&self) -> Options {
        let before = self.options.clone();
        let after = match &self.command {
            None | Some(Command::Topic(_) | Command::Group(_) | Command::Log(_)) => Options::default(),
            Some(
                Command::Start { options } | Command::Config { options, .. } | Command::Check { options, .. },
            ) => options.clone(),
        };
        Options {
            config: after.config.or(before.config),
            overrides: [before.overrides, after.overrides].concat(),
            log: after.log.or(before.log),
            log_format: after.log_format.or(before.log_format),
        }
    }

    /// A broker's settings mean nothing to a command that asks a running one; they would be ignored silently.
    fn refuse_broker_options(&self) -> Result<(), Failure> {
        if self.options.config.is_none() && self.options.overrides.is_empty() {
            return Ok(());
        }
        Err(Failure::new(
            Status::Usage,
            "--config and --override in front of topic, group and log are settings of a broker; leave them out, and say --bootstrap HOST:PORT, or the directory",
        ))
    }

    /// Starts logging as the options and the environment say. The log is complete once the guard is dropped.
    ///
    /// # Errors
    /// When filter or format are none.
    pub fn start_logging(&self) -> Result<logging::LogGuard, Failure> {
        let options = self.options();
        logging::start(options.log, options.log_format)
    }

    /// The configuration as written and as understood.
    ///
    /// # Errors
    /// The sentence about the first thing that is wrong.
    pub fn configuration(&self) -> Result<(AsWritten, Resolved), Failure> {
        let options = self.options();
        let wrong = |e: crate::config::layers::ConfigError| Failure::new(Status::Config, e.0);
        let file = options
            .config
            .or_else(|| std::env::var_os("PENSTOCK_CONFIG").map(PathBuf::from));
        let environment = environment(std::env::vars_os())?.into_iter();
        let written =
            AsWritten::read(file.as_deref(), environment, &options.overrides, is_known).map_err(wrong)?;
        let directory = std::env::current_dir().map_err(|e| {
            Failure::new(
                Status::System,
                format!("the working directory cannot be found: {e}"),
            )
        })?;
        let around = Surroundings {
            directory: &directory,
            host_name: &host_name(),
        };
        let resolved = resolve(&written, around).map_err(wrong)?;
        Ok((written, resolved))
    }
}

/// Options of `topic` and `group` in front of the command are none of the broker's; clap would say no more.
fn add_tip(error: &mut clap::Error) {
    const OPTIONS: [&str; 4] = ["-b", "--bootstrap", "--bootstrap-server", "--timeout"];
    const TIP: &str =
        "options of the connection stand behind topic or group: penstock group list -b HOST:PORT";
    let argument = error.get(ContextKind::InvalidArg);
    let is_one = matches!(argument, Some(ContextValue::String(name)) if OPTIONS.contains(&name.as_str()));
    if is_one && error.kind() == ErrorKind::UnknownArgument {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![TIP.into()]));
    }
}

/// The environment as text. Variables of other programs may be anything; of ours none is passed over.
fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut texts = Vec::new();
    for (name, value) in variables {
        let is_ours = name.as_encoded_bytes().starts_with(b"PENSTOCK_");
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => texts.push((name, value)),
            (name, _) if is_ours => {
                let name = name.unwrap_or_else(|name| name.to_string_lossy().into_owned());
                let sentence =
                    format!("the environment variable {name} is not UTF-8; set it to text, or unset it");
                return Err(Failure::new(Status::Config, sentence));
            }
            _ => {}
        }
    }
    Ok(texts)
}

/// Does what ends by itself: `config`, `check`, `topic`, `group`, `log`.
///
/// # Errors
/// As [`CommandLine::configuration`]; `check` fails when the host cannot run a broker; `topic` and `group` when it cannot be
/// done.
pub fn carry_out(command_line: &CommandLine, action: Action) -> Result<(), Failure> {
    if matches!(action, Action::Remote | Action::Offline) {
        command_line.refuse_broker_options()?;
    }
    match &command_line.command {
        Some(Command::Topic(args)) => return topic::run(args),
        Some(Command::Group(args)) => return group::run(args),
        Some(Command::Log(args)) => return log::run(args),
        _ => {}
    }
    let (written, resolved) = command_line.configuration()?;
    match action {
        Action::Config { json } => config::print(&written, &resolved, json),
        Action::Check { json } => check::print(&resolved.settings, json),
        Action::Start | Action::Remote | Action::Offline => Ok(()),
    }
}

/// Writes to standard output; nobody reading it any more (`penstock config | head`) is no failure.
fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn read(arguments: &[&str]) -> CommandLine {
        CommandLine::try_parse_from(arguments).expect("a right command line")
    }

    #[test]
    fn variables_of_ours_that_are_not_text_are_refused() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let read = |name, value| environment(std::iter::once((bytes(name), bytes(value))));
        assert_eq!(read(b"EDITOR", b"\xff").expect("not ours"), []);
        let pair = ("PENSTOCK_NODE_ID".to_owned(), "1".to_owned());
        assert_eq!(read(b"PENSTOCK_NODE_ID", b"1").expect("text"), [pair]);
        for (name, value) in [(&b"PENSTOCK_NODE_ID"[..], &b"\xff"[..]), (b"PENSTOCK_\xff", b"1")] {
            let refused = read(name, value).expect_err("not text");
            assert_eq!(refused.status, Status::Config);
            assert!(refused.sentence.contains("PENSTOCK_"), "{}", refused.sentence);
        }
    }

    #[test]
    fn the_definition_holds_together() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn plain_penstock_starts_the_broker() {
        assert_eq!(read(&["penstock"]).action(), Action::Start);
        assert_eq!(read(&["penstock", "start"]).action(), Action::Start);
        assert_eq!(
            read(&["penstock", "config", "--json"]).action(),
            Action::Config { json: true }
        );
    }

    #[test]
    fn where_an_option_of_the_connection_stands_is_told_when_it_is_too_early() {
        let told = |line: &[&str]| {
            let mut error = CommandLine::try_parse_from(line).expect_err("a wrong command line");
            add_tip(&mut error);
            error.to_string().contains("penstock group list -b HOST:PORT")
        };
        assert!(told(&["penstock", "-b", "h:1", "group", "list"]));
        assert!(told(&["penstock", "--bootstrap-server=h:1", "topic", "list"]));
        assert!(told(&["penstock", "--timeout", "5", "group", "list"]));
        assert!(!told(&["penstock", "--nonsense", "group", "list"]));
    }

    #[test]
    fn options_before_and_after_the_command_are_put_together() {
        let line = read(&[
            "penstock",
            "--override",
            "a=1",
            "--config",
            "x",
            "start",
            "-o",
            "b=2",
            "-c",
            "y",
            "--log",
            "debug",
        ]);
        let options = line.options();
        assert_eq!(options.overrides, ["a=1", "b=2"]);
        assert_eq!(options.config, Some(PathBuf::from("y")));
        assert_eq!(options.log.as_deref(), Some("debug"));
    }
}
