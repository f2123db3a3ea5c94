//! A run from its begin to its end: topics, threads, phases, the tail in which all is answered and consumed, and what came of it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use broker::exit::{Failure, Status};
use protocol::ErrorCode;

use super::clock::Clock;
use super::cluster::{Admin, Cluster};
use super::conductor::{Conductor, Phase};
use super::control::{Change, Control};
use super::keys::KeyTable;
use super::outcome::{BacklogOutcome, Outcome, PhaseOutcome, Totals};
use super::plan::{BacklogPlan, Load, Plan};
use super::search;
use super::worker::{Shared, work};
use crate::group_load::allow_connections;
use crate::report::describe_host;

/// The phase whose figures are a run's result.
pub const MEASURED: &str = "measured";

/// A backlog that is smaller than so many messages is drained, whatever was asked for.
const DRAINED_MESSAGES: u64 = 1000;

/// Runs a plan. `say` gets a line for each interval.
///
/// # Errors
/// Brokers that are not there or refuse, messages that are not answered or consumed in time, what the system refuses.
pub fn run(plan: Plan, command: String, say: &mut dyn FnMut(&str)) -> Result<Outcome, Failure> {
    let links = plan.producers.count + plan.consumers();
    allow_connections(links).map_err(|error| Failure::new(Status::System, error.to_string()))?;
    let admin = Admin::new(&plan);
    admin.create(&plan.topics)?;
    let removed = (!plan.topics.exist && !plan.topics.keep).then(|| plan.topics.names.clone());
    let outcome = with_topics(plan, &admin, command, say);
    // Topics go also after a failure; that one is what counts then.
    let deleted = removed.map_or(Ok(()), |names| admin.delete(&names));
    let outcome = outcome?;
    if let Err(failure) = deleted {
        say(&format!("the topics of the run stay: {failure}"));
    }
    Ok(outcome)
}

fn with_topics(
    plan: Plan,
    admin: &Admin,
    command: String,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    let cluster = admin.look_up(&plan.topics, plan.consumers.from_earliest)?;
    on_cluster(plan, cluster, command, say)
}

/// Runs a plan on topics that are there.
pub(super) fn on_cluster(
    plan: Plan,
    cluster: Cluster,
    command: String,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    let producers = &plan.producers;
    let keys = KeyTable::new(
        producers.keys,
        producers.key_count,
        cluster.partitions,
        producers.batch_bytes,
    );
    let values = producers.payload.pool(producers.message_bytes);
    let shared = Arc::new(Shared {
        keys,
        values,
        cluster,
        control: Control::default(),
        clock: Clock::new(),
        plan,
    });
    let (reports, received) = channel();
    let threads: Vec<JoinHandle<()>> = (0..shared.plan.threads)
        .map(|number| {
            let (shared, reports) = (shared.clone(), reports.clone());
            std::thread::spawn(move || work(&shared, number, &reports))
        })
        .collect();
    drop(reports);
    let mut conductor = Conductor::new(shared.clone(), received, say);
    let outcome = conduct(&mut conductor, command);
    shared.control.abort();
    for thread in threads {
        if thread.join().is_err() && outcome.is_ok() {
            return Err(Failure::new(
                Status::Software,
                "a thread of this program panicked",
            ));
        }
    }
    outcome
}

fn conduct(conductor: &mut Conductor<'_>, command: String) -> Result<Outcome, Failure> {
    conductor.wait_for_connections()?;
    let plan = &conductor.shared.plan;
    let (load, backlog, time) = (plan.producers.load, plan.backlog, plan.time);
    let mut steps = Vec::new();
    let rate = match load {
        Load::Rate(rate) => Some(rate),
        Load::Maximum => None,
        Load::Search(search) => {
            let found = search::highest_rate(conductor, &search)?;
            steps = found.steps;
            Some(found.rate)
        }
    };
    warm_up(conductor, rate)?;
    let drained = backlog
        .map(|backlog| build_and_drain(conductor, &backlog, rate))
        .transpose()?;
    let from = conductor.phases.last().and_then(|phase| phase.until);
    let from = from.unwrap_or_else(|| conductor.soon());
    conductor.begin(from, MEASURED, rate);
    let until = measure_until(conductor, from + conductor.intervals(time))?;
    conductor.plan(until, &[Change::Idle]);
    conductor.advance(until)?;
    tail(conductor)?;
    conductor.shared.control.abort();
    Ok(outcome(conductor, command, steps, drained))
}

