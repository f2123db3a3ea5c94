//! What a crash at this moment would leave: a copy of the disk goes through the crash, the journals are recovered and the logs
//! opened as a start of the broker does, and every record is read. Nothing of the running simulation is touched.

use broker::stores::find_homes;
use protocol::Uuid;
use protocol::compression::CodecContexts;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::sim_executor::SimExecutor;
use storage::store::{ReadOutcome, Store};
use storage::types::{LogId, Offset, TopicId};

use super::knobs::Knobs;
use super::node::{log_dirs, topic_name};
use super::oracle::ReadLog;
use super::record::read;

/// A read of the checker, bytes.
const READ_BYTES: usize = 256 << 10;

/// Every partition of the run after one outcome of a crash. `ids` are the topics' ids as far as any client knows them.
///
/// # Errors
/// A sentence when the disk cannot be recovered or read.
pub fn outcome(
    disk: &SimDisk,
    seed: u64,
    killed: bool,
    knobs: &Knobs,
    ids: &[Option<Uuid>],
) -> Result<Vec<ReadLog>, String> {
    let executor = SimExecutor::new(seed);
    let handle = executor.handle();
    let copy = disk.fork(&handle, seed);
    // The next start finds a disk that works.
    copy.clear_faults();
    copy.configure(|config| config.capacity_bytes = SimDiskConfig::default().capacity_bytes);
    let disk = if killed {
        copy.restart_after_kill(&handle)
    } else {
        copy.restart(&handle)
    };
    let read = executor.run_until(read_all(disk, knobs, ids));
    read.unwrap_or_else(|| Err("recovery stands still".to_owned()))
}

async fn read_all(disk: SimDisk, knobs: &Knobs, ids: &[Option<Uuid>]) -> Result<Vec<ReadLog>, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let dirs = log_dirs(knobs);
    let mut stores = Vec::new();
    for (_, dir, _) in dirs.iter() {
        disk.create_dir(dir).await.map_err(|error| said(&error))?;
        let recovered = recover_journals(&disk, dir, |_, _| {}).await;
        recovered.map_err(|error| said(&error))?;
        let opened = Store::open(disk.clone(), dir, 0, knobs.storage.options).await;
        stores.push(Some(opened.map_err(|error| said(&error))?));
    }
    let disks = vec![Some(disk); stores.len()];
    let homes = find_homes(&dirs, &disks, &stores).await;
    let mut homes = homes.map_err(|failure| failure.sentence)?;
    let config = LogConfig {
        segment_bytes: u32::try_from(knobs.storage.segment_bytes).expect("a size"),
        index_interval_bytes: u32::try_from(knobs.storage.index_interval_bytes).expect("a size"),
        ..LogConfig::default()
    };
    let mut logs = Vec::new();
    for (topic, count) in knobs.topics.iter().enumerate() {
        for partition in 0..*count {
            let name = topic_name(topic);
            // Without its own id the log would be taken for another topic's: a new one, with nothing known of it.
            let anybody = TopicId([u8::try_from(topic).expect("few topics") + 1; 16]);
            let id = ids.get(topic).copied().flatten();
            let topic = id.map_or(anybody, |id| TopicId(id.0));
            let id = LogId { topic, partition };
            let dir = homes.place(id, &format!("{name}-{partition}"), false);
            let Some(Some(store)) = stores.get(usize::from(dir.0)) else {
                return Err(format!("{name}-{partition} is in no directory"));
            };
            let records = read_log(store, id, &name, config.clone()).await;
            logs.push(records.map_err(|what| format!("{name}-{partition}: {what}"))?);
        }
    }
    Ok(logs)
}

async fn read_log(
    store: &Store<SimDisk>,
    id: LogId,
    topic: &str,
    config: LogConfig,
) -> Result<ReadLog, String> {
    let log = store
        .open_log(id, topic, config, super::env::EPOCH_MS)
        .await
        .map_err(|error| error.to_string())?;
    let ends = store.offsets(log).ok_or("the log is not open")?;
    let mut contexts = CodecContexts::default();
    let mut out = ReadLog {
        start: ends.log_start.0,
        records: Vec::new(),
    };
    let mut at = ends.log_start;
    while at < ends.log_end {
        let pieces = match store.read(log, at, READ_BYTES, ends.log_end, true) {
            ReadOutcome::Cached(pieces) => pieces,
            ReadOutcome::Cold(plan) => store.read_cold(plan).await.map_err(|error| error.to_string())?,
            other => return Err(format!("reading at {at} of {}: {other:?}", ends.log_end)),
        };
        let found = read(&pieces.concat(), &mut contexts)?;
        let end = Offset(found.end.unwrap_or(at.0));
        if end <= at {
            return Err(format!("nothing at {at} below {}", ends.log_end));
        }
        out.records
            .extend(found.records.into_iter().filter(|record| record.offset >= at.0));
        at = end;
    }
    Ok(out)
}
