//! DescribeLogDirs and AlterReplicaLogDirs: AD-18, BR-048, and partitions that move between two log directories.

use std::time::{Duration, Instant};

use protocol::Str;
use protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use protocol::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};

use super::super::Case;
use super::super::dialogue::Dialogue;
use super::super::target::Setup;
use crate::error::{Result, failed};

pub(super) const CASES: &[Case] = &[
    Case::new("AD-18 DescribeLogDirs of what is not there", log_dirs_of_nothing),
    Case::new("BR-048 DescribeLogDirs tells the bytes of segments", log_dirs),
    Case::new("AD-18 AlterReplicaLogDirs of what is not there", moves_of_nothing),
    Case::new("AD-18 partitions that move to another log directory", moves).on(&TWO_DIRS),
];

/// Two log directories. Kafka's metadata log is in the first, and so is ours.
static TWO_DIRS: Setup = Setup {
    name: "two-dirs",
    overrides: &["log.dirs={dir}/data,{dir}/data-two"],
    restarts: false,
};

fn to_dir(dir: &Str, list: &[(&Str, &[i32])]) -> AlterReplicaLogDirsRequest {
    AlterReplicaLogDirsRequest {
        dirs: vec![AlterReplicaLogDir {
            path: dir.clone(),
            topics: list
                .iter()
                .map(|(name, partitions)| AlterReplicaLogDirTopic {
                    name: (*name).clone(),
                    partitions: partitions.to_vec(),
                })
                .collect(),
        }],
    }
}

/// The log directories in order.
fn dirs(d: &mut Dialogue<'_>) -> Result<Vec<Str>> {
    let answer = d.quiet(4, &DescribeLogDirsRequest { topics: None })?;
    let mut dirs: Vec<Str> = answer.results.into_iter().map(|result| result.log_dir).collect();
    dirs.sort_unstable_by_key(ToString::to_string);
    Ok(dirs)
}

fn moves_of_nothing(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let nowhere = d.name("nowhere");
    let Some(here) = dirs(d)?.into_iter().next() else {
        return failed("there is no log directory");
    };
    let long = Str::from("x".repeat(214));
    for version in 1..=2 {
        let other = Str::from_static("/no/such/directory");
        let slash = Str::from(format!("{here}/"));
        d.ask("nothing", version, &AlterReplicaLogDirsRequest::default())?;
        d.ask("no topics", version, &to_dir(&here, &[]))?;
        d.ask("no partitions", version, &to_dir(&here, &[(&topic.name, &[])]))?;
        d.ask(
            "an unknown directory",
            version,
            &to_dir(&other, &[(&topic.name, &[0, 1])]),
        )?;
        d.ask(
            "with a slash behind it",
            version,
            &to_dir(&slash, &[(&topic.name, &[0])]),
        )?;
        d.ask("an unknown topic", version, &to_dir(&here, &[(&nowhere, &[0])]))?;
        d.ask(
            "an unknown partition",
            version,
            &to_dir(&here, &[(&topic.name, &[2, -1])]),
        )?;
        d.ask(
            "a name that is too long",
            version,
            &to_dir(&here, &[(&long, &[0])]),
        )?;
        d.ask(
            "one and an unknown directory",
            version,
            &to_dir(&other, &[(&long, &[0])]),
        )?;
        d.ask(
            "to where it is",
            version,
            &to_dir(&here, &[(&topic.name, &[0, 1])]),
        )?;
        let beside = [(&topic.name, &[1][..]), (&nowhere, &[0][..])];
        d.ask("known beside unknown", version, &to_dir(&here, &beside))?;
    }
    Ok(())
}

