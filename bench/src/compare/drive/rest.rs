//! A broker at rest: partitions, no client, and what that takes.

use super::topic::Topic;
use super::{Driven, On};
use crate::compare::figure::{Figure, Figures};
use crate::error::Result;
use crate::resources::usage;

/// Creates partitions, waits as long as a warm-up, and measures the broker at rest.
///
/// # Errors
/// The broker refuses, or ends.
pub(super) fn idle(partitions: u32, on: &On<'_>) -> Result<Driven> {
    let topic = Topic::create(partitions, on)?;
    std::thread::sleep(on.plan.scale.warmup);
    let mut figures = Figures::default();
    if let Some(pid) = on.pid {
        let before = usage(pid)?;
        let began = std::time::Instant::now();
        std::thread::sleep(on.plan.scale.rest);
        let seconds = began.elapsed().as_secs_f64();
        let cores = (usage(pid)?.cpu_seconds - before.cpu_seconds) / seconds;
        figures.set(Figure::IdleShare, cores * 100.0);
    }
    topic.delete()?;
    Ok(Driven { figures, trace: None })
}
