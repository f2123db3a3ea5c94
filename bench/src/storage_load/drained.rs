//! A backlog that is read from disk: how fast, against the device and against the same client reading from memory; and what a
//! drain at half that speed does to producers.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::drain::{Drain, Drained};
use super::host::{Figures, Host};
use super::producers::Load;
use super::report::{COLUMNS, mean_sentence};
use super::{Plan, beside, device, measure, topic};
use crate::error::Result;
use crate::group_load::on_this_thread;
use crate::report::markdown;

/// Bytes of an answer: what Kafka's clients take at most.
const FETCH_BYTES: i32 = 50 << 20;

/// Partitions of the backlog, of which each has a consumer in turn.
const PARTITIONS: i32 = 4;

/// Megabytes of what is read from memory: it fits the cache, whatever the host.
const HOT_MEGABYTES: u64 = 24;

/// The part of a producer's best rate that the loads beside a drain have.
const PRODUCE_SHARE: f64 = 0.2;

/// The part of a drain's best rate that one beside producers has.
const DRAIN_SHARE: f64 = 0.5;

fn drain(topic: &str, bytes_max: u64) -> Drain {
    Drain {
        topic: topic.to_owned(),
        from: (0..PARTITIONS).map(|partition| (partition, 0)).collect(),
        fetch_bytes: FETCH_BYTES,
        bytes_per_second: 0.0,
        bytes_max,
        time_max: Duration::from_secs(600),
    }
}

fn run(host: &Host, drain: Drain) -> Result<Drained> {
    let bootstrap = host.bootstrap();
    on_this_thread(drain.run(&bootstrap))
}

fn rate(drained: Drained) -> f64 {
    drained.bytes as f64 / 1e6 / drained.seconds.max(1e-9)
}

/// Fills a topic with so many megabytes.
fn fill(host: &Host, plan: &Plan, name: &str, megabytes: u64) -> Result<()> {
    topic(host, name, PARTITIONS, &[])?;
    let bootstrap = host.bootstrap();
    let mut load = Load {
        records: 64,
        warmup: Duration::ZERO,
        ..plan.load(name, 4, PARTITIONS)
    };
    let bytes_per_second = 400e6;
    load.bytes_per_second = bytes_per_second;
    let mut left = megabytes as f64 * 1e6;
    while left > 0.0 {
        load.time = Duration::from_secs_f64((left / bytes_per_second).max(0.05));
        let produced = on_this_thread(load.clone().run(&bootstrap))?;
        left -= (produced.bytes as f64).max(1e5);
    }
    Ok(())
}

/// Reads memory as long as it takes: again and again.
fn hot(host: &Host) -> Result<f64> {
    let (mut bytes, mut seconds) = (0, 0.0);
    while bytes < HOT_MEGABYTES * 40 * 1_000_000 && seconds < 5.0 {
        let drained = run(host, drain("hot", u64::MAX))?;
        bytes += drained.bytes;
        seconds += drained.seconds;
    }
    Ok(bytes as f64 / 1e6 / seconds)
}

pub(super) fn backlog(plan: &Plan) -> Result<String> {
    let host = plan.host(&[])?;
    fill(&host, plan, "cold", plan.backlog_megabytes)?;
    let mut text =
        String::from("| round | from disk MB/s | from memory MB/s | device MB/s | share of the lower |\n");
    text.push_str("| --- | ---: | ---: | ---: | ---: |\n");
    let (mut shares, mut best) = (Vec::new(), 0.0f64);
    for round in 0..plan.rounds {
        // What is hot is written now: nothing came between it and its reading.
        let name = "hot";
        if round == 0 {
            fill(&host, plan, name, HOT_MEGABYTES)?;
        }
        let files = host.segments("cold")?;
        let device = if files.is_empty() {
            f64::INFINITY
        } else {
            device::read_rate(&files, plan.backlog_megabytes << 20)?
        };
        let mut figures = [0.0; 2];
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            figures[side] = match side {
                0 => rate(run(&host, drain("cold", u64::MAX))?),
                _ => hot(&host)?,
            };
        }
        let [cold, hot] = figures;
        let share = cold / hot.min(device);
        best = best.max(cold);
        shares.push(share);
        let _ = writeln!(
            text,
            "| {} | {cold:.0} | {hot:.0} | {device:.0} | {share:.2} |",
            round + 1
        );
    }
    shares.sort_by(f64::total_cmp);
    let median = shares.get(shares.len() / 2).copied().unwrap_or_default();
    let _ = writeln!(text, "\nMedian share: {median:.2}.\n");
    text.push_str(&beside_producers(&host, plan, best)?);
    plan.end(host)?;
    Ok(text)
}

/// The time of produces with a drain at half its best rate, and without.
fn beside_producers(host: &Host, plan: &Plan, drain_rate: f64) -> Result<String> {
    topic(host, "new", 16, &[])?;
    let load = Load {
        records: 16,
        ..plan.load("new", 16, 16)
    };
    let (_, most) = measure(host, load.clone())?;
    let paced = Load {
        bytes_per_second: most.megabytes_per_second * 1e6 * PRODUCE_SHARE,
        ..load
    };
    let capped = drain_rate * 1e6 * DRAIN_SHARE;
    let rounds: Vec<Vec<Figures>> = plan.rounds(plan.rounds, &[true, false], |with_drain| {
        if !with_drain {
            return measure(host, paced.clone()).map(|(_, figures)| figures);
        }
        let is_over = AtomicBool::new(false);
        let bootstrap = host.bootstrap();
        let client = || -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                let again = Drain {
                    bytes_per_second: capped,
                    time_max: Duration::from_secs(1),
                    ..drain("cold", u64::MAX)
                };
                on_this_thread(again.run(&bootstrap))?;
            }
            Ok(())
        };
        let measured = beside(client, || {
            let measured = measure(host, paced.clone());
            is_over.store(true, Ordering::Relaxed);
            measured
        });
        measured.map(|((), (_, figures))| figures)
    })?;
    let ratios: Vec<f64> = rounds
        .iter()
        .filter_map(|runs| Some(runs.first()?.latency_ms[1] / runs.get(1)?.latency_ms[1]))
        .collect();
    Ok(format!(
        "Producers at {:.0} MB/s, a fifth of the {:.0} MB/s they reach, with a drain of {:.0} MB/s beside them and without:\n\n{}\n{}",
        most.megabytes_per_second * PRODUCE_SHARE,
        most.megabytes_per_second,
        capped / 1e6,
        markdown(&COLUMNS, &["with a drain", "without"], &rounds),
        mean_sentence("p99 with a drain to that without", &ratios)
    ))
}
