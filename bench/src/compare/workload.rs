//! The workloads, with the goals of each: all that is measured is in this table.

use std::fmt::Write as _;

use super::figure::Figure::{
    BesideShare, CatchUpMegabytes, ConsumedMegabytes, CpuPerGigabyte, CpuPerMillion, EndToEndP99, IdleShare,
    PeakGroup, ProduceP50, ProduceP99, ProduceP999, ProducedMegabytes, ProducedMessages, ReadyMilliseconds,
};
use super::goal::Against::{Itself, Kafka, KafkaFlush};
use super::goal::Bound::{AtLeast, AtMost};
use super::goal::Goal;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// What `--workloads` and reports call it.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Who drives it, and how.
    pub task: Task,
    /// What is to be reached.
    pub goals: &'static [Goal],
}

/// Who drives a workload, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    /// Our generator with these flags of `penstock-bench run`.
    Generator(&'static str),
    /// The same, with a backlog whose size is the plan's.
    Backlog(&'static str),
    /// Our program on librdkafka.
    Librdkafka(Librdkafka),
    /// `ProducerPerformance` of Apache Kafka's tools.
    JavaProducer,
    /// `ConsumerPerformance` of them, on what was produced before.
    JavaConsumer,
    /// No client, and so many partitions.
    Idle(u32),
    /// The broker is started on an empty directory that it knows.
    Start,
    /// Nothing of its own: the most memory of all workloads of a round.
    Peak,
}

/// What librdkafka sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Librdkafka {
    /// Partitions of the topic; records go to them at random.
    pub partitions: u32,
    /// Bytes of each record's value.
    pub record_bytes: u64,
    /// MB (10^6 bytes) a second; 0 is as fast as the client goes.
    pub megabytes_per_second: u64,
}

/// Workloads that follow each other on one start of a broker: a start of Apache Kafka takes seconds, and its JVM is warm then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visit {
    /// Producers at their most.
    Throughput,
    /// Producers and consumers at a rate.
    Latency,
    /// Consumers at their most.
    Consumers,
    /// Java's clients.
    Java,
    /// No clients.
    Rest,
}

const fn goal(
    figure: super::figure::Figure,
    against: super::goal::Against,
    bound: super::goal::Bound,
) -> Goal {
    Goal::new(figure, against, bound)
}