/// Lets the last phase go on until then, or until there are as many bytes as there may be. When it ends.
fn measure_until(conductor: &mut Conductor<'_>, until: u64) -> Result<u64, Failure> {
    let mut until = until;
    if let Some(bytes_max) = conductor.shared.plan.bytes_max {
        // The last interval is left, so that all threads know of the end before it.
        while conductor.soon() + 1 < until {
            conductor.step()?;
            if conductor.totals.acknowledged_bytes >= bytes_max {
                until = conductor.soon().min(until);
            }
        }
    }
    conductor.end_phase(until);
    Ok(until)
}

/// Begins the load; what is sent until the next phase does not count.
fn warm_up(conductor: &mut Conductor<'_>, rate: Option<f64>) -> Result<(), Failure> {
    let from = conductor.soon();
    conductor.begin(from, "warm-up", rate);
    conductor.plan(from, &[rate.map_or(Change::Maximum, Change::Rate)]);
    let until = from + conductor.intervals(conductor.shared.plan.warmup);
    conductor.end_phase(until);
    // The next phase is planned before this one is over.
    conductor.advance(until.saturating_sub(1))
}

/// Consumers wait until there is a backlog; then they get it.
fn build_and_drain(
    conductor: &mut Conductor<'_>,
    backlog: &BacklogPlan,
    rate: Option<f64>,
) -> Result<BacklogOutcome, Failure> {
    let message_bytes = conductor.shared.plan.message_bytes().max(1) as u64;
    let wanted = (backlog.bytes / message_bytes).max(1);
    let from = conductor.soon();
    conductor.plan(from, &[Change::Pause(true)]);
    let fast = backlog.is_built_fast;
    conductor.begin(from, "build", rate.filter(|_| !fast));
    if fast {
        conductor.plan(from, &[Change::Maximum]);
    }
    let mut last = (Instant::now(), 0);
    while conductor.behind() < wanted {
        conductor.step()?;
        if conductor.behind() > last.1 {
            last = (Instant::now(), conductor.behind());
        } else if last.0.elapsed() > conductor.shared.plan.patience {
            let sentence = format!("the backlog does not grow beyond {} messages", last.1);
            return Err(Failure::new(Status::TempFail, sentence));
        }
    }
    let drained = conductor.soon();
    let messages = conductor.behind();
    conductor.plan(drained, &[Change::Pause(false)]);
    conductor.begin(drained, "drain", rate);
    if let Some(rate) = rate.filter(|_| fast) {
        conductor.plan(drained, &[Change::Rate(rate)]);
    }
    conductor.advance(drained)?;
    let most = conductor.behind();
    let enough = ((1.0 - backlog.drain_share).max(0.0) * most as f64) as u64;
    let consumed = conductor.totals.consumed;
    let began = conductor.series.len();
    let mut least = (Instant::now(), u64::MAX);
    while conductor.behind() > enough.max(DRAINED_MESSAGES) {
        conductor.step()?;
        if conductor.behind() < least.1 {
            least = (Instant::now(), conductor.behind());
        } else if least.0.elapsed() > conductor.shared.plan.patience {
            let sentence = format!(
                "the backlog does not get smaller than {} messages: consumers are no faster than producers; lower --rate, or --backlog-drain-ratio",
                least.1
            );
            return Err(Failure::new(Status::TempFail, sentence));
        }
    }
    let until = conductor.soon();
    conductor.end_phase(until);
    let seconds = conductor.seconds((conductor.series.len() - began) as u64);
    let bytes = (conductor.totals.consumed - consumed) as f64 * message_bytes as f64;
    Ok(BacklogOutcome {
        messages,
        build_s: conductor.seconds(drained - from),
        drain_s: seconds,
        drain_mb_per_second: bytes / 1e6 / seconds.max(1e-9),
    })
}

