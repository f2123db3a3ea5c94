//! Reports of fixed results, word by word.

use std::time::Duration;

use super::*;
use crate::compare::drive::Trace;
use crate::compare::figure::Figure::{
    CpuPerGigabyte, CpuPerMillion, ProduceP50, ProduceP99, ProducedMegabytes,
};
use crate::compare::outcome::tests::run;
use crate::compare::outcome::{Run, WorkloadOutcome};
use crate::compare::plan::Scale;
use crate::compare::workload::Workload;

fn workload(name: &str) -> &'static Workload {
    Workload::named(name).expect("it is in the table")
}

fn outcome() -> Outcome {
    let failed = Run {
        failure: Some("it ended\nby itself".into()),
        ..Run::default()
    };
    let mut steady = run(&[(ProduceP50, 0.5), (ProduceP99, 1.0), (CpuPerMillion, 30.0)]);
    steady.trace = Some(Trace {
        curve: vec![(0.0, 0.1), (50.0, 0.5), (99.0, 1.0)],
        throughput: vec![(1.0, 10.0), (2.0, 11.0)],
        p99: vec![(1.0, 1.0), (2.0, 0.9)],
    });
    let throughput = WorkloadOutcome::new(
        workload("librdkafka-1k"),
        vec![
            (
                "penstock".into(),
                vec![
                    run(&[(ProducedMegabytes, 1300.0), (CpuPerGigabyte, 0.5)]),
                    run(&[(ProducedMegabytes, 1500.0), (CpuPerGigabyte, 0.625)]),
                    run(&[(ProducedMegabytes, 1400.0), (CpuPerGigabyte, 0.5)]),
                ],
            ),
            (
                "kafka".into(),
                vec![
                    run(&[(ProducedMegabytes, 650.0), (CpuPerGigabyte, 1.0)]),
                    run(&[(ProducedMegabytes, 750.0), (CpuPerGigabyte, 1.0)]),
                    failed,
                ],
            ),
        ],
    );
    let latency = WorkloadOutcome::new(
        workload("steady-10k"),
        vec![
            ("penstock".into(), vec![steady]),
            (
                "kafka".into(),
                vec![run(&[
                    (ProduceP50, 0.25),
                    (ProduceP99, 10.0),
                    (CpuPerMillion, 60.0),
                ])],
            ),
        ],
    );
    Outcome {
        commit: "abc".into(),
        host: "2 CPUs".into(),
        command: "penstock-bench compare --dir DIR".into(),
        clients: vec!["librdkafka 2.0.2".into()],
        scale: Scale {
            warmup: Duration::from_millis(500),
            ..Scale::QUICK
        },
        brokers: vec![
            ("penstock".into(), "Penstock".into()),
            ("kafka".into(), "Apache Kafka".into()),
        ],
        skipped: vec!["java-producer: java is missing".into()],
        notes: vec!["round 4 is left out".into()],
        workloads: vec![
            throughput,
            latency,
            WorkloadOutcome::new(workload("start"), vec![("penstock".into(), Vec::new())]),
        ],
    }
}

const GOALS: &str = "\
## Goals

3 met, 2 missed, 3 not measured.

| workload | figure | goal | measured | verdict |
| --- | --- | --- | ---: | --- |
| librdkafka-1k | produced MB/s | ≥ 1.8 × kafka | 2.00 | met |
| librdkafka-1k | broker CPU s/GB | ≤ 0.2 × kafka | 0.56 (0.50–0.62) | missed |
| librdkafka-1k | broker CPU s/GB | ≤ 0.35 × kafka-flush |  | not measured |
| steady-10k | produce p50 ms | ≤ 1.5 × kafka | 2.00 | missed |
| steady-10k | produce p99 ms | ≤ 0.3 × kafka | 0.10 | met |
| steady-10k | produce p99.9 ms | ≤ 0.15 × kafka |  | not measured |
| steady-10k | broker CPU s/million messages | ≤ 0.6 × kafka | 0.50 | met |
| start | answers after ms | ≤ 0.05 × kafka |  | not measured |
";

const SECTION: &str = "
## librdkafka-1k

Produce with librdkafka, 1 KiB, 16 partitions, acks=all; client: librdkafka; 3 rounds.

| figure | penstock | kafka | ÷ kafka | goal |
| --- | ---: | ---: | ---: | --- |
| produced MB/s | 1400.0 (1300.0–1500.0) | 700.0 (650.0–750.0) | 2.00 | ≥ 1.8 × kafka: met |
| broker CPU s/GB | 0.500 (0.500–0.625) | 1.000 | 0.56 (0.50–0.62) | ≤ 0.2 × kafka: missed; ≤ 0.35 × kafka-flush: not measured |

- kafka, round 3: FAILED: it ended by itself

## steady-10k
";

#[test]
fn the_markdown_has_goals_first_then_every_workload_also_what_was_lost() {
    let text = markdown(&outcome());
    assert!(text.contains(GOALS), "{text}");
    assert!(text.contains(SECTION), "{text}");
    assert!(
        text.contains("\n- SKIPPED: java-producer: java is missing\n- round 4 is left out\n"),
        "{text}"
    );
    assert!(
        text.contains("1.5 s after 0.5 s of warm-up, or 1.5 GB; backlog 1 GB; 200000 records"),
        "{text}"
    );
    // Nothing was measured of it.
    assert!(!text.contains("## start"), "{text}");
    assert!(
        text.ends_with("Repeat, on a quiet host: `penstock-bench compare --dir DIR`\n"),
        "{text}"
    );
}

#[test]
fn the_page_is_well_formed_and_draws_what_there_is() {
    let page = html(&outcome());
    assert_eq!(crate::load::report::check_well_formed(&page), Ok(()), "{page}");
    assert_eq!(
        page.matches("<svg").count(),
        3,
        "of the one workload with a trace"
    );
    assert!(
        page.contains("steady-10k: latency") && page.contains("<td>missed</td>"),
        "{page}"
    );
}

#[test]
fn the_json_has_every_run_and_every_goal() {
    let value: serde_json::Value = serde_json::from_str(&json(&outcome())).expect("it is JSON");
    let first = &value["workloads"][0];
    assert_eq!(first["name"], "librdkafka-1k");
    assert_eq!(
        first["brokers"][0]["runs"][1]["figures"]["produced_mb_per_second"],
        1500.0
    );
    assert_eq!(
        first["brokers"][0]["figures"]["cpu_seconds_per_gb"]["median"],
        0.5
    );
    assert_eq!(
        first["brokers"][1]["ratios"]["produced_mb_per_second"]["most"],
        2.0
    );
    assert_eq!(first["brokers"][1]["runs"][2]["failure"], "it ended\nby itself");
    assert_eq!(first["goals"][1]["goal"], "cpu_seconds_per_gb ≤ 0.2 × kafka");
    assert_eq!(first["goals"][1]["verdict"], "missed");
    assert_eq!(first["goals"][2]["measured"], serde_json::Value::Null);
}
