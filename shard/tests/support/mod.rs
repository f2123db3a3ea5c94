//! What the runtime's tests share: shards on the CPUs this process may use, and waits with an end.
#![allow(dead_code)] // each test binary uses its part

use std::future::Future;
use std::time::Duration;

use shard::runtime::{Runtime, RuntimeEnv, RuntimeOptions};

/// The CPUs of this process; repeated when a test wants more shards than there are.
pub(crate) fn cpus(shards: usize) -> Vec<usize> {
    let set =
        nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("a process may ask for its CPUs");
    let allowed: Vec<_> = (0..nix::sched::CpuSet::count())
        .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
        .collect();
    allowed.iter().copied().cycle().take(shards).collect()
}

/// Small executors, so that tests run in parallel under any memory limit.
pub(crate) fn options(shards: usize) -> RuntimeOptions {
    RuntimeOptions {
        io_memory_bytes: 64 << 10,
        ..RuntimeOptions::on(cpus(shards))
    }
}

/// Runs `main` on one shard and returns what it sends.
pub(crate) fn on_one_shard<T, R>(main: impl FnOnce(RuntimeEnv) -> T + Clone + Send + 'static) -> R
where
    T: Future<Output = R> + 'static,
    R: Send + 'static,
{
    let (tx, rx) = flume::bounded(1);
    let runtime = Runtime::start(&options(1), vec![tx], move |env, tx: flume::Sender<R>| {
        let main = main.clone();
        async move {
            let result = main(env).await;
            tx.send(result).expect("the test waits");
        }
    })
    .expect("a shard starts");
    let result = rx
        .recv_timeout(Duration::from_secs(60))
        .expect("the shard answers within a minute");
    runtime.join();
    result
}

/// Whether this is the child process that a test asked for: limits, exit statuses and resident memory belong to a whole
/// process, so such a test runs in one of its own.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test named `test` of this binary in a child process and returns its output.
pub(crate) fn child(test: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().expect("a test knows its binary"))
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a test binary runs")
}

/// As [`child`], for a test that must pass there.
pub(crate) fn passes_in_child(test: &str) {
    let output = child(test);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

const CHILD: &str = "PENSTOCK_TEST_CHILD";

/// Threads that take a CPU away in bursts, as a busy neighbour does; they end when dropped.
pub(crate) struct Hogs {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// One hog on each of `cpus` (name one twice for two).
pub(crate) fn hogs(cpus: &[usize]) -> Hogs {
    use std::sync::atomic::Ordering::Relaxed;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hog = |(index, &cpu): (usize, &usize)| {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut set = nix::sched::CpuSet::new();
            set.set(cpu).expect("a CPU of this process");
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
                .expect("a CPU of this process");
            // Bursts and pauses of lengths that never fall into step with each other or with the shard.
            for round in 0.. {
                if stop.load(Relaxed) {
                    return;
                }
                let burst = Duration::from_micros(300 + (round * 7919 + index as u64 * 104_729) % 2500);
                let began = std::time::Instant::now();
                while began.elapsed() < burst {
                    std::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_micros(20 + round * 31 % 180));
            }
        })
    };
    let threads = cpus.iter().enumerate().map(hog).collect();
    Hogs { stop, threads }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a hog only spins");
        }
    }
}