/// Waits until all is answered and consumed.
fn tail(conductor: &mut Conductor<'_>) -> Result<(), Failure> {
    let patience = conductor.shared.plan.patience;
    let began = Instant::now();
    let mut progress = (Instant::now(), conductor.totals);
    while !(conductor.is_quiet() && conductor.is_consumed()) {
        conductor.step()?;
        if progress.1.acknowledged != conductor.totals.acknowledged
            || progress.1.consumed != conductor.totals.consumed
        {
            progress = (Instant::now(), conductor.totals);
        }
        if progress.0.elapsed() < patience {
            continue;
        }
        if !conductor.is_quiet() {
            let sentence = format!(
                "{} messages have no answer {:.0} s after the last was sent; the broker may be stuck, see its log",
                conductor.totals.sent - conductor.totals.acknowledged - conductor.totals.refused,
                began.elapsed().as_secs_f64()
            );
            return Err(Failure::new(Status::TempFail, sentence));
        }
        // Without acknowledgements the broker may have lost some, which is for the reader to judge.
        let behind = conductor.behind();
        conductor.say(&format!("{behind} messages did not come to consumers"));
        break;
    }
    Ok(())
}

fn outcome(
    conductor: &Conductor<'_>,
    command: String,
    search: Vec<super::outcome::SearchStep>,
    backlog: Option<BacklogOutcome>,
) -> Outcome {
    let plan = &conductor.shared.plan;
    let totals = conductor.totals;
    let subscriptions = if plan.consumers.count == 0 {
        0
    } else {
        plan.consumers.subscriptions as u64
    };
    let errors = conductor.errors.iter();
    Outcome {
        name: plan.name.clone(),
        host: describe_host(std::path::Path::new(".")),
        command,
        plan: plan.summary(),
        message_bytes: plan.message_bytes(),
        phases: conductor
            .phases
            .iter()
            .filter(|phase| !phase.name.starts_with(search::SETTLE))
            .map(|phase| phase_outcome(conductor, phase))
            .collect(),
        search,
        backlog,
        series: conductor.series.clone(),
        totals: Totals {
            sent: totals.sent,
            acknowledged: totals.acknowledged,
            refused: totals.refused,
            given_up: totals.given_up,
            consumed: totals.consumed,
            to_consume: totals.acknowledged * subscriptions,
            errors: errors
                .map(|(code, messages)| (ErrorCode(*code).to_string(), *messages))
                .collect(),
        },
    }
}

fn phase_outcome(conductor: &Conductor<'_>, phase: &Phase) -> PhaseOutcome {
    let intervals = phase.until.unwrap_or(phase.from).saturating_sub(phase.from);
    let seconds = conductor.seconds(intervals).max(1e-9);
    let message_bytes = conductor.shared.plan.message_bytes() as f64;
    let counts = phase.counts;
    let per_second = |count: u64| count as f64 / seconds;
    let messages = counts.acknowledged + counts.consumed;
    let bytes = messages as f64 * message_bytes;
    PhaseOutcome {
        name: phase.name.clone(),
        from_s: conductor.seconds(phase.from),
        seconds,
        asked_per_second: phase.asked,
        produced_per_second: per_second(counts.acknowledged),
        produced_mb_per_second: per_second(counts.acknowledged) * message_bytes / 1e6,
        produced_wire_mb_per_second: per_second(counts.acknowledged_bytes) / 1e6,
        produce_requests_per_second: per_second(counts.produces),
        consumed_per_second: per_second(counts.consumed),
        consumed_mb_per_second: per_second(counts.consumed) * message_bytes / 1e6,
        fetches_per_second: per_second(counts.fetches),
        produce_latency: phase.produce.summary(),
        end_to_end_latency: phase.end_to_end.summary(),
        broker: phase.broker.used(seconds, messages, bytes),
        generator: phase.generator.used(seconds, messages, bytes).unwrap_or_default(),
    }
}
