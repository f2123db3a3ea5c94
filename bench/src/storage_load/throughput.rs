//! Benchmarks without a pace, where what gets through counts: keyed small batches, the limit of the device, small batches over
//! many partitions.

use std::fmt::Write as _;

use super::host::Figures;
use super::producers::Load;
use super::report::COLUMNS;
use super::{Plan, device, measure, topic};
use crate::error::Result;
use crate::report::markdown;

pub(super) fn keyed(plan: &Plan) -> Result<String> {
    let host = plan.host(&[])?;
    for name in ["keyed", "unkeyed"] {
        topic(&host, name, 100, &[])?;
    }
    let rounds = plan.rounds(plan.rounds, &["keyed", "unkeyed"], |name| {
        let (together, records) = if name == "keyed" { (10, 1) } else { (1, 10) };
        let load = Load {
            partitions_per_request: together,
            records,
            keyed: name == "keyed",
            ..plan.load(name, 100, 100)
        };
        measure(&host, load).map(|(_, figures)| figures)
    })?;
    plan.end(host)?;
    let names = ["keyed, ten batches of 1 KB", "one batch of 10 KB"];
    Ok(markdown(&COLUMNS, &names, &rounds))
}

pub(super) fn small_batches(plan: &Plan) -> Result<String> {
    let host = plan.host(&[])?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let cores = i32::try_from(cores).unwrap_or(2);
    topic(&host, "wide", 1000, &[])?;
    topic(&host, "narrow", cores, &[])?;
    let rounds = plan.rounds(
        plan.rounds,
        &[("wide", 1000), ("narrow", cores)],
        |(name, partitions)| {
            let load = Load {
                record_bytes: 100,
                records: 1,
                ..plan.load(name, 50, partitions)
            };
            measure(&host, load).map(|(_, figures)| figures)
        },
    )?;
    plan.end(host)?;
    let narrow = format!("{cores} partitions");
    Ok(markdown(&COLUMNS, &["1,000 partitions", &narrow], &rounds))
}

pub(super) fn device_limit(plan: &Plan) -> Result<String> {
    let mut text = String::new();
    let mut shares: [Vec<f64>; 2] = Default::default();
    let sides = [(0, "fsync"), (1, "written")];
    let bytes = plan.backlog_megabytes.clamp(256, 2000) << 20;
    let rounds: Vec<Vec<Figures>> = plan.rounds(plan.rounds, &sides, |(side, class)| {
        std::fs::create_dir_all(&plan.dir).map_err(|error| crate::error::Error::Failed(error.to_string()))?;
        let before = device::write_rate(&plan.dir, bytes)?;
        let host = plan.host(&[])?;
        topic(&host, class, 16, &[("penstock.durability", class)])?;
        let load = Load {
            records: 900,
            acks: 1,
            ..plan.load(class, 8, 16)
        };
        let (_, figures) = measure(&host, load)?;
        plan.end(host)?;
        let after = device::write_rate(&plan.dir, bytes)?;
        let device = f64::midpoint(before, after);
        shares[side].push(figures.megabytes_per_second / device);
        let _ = writeln!(
            text,
            "Class `{class}`: {:.0} MB/s where direct writes of 1 MiB, four under way, reach {before:.0} before and {after:.0} after.",
            figures.megabytes_per_second
        );
        Ok(figures)
    })?;
    for ((_, class), shares) in sides.iter().zip(&mut shares) {
        shares.sort_by(f64::total_cmp);
        let median = shares.get(shares.len() / 2).copied().unwrap_or_default();
        let _ = writeln!(text, "\nClass `{class}`: {median:.2} of the device (median).");
    }
    let names = ["class fsync", "class written"];
    Ok(format!("{}\n{text}", markdown(&COLUMNS, &names, &rounds)))
}