/// All of them, in the order in which they are measured.
pub static WORKLOADS: [Workload; 19] = [
    Workload {
        name: "librdkafka-1k",
        title: "produce with librdkafka, 1 KiB, 16 partitions, acks=all",
        task: Task::Librdkafka(Librdkafka {
            partitions: 16,
            record_bytes: 1024,
            megabytes_per_second: 0,
        }),
        goals: &[
            goal(ProducedMegabytes, Kafka, AtLeast(1.8)),
            goal(CpuPerGigabyte, Kafka, AtMost(0.2)),
            goal(CpuPerGigabyte, KafkaFlush, AtMost(0.35)),
        ],
    },
    Workload {
        name: "librdkafka-paced",
        title: "the same at 100 MB/s, where latency is not the client's queue",
        task: Task::Librdkafka(Librdkafka {
            partitions: 16,
            record_bytes: 1024,
            megabytes_per_second: 100,
        }),
        goals: &[],
    },
    Workload {
        name: "generator-1k",
        title: "produce with our generator, batches of 128 KiB made before, 1 KiB, 16 partitions, acks=all",
        task: Task::Generator(
            "--rate max --producers 4 --partitions 16 --message-size 1KiB --batch-size 128KiB --pre-encoded --consumers 0",
        ),
        goals: &[goal(ProducedMegabytes, Kafka, AtLeast(4.0))],
    },
    Workload {
        name: "small-100b",
        title: "100 B, linger 0, 50 producers over 50 partitions",
        task: Task::Generator(
            "--rate max --producers 50 --partitions 50 --message-size 100 --linger 0ms --consumers 0",
        ),
        goals: &[
            goal(ProducedMessages, Kafka, AtLeast(3.0)),
            goal(CpuPerMillion, Kafka, AtMost(0.35)),
        ],
    },
    Workload {
        name: "keyed-1000",
        title: "1,000 partitions, 50 producers, random keys, so that batches are small",
        task: Task::Generator(
            "--rate max --producers 50 --partitions 1000 --message-size 1KiB --keys random --key-count 100000 --consumers 0",
        ),
        goals: &[goal(ProducedMegabytes, Kafka, AtLeast(2.0))],
    },
    Workload {
        name: "lz4",
        title: "batches compressed with lz4 before the run",
        task: Task::Generator(
            "--rate max --producers 4 --partitions 16 --message-size 1KiB --batch-size 128KiB --codec lz4 --pre-encoded --consumers 0",
        ),
        goals: &[goal(ProducedMegabytes, Kafka, AtLeast(1.0))],
    },
    Workload {
        name: "zstd",
        title: "batches compressed with zstd before the run",
        task: Task::Generator(
            "--rate max --producers 4 --partitions 16 --message-size 1KiB --batch-size 128KiB --codec zstd --pre-encoded --consumers 0",
        ),
        goals: &[goal(ProducedMegabytes, Kafka, AtLeast(1.0))],
    },
    Workload {
        name: "recompress",
        title: "batches of lz4 that the broker compresses anew, compression.type=zstd",
        task: Task::Generator(
            "--rate max --producers 4 --partitions 16 --message-size 1KiB --batch-size 128KiB --codec lz4 --pre-encoded --consumers 0 --topic-config compression.type=zstd",
        ),
        goals: &[goal(ProducedMegabytes, Kafka, AtLeast(2.0))],
    },
    Workload {
        name: "steady-10k",
        title: "10,000 messages/s of 1 KiB, linger 0",
        task: Task::Generator("--rate 10000 --linger 0ms --message-size 1KiB --consumers 0"),
        goals: &[
            goal(ProduceP50, Kafka, AtMost(1.5)),
            goal(ProduceP99, Kafka, AtMost(0.3)),
            goal(ProduceP999, Kafka, AtMost(0.15)),
            goal(CpuPerMillion, Kafka, AtMost(0.6)),
        ],
    },
    Workload {
        name: "end-to-end-10k",
        title: "produce to poll at 10,000 messages/s of 1 KiB, linger 0",
        task: Task::Generator("--rate 10000 --linger 0ms --message-size 1KiB --consumers 1"),
        goals: &[goal(EndToEndP99, Kafka, AtMost(0.25))],
    },
    Workload {
        name: "end-to-end-50k",
        title: "produce to poll at 50,000 messages/s of 1 KiB, linger 0, 4 producers, 4 consumers",
        task: Task::Generator("--rate 50000 --linger 0ms --message-size 1KiB --producers 4 --consumers 4"),
        goals: &[goal(EndToEndP99, Kafka, AtMost(0.25))],
    },
    Workload {
        name: "tail-1",
        title: "4 producers at their most, everything consumed once",
        task: Task::Generator(
            "--rate max --producers 4 --message-size 1KiB --batch-size 128KiB --pre-encoded --consumers 1",
        ),
        goals: &[
            goal(ConsumedMegabytes, Kafka, AtLeast(1.0)),
            goal(CpuPerGigabyte, Kafka, AtMost(1.0)),
        ],
    },
    Workload {
        name: "tail-5",
        title: "4 producers at their most, everything consumed five times",
        task: Task::Generator(
            "--rate max --producers 4 --message-size 1KiB --batch-size 128KiB --pre-encoded --consumers 1 --subscriptions 5",
        ),
        goals: &[
            goal(ConsumedMegabytes, Kafka, AtLeast(1.0)),
            goal(CpuPerGigabyte, Kafka, AtMost(1.0)),
        ],
    },
    Workload {
        name: "catch-up",
        title: "a backlog is consumed beside 10,000 messages/s of 1 KiB",
        task: Task::Backlog(
            "--rate 10000 --producers 4 --message-size 1KiB --batch-size 16KiB --pre-encoded --consumers 4",
        ),
        goals: &[
            goal(CatchUpMegabytes, Kafka, AtLeast(1.0)),
            goal(CpuPerGigabyte, Kafka, AtMost(1.0)),
            goal(BesideShare, Itself, AtMost(1.3)),
        ],
    },
    Workload {
        name: "java-producer",
        title: "kafka-producer-perf-test, 1 KiB, 16 partitions, acks=all",
        task: Task::JavaProducer,
        goals: &[],
    },
    Workload {
        name: "java-consumer",
        title: "kafka-consumer-perf-test, 1 KiB, 16 partitions",
        task: Task::JavaConsumer,
        goals: &[],
    },
    Workload {
        name: "start",
        title: "from the command until a client is answered, without any topic",
        task: Task::Start,
        goals: &[goal(ReadyMilliseconds, Kafka, AtMost(0.05))],
    },
    Workload {
        name: "idle-1000",
        title: "1,000 partitions and no client",
        task: Task::Idle(1000),
        goals: &[goal(IdleShare, Itself, AtMost(2.0))],
    },
    Workload {
        name: "peak-memory",
        title: "the most memory of all workloads above",
        task: Task::Peak,
        goals: &[goal(PeakGroup, Kafka, AtMost(0.3))],
    },
];

impl Workload {
    /// A workload by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// Which others it shares a start with; none without a broker.
    pub fn visit(&self) -> Option<Visit> {
        Some(match self.task {
            Task::Generator(flags) if flags.contains("--rate max") && flags.contains("--consumers 0") => {
                Visit::Throughput
            }
            Task::Generator(flags) if flags.contains("--rate max") => Visit::Consumers,
            Task::Generator(_) => Visit::Latency,
            Task::Backlog(_) => Visit::Consumers,
            Task::Librdkafka(_) => Visit::Throughput,
            Task::JavaProducer | Task::JavaConsumer => Visit::Java,
            Task::Idle(_) | Task::Start => Visit::Rest,
            Task::Peak => return None,
        })
    }

    /// Who drives it.
    pub fn client(&self) -> &'static str {
        match self.task {
            Task::Generator(_) | Task::Backlog(_) => "penstock-bench run",
            Task::Librdkafka(_) => "librdkafka",
            Task::JavaProducer | Task::JavaConsumer => "Java",
            Task::Idle(_) | Task::Start | Task::Peak => "none",
        }
    }
}

/// What `--list` shows.
pub fn list() -> String {
    let mut out = String::new();
    for workload in &WORKLOADS {
        let _ = writeln!(
            out,
            "{}: {} ({})",
            workload.name,
            workload.title,
            workload.client()
        );
        if let Task::Generator(flags) | Task::Backlog(flags) = workload.task {
            let _ = writeln!(out, "    penstock-bench run {flags}");
        }
        for goal in workload.goals {
            let _ = writeln!(out, "    goal: {} {}", goal.figure.heading(), goal.words());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for workload in &WORKLOADS {
            assert_eq!(Workload::named(workload.name), Some(workload));
        }
        assert_eq!(Workload::named("nothing"), None);
    }

    #[test]
    fn the_list_has_every_workload_with_its_goals() {
        let list = list();
        for workload in &WORKLOADS {
            assert!(
                list.contains(&format!("{}: {}", workload.name, workload.title)),
                "{list}"
            );
        }
        assert!(
            list.contains("    goal: broker CPU s/GB ≤ 0.35 × kafka-flush\n"),
            "{list}"
        );
    }
}
