//! What a byte over a socket of a shard costs: an echo on one shard against blocking clients on threads. One connection
//! that waits for each answer, several that pipeline small messages, several with large ones. `cargo bench -p shard --bench net`;
//! figures, not assertions.
#![allow(clippy::print_stdout, missing_docs)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use shard::env::Env;
use shard::net::{ByteReader, ByteStream, ByteWriter};
use shard::runtime::net::{Acceptor, Door, ListenOptions, Listener, Net, TcpStream, doors};
use shard::runtime::{Runtime, RuntimeEnv, RuntimeOptions};

/// How long each measurement lasts.
const TIME: Duration = Duration::from_secs(2);

fn main() {
    // `cargo test` runs benches as well, to see that they build.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(address, &ListenOptions::default()).expect("a free port");
    let (doors, shard_doors) = doors(1, usize::MAX);
    let acceptor = Acceptor::start(listener, 0, doors.clone()).expect("a thread");
    let runtime = Runtime::start(&RuntimeOptions::on(vec![0]), shard_doors, serve).expect("a shard starts");
    let thread_id = runtime.pulses().thread_ids()[0];
    for (connections, bytes, window) in [(1, 100, 1), (4, 100, 100), (2, 64 << 10, 8), (2, 1 << 20, 1)] {
        let before = on_cpu(thread_id);
        let clients: Vec<_> = (0..connections)
            .map(|_| {
                let to = acceptor.local();
                std::thread::spawn(move || drive(to, bytes, window))
            })
            .collect();
        let mut took: Vec<Duration> = clients
            .into_iter()
            .flat_map(|c| c.join().expect("a client ends"))
            .collect();
        took.sort();
        let (count, used) = (took.len(), on_cpu(thread_id) - before);
        println!(
            "{connections} x {bytes:>7} bytes, {window:3} open: {:>8}/s, {:>6} MB/s, p50 {:>8.1?}, p99 {:>8.1?}; shard {:.2} us each, {:.3} s/GB",
            count as u64 / TIME.as_secs(),
            (count * bytes) as u64 / 1_000_000 / TIME.as_secs(),
            took[count / 2],
            took[count * 99 / 100],
            used.as_secs_f64() * 1e6 / count as f64,
            used.as_secs_f64() * 1e9 / (count * bytes) as f64
        );
    }
    drop(acceptor);
    drop(doors);
    runtime.join();
}

async fn serve(env: RuntimeEnv, door: Door) {
    let net = Net::new(env.clone());
    while let Some(accepted) = door.accept().await {
        env.spawn(echo(env.clone(), net.adopt(accepted)));
    }
}

/// One receive, one send: what a connection of the broker does with a batch of requests.
async fn echo(env: RuntimeEnv, stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    let mut chunks = VecDeque::new();
    let mut buf = BytesMut::new();
    loop {
        buf.reserve(256 << 10);
        match reader.read(&mut buf).await {
            Ok(1..) => {}
            _ => return,
        }
        chunks.push_back(buf.split().freeze());
        if writer.write_all(&mut chunks).await.is_err() {
            return;
        }
        env.breathe().await;
    }
}

/// Keeps `window` messages open and returns how long each took.
fn drive(to: SocketAddr, bytes: usize, window: usize) -> Vec<Duration> {
    let mut client = Client::connect(to).expect("the shard listens");
    client.set_nodelay(true).expect("a socket option");
    let (message, mut answer) = (vec![7; bytes * window], vec![0; bytes * window]);
    let mut took = Vec::new();
    let began = Instant::now();
    while began.elapsed() < TIME {
        let asked = Instant::now();
        let mut writer = client.try_clone().expect("a descriptor");
        if message.len() > 128 << 10 {
            // Both directions at once, or the buffers of both sides fill up.
            std::thread::scope(|scope| {
                scope.spawn(|| writer.write_all(&message).expect("the shard reads"));
                client.read_exact(&mut answer).expect("the shard answers");
            });
        } else {
            writer.write_all(&message).expect("the shard reads");
            client.read_exact(&mut answer).expect("the shard answers");
        }
        took.extend(std::iter::repeat_n(asked.elapsed(), window));
    }
    took
}

/// Time a thread of this process has run.
fn on_cpu(thread_id: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).unwrap_or_default();
    let ns = text
        .split_ascii_whitespace()
        .next()
        .and_then(|field| field.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}
