//! The `penstock` binary: reads the command line and the configuration, then starts the broker.

use std::process::ExitCode;

use broker::config::settings::Settings;
use broker::{shutdown, startup};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut settings = Settings::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--override"
            && let Some(pair) = arguments.next()
            && let Some((key, value)) = pair.split_once('=')
        {
            match key {
                "log.dirs" => settings.log_dirs = vec![value.into()],
                "penstock.shards" => settings.shards = value.parse().ok(),
                "listeners" => {
                    let port = value
                        .rsplit(':')
                        .next()
                        .and_then(|p| p.parse().ok())
                        .unwrap_or(9092);
                    settings.listeners[0].port = port;
                    settings.listeners[0].advertised.1 = port;
                }
                _ => {
                    settings.fixed.insert(key.to_owned(), value.to_owned());
                }
            }
        }
    }
    let outcome = shutdown::watch()
        .map_err(|e| broker::exit::Failure::new(broker::exit::Status::System, e.to_string()))
        .and_then(|stop| startup::run(settings, &stop));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            ExitCode::from(failure.status as u8)
        }
    }
}
