//! The cases: each a short play of one or more members of a client, with records that come in meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::history::{History, MemberTold};
use super::member::{Member, MemberOptions};
use super::stage::{STEP_LIMIT, Stage};
use super::topic::PARTITIONS;
use super::{COUNTS_ONLY, Row, now_ms};
use crate::error::{Result, failed};

/// What a case says beside having gone well.
pub(super) type Note = Option<String>;

/// A case: the column of the table, and what happens.
pub(super) struct GroupCase {
    pub(super) name: &'static str,
    pub(super) play: fn(&mut Stage<'_>) -> Result<Note>,
}

/// The cases; those that wait for a session timeout first, so that the others run beside them.
pub(super) const CASES: [GroupCase; 11] = [
    GroupCase {
        name: "kill",
        play: kill,
    },
    GroupCase {
        name: "static",
        play: static_restart,
    },
    GroupCase {
        name: "reset",
        play: reset,
    },
    GroupCase {
        name: "join",
        play: join,
    },
    GroupCase {
        name: "add",
        play: add,
    },
    GroupCase {
        name: "leave",
        play: leave,
    },
    GroupCase {
        name: "cooperative",
        play: cooperative,
    },
    GroupCase {
        name: "commit",
        play: commit,
    },
    GroupCase {
        name: "auto-commit",
        play: auto_commit,
    },
    GroupCase {
        name: "seek-pause",
        play: seek_pause,
    },
    GroupCase {
        name: "own-producer",
        play: own_producer,
    },
];

/// Why a row does not play a case, if it does not.
pub(super) fn not_played(row: &Row, case: &GroupCase) -> Option<&'static str> {
    match (row.name, case.name) {
        (_, "own-producer") if row.client != "kafkajs" => Some("only for kafkajs's style of program"),
        (COUNTS_ONLY, other) if other != "join" => Some("it reads a number of records and ends"),
        ("kcat", "leave") => Some("at its end kcat drops the record in hand, which it has committed"),
        _ => None,
    }
}

/// Why a case cannot be judged.
const SILENT: &str = "it does not tell which partitions it owns";

/// Ends a case that the client does not have.
fn absent<T>(stage: &Stage<'_>, member: usize, why: &str) -> Result<T> {
    stage.history.absent(member, why);
    failed(why)
}

/// Time in which nothing may happen that must not.
const QUIET: Duration = Duration::from_millis(700);

fn auto() -> MemberOptions {
    MemberOptions {
        auto_commit: true,
        ..MemberOptions::default()
    }
}

fn count_of(ends: &[i64]) -> usize {
    usize::try_from(ends.iter().sum::<i64>()).unwrap_or(usize::MAX)
}

/// The member has read these offsets of each partition, each once and in order.
fn read_exactly(member: &MemberTold, from: &[i64], to: &[i64]) -> Result<()> {
    for (partition, (&from, &to)) in (0..PARTITIONS).zip(from.iter().zip(to)) {
        let read = member.records.iter().filter(|record| record.1 == partition);
        let offsets: Vec<_> = read.map(|record| record.2).collect();
        if offsets != (from..to).collect::<Vec<_>>() {
            let (first, last) = (offsets.first(), offsets.last());
            return failed(format!(
                "partition {partition}: {from} to {to} expected, read {} records from {first:?} to {last:?}",
                offsets.len()
            ));
        }
    }
    Ok(())
}

fn join(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(500)?;
    if stage.row.name == COUNTS_ONLY {
        return join_and_count(stage);
    }
    let since = now_ms();
    let only = stage.member(&MemberOptions::default())?;
    stage.wait_until_read()?;
    stage.wait_for_all(only, since)?;
    let ends = stage.topic().ends();
    stage.finish()?;
    read_exactly(&stage.told(only), &[0; PARTITIONS as usize], &ends)?;
    Ok(None)
}

/// A tool that reads a number of records, says how many it read, and commits.
fn join_and_count(stage: &mut Stage<'_>) -> Result<Note> {
    let ends = stage.topic().ends();
    let wanted = count_of(&ends) as u64;
    let counting = MemberOptions {
        count: Some(wanted),
        ..auto()
    };
    let only = stage.member(&counting)?;
    stage
        .history
        .wait("the tool to have counted", STEP_LIMIT, |told| {
            told.members[only].count.is_some()
        })?;
    let counted = stage.told(only).count;
    stage.finish()?;
    let committed = stage.topic().committed()?;
    if counted != Some(wanted) || !committed.iter().map(|one| one.0).eq(ends) {
        return failed(format!(
            "{wanted} records sent, counted {counted:?}, committed {committed:?}"
        ));
    }
    Ok(Some("counts records, does not show them".into()))
}

