//! `penstock check`: the host report on standard output.

use serde_json::json;

use super::say;
use crate::config::settings::Settings;
use crate::exit::{Failure, Status};
use crate::system::{HostReport, Verdict};

pub(super) fn print(settings: &Settings, json: bool) -> Result<(), Failure> {
    let host = HostReport::examine(settings.shards.map(usize::from), &settings.log_dirs);
    if json {
        say(&format!("{:#}\n", as_json(&host)));
    } else {
        say(&as_text(&host));
    }
    match host.verdict() {
        Verdict::Ok | Verdict::Degraded => Ok(()),
        Verdict::Refuse => Err(Failure::new(
            Status::System,
            "a broker cannot run on this host as it is",
        )),
    }
}

fn as_text(host: &HostReport) -> String {
    let mut text = String::new();
    for finding in &host.findings {
        text.push_str(&format!("{:9} {finding}\n", finding.verdict.word()));
    }
    let shards = host.cpus.len();
    let plural = if shards == 1 { "shard" } else { "shards" };
    text.push_str(&format!("A broker started here has {shards} {plural}.\n"));
    text
}

/// The report for programs; `/health/ready` has the same form.
pub(crate) fn as_json(host: &HostReport) -> serde_json::Value {
    let findings: Vec<_> = host
        .findings
        .iter()
        .map(|f| json!({"subject": f.subject, "verdict": f.verdict.word(), "sentence": f.sentence, "advice": f.advice}))
        .collect();
    json!({
        "verdict": host.verdict().word(),
        "shards": host.cpus.len(),
        "memory_bytes": host.memory_bytes,
        "descriptors": host.descriptors,
        "findings": findings,
    })
}
