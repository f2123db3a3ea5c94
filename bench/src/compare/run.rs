//! A comparison from its begin to its end: rounds, in each the workloads that share a start of a broker, and in each of those every
//! broker in turn.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::drive::{Driven, On, Tools, drive, warm_up};
use super::figure::{Figure, Figures};
use super::host::{Host, Kind};
use super::outcome::{Outcome, Run, WorkloadOutcome};
use super::plan::{Contestant, Plan, What};
use super::watch::Place;
use super::workload::{Task, Visit, Workload};
use crate::error::{Doing, Result};
use crate::report::{commit, describe_host};
use crate::resources::{forget_peak, usage};

/// Settings of every broker that is started here: files of deleted topics go soon, so that the disk does not fill.
const SETTINGS: [&str; 1] = ["log.segment.delete.delay.ms=1000"];

/// What may be left of deleted topics when the next workload begins, and how long that may take.
const LEFT_BYTES_MAX: u64 = 300 << 20;
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A comparison that goes on.
struct Comparison<'a> {
    plan: &'a Plan,
    tools: Tools,
    contestants: Vec<&'a Contestant>,
    /// Of each workload and contestant, round by round.
    runs: BTreeMap<(&'static str, &'a str), Vec<Run>>,
    skipped: Vec<String>,
    notes: Vec<String>,
    began: Instant,
    round: usize,
    say: &'a mut dyn FnMut(&str),
}

/// Measures everything. `say` gets a line for each run.
///
/// # Errors
/// The folder cannot be used, or our client does not compile. A broker or workload that fails is in the outcome.
pub fn run(plan: &Plan, command: String, say: &mut dyn FnMut(&str)) -> Result<Outcome> {
    std::fs::create_dir_all(&plan.dir).doing(plan.dir.display())?;
    let mut comparison = Comparison {
        tools: Tools::find(plan)?,
        contestants: Vec::new(),
        runs: BTreeMap::new(),
        skipped: Vec::new(),
        notes: Vec::new(),
        began: Instant::now(),
        round: 0,
        plan,
        say,
    };
    comparison.gather();
    comparison.rounds();
    comparison.peaks();
    Ok(comparison.outcome(command))
}

impl<'a> Comparison<'a> {
    /// Those who can take part here.
    fn gather(&mut self) {
        for contestant in &self.plan.contestants {
            let is_kafka =
                matches!(&contestant.what, What::Started(contender) if contender.kind == Kind::Kafka);
            match self.tools.java.filter(|_| is_kafka) {
                Some(why) => self.skip(format!("{}: {why}", contestant.name)),
                None => self.contestants.push(contestant),
            }
        }
        for workload in &self.plan.workloads {
            if let Some(why) = self.tools.missing(workload) {
                self.skip(format!("{}: {why}", workload.name));
            }
        }
    }

    fn skip(&mut self, what: String) {
        (self.say)(&format!("SKIPPED: {what}"));
        self.skipped.push(what);
    }

    fn rounds(&mut self) {
        let mut visits: Vec<Visit> = self.plan.workloads.iter().filter_map(|one| one.visit()).collect();
        visits.sort_unstable();
        visits.dedup();
        let mut took: BTreeMap<Visit, Duration> = BTreeMap::new();
        for round in 0..self.plan.rounds {
            self.round = round;
            for visit in &visits {
                let expected = took.get(visit).copied().unwrap_or_default();
                if self.began.elapsed() + expected > self.plan.limit {
                    self.left_out(*visit);
                    continue;
                }
                let began = Instant::now();
                self.visit(*visit);
                took.insert(*visit, began.elapsed());
            }
        }
    }

    fn left_out(&mut self, visit: Visit) {
        let names: Vec<&str> = self
            .workloads(visit)
            .iter()
            .map(|workload| workload.name)
            .collect();
        let note = format!(
            "round {} of {} is left out, the time is over (--limit)",
            self.round + 1,
            names.join(", ")
        );
        (self.say)(&note);
        self.notes.push(note);
    }

