//! The answers of shards become one answer.

use std::hint::black_box;

use bytes::Bytes;
use protocol::RecordBytes;
use shard::fetch::assembly::{AssemblyOutput, FetchAssembly, Part};
use shard::message::{FetchAnswer, PartitionData};

use super::Operation;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        assembly("assemble/fetch of 1 partition", 1, 1),
        assembly("assemble/fetch of 50 partitions on 2 shards", 2, 25),
    ]
}

/// `parts` shards with `places` partitions each, 64 KiB of records in each; the answer is complete with the last one.
fn assembly(name: &'static str, parts: usize, places: usize) -> Operation {
    let records = Bytes::from(vec![0x5a; 64 << 10]);
    let bytes = records.len() * parts * places;
    let answer = move || FetchAnswer {
        partitions: (0..places)
            .map(|_| PartitionData {
                records: RecordBytes::from(records.clone()),
                ..PartitionData::default()
            })
            .collect(),
        mark: bytes as u64,
    };
    Operation::new(name, bytes, move || {
        let asked = (0..parts)
            .map(|part| Part {
                places: (part * places..(part + 1) * places).collect(),
            })
            .collect();
        let mut assembly = FetchAssembly::new(parts * places, asked, Vec::new(), 1, 50 << 20, true);
        let mut is_done = false;
        while let Some(output) = assembly.poll_output() {
            match output {
                AssemblyOutput::Read { part, .. } => assembly.answered(part, answer()),
                AssemblyOutput::Cancel { .. } => {}
                AssemblyOutput::Done => is_done = true,
            }
        }
        assert!(is_done, "every shard has answered");
        black_box(assembly.into_response());
    })
}
