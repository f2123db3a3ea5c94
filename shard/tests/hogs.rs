//! Shards under pressure: two CPU hogs per core beside a workload that always has something to do. No shard may sleep on
//! runnable tasks for more than 20 ms (trap D1); time in which the kernel gave the core to somebody else is
//! reported apart. `PENSTOCK_HOGS_SECONDS` sets the length (default 3, at most 600).
#![cfg(feature = "runtime")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test says what it measured

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shard::env::Env;
use shard::ids::ShardId;
use shard::runtime::histogram::HistogramImage;
use shard::runtime::mailbox::{Mailbox, MailboxLimits, mailboxes};
use shard::runtime::port::PortReply;
use shard::runtime::{PulseImage, Runtime, RuntimeEnv};

/// The longest a shard may sleep on work.
const PARKED_MAX: Duration = Duration::from_millis(20);

enum Message {
    Ball(ShardId),
    Ask(PortReply<u64>),
}

#[test]
fn no_shard_sleeps_on_its_work_beside_two_hogs_per_core() {
    if !support::is_child() {
        // Alone in its process: other tests of a binary are hogs of their own.
        let output = support::child("no_shard_sleeps_on_its_work_beside_two_hogs_per_core");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let seconds: u64 = std::env::var("PENSTOCK_HOGS_SECONDS").map_or(3, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds.min(600));
    let shards = u16::try_from(thread::available_parallelism().unwrap().get()).unwrap();
    let (boxes, _) = mailboxes::<Message>(shards, MailboxLimits::default());
    let port = boxes[0].port();
    let stop = Arc::new(AtomicBool::new(false));
    let inputs = boxes.into_iter().map(|mailbox| (mailbox, stop.clone())).collect();
    let options = support::options(usize::from(shards));
    let cpus = options.cpus.clone();
    let runtime = Runtime::start(&options, inputs, work).unwrap();
    let pulses = runtime.pulses();
    let before: Vec<_> = pulses.thread_ids().into_iter().map(schedstat).collect();

    let hogs = support::hogs(&[cpus.clone(), cpus].concat());
    let began = Instant::now();
    let mut calls = Vec::new();
    let mut balls = 0;
    while began.elapsed() < time {
        for shard in (0..shards).map(ShardId) {
            let asked = Instant::now();
            balls = port
                .call(shard, Message::Ask)
                .unwrap()
                .wait(Duration::from_secs(20))
                .expect("no shard hangs");
            calls.push(asked.elapsed());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let after: Vec<_> = pulses.thread_ids().into_iter().map(schedstat).collect();
    stop.store(true, Ordering::SeqCst);
    drop(hogs);
    runtime.join();

    calls.sort();
    println!(
        "{} s, {balls} balls on the last shard asked; {} calls from outside: p50 {:?}, max {:?}",
        time.as_secs(),
        calls.len(),
        calls[calls.len() / 2],
        calls[calls.len() - 1]
    );
    show("ticker late", &pulses.ticker_late());
    for ((pulse, before), after) in pulses.read().iter().zip(before).zip(after) {
        report(pulse, before, after);
    }
}

/// Prints what a shard measured of itself, and holds it against the bound.
fn report(pulse: &PulseImage, before: (u64, u64), after: (u64, u64)) {
    println!(
        "shard {}: {} polls, busy {} ms; on a core {} ms, kept waiting for one {} ms",
        pulse.shard,
        pulse.polls,
        pulse.busy_us / 1000,
        (after.0 - before.0) / 1_000_000,
        (after.1 - before.1) / 1_000_000
    );
    show("asleep with work", &pulse.parked);
    show("answer to the ticker", &pulse.lag);
    show("turn", &pulse.turn);
    show("poll", &pulse.poll);
    for (place, stall) in pulse.stalls.iter().take(3) {
        println!(
            "  held the core: {place} {} times, at most {} us",
            stall.count, stall.max_us
        );
    }
    assert!(pulse.polls > 1000, "the workload ran");
    let parked = Duration::from_micros(pulse.parked.max_us);
    assert!(
        parked <= PARKED_MAX,
        "shard {} slept {parked:?} on runnable tasks",
        pulse.shard
    );
}

/// A workload without a pause: balls that go round all shards, a timer, tasks that wake each other.
async fn work(env: RuntimeEnv, (mailbox, stop): (Mailbox<Message>, Arc<AtomicBool>)) {
    let (outbox, mut inbox) = mailbox.open(&env);
    let next = ShardId((outbox.shard().0 + 1) % outbox.shards());
    for _ in 0..4 {
        outbox.push(next, Message::Ball(outbox.shard()));
    }
    let (timer, stopped, ticks) = (env.clone(), stop.clone(), Rc::new(Cell::new(0_u64)));
    env.spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            timer.sleep(Duration::from_millis(1)).await;
            ticks.set(ticks.get() + 1);
        }
    });
    let mut balls = 0;
    while !stop.load(Ordering::Relaxed) {
        for message in inbox.recv().await.messages {
            match message {
                Message::Ball(from) => {
                    balls += 1;
                    let (env, outbox) = (env.clone(), outbox.clone());
                    env.spawn(async move { outbox.push(next, Message::Ball(from)) });
                }
                Message::Ask(reply) => reply.send(balls),
            }
        }
        env.yield_to_reactor().await;
    }
}

/// Nanoseconds a thread has run and has waited for a core.
fn schedstat(thread_id: i32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).unwrap();
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().unwrap());
    (fields.next().unwrap(), fields.next().unwrap())
}

fn show(what: &str, histogram: &HistogramImage) {
    println!(
        "  {what}: {} times, p50 {} us, p99 {} us, p99.9 {} us, max {} us",
        histogram.count,
        histogram.percentile_us(50.0),
        histogram.percentile_us(99.0),
        histogram.percentile_us(99.9),
        histogram.max_us
    );
}
