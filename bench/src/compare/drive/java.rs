//! Apache Kafka's own measuring tools, as its users know them.

use std::process::Command;
use std::time::Duration;

use super::topic::Topic;
use super::{Driven, Meter, On};
use crate::bounded;
use crate::compare::figure::{Figure, Figures, Work};
use crate::error::{Error, Result, failed};
use crate::kafka;

const PARTITIONS: u32 = 16;
const RECORD_BYTES: u64 = 1024;
/// How long a tool may take.
const LIMIT: Duration = Duration::from_secs(180);
/// The heap of Kafka's own scripts for these tools.
const JVM: &str = "-Xmx512M -XX:+UseG1GC -XX:MaxGCPauseMillis=20";

/// Produces with `ProducerPerformance`. The broker's CPU is that of all records, the warm-up's too.
///
/// # Errors
/// The tool fails, or prints something else.
pub(super) fn produce(on: &On<'_>) -> Result<Driven> {
    let topic = Topic::create(PARTITIONS, on)?;
    let meter = Meter::start(on)?;
    let said = send(&topic, on)?;
    let records = on.plan.scale.java_records;
    let bytes = (records * RECORD_BYTES) as f64;
    std::thread::sleep(super::SETTLE);
    let mut figures = steady(&said)?;
    let work = Work {
        bytes,
        messages: records as f64,
    };
    meter.stop(work, bytes, &mut figures)?;
    topic.delete()?;
    Ok(Driven { figures, trace: None })
}

/// Consumes with `ConsumerPerformance`, in a group, what `ProducerPerformance` has sent before.
///
/// # Errors
/// As [`produce`].
pub(super) fn consume(on: &On<'_>) -> Result<Driven> {
    let topic = Topic::create(PARTITIONS, on)?;
    send(&topic, on)?;
    let records = on.plan.scale.java_records;
    let meter = Meter::start(on)?;
    let mut command = tool("ConsumerPerformance");
    command.args(["--bootstrap-server", on.bootstrap, "--topic", &topic.name]);
    command.args(["--num-records", &records.to_string(), "--timeout", "60000"]);
    let said = bounded::output(&mut command, LIMIT)?;
    let mut figures = consumed(&said, records)?;
    let work = Work {
        bytes: (records * RECORD_BYTES) as f64,
        messages: records as f64,
    };
    meter.stop(work, 0.0, &mut figures)?;
    topic.delete()?;
    Ok(Driven { figures, trace: None })
}

fn tool(class: &str) -> Command {
    let mut command = kafka::tool(&format!("org.apache.kafka.tools.{class}"));
    command.env("JAVA_OPTS", JVM);
    command
}

fn send(topic: &Topic, on: &On<'_>) -> Result<String> {
    let records = on.plan.scale.java_records;
    let mut command = tool("ProducerPerformance");
    command.args(["--bootstrap-server", on.bootstrap, "--topic", &topic.name]);
    command.args(["--num-records", &records.to_string(), "--throughput", "-1"]);
    command.args(["--record-size", &RECORD_BYTES.to_string()]);
    command.args(["--warmup-records", &(records / 10).to_string()]);
    command.args(["--command-property", "acks=all"]);
    bounded::output(&mut command, LIMIT)
}

/// The line of the steady state: records a second and percentiles.
fn steady(said: &str) -> Result<Figures> {
    let line = said
        .lines()
        .find(|line| line.contains(" steady state records sent"));
    let read = |line: &str| {
        let before = |unit: &str| {
            let part = line.split(", ").find(|part| part.contains(unit))?;
            part.split_ascii_whitespace().next()?.parse::<f64>().ok()
        };
        let mut figures = Figures::default();
        let rate = before("records/sec")?;
        figures.set(Figure::ProducedMessages, rate);
        figures.set(Figure::ProducedMegabytes, rate * RECORD_BYTES as f64 / 1e6);
        figures.set(Figure::ProduceP50, before("ms 50th")?);
        figures.set(Figure::ProduceP99, before("ms 99th")?);
        figures.set(Figure::ProduceP999, before("ms 99.9th")?);
        Some(figures)
    };
    line.and_then(read)
        .ok_or_else(|| Error::Failed(format!("ProducerPerformance printed no steady state:\n{said}")))
}

/// The line below the heading: what was consumed while it fetched, without the time in which the group formed.
fn consumed(said: &str, records: u64) -> Result<Figures> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("start.time"));
    let (Some(heading), Some(line)) = (lines.next(), lines.next()) else {
        return failed(format!("ConsumerPerformance printed no figures:\n{said}"));
    };
    let value = |name: &str| {
        let place = heading.split(", ").position(|column| column == name)?;
        line.split(", ").nth(place)?.parse::<f64>().ok()
    };
    let (Some(count), Some(rate)) = (value("data.consumed.in.nMsg"), value("fetch.nMsg.sec")) else {
        return failed(format!("ConsumerPerformance printed other figures:\n{said}"));
    };
    if count < records as f64 {
        return failed(format!(
            "ConsumerPerformance consumed {count} of {records} records"
        ));
    }
    let mut figures = Figures::default();
    figures.set(Figure::ConsumedMessages, rate);
    figures.set(Figure::ConsumedMegabytes, rate * RECORD_BYTES as f64 / 1e6);
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_state_is_read_and_not_the_whole_run() {
        let said = "Warmup first 2 records. Steady state results will print after the complete test summary.\n\
            10 records sent, 6412.3 records/sec (6.26 MB/sec), 3178.67 ms avg latency, 5533.00 ms max latency, 3185 ms 50th, 4460 ms 95th, 4960 ms 99th, 5410 ms 99.9th.\n\
            8 steady state records sent, 1000.5 records/sec (0.9 MB/sec), 3.4 ms avg latency, 55.00 ms max latency, 3 ms 50th, 41 ms 95th, 49 ms 99th, 54 ms 99.9th.\n";
        let figures = steady(said).expect("it is as the tool prints it");
        let of = |figure| figures.get(figure);
        assert_eq!(of(Figure::ProducedMessages), Some(1000.5));
        assert_eq!(of(Figure::ProducedMegabytes), Some(1.024_512));
        assert_eq!(
            [
                of(Figure::ProduceP50),
                of(Figure::ProduceP99),
                of(Figure::ProduceP999)
            ],
            [Some(3.0), Some(49.0), Some(54.0)]
        );
        assert!(steady("nothing").is_err());
    }

    #[test]
    fn what_was_consumed_is_read_by_its_heading_and_has_to_be_everything() {
        let said = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
            2026-11-30 17:18:53:265, 2026-11-30 17:19:00:783, 97.6563, 12.9897, 100000, 13301.4099, 3001, 4517, 21.6197, 22138.5876\n";
        let figures = consumed(said, 100_000).expect("it is as the tool prints it");
        assert_eq!(figures.get(Figure::ConsumedMessages), Some(22_138.587_6));
        assert!(consumed(said, 100_001).is_err());
        assert!(consumed("nothing", 1).is_err());
    }
}