/// Where each of so many partitions of the topic is, by the number of its directory, when all are in
/// directory number `dir` and nowhere else.
fn settled(d: &mut Dialogue<'_>, topic: &Str, count: usize, dir: usize) -> Result<Vec<(i32, usize, i64)>> {
    let names = dirs(d)?;
    let began = Instant::now();
    loop {
        let answer = d.quiet(4, &DescribeLogDirsRequest { topics: None })?;
        let mut found = Vec::new();
        for result in answer.results {
            let number = names
                .iter()
                .position(|name| *name == result.log_dir)
                .unwrap_or(99);
            for one in result.topics.into_iter().filter(|one| one.name == *topic) {
                for partition in one.partitions {
                    found.push((partition.partition_index, number, partition.partition_size));
                }
            }
        }
        if found.len() == count && found.iter().all(|(_, number, _)| *number == dir) {
            found.sort_unstable();
            return Ok(found);
        }
        if began.elapsed() > Duration::from_secs(60) {
            return failed("a partition is still on its way after a minute");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn moves(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let names = dirs(d)?;
    d.note(&format!("{} directories", names.len()));
    let (Some(one), Some(two)) = (names.first(), names.get(1)) else {
        return failed("there are not two directories");
    };
    for partition in [0, 0, 1] {
        let batch = d.batch(&["x", "y"]);
        d.written(&topic, partition, batch)?;
    }
    for (label, dir, number, version) in [("one", one, 0, 1), ("the other", two, 1, 2), ("one", one, 0, 2)] {
        d.ask(
            &format!("both to {label}"),
            version,
            &to_dir(dir, &[(&topic.name, &[0, 1])]),
        )?;
        let found = settled(d, &topic.name, 2, number)?;
        d.note(&format!("partition, directory, bytes: {found:?}"));
        d.fetch("all", &topic, 0, 0)?;
        let batch = d.batch(&["z"]);
        d.written(&topic, 0, batch)?;
    }
    // One that is not there yet is remembered.
    let later = d.name("b");
    d.ask("partitions to come", 2, &to_dir(two, &[(&later, &[0, 1, 2])]))?;
    let created = d.topic("b", 3, &[])?;
    let found = settled(d, &created.name, 3, 1)?;
    d.note(&format!("partition, directory, bytes: {found:?}"));
    Ok(())
}

fn log_dirs_of_nothing(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let of = |list: &[(&Str, &[i32])]| DescribeLogDirsRequest {
        topics: Some(
            list.iter()
                .map(|(name, partitions)| DescribableLogDirTopic {
                    topic: (*name).clone(),
                    partitions: partitions.to_vec(),
                })
                .collect(),
        ),
    };
    let nowhere = d.name("nowhere");
    for version in 1..=5 {
        d.ask("an unknown topic", version, &of(&[(&nowhere, &[0])]))?;
        d.ask(
            "an unknown partition",
            version,
            &of(&[(&topic.name, &[7, 0, -1])]),
        )?;
        d.ask("no partitions", version, &of(&[(&topic.name, &[])]))?;
        d.ask(
            "known beside unknown",
            version,
            &of(&[(&nowhere, &[0]), (&topic.name, &[0])]),
        )?;
    }
    Ok(())
}

fn log_dirs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 3, &[])?;
    for partition in [0, 0, 2] {
        let batch = d.batch(&["x", "y"]);
        d.written(&topic, partition, batch)?;
    }
    for version in 1..=5 {
        let some = DescribeLogDirsRequest {
            topics: Some(vec![DescribableLogDirTopic {
                topic: topic.name.clone(),
                partitions: vec![0, 1, 2],
            }]),
        };
        d.ask("three partitions", version, &some)?;
        let mut answer = d.quiet(version, &DescribeLogDirsRequest { topics: None })?;
        for result in &mut answer.results {
            result.topics.retain(|one| one.name == topic.name);
            for topic in &mut result.topics {
                topic.partitions.sort_by_key(|part| part.partition_index);
            }
        }
        d.note(&format!(
            "> DescribeLogDirs v{version}: all, of which one topic is shown"
        ));
        d.answered(&answer);
        let none = DescribeLogDirsRequest {
            topics: Some(Vec::new()),
        };
        d.ask("no topics", version, &none)?;
    }
    Ok(())
}