/// The client's own producer sends keyed records in compressed batches, its consumer reads them: complete, and in order for each key.
fn own_producer(stage: &mut Stage<'_>) -> Result<Note> {
    const RECORDS: usize = 1000;
    let only = stage.member(&auto())?;
    stage.wait_for_all(only, now_ms())?;
    stage.ask(only, &format!("produce {RECORDS}"))?;
    stage.wait_for_records(only, RECORDS)?;
    sleep(QUIET);
    stage.finish()?;
    let told = stage.told(only);
    let mut seen = BTreeSet::new();
    let again: Vec<_> = told
        .values
        .iter()
        .filter(|value| !seen.insert((value.0, value.1)))
        .collect();
    if !again.is_empty() {
        return failed(format!(
            "read twice: {again:?}, assigned and revoked: {:?}",
            told.moves
        ));
    }
    let mut keys: BTreeMap<String, (i32, Vec<usize>)> = BTreeMap::new();
    for (partition, _, value) in told.values {
        let (key, number) = value.split_once('/').unwrap_or((&value, ""));
        let (home, numbers) = keys.entry(key.to_owned()).or_insert((partition, Vec::new()));
        numbers.push(number.parse().unwrap_or(usize::MAX));
        if *home != partition || !numbers.is_sorted() {
            return failed(format!(
                "{key} in partitions {home} and {partition}, order {numbers:?}"
            ));
        }
    }
    let mut numbers: Vec<_> = keys.into_values().flat_map(|(_, numbers)| numbers).collect();
    numbers.sort_unstable();
    if numbers != (0..RECORDS).collect::<Vec<_>>() {
        let twice: Vec<_> = numbers.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        return failed(format!(
            "{RECORDS} records sent, {} read, written twice: {twice:?}",
            numbers.len()
        ));
    }
    let committed: i64 = stage.topic().committed()?.iter().map(|one| one.0.max(0)).sum();
    if usize::try_from(committed) != Ok(RECORDS) {
        return failed(format!("{RECORDS} records read, {committed} committed"));
    }
    Ok(None)
}

/// Two members share the partitions, and records keep coming in.
fn add(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(20)?;
    let since = now_ms();
    let first = stage.member(&auto())?;
    stage.wait_for_all(first, since)?;
    let feed = stage.feed();
    let since = now_ms();
    let second = stage.member(&auto())?;
    stage.wait_until_shared(first, second, since)?;
    sleep(QUIET);
    stage.stop(feed)?;
    stage.wait_until_read()?;
    stage.finish()?;
    Ok(repeated(stage))
}

/// Two members that share the partitions; records come in from then on.
fn shared(stage: &mut Stage<'_>, options: [&MemberOptions; 2]) -> Result<[usize; 2]> {
    stage.topic().send(20)?;
    let since = now_ms();
    let first = stage.member(options[0])?;
    stage.wait_for_all(first, since)?;
    let since = now_ms();
    let second = stage.member(options[1])?;
    let feed = stage.feed();
    let shared = stage.wait_until_shared(first, second, since);
    stage.stop(feed)?;
    shared?;
    Ok([first, second])
}

fn leave(stage: &mut Stage<'_>) -> Result<Note> {
    let [first, second] = shared(stage, [&auto(), &auto()])?;
    let feed = stage.feed();
    sleep(QUIET);
    let since = now_ms();
    stage.leave(second)?;
    let gone = now_ms();
    stage.wait_for_all(first, gone.max(since))?;
    stage.stop(feed)?;
    stage.wait_until_read()?;
    stage.finish()?;
    Ok(repeated(stage))
}

fn kill(stage: &mut Stage<'_>) -> Result<Note> {
    let [first, second] = shared(stage, [&auto(), &auto()])?;
    let feed = stage.feed();
    sleep(QUIET);
    let (since, started) = (now_ms(), Instant::now());
    stage.members[second].kill();
    stage.wait_for_all(first, since)?;
    let took = started.elapsed().as_secs_f64();
    stage.stop(feed)?;
    stage.wait_until_read()?;
    stage.finish()?;
    Ok(Some(format!("taken over after {took:.1} s")))
}

