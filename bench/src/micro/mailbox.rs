//! A message from one shard to another and its answer, without the wake-up of a core: `shard/benches/mailbox.rs` has that.

use std::hint::black_box;

use shard::ids::ShardId;
use shard::runtime::mailbox::{MailboxLimits, mailboxes};
use storage::sim_executor::SimExecutor;

use super::Operation;
use crate::sim::env::SimEnv;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        there_and_back("mailbox/1 message there and back", 1),
        there_and_back("mailbox/64 messages there and back", 64),
    ]
}

fn there_and_back(name: &'static str, messages: u64) -> Operation {
    let executor = SimExecutor::new(1);
    let env = SimEnv::new(executor.handle());
    let (boxes, _) = mailboxes::<u64>(2, MailboxLimits::default());
    let mut ends = boxes.into_iter().map(|mailbox| mailbox.open(&env));
    let (out, mut answers) = ends.next().expect("two shards");
    let (back, mut requests) = ends.next().expect("two shards");
    drop(ends);
    Operation::new(name, 0, move || {
        let _executor = &executor; // it owns what the mailboxes spawned
        for message in 0..messages {
            out.push(ShardId(1), message);
        }
        out.flush();
        let mut received = 0;
        while let Some(batch) = requests.try_recv() {
            for message in batch.messages {
                back.push(ShardId(0), message);
            }
            back.flush();
        }
        while let Some(batch) = answers.try_recv() {
            received += batch.messages.len() as u64;
            black_box(batch);
        }
        assert_eq!(received, messages, "each message comes back");
    })
}
