//! Signals belong to a whole process, so each case runs in a child: this binary again.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const CHILD: &str = "PENSTOCK_TEST_CHILD";

/// The child: waits for the first signal, says so, and then hangs as a stop does that does not come to its end.
fn child() {
    let signals = broker::shutdown::watch().unwrap();
    eprintln!("ready");
    let signal = signals.recv_timeout(Duration::from_secs(20)).unwrap();
    eprintln!("{}", signal.0);
    std::thread::sleep(Duration::from_secs(20));
}

fn start(test: &str) -> (Child, impl FnMut() -> String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let next = move || lines.next().unwrap().unwrap();
    (child, next)
}

fn end(mut child: Child) -> ExitStatus {
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > give_up {
            child.kill().unwrap();
            panic!("the child did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_first_signal_asks_and_the_second_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    for (first, name, second, status) in [
        (Signal::SIGTERM, "SIGTERM", Signal::SIGTERM, 128 + 15),
        (Signal::SIGINT, "SIGINT", Signal::SIGTERM, 128 + 15),
        (Signal::SIGTERM, "SIGTERM", Signal::SIGINT, 128 + 2),
    ] {
        let (mut child, mut line) = start("the_first_signal_asks_and_the_second_ends_the_process");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert_eq!(line(), "ready");
        kill(pid, first).unwrap();
        assert_eq!(line(), name, "the first signal is a message, not the end");
        // At once again, as `timeout` does: it means the same.
        kill(pid, first).unwrap();
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(child.try_wait().unwrap(), None, "{first}: twice at once is once");
        kill(pid, second).unwrap();
        let ended = end(child);
        assert_eq!(
            ended.code(),
            Some(status),
            "{first} then {second}: {:?}",
            ended.signal()
        );
    }
}
