//! Workloads of our own generator, with the flags of `penstock-bench run`.

use std::time::Duration;

use clap::Parser;

use super::{Driven, On, Trace};
use crate::compare::figure::{Cpu, Figure, Figures, Work};
use crate::error::{Error, Result, failed};
use crate::load::arguments::RunArguments;
use crate::load::{self, Outcome, PhaseOutcome, Point};

/// Time between two points of a plot: an eighth of the run within these bounds.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

/// Figures of latencies that a workload has.
const PRODUCE: [Figure; 3] = [Figure::ProduceP50, Figure::ProduceP99, Figure::ProduceP999];
const END_TO_END: [Figure; 3] = [Figure::EndToEndP50, Figure::EndToEndP99, Figure::EndToEndP999];

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: RunArguments,
}

/// Runs a workload.
///
/// # Errors
/// The run fails, or messages were refused or did not come to consumers.
pub(super) fn drive(flags: &str, on: &On<'_>) -> Result<Driven> {
    let outcome = run(flags, &["--max-bytes", &on.plan.scale.bytes_max.to_string()], on)?;
    let Some(measured) = outcome.phases.last() else {
        return failed("the run has no phase");
    };
    if measured.produced_per_second <= 0.0 {
        return failed("nothing was acknowledged in the time that counts; --time is too short for this host");
    }
    let mut figures = of_phase(measured);
    figures.set_latency(PRODUCE, &measured.produce_latency);
    figures.set_latency(END_TO_END, &measured.end_to_end_latency);
    let trace = Some(trace(&outcome, measured));
    Ok(Driven { figures, trace })
}

/// Runs a workload with a backlog: what is measured is the time in which it is consumed.
///
/// # Errors
/// As [`drive`].
pub(super) fn catch_up(flags: &str, on: &On<'_>) -> Result<Driven> {
    let bytes = on.plan.scale.backlog_bytes.to_string();
    let outcome = run(flags, &["--backlog-fast", "--backlog", &bytes], on)?;
    let phase = |name: &str| outcome.phases.iter().find(|phase| phase.name == name);
    let (Some(drain), Some(measured), Some(backlog)) =
        (phase("drain"), phase(load::MEASURED), outcome.backlog)
    else {
        return failed("the run has no backlog");
    };
    let mut figures = of_phase(drain);
    figures.set(Figure::CatchUpMegabytes, backlog.drain_mb_per_second);
    figures.set_latency(PRODUCE, &measured.produce_latency);
    let beside = drain.produce_latency.p99_ms;
    if drain.produce_latency.count > 0 {
        figures.set(Figure::BesideP99, beside);
        figures.set(Figure::BesideShare, beside / measured.produce_latency.p99_ms);
    }
    let trace = Some(trace(&outcome, drain));
    Ok(Driven { figures, trace })
}

fn run(flags: &str, more: &[&str], on: &On<'_>) -> Result<Outcome> {
    let scale = &on.plan.scale;
    let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
    let interval = (scale.time / 8).clamp(INTERVAL.0, INTERVAL.1);
    let mut words: Vec<String> = ["run", "--bootstrap", on.bootstrap].map(str::to_owned).to_vec();
    words.extend(flags.split_ascii_whitespace().map(str::to_owned));
    words.extend(more.iter().map(|&word| word.to_owned()));
    for (flag, value) in [
        ("--warmup", seconds(scale.warmup)),
        ("--time", seconds(scale.time)),
        ("--interval", seconds(interval)),
    ] {
        words.extend([flag.to_owned(), value]);
    }
    if let Some(pid) = on.pid {
        words.extend(["--pid".to_owned(), pid.to_string()]);
    }
    let line = Line::try_parse_from(&words).map_err(|error| Error::Failed(error.to_string()))?;
    let said = |failure: broker::exit::Failure| Error::Failed(failure.to_string());
    let plan = line.run.plan().map_err(said)?;
    let is_verbose = on.plan.is_verbose;
    let outcome = load::run(plan, words.join(" "), &mut |line| {
        if is_verbose {
            eprintln!("    {line}");
        }
    })
    .map_err(said)?;
    let totals = &outcome.totals;
    if totals.refused > 0 || totals.consumed < totals.to_consume {
        return failed(format!(
            "{} of {} messages were refused ({:?}), {} of {} consumed",
            totals.refused, totals.sent, totals.errors, totals.consumed, totals.to_consume
        ));
    }
    Ok(outcome)
}

/// Throughput and what the broker and the client used.
fn of_phase(phase: &PhaseOutcome) -> Figures {
    let mut figures = Figures::default();
    let messages = (phase.produced_per_second + phase.consumed_per_second) * phase.seconds;
    let bytes = (phase.produced_mb_per_second + phase.consumed_mb_per_second) * phase.seconds * 1e6;
    figures.set(Figure::ProducedMegabytes, phase.produced_mb_per_second);
    figures.set(Figure::ProducedMessages, phase.produced_per_second);
    if phase.consumed_per_second > 0.0 {
        figures.set(Figure::ConsumedMegabytes, phase.consumed_mb_per_second);
        figures.set(Figure::ConsumedMessages, phase.consumed_per_second);
    }
    if let Some(used) = phase.broker {
        let cpu = Cpu {
            all: used.cpu_seconds,
            system: used.system_seconds,
        };
        figures.set_cpu(cpu, Work { bytes, messages });
        figures.set(Figure::Cores, used.cores);
        let produced = phase.produced_mb_per_second * phase.seconds * 1e6;
        if let Some(written) = used.written_bytes {
            figures.set(Figure::WrittenPerByte, written as f64 / produced);
        }
    }
    figures.set(
        Figure::ClientCpuPerGigabyte,
        phase.generator.cpu_seconds * 1e9 / bytes,
    );
    figures
}

fn trace(outcome: &Outcome, phase: &PhaseOutcome) -> Trace {
    let is_consumed = phase.end_to_end_latency.count > 0;
    let latency = match is_consumed {
        true => &phase.end_to_end_latency,
        false => &phase.produce_latency,
    };
    let series = |of: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
        let points = outcome.series.iter();
        points
            .filter(|point| point.phase.is_some())
            .map(|point| (point.at_s, of(point)))
            .collect()
    };
    let has_consumers = phase.consumed_per_second > 0.0;
    Trace {
        curve: latency.curve.clone(),
        throughput: series(&|point| match has_consumers {
            true => point.consumed_mb_per_second,
            false => point.produced_mb_per_second,
        }),
        p99: series(&|point| match is_consumed {
            true => point.end_to_end_p99_ms,
            false => point.p99_ms,
        }),
    }
}
