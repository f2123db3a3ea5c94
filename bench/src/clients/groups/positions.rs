//! The cases of what a member does about offsets: it commits them, commits by itself, goes to another, pauses, and begins somewhere
//! where nothing is committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cases::{Note, QUIET, auto, count_of, read_exactly};
use super::history::{History, MemberTold};
use super::member::{Member, MemberOptions};
use super::stage::{STEP_LIMIT, Stage};
use super::topic::PARTITIONS;
use crate::error::{Result, failed};

pub(super) fn commit(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(100)?;
    let first = stage.member(&MemberOptions::default())?;
    stage.wait_until_read()?;
    let ends = stage.topic().ends();
    stage.ask(first, "commit note-1")?;
    let committed = stage.topic().committed()?;
    stage.topic().send(50)?;
    stage.wait_until_read()?;
    stage.leave(first)?;
    let offsets: Vec<_> = committed.iter().map(|one| one.0).collect();
    if offsets != ends || stage.topic().committed()? != committed {
        let now = stage.topic().committed()?;
        return failed(format!(
            "read to {ends:?}, committed {committed:?}, after leaving {now:?}"
        ));
    }
    let plain = stage.told(first).done.contains_key("no-metadata");
    let wanted = if plain { "" } else { "note-1" };
    // confluent-kafka sends the NUL that ends a C string along.
    if committed.iter().any(|one| one.1.trim_end_matches('\0') != wanted) {
        return failed(format!("metadata {wanted:?} expected: {committed:?}"));
    }
    let to = stage.topic().ends();
    let second = stage.member(&MemberOptions::default())?;
    stage.wait_for_records(second, count_of(&to) - count_of(&ends))?;
    sleep(QUIET);
    stage.finish()?;
    read_exactly(&stage.told(second), &ends, &to)?;
    Ok(plain.then(|| "no metadata in its interface".into()))
}

pub(super) fn auto_commit(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(100)?;
    let first = stage.member(&auto())?;
    stage.wait_until_read()?;
    let started = Instant::now();
    loop {
        let committed = stage.topic().committed()?;
        let ends = stage.topic().ends();
        if committed.iter().map(|one| one.0).eq(ends) {
            break;
        }
        if started.elapsed() > STEP_LIMIT {
            return failed(format!("read to {ends:?}, committed by itself {committed:?}"));
        }
        sleep(Duration::from_millis(50));
    }
    let by_itself = started.elapsed();
    stage.topic().send(10)?;
    stage.wait_until_read()?;
    stage.leave(first)?;
    let (ends, committed) = (stage.topic().ends(), stage.topic().committed()?);
    if !committed.iter().map(|one| one.0).eq(ends) {
        return failed(format!("read to {ends:?}, committed after leaving {committed:?}"));
    }
    stage.topic().send(50)?;
    let to = stage.topic().ends();
    let second = stage.member(&auto())?;
    stage.wait_for_records(second, count_of(&to) - count_of(&ends))?;
    sleep(QUIET);
    stage.finish()?;
    read_exactly(&stage.told(second), &ends, &to)?;
    Ok((by_itself > Duration::from_secs(4)).then(|| format!("committed after {by_itself:.1?}")))
}

pub(super) fn seek_pause(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(100)?;
    let only = stage.member(&MemberOptions::default())?;
    stage.wait_until_read()?;
    let unpaused = seek(stage, only)?;
    stage.ask(only, "pause 2")?;
    // A fetch that is under way may still bring records of the partition, sarama gives them out: this record ends such fetches.
    stage.topic().send(1)?;
    wait_for_others(stage, only, 2)?;
    sleep(QUIET);
    let paused = stage.told(only).records.len();
    stage.topic().send(20)?;
    wait_for_others(stage, only, 2)?;
    sleep(QUIET);
    let told = stage.told(only);
    if !offsets_since(&told, 2, paused).is_empty() {
        return failed(format!(
            "while partition 2 is paused: {:?}",
            &told.records[paused..]
        ));
    }
    stage.ask(only, "resume 2")?;
    stage.wait_until_read()?;
    sleep(QUIET);
    let told = stage.told(only);
    stage.finish()?;
    let all: Vec<_> = (100..121).collect();
    if (0..PARTITIONS).any(|partition| offsets_since(&told, partition, unpaused) != all) {
        return failed(format!("since pause 2: {:?}", &told.records[unpaused..]));
    }
    Ok(None)
}

/// The row that ends its session to seek: of other partitions it may read again what it had not committed.
const SEEKS_IN_ANOTHER_SESSION: &str = "sarama";

/// A member that has read a hundred records of each partition goes back to offset 40 of partition 1. Returns how many it has read then.
fn seek(stage: &mut Stage<'_>, only: usize) -> Result<usize> {
    let before = stage.told(only).records.len();
    stage.ask(only, "seek 1 40")?;
    let may_repeat = stage.row.name == SEEKS_IN_ANOTHER_SESSION;
    if may_repeat {
        // Repeats of other partitions count as records, too: what is waited for is the end of this one.
        stage
            .history
            .wait("partition 1 to be read to its end again", STEP_LIMIT, |told| {
                let since = &told.members[only].records[before..];
                since.iter().any(|record| (record.1, record.2) == (1, 99))
            })?;
    } else {
        stage.wait_for_records(only, before + 60)?;
    }
    sleep(QUIET);
    let told = stage.told(only);
    let is_right = |partition| {
        let read = offsets_since(&told, partition, before);
        match partition {
            1 => read.iter().copied().eq(40..100),
            // At most once what it had read before.
            _ if may_repeat => {
                read.is_sorted_by(|a, b| a < b) && read.iter().all(|offset| (0..100).contains(offset))
            }
            _ => read.is_empty(),
        }
    };
    if !(0..PARTITIONS).all(is_right) {
        return failed(format!("after seek 1 40: {:?}", &told.records[before..]));
    }
    Ok(told.records.len())
}

