//! The cases: each a short play of one or more members of a client, with records that come in meanwhile. Here those of joining and
//! leaving; what a member does about offsets is in `positions`.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::history::MemberTold;
use super::member::{MemberOptions, SESSION_KILL_MS};
use super::positions::{auto_commit, commit, reset, seek_pause};
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

/// What each row's members must say they do not have: neither less, nor anything else.
const ABSENT: [(&str, &[&str]); 8] = [
    ("verifiable-consumer", &["commit", "seek-pause"]),
    (
        "console-consumer",
        &["cooperative", "static", "commit", "seek-pause"],
    ),
    ("kcat", &["cooperative", "commit", "seek-pause"]),
    (
        "kafka-go-reader",
        &["cooperative", "static", "seek-pause", "reset"],
    ),
    ("kafka-go-generations", &["cooperative", "static"]),
    ("kafkajs", &["cooperative", "static"]),
    ("kafkajs-batch", &["cooperative", "static"]),
    ("aiokafka", &["cooperative"]),
];

/// Whether a member of the row must say that it does not have what the case asks for.
pub(super) fn is_absent(row: &Row, case: &GroupCase) -> bool {
    ABSENT
        .iter()
        .any(|(name, cases)| *name == row.name && cases.contains(&case.name))
}

/// Ends a case that the client does not have.
fn absent<T>(stage: &Stage<'_>, member: usize, why: &str) -> Result<T> {
    stage.history.absent(member, why);
    failed(why)
}

/// Time in which nothing may happen that must not.
pub(super) const QUIET: Duration = Duration::from_millis(700);

pub(super) fn auto() -> MemberOptions {
    MemberOptions {
        auto_commit: true,
        ..MemberOptions::default()
    }
}

pub(super) fn count_of(ends: &[i64]) -> usize {
    usize::try_from(ends.iter().sum::<i64>()).unwrap_or(usize::MAX)
}

/// The member has read these offsets of each partition, each once and in order.
pub(super) fn read_exactly(member: &MemberTold, from: &[i64], to: &[i64]) -> Result<()> {
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
    let distinct = |told: &MemberTold| {
        told.values
            .iter()
            .map(|one| (one.0, one.1))
            .collect::<BTreeSet<_>>()
    };
    stage.history.wait(
        &format!("{RECORDS} records of its own to be read"),
        STEP_LIMIT,
        |told| distinct(&told.members[only]).len() >= RECORDS,
    )?;
    sleep(QUIET);
    stage.finish()?;
    let told = stage.told(only);
    let again = told.values.len() - distinct(&told).len();
    // A rebalance may come at any time and bring back what was not committed yet; without one nothing may come twice.
    if again > 0 && !told.was_given_again() {
        return failed(format!(
            "{again} records read twice, assigned and revoked: {:?}",
            told.moves
        ));
    }
    check_own(told.values, RECORDS)?;
    let committed: i64 = stage.topic().committed()?.iter().map(|one| one.0.max(0)).sum();
    if usize::try_from(committed) != Ok(RECORDS) {
        return failed(format!("{RECORDS} records read, {committed} committed"));
    }
    Ok(repeated(stage))
}

