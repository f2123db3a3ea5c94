//! Many groups whose members do nothing but live.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use protocol::Str;
use tokio::time::sleep;

use super::member::Member;
use super::setup::prepare;
use super::{Figures, Meter, allow_connections, on_this_thread};
use crate::compare::Serving;
use crate::error::{Result, failed};

/// How long all groups may take until they are stable.
const STABLE_TIME_MAX: Duration = Duration::from_secs(120);
/// Members that connect at the same time.
const ARRIVALS_MAX: usize = 500;

/// Groups and how they live.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeats {
    /// Groups.
    pub groups: usize,
    /// Members of each.
    pub members: usize,
    /// A member's time between two heartbeats.
    pub interval: Duration,
    /// How long is measured.
    pub time: Duration,
}

#[derive(Default)]
struct Shared {
    /// Members that are in a stable generation.
    stable: Cell<usize>,
    is_measured: Cell<bool>,
    latencies: RefCell<Vec<Duration>>,
    failure: RefCell<Option<String>>,
}

impl Heartbeats {
    /// Has all members join, and measures the broker while they heartbeat.
    ///
    /// # Errors
    /// A member is thrown out or does not come in.
    pub fn run(&self, broker: &Serving) -> Result<Figures> {
        let total = self.groups * self.members;
        allow_connections(total)?;
        on_this_thread(async {
            let groups: Vec<Str> = (0..self.groups)
                .map(|group| Str::from(format!("group-{group}")))
                .collect();
            let partitions = i32::try_from(self.members).unwrap_or(i32::MAX);
            prepare(&broker.bootstrap, partitions, &groups).await?;
            let shared = Rc::new(Shared::default());
            let arrivals = Rc::new(tokio::sync::Semaphore::new(ARRIVALS_MAX));
            for number in 0..total {
                let life = Life {
                    bootstrap: broker.bootstrap.clone(),
                    group: groups[number / self.members].clone(),
                    partitions,
                    interval: self.interval,
                    // Spread over the interval, as clients that start at any time are.
                    delay: self.interval.mul_f64(number as f64 / total as f64),
                    shared: shared.clone(),
                };
                let arrivals = arrivals.clone();
                tokio::task::spawn_local(async move {
                    let shared = life.shared.clone();
                    if let Err(error) = life.live(&arrivals).await {
                        shared
                            .failure
                            .borrow_mut()
                            .get_or_insert_with(|| error.to_string());
                    }
                });
            }
            wait_until_stable(&shared, total).await?;
            sleep(self.interval * 2).await;
            let meter = Meter::start(broker)?;
            shared.is_measured.set(true);
            sleep(self.time).await;
            shared.is_measured.set(false);
            let latencies = shared.latencies.take();
            let beats = latencies.len() as u64;
            let figures = meter.stop(beats, beats, latencies)?;
            match (shared.failure.take(), shared.stable.get()) {
                (Some(failure), _) => failed(failure),
                (None, stable) if stable < total => {
                    failed(format!("{} members lost their group", total - stable))
                }
                (None, _) => Ok(figures),
            }
        })
    }
}

async fn wait_until_stable(shared: &Shared, total: usize) -> Result<()> {
    let started = Instant::now();
    while shared.stable.get() < total {
        if let Some(failure) = shared.failure.take() {
            return failed(failure);
        }
        if started.elapsed() > STABLE_TIME_MAX {
            return failed(format!(
                "{} of {total} members are stable after {STABLE_TIME_MAX:?}",
                shared.stable.get()
            ));
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// One member.
struct Life {
    bootstrap: String,
    group: Str,
    partitions: i32,
    interval: Duration,
    delay: Duration,
    shared: Rc<Shared>,
}

impl Life {
    async fn live(self, arrivals: &tokio::sync::Semaphore) -> Result<()> {
        let permit = arrivals.acquire().await;
        let mut member = Member::connect(&self.bootstrap, &self.group, self.partitions).await?;
        drop(permit);
        member.join(0).await?;
        self.count(1);
        sleep(self.delay).await;
        let mut next = tokio::time::Instant::now();
        loop {
            let asked = Instant::now();
            let goes_on = member.heartbeat().await?;
            if self.shared.is_measured.get() {
                self.shared.latencies.borrow_mut().push(asked.elapsed());
            }
            if !goes_on {
                self.count(-1);
                member.join(0).await?;
                self.count(1);
            }
            next += self.interval;
            tokio::time::sleep_until(next).await;
        }
    }

    fn count(&self, change: isize) {
        let stable = &self.shared.stable;
        stable.set(stable.get().saturating_add_signed(change));
    }
}