/// How many records were read more than once: allowed around a rebalance, worth a note.
fn repeated(stage: &Stage<'_>) -> Note {
    let (total, distinct) = stage.history.look(|told| {
        let total: usize = told.members.iter().map(|member| member.records.len()).sum();
        (total, told.read().values().map(BTreeSet::len).sum::<usize>())
    });
    (total > distinct).then(|| format!("{} of {distinct} records read twice", total - distinct))
}

fn cooperative(stage: &mut Stage<'_>) -> Result<Note> {
    let options = MemberOptions {
        assignor: "cooperative-sticky",
        ..auto()
    };
    stage.topic().send(20)?;
    let since = now_ms();
    let first = stage.member(&options)?;
    stage.wait_for_all(first, since)?;
    let feed = stage.feed();
    let since = now_ms();
    let second = stage.member(&options)?;
    stage.wait_until_shared(first, second, since)?;
    sleep(QUIET);
    stage.stop(feed)?;
    stage.wait_until_read()?;
    let (kept, moved) = (stage.told(first), stage.told(second));
    if !kept.tells_owners {
        return absent(stage, first, SILENT);
    }
    stage.finish()?;
    let given_up: BTreeSet<_> = kept.moves.iter().filter(|one| !one.1).map(|one| one.2).collect();
    if given_up != moved.owned {
        return failed(format!(
            "member 0 gave up {given_up:?}, member 1 got {:?}",
            moved.owned
        ));
    }
    let mut given: BTreeMap<i32, usize> = BTreeMap::new();
    for one in kept.moves.iter().filter(|one| one.1) {
        *given.entry(one.2).or_default() += 1;
    }
    if given.values().any(|&times| times != 1) {
        return failed(format!("member 0 was given partitions again: {:?}", kept.moves));
    }
    Ok(repeated(stage))
}

/// Waits until nobody has got or given up a partition for a while: a leader may ask for another rebalance of its own accord.
fn settle(stage: &Stage<'_>) -> Result<()> {
    const STILL: Duration = Duration::from_millis(1500);
    let started = Instant::now();
    let moves = || {
        stage
            .history
            .look(|told| told.members.iter().map(|one| one.moves.len()).sum::<usize>())
    };
    let mut before = moves();
    loop {
        sleep(STILL);
        let now = moves();
        if now == before {
            return Ok(());
        }
        if started.elapsed() > STEP_LIMIT {
            return failed(format!("the members still rebalance after {STEP_LIMIT:?}"));
        }
        before = now;
    }
}

fn static_restart(stage: &mut Stage<'_>) -> Result<Note> {
    let named = |instance| MemberOptions {
        instance: Some(instance),
        ..auto()
    };
    let [first, second] = shared(stage, [&named("a"), &named("b")])?;
    settle(stage)?;
    let (before, other) = (stage.told(first), stage.told(second));
    if !before.tells_owners {
        return absent(stage, first, SILENT);
    }
    stage.members[first].kill();
    let again = stage.member(&named("a"))?;
    stage.topic().send(20)?;
    stage.wait_until_read()?;
    stage
        .history
        .wait("the restarted member to own what it owned", STEP_LIMIT, |told| {
            told.members[again].covers(0.0) == before.covers(0.0)
        })?;
    sleep(QUIET);
    let (after, other_after) = (stage.told(again), stage.told(second));
    stage.finish()?;
    if other.moves != other_after.moves {
        return failed(format!(
            "the other member had {:?}, then {:?}",
            other.moves, other_after.moves
        ));
    }
    if after.generation != before.generation || other.generation != other_after.generation {
        let (one, two) = (before.generation, after.generation);
        return failed(format!("generation {one:?} before, {two:?} after the restart"));
    }
    Ok(before
        .generation
        .is_none()
        .then(|| "tells no generation; the other member saw no rebalance".into()))
}

