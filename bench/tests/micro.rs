//! Allocations of each step of a request, held against a baseline: exact, whatever else the machine does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use allocation_counter::measure;
use bench::micro::operations;

/// Runs before the counted ones, so that what is kept between requests is there.
const WARM_UP: u64 = 16;

/// Counted runs. Vectors that grow once in a while are part of it, divided by this.
const RUNS: u64 = 64;

/// Allocations and bytes of [`RUNS`] runs.
type Cost = (u64, u64);

fn baseline_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results/micro-allocations.txt")
}

fn counted() -> BTreeMap<String, Cost> {
    let count = |mut operation: bench::micro::Operation| {
        for _ in 0..WARM_UP {
            (operation.run)();
        }
        let info = measure(|| {
            for _ in 0..RUNS {
                (operation.run)();
            }
        });
        (operation.name.to_owned(), (info.count_total, info.bytes_total))
    };
    operations().into_iter().map(count).collect()
}

fn parse(text: &str) -> BTreeMap<String, Cost> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().expect("name, allocations, bytes");
        let name = next().to_owned();
        let number = |field: &str| field.parse().expect("a number");
        (name, (number(next()), number(next())))
    };
    text.lines().filter(|l| !l.starts_with('#')).map(line).collect()
}

fn render(costs: &BTreeMap<String, Cost>) -> String {
    let mut text = format!(
        "# Allocations and bytes of {RUNS} runs of each operation of `bench::micro`, after {WARM_UP}: what tests/micro.rs expects.\n\
         # PENSTOCK_WRITE_BASELINE=1 cargo test -p bench --test micro writes this file anew.\n"
    );
    for (name, (allocations, bytes)) in costs {
        let _ = writeln!(text, "{name}\t{allocations}\t{bytes}");
    }
    text
}

/// Fails on fewer, too: then the baseline is to be lowered, so that what was won is not lost again.
#[test]
fn allocations_are_those_of_the_baseline() {
    let found = counted();
    if std::env::var_os("PENSTOCK_WRITE_BASELINE").is_some() {
        std::fs::write(baseline_path(), render(&found)).expect("the baseline is written");
    }
    let expected = parse(&std::fs::read_to_string(baseline_path()).expect("results/micro-allocations.txt"));
    let mut findings = String::new();
    for name in found
        .keys()
        .chain(expected.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        let (found, expected) = (found.get(name), expected.get(name));
        if found != expected {
            let _ = writeln!(findings, "  {name}: {found:?}, baseline {expected:?}");
        }
    }
    assert!(
        findings.is_empty(),
        "(allocations, bytes) of {RUNS} runs are not those of the baseline:\n{findings}\
         where that is meant: PENSTOCK_WRITE_BASELINE=1 cargo test -p bench --test micro"
    );
}

/// The rule of the hot path: what a batch costs does not depend on how many records it has.
#[test]
fn no_allocation_depends_on_the_number_of_records() {
    let costs = counted();
    let of = |name: &str| costs[name].0;
    assert_eq!(
        of("validate/one record of 100 B"),
        of("validate/160 records of 100 B"),
        "allocations of {RUNS} validations"
    );
}

#[test]
fn an_allocation_is_counted() {
    let info = measure(|| {
        std::hint::black_box(Vec::<u8>::with_capacity(100));
    });
    assert_eq!((info.count_total, info.bytes_total), (1, 100));
}
