//! Times of the steps of a request: `cargo bench -p bench --bench micro`, with a filter behind `--` if wanted. `tests/micro.rs` holds
//! their allocations; the module `bench::micro` says what they are.
#![allow(missing_docs)]

use bench::micro::operations;
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for mut operation in operations() {
        let (group, what) = operation.name.split_once('/').expect("names are group/what");
        let mut group = criterion.benchmark_group(group);
        if operation.bytes > 0 {
            group.throughput(Throughput::Bytes(operation.bytes));
        }
        group.bench_function(what, |bencher| bencher.iter(&mut operation.run));
        group.finish();
    }
    criterion.final_summary();
}