/// The offsets of a partition that a member has read behind its first `skip` records.
fn offsets_since(member: &MemberTold, partition: i32, skip: usize) -> Vec<i64> {
    let read = member
        .records
        .iter()
        .skip(skip)
        .filter(|record| record.1 == partition);
    read.map(|record| record.2).collect()
}

/// Waits until a member has read all partitions but one to their ends.
fn wait_for_others(stage: &mut Stage<'_>, member: usize, but: i32) -> Result<()> {
    let ends = stage.topic().ends();
    stage
        .history
        .wait("the other partitions to be read", STEP_LIMIT, |told| {
            let last = told.members[member].last_offsets();
            let mut others = (0..PARTITIONS).zip(ends).filter(|one| one.0 != but);
            others.all(|(partition, end)| last.get(&partition) == Some(&(end - 1)))
        })
}

/// An offset that no topic here has.
const OUT_OF_RANGE: i64 = 1_000_000;

/// Records in each partition before the members of that case come.
const BEFORE: i64 = 50;

pub(super) fn reset(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(BEFORE)?;
    let group = stage.group();
    let of = |name: &str| Some(format!("{group}-{name}"));
    for name in ["earliest-beyond", "latest-beyond", "none-beyond"] {
        stage.topic().commit(&format!("{group}-{name}"), OUT_OF_RANGE)?;
    }
    let with = |name, reset| MemberOptions {
        group: of(name),
        reset,
        ..MemberOptions::default()
    };
    let earliest = [
        stage.member(&with("earliest", "earliest"))?,
        stage.member(&with("earliest-beyond", "earliest"))?,
    ];
    let latest = [
        stage.member(&with("latest", "latest"))?,
        stage.member(&with("latest-beyond", "latest"))?,
    ];
    // Nothing tells when a member has asked for an end offset, some ask for one partition after the other; that it reads does.
    let feed = stage.feed();
    stage.history.wait(
        "the members of policy latest to read from all partitions",
        STEP_LIMIT,
        |told| {
            latest
                .iter()
                .all(|&member| told.members[member].last_offsets().len() == PARTITIONS as usize)
        },
    )?;
    stage.stop(feed)?;
    let ends = stage.topic().ends();
    let last: BTreeMap<_, _> = (0..PARTITIONS).zip(ends.map(|end| end - 1)).collect();
    let all = [earliest, latest].concat();
    stage
        .history
        .wait("all members to read to the ends", STEP_LIMIT, |told| {
            all.iter()
                .all(|&member| told.members[member].last_offsets() == last)
        })?;
    sleep(QUIET);
    // They are in groups of their own, so each owns all partitions.
    for &member in &all {
        stage.leave(member)?;
    }
    for member in earliest {
        read_exactly(&stage.told(member), &[0; PARTITIONS as usize], &ends)?;
    }
    for member in latest {
        let told = stage.told(member);
        let first = told.first_offsets();
        if first.values().any(|&offset| offset < BEFORE) {
            return failed(format!(
                "the policy latest began at {first:?}, not after {BEFORE}"
            ));
        }
        read_exactly(&told, &first.into_values().collect::<Vec<_>>(), &ends)?;
    }
    without_policy(stage, &with("none-beyond", "none"))
}

/// The rows that have no such policy.
const ALWAYS_A_POLICY: [&str; 3] = ["sarama", "kafkajs", "kafkajs-batch"];

/// Without a policy, an offset out of range is an error for the program, which says so or ends saying so.
fn without_policy(stage: &mut Stage<'_>, options: &MemberOptions) -> Result<Note> {
    let history = Arc::new(History::default());
    let index = history.join();
    let said_before = std::fs::metadata(&stage.log).map_or(0, |file| file.len());
    let mut member = Member::start(stage.command(options), &stage.log, &history, index)?;
    let waited = history.wait("an error for an offset out of range", STEP_LIMIT, |told| {
        let member = &told.members[index];
        !member.failures.is_empty() || !member.records.is_empty() || member.ended
    });
    member.kill();
    let told = history.look(|told| told.members[index].clone());
    if let Some(why) = told.absent {
        if ALWAYS_A_POLICY.contains(&stage.row.name) {
            return Ok(Some(format!("policy none: {why}")));
        }
        return failed(format!("policy none is absent: {why}"));
    }
    if !told.records.is_empty() {
        let first = told.records.first();
        return failed(format!("read {first:?} from an offset out of range"));
    }
    let log = std::fs::read(&stage.log).unwrap_or_default();
    let log = log.get(usize::try_from(said_before).unwrap_or(0)..);
    let log = String::from_utf8_lossy(log.unwrap_or_default());
    let mut said = told.failures.iter().map(|(_, error)| error.as_str());
    if said.any(names_out_of_range) || names_out_of_range(&log) {
        return Ok(None);
    }
    // An error of another kind, or none at all: the words are in what it waited for.
    waited.and_then(|()| {
        failed(format!(
            "no error for an offset out of range, but {:?}",
            told.failures
        ))
    })
}

/// `OFFSET_OUT_OF_RANGE`, `OffsetOutOfRangeException`, `Offset out of range`, `is out of range`: each client has its own words.
fn names_out_of_range(words: &str) -> bool {
    let letters: String = words.chars().filter(|c| c.is_ascii_alphabetic()).collect();
    letters.to_ascii_lowercase().contains("outofrange")
}
