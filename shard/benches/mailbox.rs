//! What a message between shards costs: round trips one at a time, and throughput with many open requests, between two
//! shards on two CPUs and from a thread that is none. `cargo bench -p shard --bench mailbox`; figures, not assertions.
#![allow(clippy::print_stdout, missing_docs)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use shard::env::Env;
use shard::ids::ShardId;
use shard::replies::{Replies, ReplyToken};
use shard::runtime::mailbox::{Inbox, Mailbox, MailboxLimits, Outbox, Source, mailboxes};
use shard::runtime::port::PortReply;
use shard::runtime::{Runtime, RuntimeEnv, RuntimeOptions};

/// How long each measurement lasts.
const TIME: Duration = Duration::from_secs(2);

enum Message {
    Request(ReplyToken),
    Reply(ReplyToken),
    Run {
        window: usize,
        to: ShardId,
        done: PortReply<Vec<Duration>>,
    },
    Ask(PortReply<()>),
    Stop,
}

fn main() {
    // `cargo test` runs benches as well, to see that they build.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let allowed =
        nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("a process may ask for its CPUs");
    let cpus: Vec<_> = (0..nix::sched::CpuSet::count())
        .filter(|&c| allowed.is_set(c).unwrap_or(false))
        .take(2)
        .collect();
    let shards = u16::try_from(cpus.len()).expect("two at most");
    let (boxes, gauges) = mailboxes::<Message>(shards, MailboxLimits::default());
    let port = boxes.first().map(Mailbox::port).expect("one shard at least");
    let began = Instant::now();
    let runtime = Runtime::start(&RuntimeOptions::on(cpus), boxes, serve).expect("shards start");
    println!("{shards} shards up in {:?}", began.elapsed());

    let other = ShardId(shards - 1);
    for (what, to) in [("to another shard", other), ("to itself", ShardId(0))] {
        for window in [1, 16, 64, 256, 1024] {
            let batches = gauges.read().iter().map(|lane| lane.batches).sum::<u64>();
            let cpu = process_time();
            let run = |done| Message::Run { window, to, done };
            let call = port.call(ShardId(0), run).expect("the port is empty");
            let mut took = call.wait(TIME * 5).expect("the shard answers");
            took.sort();
            let at = |percent: usize| took[(took.len() - 1) * percent / 100];
            let count = took.len() as u64;
            let batches = gauges.read().iter().map(|lane| lane.batches).sum::<u64>() - batches;
            println!(
                "round trips {what}, {window:4} open: {:>8}/s, p50 {:>9.1?}, p99 {:>9.1?}; {:.2} us CPU each, {:.1} messages per batch",
                count / TIME.as_secs(),
                at(50),
                at(99),
                (process_time() - cpu).as_micros() as f64 / count as f64,
                2.0 * count as f64 / batches.max(1) as f64,
            );
        }
    }
    let mut took: Vec<_> = (0..20_000)
        .map(|_| {
            let began = Instant::now();
            port.call(ShardId(0), Message::Ask)
                .expect("one at a time")
                .wait(TIME)
                .expect("the shard answers");
            began.elapsed()
        })
        .collect();
    took.sort();
    println!(
        "from a thread that is no shard: p50 {:?}, p99 {:?}",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
    for shard in (0..shards).map(ShardId) {
        port.send(shard, Message::Stop).expect("the port is empty");
    }
    runtime.join();
}

async fn serve(env: RuntimeEnv, mailbox: Mailbox<Message>) {
    let (outbox, mut inbox) = mailbox.open(&env);
    let replies = Replies::new(4096);
    loop {
        let batch = inbox.recv().await;
        if handle(&env, &outbox, &replies, batch.messages, batch.from) {
            return;
        }
        // As drivers do: what is there is taken, then the reactor has its turn.
        while let Some(batch) = Inbox::try_recv(&mut inbox) {
            if handle(&env, &outbox, &replies, batch.messages, batch.from) {
                return;
            }
        }
        env.breathe().await;
    }
}

fn handle(
    env: &RuntimeEnv,
    outbox: &Outbox<Message>,
    replies: &Replies<()>,
    messages: Vec<Message>,
    from: Source,
) -> bool {
    for message in messages {
        match (message, from) {
            (Message::Request(token), Source::Shard(from)) => outbox.push(from, Message::Reply(token)),
            (Message::Reply(token), _) => replies.complete(token, ()).expect("the asker waits"),
            (Message::Run { window, to, done }, _) => {
                env.spawn(ask(outbox.clone(), replies.clone(), window, to, done))
            }
            (Message::Ask(reply), _) => reply.send(()),
            (Message::Stop, _) => return true,
            (Message::Request(_), Source::SideThread) => unreachable!("side threads only ask"),
        }
    }
    false
}

/// Keeps `window` requests open for a while and reports how long each took.
async fn ask(
    outbox: Outbox<Message>,
    replies: Replies<()>,
    window: usize,
    to: ShardId,
    done: PortReply<Vec<Duration>>,
) {
    let mut open = VecDeque::with_capacity(window);
    let mut took = Vec::new();
    let began = Instant::now();
    while began.elapsed() < TIME {
        while open.len() < window {
            let (token, reply) = replies.register().expect("more slots than the window");
            outbox.push(to, Message::Request(token));
            open.push_back((Instant::now(), reply));
        }
        let (asked, reply) = open.pop_front().expect("just filled");
        reply.await;
        took.push(asked.elapsed());
    }
    for (_, reply) in open {
        reply.await;
    }
    done.send(took);
}

fn process_time() -> Duration {
    let usage =
        nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).expect("one's own usage");
    let of = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(t.tv_sec().unsigned_abs() * 1_000_000 + t.tv_usec().unsigned_abs())
    };
    of(usage.user_time()) + of(usage.system_time())
}
