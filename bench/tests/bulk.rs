//! BR-105, smaller than the program `bulk` does it: many partitions, clients that ask for all of them, some of which do not read.

use std::time::Duration;

use bench::bulk::{Bulk, run};
use bench::process::Profile;

#[test]
fn large_answers_stay_within_memory_and_give_it_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bulk = Bulk {
        partitions: 2_000,
        clients: 64,
        time: Duration::from_secs(6),
        memory_mib: 192,
    };
    let seen = run(Profile::Dev, dir.path(), bulk).expect("the broker lives on");
    println!("{seen:?}");
    assert!(seen.is_well(bulk), "{seen:?}");
}