fn commit(stage: &mut Stage<'_>) -> Result<Note> {
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

fn auto_commit(stage: &mut Stage<'_>) -> Result<Note> {
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

fn seek_pause(stage: &mut Stage<'_>) -> Result<Note> {
    let of = |member: &MemberTold, partition: i32, skip: usize| -> Vec<i64> {
        let read = member
            .records
            .iter()
            .skip(skip)
            .filter(|record| record.1 == partition);
        read.map(|record| record.2).collect()
    };
    stage.topic().send(100)?;
    let only = stage.member(&MemberOptions::default())?;
    stage.wait_until_read()?;
    let before = stage.told(only).records.len();
    stage.ask(only, "seek 1 40")?;
    stage.wait_for_records(only, before + 60)?;
    sleep(QUIET);
    let told = stage.told(only);
    if told.records.len() != before + 60 || of(&told, 1, before) != (40..100).collect::<Vec<_>>() {
        return failed(format!("after seek 1 40: {:?}", &told.records[before..]));
    }
    stage.ask(only, "pause 2")?;
    // A fetch that is under way may still bring records of the partition, sarama gives them out.
    sleep(QUIET);
    let before = told.records.len();
    stage.topic().send(20)?;
    stage.wait_for_records(only, before + 60)?;
    sleep(QUIET);
    let told = stage.told(only);
    if told.records.len() != before + 60 || !of(&told, 2, before).is_empty() {
        return failed(format!(
            "while partition 2 is paused: {:?}",
            &told.records[before..]
        ));
    }
    stage.ask(only, "resume 2")?;
    stage.wait_for_records(only, before + 80)?;
    sleep(QUIET);
    let told = stage.told(only);
    stage.finish()?;
    if of(&told, 2, before) != (100..120).collect::<Vec<_>>() {
        return failed(format!("after resume 2: {:?}", &told.records[before..]));
    }
    Ok(None)
}

/// An offset that no topic here has.
const OUT_OF_RANGE: i64 = 1_000_000;

fn reset(stage: &mut Stage<'_>) -> Result<Note> {
    stage.topic().send(50)?;
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
    let earliest = stage.member(&with("earliest", "earliest"))?;
    let earliest_beyond = stage.member(&with("earliest-beyond", "earliest"))?;
    let latest = stage.member(&with("latest", "latest"))?;
    let latest_beyond = stage.member(&with("latest-beyond", "latest"))?;
    stage.wait_for_records(earliest, 200)?;
    let first = stage.history.look(|told| told.members[0].tells_owners);
    stage
        .history
        .wait("the members of policy latest to own all", STEP_LIMIT, |told| {
            let all = |member: usize| told.members[member].owned.len() == PARTITIONS as usize;
            !first || (all(latest) && all(latest_beyond))
        })?;
    // They ask for the end offsets some time after that, and nothing tells when.
    sleep(Duration::from_millis(if first { 2000 } else { 4000 }));
    stage.topic().send(10)?;
    let ends = stage.topic().ends();
    let expected = [
        (earliest, 0),
        (earliest_beyond, 0),
        (latest, 50),
        (latest_beyond, 50),
    ];
    for (member, from) in expected {
        stage.wait_for_records(member, count_of(&ends) - 4 * from)?;
    }
    let told: Vec<_> = expected.iter().map(|&(member, _)| stage.told(member)).collect();
    finish_apart(stage)?;
    for (member, (_, from)) in told.iter().zip(expected) {
        read_exactly(member, &[from as i64; PARTITIONS as usize], &ends)?;
    }
    without_policy(stage, &with("none-beyond", "none"))
}

/// The members of this case are in groups of their own, so each owns all partitions.
fn finish_apart(stage: &mut Stage<'_>) -> Result<()> {
    for member in 0..stage.members.len() {
        stage.leave(member)?;
    }
    Ok(())
}

/// Without a policy, an offset out of range is an error for the program.
fn without_policy(stage: &mut Stage<'_>, options: &MemberOptions) -> Result<Note> {
    let history = Arc::new(History::default());
    let index = history.join();
    let _member = Member::start(stage.command(options), &stage.log, &history, index)?;
    let waited = history.wait("an error for an offset out of range", STEP_LIMIT, |told| {
        let member = &told.members[index];
        !member.failures.is_empty() || !member.records.is_empty() || member.ended
    });
    let told = history.look(|told| told.members[index].clone());
    if let Some(why) = told.absent {
        return Ok(Some(format!("policy none: {why}")));
    }
    waited?;
    if told.records.is_empty() {
        Ok(None)
    } else {
        failed(format!(
            "read {:?} from an offset out of range",
            told.records.first()
        ))
    }
}