    /// Workloads of a visit that can be driven here.
    fn workloads(&self, visit: Visit) -> Vec<&'static Workload> {
        let all = self.plan.workloads.iter().copied();
        all.filter(|workload| workload.visit() == Some(visit) && self.tools.missing(workload).is_none())
            .collect()
    }

    /// Everyone in turn; another one begins in each round, so that none always finds the host as the same one left it.
    fn visit(&mut self, visit: Visit) {
        let workloads = self.workloads(visit);
        let mut order = self.contestants.clone();
        if !order.is_empty() {
            let first = self.round % order.len();
            order.rotate_left(first);
        }
        for contestant in order {
            let mut host = None;
            for &workload in &workloads {
                if !applies(workload, contestant) {
                    continue;
                }
                let run = match self.measure(workload, contestant, visit, &mut host) {
                    Ok(driven) => Run {
                        figures: Some(driven.figures),
                        failure: None,
                        trace: driven.trace,
                    },
                    Err(error) => {
                        // What it does next would be no measurement: the next workload has it started anew.
                        host = None;
                        Run {
                            failure: Some(error.to_string()),
                            ..Run::default()
                        }
                    }
                };
                self.tell(workload, contestant, &run);
                let key = (workload.name, contestant.name.as_str());
                self.runs.entry(key).or_default().push(run);
            }
            if let Some(Err(error)) = host.map(|(host, _)| host.end()) {
                self.notes.push(format!("{}: {error}", contestant.name));
            }
        }
    }

    fn measure(
        &self,
        workload: &'static Workload,
        contestant: &Contestant,
        visit: Visit,
        running: &mut Option<(Host, Place)>,
    ) -> Result<Driven> {
        let contender = match &contestant.what {
            What::Peer { bootstrap, pid } => return self.watched(workload, bootstrap, *pid, None),
            What::Started(contender) => contender,
        };
        let dir = self.plan.dir.join("broker");
        if running.is_none() {
            let place = Place::before(&self.plan.dir);
            let host = Host::start(contender, &dir, &SETTINGS)?;
            *running = Some((host, place));
            let (host, _) = running.as_ref().expect("it was put there");
            let serving = host.serving()?;
            if visit == Visit::Latency {
                warm_up(&self.on(&serving.bootstrap, Some(serving.pid)))?;
            }
        }
        let (host, place) = running.as_mut().expect("it runs");
        if workload.task == Task::Start {
            let mut figures = Figures::default();
            figures.set(Figure::ReadyMilliseconds, host.restart()?.as_secs_f64() * 1e3);
            return Ok(Driven { figures, trace: None });
        }
        let serving = host.serving()?;
        let mut driven = self.watched(workload, &serving.bootstrap, Some(serving.pid), Some(&*place))?;
        if let Some(bytes) = host.peak_bytes() {
            driven.figures.set(Figure::PeakGroup, bytes as f64 / 1e6);
        }
        settle(&dir);
        Ok(driven)
    }

    fn on<'b>(&'b self, bootstrap: &'b str, pid: Option<u32>) -> On<'b> {
        On {
            bootstrap,
            pid,
            plan: self.plan,
            tools: &self.tools,
        }
    }

    /// Has a workload driven, and sees what memory and the device say to it.
    fn watched(
        &self,
        workload: &Workload,
        bootstrap: &str,
        pid: Option<u32>,
        place: Option<&Place>,
    ) -> Result<Driven> {
        let is_new = pid.is_some_and(forget_peak);
        let watch = place.map(Place::watch);
        let driven = drive(workload, &self.on(bootstrap, pid));
        let mut seen = Figures::default();
        if let Some(watch) = watch {
            watch.end(&mut seen);
        }
        let mut driven = driven?;
        driven.figures.add(&seen);
        if let Some(pid) = pid.filter(|_| is_new) {
            let peak = usage(pid)?.resident_peak_bytes;
            driven.figures.set(Figure::PeakResident, peak as f64 / 1e6);
        }
        Ok(driven)
    }

    fn tell(&mut self, workload: &Workload, contestant: &Contestant, run: &Run) {
        let at = self.began.elapsed().as_secs();
        let shown = match (&run.figures, &run.failure) {
            (_, Some(failure)) => format!("FAILED: {failure}"),
            (Some(figures), _) => figures.line(),
            (None, None) => String::new(),
        };
        (self.say)(&format!(
            "{:3}:{:02} round {}/{} {:16} {:12} {shown}",
            at / 60,
            at % 60,
            self.round + 1,
            self.plan.rounds,
            workload.name,
            contestant.name
        ));
    }

    /// The most memory over the workloads of each round.
    fn peaks(&mut self) {
        let Some(workload) = self.plan.workloads.iter().find(|one| one.task == Task::Peak) else {
            return;
        };
        for contestant in &self.contestants {
            let name = contestant.name.as_str();
            let of_this: Vec<&Vec<Run>> = self
                .runs
                .iter()
                .filter(|((_, who), _)| *who == name)
                .map(|(_, runs)| runs)
                .collect();
            let rounds = of_this.iter().map(|runs| runs.len()).max().unwrap_or(0);
            let peak = |round: usize| {
                let mut figures = Figures::default();
                let of_round = of_this
                    .iter()
                    .filter_map(|runs| runs.get(round)?.figures.as_ref());
                for run in of_round {
                    figures.raise(run, &[Figure::PeakResident, Figure::PageCache, Figure::PeakGroup]);
                }
                Run {
                    figures: Some(figures),
                    ..Run::default()
                }
            };
            let runs: Vec<Run> = (0..rounds).map(peak).collect();
            self.runs.insert((workload.name, name), runs);
        }
    }

    fn outcome(mut self, command: String) -> Outcome {
        let clients = self.tools.versions();
        let mut workloads = Vec::new();
        for workload in &self.plan.workloads {
            let runs: Vec<(String, Vec<Run>)> = self
                .contestants
                .iter()
                .map(|one| {
                    let runs = self.runs.remove(&(workload.name, one.name.as_str()));
                    (one.name.clone(), runs.unwrap_or_default())
                })
                .collect();
            workloads.push(WorkloadOutcome::new(workload, runs));
        }
        Outcome {
            commit: commit(),
            host: describe_host(&self.plan.dir),
            command,
            clients,
            scale: self.plan.scale,
            brokers: self.contestants.iter().map(|one| describe(one)).collect(),
            skipped: self.skipped,
            notes: self.notes,
            workloads,
        }
    }
}

