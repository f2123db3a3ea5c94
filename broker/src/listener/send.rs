//! The sending of answers, a piece at a time: between pieces other connections have their turn, and a peer that does not
//! read is noticed while others wait for the memory that its answers hold.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use shard::budget::BudgetClass;
use shard::env::Env;
use shard::net::ByteWriter;

use super::progress::{LOOK_INTERVAL, STALLED_MIN};
use crate::node::Broker;

/// What is sent at once, bytes. While memory is short a peer has to read this much in [`STALLED_MIN`]: 64 KB/s.
const PIECE_BYTES_MAX: usize = 128 << 10;

/// How the sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The kernel has it all.
    All,
    /// The connection failed, or its peer read nothing for `connections.max.idle.ms`.
    Failed,
    /// The peer did not read while others waited for memory.
    Shed,
}

/// Sends `chunks`; what is left of them after a failure will not be sent.
pub(super) async fn send<E: Env, W: ByteWriter>(
    broker: &Broker<E>,
    writer: &mut W,
    chunks: &mut VecDeque<Bytes>,
) -> Sent {
    let mut piece = VecDeque::new();
    while !chunks.is_empty() {
        take_piece(chunks, &mut piece, PIECE_BYTES_MAX);
        let sent = send_piece(broker, writer, &mut piece).await;
        if sent != Sent::All {
            return sent;
        }
        if !chunks.is_empty() {
            broker.env.breathe().await;
        }
    }
    Sent::All
}

async fn send_piece<E: Env, W: ByteWriter>(
    broker: &Broker<E>,
    writer: &mut W,
    piece: &mut VecDeque<Bytes>,
) -> Sent {
    let began = broker.env.now();
    let idle_max = broker.settings.idle_max;
    loop {
        writer.set_deadline(Some(broker.env.now().after(LOOK_INTERVAL.min(idle_max))));
        match writer.write_all(piece).await {
            Ok(()) => return Sent::All,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(_) => return Sent::Failed,
        }
        let waited = broker.env.now().since(began);
        let is_memory_short = [BudgetClass::Fetches, BudgetClass::Responses]
            .iter()
            .any(|class| broker.budget.is_pressed(*class));
        if is_memory_short && waited >= STALLED_MIN {
            return Sent::Shed;
        }
        if waited >= idle_max {
            return Sent::Failed;
        }
    }
}

/// Moves up to `bytes` from the front of `chunks` to `piece`.
fn take_piece(chunks: &mut VecDeque<Bytes>, piece: &mut VecDeque<Bytes>, mut bytes: usize) {
    while bytes > 0
        && let Some(front) = chunks.front_mut()
    {
        if front.len() > bytes {
            piece.push_back(front.split_to(bytes));
            return;
        }
        bytes -= front.len();
        piece.extend(chunks.pop_front());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_and_in_order() {
        let all: Vec<u8> = (0..=250).collect();
        let mut chunks: VecDeque<Bytes> = [&all[..3], &all[3..3], &all[3..100], &all[100..]]
            .map(Bytes::copy_from_slice)
            .into();
        let mut sent = Vec::new();
        while !chunks.is_empty() {
            let mut piece = VecDeque::new();
            take_piece(&mut chunks, &mut piece, 40);
            let bytes = piece.iter().map(Bytes::len).sum::<usize>();
            assert!(bytes == 40 || (bytes == 11 && chunks.is_empty()), "{bytes}");
            sent.extend(piece.iter().flatten().copied());
        }
        assert_eq!(sent, all);
    }
}
