//! The `penstock` binary: reads the command line, then the configuration, then starts the broker.

use std::process::ExitCode;

use broker::cli::{self, Action, CommandLine};
use broker::exit::{Failure, Status};
use broker::{shutdown, startup};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command_line = match CommandLine::read(std::env::args_os()) {
        Ok(command_line) => command_line,
        Err(ended) => return ended,
    };
    let log = match command_line.start_logging() {
        Ok(guard) => guard,
        Err(failure) => return broker::exit::end(&failure),
    };
    let outcome = match command_line.action() {
        Action::Start => start(&command_line),
        action => cli::carry_out(&command_line, action),
    };
    // The log is written to its end, so that the reason of a failure is the last line.
    drop(log);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => broker::exit::end(&failure),
    }
}

fn start(command_line: &CommandLine) -> Result<(), Failure> {
    broker::memory::settle();
    let (_, resolved) = command_line.configuration()?;
    resolved.remarks.log();
    let stop = shutdown::watch()
        .map_err(|e| Failure::new(Status::System, format!("signals cannot be taken over: {e}")))?;
    startup::run(resolved.settings, &stop)
}
