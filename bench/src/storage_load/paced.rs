//! Benchmarks at a pace, where the time of a request is what counts: few against many producers, a long run, the first deletion
//! by retention.

use std::time::{Duration, Instant};

use super::host::{Figures, Host, latencies};
use super::producers::{Load, Produced};
use super::report::{COLUMNS, ratio_sentence};
use super::{Plan, measure, topic};
use crate::error::{Result, failed};
use crate::report::markdown;

/// A record of the paced loads with what a batch adds to it, bytes.
const RECORD_BYTES: f64 = 1010.0;

/// How long a client gathers records for a batch.
const LINGER_S: f64 = 0.001;

/// A load at the plan's pace, with the batches that clients make of it that wait a millisecond.
fn paced(plan: &Plan, topic: &str, producers: usize, partitions: i32) -> Load {
    let rate = plan.megabytes_per_second * 1e6;
    let records = (rate / producers as f64 * LINGER_S / RECORD_BYTES)
        .round()
        .max(1.0) as usize;
    Load {
        records,
        bytes_per_second: rate,
        ..plan.load(topic, producers, partitions)
    }
}

pub(super) fn producers(plan: &Plan) -> Result<String> {
    let host = plan.host(&[])?;
    for name in ["few", "many"] {
        topic(&host, name, 100, &[])?;
    }
    let rounds = plan.rounds(plan.rounds, &[("many", 50), ("few", 4)], |(name, producers)| {
        measure(&host, paced(plan, name, producers, 100)).map(|(_, figures)| figures)
    })?;
    plan.end(host)?;
    let names = ["50 producers", "4 producers"];
    Ok(format!(
        "{}\n{}",
        markdown(&COLUMNS, &names, &rounds),
        ratio_sentence("p99 of 50 producers to that of 4", &rounds, |figures| figures
            .latency_ms[1])
    ))
}

/// The figures of a part of a run: its times, with the rest as in the whole.
fn part(produced: &Produced, whole: &Figures, from: Duration, to: Duration) -> Figures {
    let samples = produced
        .samples
        .iter()
        .filter(|sample| sample.at >= from && sample.at < to);
    Figures {
        latency_ms: latencies(samples.map(|sample| sample.took)),
        ..*whole
    }
}

pub(super) fn long_run(plan: &Plan) -> Result<String> {
    // What is kept is bounded, so that a run may last a day.
    let host = plan.host(&["log.retention.check.interval.ms=1000"])?;
    let configs = [("retention.bytes", "67108864"), ("segment.bytes", "16777216")];
    topic(&host, "long", 16, &configs)?;
    let load = Load {
        time: plan.long_time,
        ..paced(plan, "long", 16, 16)
    };
    let (produced, whole) = measure(&host, load)?;
    plan.end(host)?;
    let fifth = plan.long_time / 5;
    let last = part(&produced, &whole, plan.long_time - fifth, plan.long_time);
    let first = part(&produced, &whole, Duration::ZERO, fifth);
    let rounds = vec![vec![last, first]];
    Ok(markdown(&COLUMNS, &["last fifth", "first fifth"], &rounds))
}

pub(super) fn retention_start(plan: &Plan) -> Result<String> {
    const PARTITIONS: i32 = 8;
    let settings = [
        "log.retention.check.interval.ms=500",
        "log.segment.delete.delay.ms=500",
    ];
    // Deletion begins after about half of the time.
    let half_bytes = plan.megabytes_per_second * 1e6 * plan.time.as_secs_f64() / f64::from(PARTITIONS);
    let keep = format!("{:.0}", half_bytes.max(4e6));
    let segment = format!("{:.0}", (half_bytes / 8.0).clamp(1_048_576.0, 67_108_864.0));
    let mut number = 0;
    let rounds: Result<Vec<Vec<Figures>>> = (0..plan.rounds)
        .map(|_| {
            number += 1;
            let host = plan.host(&settings)?;
            let configs = [("retention.bytes", keep.as_str()), ("segment.bytes", &segment)];
            topic(&host, "kept", PARTITIONS, &configs)?;
            let load = Load {
                time: plan.time * 2,
                ..paced(plan, "kept", 16, PARTITIONS)
            };
            let pair = around_first_deletion(&host, load)?;
            plan.end(host)?;
            Ok(pair)
        })
        .collect();
    let rounds = rounds?;
    Ok(format!(
        "{}\n{}",
        markdown(&COLUMNS, &["while it deletes", "before"], &rounds),
        ratio_sentence("p99 while retention deletes to that before", &rounds, |figures| {
            figures.latency_ms[1]
        })
    ))
}

fn around_first_deletion(host: &Host, load: Load) -> Result<Vec<Figures>> {
    let (warmup, time) = (load.warmup, load.time);
    let watch = || -> Result<Option<Duration>> {
        let began = Instant::now() + warmup;
        let is_first = |path: &std::path::PathBuf| path.ends_with("00000000000000000000.log");
        let mut had_it = false;
        while Instant::now() < began + time {
            let has_it = host
                .segments("kept")?
                .iter()
                .filter(|path| is_first(path))
                .count()
                == 8;
            if had_it && !has_it {
                return Ok(Some(began.elapsed()));
            }
            had_it = has_it;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(None)
    };
    let ((produced, whole), deleted) = std::thread::scope(|scope| {
        // The meter reads the broker from this thread, the watcher the directory from another.
        let watching = scope.spawn(watch);
        let measured = measure(host, load);
        let deleted = watching.join().unwrap_or(Ok(None));
        Ok::<_, crate::error::Error>((measured?, deleted?))
    })?;
    let Some(at) = deleted else {
        return failed("retention deleted nothing within the run");
    };
    let end = Duration::from_secs_f64(produced.seconds);
    Ok(vec![
        part(&produced, &whole, at, end),
        part(&produced, &whole, Duration::ZERO, at),
    ])
}