/// The values `key/number` have all numbers once, and each key's are in one partition and in order. Records that were read again
/// count once.
fn check_own(mut values: Vec<(i32, i64, String)>, records: usize) -> Result<()> {
    let mut seen = BTreeSet::new();
    values.retain(|value| seen.insert((value.0, value.1)));
    let mut keys: BTreeMap<String, (i32, Vec<usize>)> = BTreeMap::new();
    for (partition, _, value) in values {
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
    if numbers != (0..records).collect::<Vec<_>>() {
        let twice: Vec<_> = numbers.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        return failed(format!(
            "{records} records sent, {} read, written twice: {twice:?}",
            numbers.len()
        ));
    }
    Ok(())
}

/// Two members share the partitions, and records keep coming in.
fn add(stage: &mut Stage<'_>) -> Result<Note> {
    shared(stage, [&auto(), &auto()])?;
    stage.wait_until_read()?;
    stage.finish()?;
    Ok(repeated(stage))
}

/// Two members that share the partitions; the second came while records came in.
fn shared(stage: &mut Stage<'_>, options: [&MemberOptions; 2]) -> Result<[usize; 2]> {
    stage.topic().send(20)?;
    let since = now_ms();
    let first = stage.member(options[0])?;
    stage.wait_for_all(first, since)?;
    let feed = stage.feed();
    let since = now_ms();
    let second = stage.member(options[1])?;
    stage.wait_until_shared(first, second, since)?;
    sleep(QUIET);
    stage.stop(feed)?;
    Ok([first, second])
}

fn leave(stage: &mut Stage<'_>) -> Result<Note> {
    let [first, second] = shared(stage, [&auto(), &auto()])?;
    let feed = stage.feed();
    sleep(QUIET);
    stage.leave(second)?;
    stage.wait_for_all(first, now_ms())?;
    stage.stop(feed)?;
    stage.wait_until_read()?;
    stage.finish()?;
    Ok(repeated(stage))
}

fn kill(stage: &mut Stage<'_>) -> Result<Note> {
    let options = MemberOptions {
        session_ms: SESSION_KILL_MS,
        ..auto()
    };
    let [first, second] = shared(stage, [&options, &options])?;
    let feed = stage.feed();
    sleep(QUIET);
    let (since, started) = (now_ms(), Instant::now());
    stage.members[second].kill();
    stage.wait_for_all(first, since)?;
    let took = started.elapsed();
    stage.stop(feed)?;
    stage.wait_until_read()?;
    stage.finish()?;
    // The last heartbeat is a little older than the kill; what comes much sooner is not the session timeout.
    if took < Duration::from_millis(u64::from(SESSION_KILL_MS)) / 2 {
        return failed(format!(
            "taken over after {took:.1?} of a session timeout of {SESSION_KILL_MS} ms"
        ));
    }
    Ok(Some(format!("taken over after {:.1} s", took.as_secs_f64())))
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
    let [first, second] = shared(stage, [&options, &options])?;
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

fn named(instance: &'static str) -> MemberOptions {
    MemberOptions {
        instance: Some(instance),
        ..auto()
    }
}

fn static_restart(stage: &mut Stage<'_>) -> Result<Note> {
    let [first, second] = shared(stage, [&named("a"), &named("b")])?;
    settle(stage)?;
    let before = stage.told(first);
    if !before.tells_owners {
        return absent(stage, first, SILENT);
    }
    let mut running = restart(stage, first, second)?;
    let mut note = None;
    if let Err(why) = running.1 {
        // The leader may have asked for a rebalance of its own accord just then, which is not for two restarts to meet.
        note = Some(format!("at the first restart {why}"));
        settle(stage)?;
        running = restart(stage, running.0, second)?;
    }
    stage.finish()?;
    if let Err(why) = running.1 {
        return failed(why);
    }
    let silent = "tells no generation; the other member saw no rebalance";
    Ok(note.or_else(|| before.generation.is_none().then(|| silent.into())))
}

/// Kills a static member and starts it again, as this number. Whether it came back to what it had, unseen by the other.
fn restart(
    stage: &mut Stage<'_>,
    killed: usize,
    other: usize,
) -> Result<(usize, std::result::Result<(), String>)> {
    let (before, other_before) = (stage.told(killed), stage.told(other));
    stage.members[killed].kill();
    let again = stage.member(&named("a"))?;
    stage.topic().send(20)?;
    stage.wait_until_read()?;
    stage.history.wait(
        "the restarted member to own as many as before",
        STEP_LIMIT,
        |told| told.members[again].owned.len() == before.owned.len(),
    )?;
    sleep(QUIET);
    let (after, other_after) = (stage.told(again), stage.told(other));
    let came_back = if after.owned != before.owned {
        Err(format!(
            "the member had {:?}, then {:?}",
            before.owned, after.owned
        ))
    } else if other_before.moves != other_after.moves {
        let (one, two) = (other_before.moves, other_after.moves);
        Err(format!("the other member had {one:?}, then {two:?}"))
    } else if (before.generation, other_before.generation) != (after.generation, other_after.generation) {
        let (one, two) = (before.generation, after.generation);
        Err(format!("generation {one:?} before, {two:?} after the restart"))
    } else {
        Ok(())
    };
    Ok((again, came_back))
}