/// Whether a workload says something about someone.
fn applies(workload: &Workload, contestant: &Contestant) -> bool {
    match (&contestant.what, workload.task) {
        (What::Peer { .. }, Task::Start) => false,
        (What::Peer { pid, .. }, Task::Idle(_)) => pid.is_some(),
        _ => true,
    }
}

fn describe(contestant: &Contestant) -> (String, String) {
    let words = match &contestant.what {
        What::Started(contender) => {
            let settings = SETTINGS.iter().copied();
            let settings: Vec<&str> = settings
                .chain(contender.overrides.iter().map(String::as_str))
                .collect();
            let heap = match contender.kind {
                Kind::Penstock => "",
                Kind::Kafka => ", heap 1 GB, G1 as in its own start script",
            };
            format!("{}{heap}, {}", contender.kind, settings.join(", "))
        }
        What::Peer { bootstrap, pid } => format!(
            "at {bootstrap}{}",
            pid.map_or(", its process is not known", |_| "")
        ),
    };
    (contestant.name.clone(), words)
}

/// Waits until the files of deleted topics are gone and what is dirty is on the disk, so that the next workload finds a quiet one.
fn settle(dir: &Path) {
    let began = Instant::now();
    while size_of(&dir.join("data")) > LEFT_BYTES_MAX && began.elapsed() < REMOVAL_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    if let Ok(file) = std::fs::File::open(dir) {
        // Best effort: what is not written now is written later.
        let _ = nix::unistd::syncfs(&file);
    }
}

/// Bytes that the files below a folder take on the disk. What goes meanwhile does not count.
fn size_of(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .filter_map(|entry| entry.ok())
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size_of(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
