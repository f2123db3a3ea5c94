//! Each fault model of the simulated disk, shown to happen and shown to keep to its rules.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_lite::future::{or, zip};

use super::*;
use crate::sim_executor::SimExecutor;

/// A file of `blocks` blocks filled with `byte`, created and made durable with its name.
async fn durable_file(disk: &SimDisk, path: &str, byte: u8, blocks: usize) -> SimFile {
    let file = disk
        .open(path.as_ref(), OpenMode::CreateOrTruncate)
        .await
        .unwrap();
    file.write_at(filled(disk, byte, blocks), 0).await.unwrap();
    file.sync().await.unwrap();
    disk.sync_dir("/".as_ref()).await.unwrap();
    file
}

fn filled(disk: &SimDisk, byte: u8, blocks: usize) -> Rc<SimBuf> {
    let mut buf = disk.alloc(blocks * BLOCK_BYTES);
    buf.fill(byte);
    Rc::new(buf)
}

/// Runs `work` on a fresh disk, loses the power, and gives the disk as found.
fn after_power_loss<F: Future<Output = ()>>(seed: u64, work: impl FnOnce(SimDisk) -> F) -> SimDisk {
    let executor = SimExecutor::new(seed);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
    executor.block_on(work(disk.clone()));
    drop(executor);
    disk.restart(&SimExecutor::new(seed).handle())
}

#[test]
fn synced_data_with_a_synced_name_always_survives() {
    for seed in 0..50 {
        let disk = after_power_loss(seed, async |disk| {
            let file = durable_file(&disk, "/a", 7, 3).await;
            file.write_at(filled(&disk, 8, 1), 3 * 4096).await.unwrap();
        });
        let found = disk.contents("/a").unwrap();
        assert!(found.len() >= 3 * 4096);
        assert!(found[..3 * 4096].iter().all(|byte| *byte == 7), "seed {seed}");
    }
}

#[test]
fn what_a_durable_write_brought_always_survives() {
    for seed in 0..50 {
        let disk = after_power_loss(seed, async |disk| {
            durable_file(&disk, "/a", 7, 3).await;
            let file = disk
                .open("/a".as_ref(), OpenMode::ReadWriteDurable)
                .await
                .unwrap();
            file.write_at(filled(&disk, 8, 2), 4096).await.unwrap();
        });
        let found = disk.contents("/a").unwrap();
        assert!(found[4096..].iter().all(|byte| *byte == 8), "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "another write to the same blocks is under way")]
fn two_writes_to_the_same_blocks_at_a_time_are_refused() {
    after_power_loss(1, async |disk| {
        let file = durable_file(&disk, "/a", 1, 3).await;
        let (first, second) = (filled(&disk, 2, 2), filled(&disk, 3, 2));
        zip(file.write_at(first, 0), file.write_at(second, 4096))
            .await
            .0
            .unwrap();
    });
}

#[test]
fn an_unsynced_overwrite_is_lost_kept_or_torn_by_sectors_and_never_garbage() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let disk = after_power_loss(seed, async |disk| {
            let file = durable_file(&disk, "/a", 1, 2).await;
            file.write_at(filled(&disk, 2, 2), 0).await.unwrap();
        });
        let found = disk.contents("/a").unwrap();
        let mut new = 0;
        for sector in found.chunks(SECTOR_BYTES) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "seed {seed}: torn inside a sector"
            );
            assert!(
                sector[0] == 1 || sector[0] == 2,
                "seed {seed}: garbage {}",
                sector[0]
            );
            new += usize::from(sector[0] == 2);
        }
        outcomes.insert(match new {
            0 => "lost",
            16 => "kept",
            _ => "torn",
        });
    }
    assert_eq!(outcomes, BTreeSet::from(["lost", "kept", "torn"]));
}

#[test]
fn unsynced_writes_are_reordered_and_the_size_moves_apart_from_the_data() {
    let (mut second_without_first, mut zeroes, mut garbage) = (0, 0, 0);
    for seed in 0..300 {
        let disk = after_power_loss(seed, async |disk| {
            let file = durable_file(&disk, "/a", 1, 1).await;
            file.write_at(filled(&disk, 2, 1), 4096).await.unwrap();
            file.write_at(filled(&disk, 3, 1), 8192).await.unwrap();
        });
        let found = disk.contents("/a").unwrap();
        if found.len() < 3 * 4096 {
            continue;
        }
        let (second, third) = (&found[4096..8192], &found[8192..]);
        second_without_first += u32::from(third.iter().all(|b| *b == 3) && second.iter().all(|b| *b != 2));
        zeroes += u32::from(third.iter().all(|b| *b == 0));
        garbage += u32::from(third.iter().any(|b| ![0, 3].contains(b)));
    }
    assert!(second_without_first > 0 && zeroes > 0 && garbage > 0);
}

#[test]
fn garbage_appears_only_in_blocks_that_were_never_synced_and_only_when_asked_for() {
    for seed in 0..100 {
        let executor = SimExecutor::new(seed);
        let config = SimDiskConfig {
            garbage_tails: false,
            ..SimDiskConfig::seeded(seed)
        };
        let disk = SimDisk::new(&executor.handle(), config);
        executor.block_on(async {
            let file = durable_file(&disk, "/a", 1, 1).await;
            file.write_at(filled(&disk, 2, 2), 4096).await.unwrap();
        });
        let disk = disk.restart(&executor.handle());
        let found = disk.contents("/a").unwrap();
        assert!(found.iter().all(|byte| [0, 1, 2].contains(byte)), "seed {seed}");
    }
}

#[test]
fn a_sync_covers_what_completed_before_it_and_not_what_was_in_flight() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = after_power_loss(seed, async |disk| {
            let file = durable_file(&disk, "/a", 1, 2).await;
            let (write, sync) = (file.write_at(filled(&disk, 2, 1), 0), file.sync());
            let (written, synced) = zip(write, sync).await;
            written.unwrap();
            synced.unwrap();
        });
        lost += u32::from(disk.contents("/a").unwrap()[0] == 1);
    }
    assert!(lost > 0, "a write not awaited before the sync must be losable");
}

#[test]
fn names_are_durable_only_after_their_directory_was_synced() {
    let mut found = BTreeSet::new();
    for seed in 0..100 {
        let disk = after_power_loss(seed, async |disk| {
            durable_file(&disk, "/old", 1, 1).await;
            disk.rename("/old".as_ref(), "/new".as_ref()).await.unwrap();
            disk.create_dir("/dir/sub".as_ref()).await.unwrap();
            disk.sync_dir("/dir".as_ref()).await.unwrap(); // of no use: /dir itself is not durable
        });
        let names: Vec<String> = disk
            .paths()
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert!(
            names.contains(&"/old".into()) != names.contains(&"/new".into()),
            "{names:?}"
        );
        found.insert(names);
    }
    let found: Vec<String> = found.iter().map(|names| names.join(" ")).collect();
    assert_eq!(
        found,
        ["/ /dir /dir/sub /new", "/ /new", "/ /old"],
        "in order within the directory"
    );
}

#[test]
fn a_removed_file_may_come_back_until_the_directory_is_synced() {
    let mut back = BTreeSet::new();
    for seed in 0..50 {
        for sync in [false, true] {
            let disk = after_power_loss(seed, async |disk| {
                durable_file(&disk, "/a", 1, 1).await;
                disk.remove_file("/a".as_ref()).await.unwrap();
                if sync {
                    disk.sync_dir("/".as_ref()).await.unwrap();
                }
            });
            back.insert((sync, disk.contents("/a").is_ok()));
        }
    }
    assert_eq!(
        back,
        BTreeSet::from([(false, false), (false, true), (true, false)])
    );
}

#[test]
fn a_file_system_sync_makes_names_and_data_durable() {
    for seed in 0..30 {
        let disk = after_power_loss(seed, async |disk| {
            disk.create_dir("/d/e".as_ref()).await.unwrap();
            let file = disk.open("/d/e/f".as_ref(), OpenMode::CreateNew).await.unwrap();
            file.write_at(filled(&disk, 9, 4), 0).await.unwrap();
            disk.rename("/d/e/f".as_ref(), "/d/g".as_ref()).await.unwrap();
            disk.sync_filesystem("/d".as_ref()).await.unwrap();
        });
        assert_eq!(disk.contents("/d/g").unwrap(), vec![9; 4 * 4096]);
        assert!(disk.contents("/d/e/f").is_err());
    }
}

#[test]
fn a_truncation_hides_old_bytes_for_good() {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    executor.block_on(async {
        let file = durable_file(&disk, "/a", 5, 3).await;
        file.truncate(5000).await.unwrap();
        file.allocate(3 * 4096).await.unwrap();
        let found = file.read_at(0, 100_000).await.unwrap();
        assert_eq!(found.len(), 3 * 4096);
        assert!(found[..5000].iter().all(|byte| *byte == 5));
        assert!(found[5000..].iter().all(|byte| *byte == 0));
        file.sync().await.unwrap();
    });
    let disk = disk.restart(&executor.handle());
    let found = disk.contents("/a").unwrap();
    assert!(found.len() == 3 * 4096 && found[5000..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_crash_point_freezes_the_disk_at_every_mutation() {
    async fn work(disk: &SimDisk) {
        let file = durable_file(disk, "/a", 1, 1).await; // create, write, sync, sync of directory
        file.write_at(filled(disk, 2, 1), 0).await.unwrap();
        file.sync().await.unwrap();
    }
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    executor.block_on(work(&disk));
    assert_eq!(disk.mutations(), 6);
    for point in 1..=6 {
        let executor = SimExecutor::new(point);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(point));
        disk.crash_after(point);
        executor.block_on(or(work(&disk), disk.crashed()));
        assert!(disk.is_crashed());
        assert_eq!(disk.mutations(), point);
        let late = or(async { disk.space("/".as_ref()).await.is_ok() }, async {
            executor.sleep(Duration::from_secs(1)).await;
            false
        });
        assert!(
            !executor.block_on(late),
            "an operation after the crash never completes"
        );
        assert_eq!(disk.abandoned_operations(), 0, "a crash abandons nothing");
        drop(executor);
        let executor = SimExecutor::new(point);
        let disk = disk.restart(&executor.handle());
        let space = executor.block_on(disk.space("/".as_ref())).unwrap();
        assert_eq!(space.total_bytes, 1 << 40);
        if point >= 5 {
            assert!(
                [1, 2].contains(&disk.contents("/a").unwrap()[0]),
                "durable since point 4"
            );
        }
    }
}

#[test]
fn a_kill_keeps_what_completed_and_a_later_power_loss_may_still_take_it() {
    let mut lost = 0;
    for seed in 0..40 {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        executor.block_on(async {
            let file = durable_file(&disk, "/a", 1, 1).await;
            file.write_at(filled(&disk, 2, 1), 0).await.unwrap();
        });
        drop(executor);
        let executor = SimExecutor::new(seed);
        let disk = disk.restart_after_kill(&executor.handle());
        assert_eq!(disk.contents("/a").unwrap(), vec![2; 4096]);
        let disk = disk.restart(&executor.handle());
        lost += u32::from(disk.contents("/a").unwrap()[0] == 1);
    }
    assert!(lost > 0);
}

#[test]
fn a_write_in_flight_at_a_kill_is_there_whole_in_part_or_not_at_all() {
    let mut found = BTreeSet::new();
    for seed in 0..60 {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        executor.block_on(async {
            let file = durable_file(&disk, "/a", 1, 4).await;
            disk.crash_after(1);
            or(
                async { file.write_at(filled(&disk, 2, 4), 0).await.unwrap() },
                disk.crashed(),
            )
            .await;
        });
        let disk = disk.restart_after_kill(&executor.handle());
        let new = disk
            .contents("/a")
            .unwrap()
            .iter()
            .filter(|byte| **byte == 2)
            .count();
        found.insert(new / BLOCK_BYTES);
        assert!(new.is_multiple_of(BLOCK_BYTES), "seed {seed}");
    }
    assert_eq!(found, BTreeSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn views_from_before_a_restart_are_dead() {
    let executor = SimExecutor::new(1);
    let old = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    let new = old.restart(&executor.handle());
    assert!(executor.run_until(old.list("/".as_ref())).is_none());
    assert!(executor.block_on(new.list("/".as_ref())).unwrap().is_empty());
}

#[test]
fn the_planted_bug_loses_synced_data() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = after_power_loss(seed, async |disk| {
            disk.configure(|config| config.lie_about_sync = true);
            durable_file(&disk, "/a", 1, 1).await;
        });
        lost += u32::from(disk.contents("/a").map_or(true, |found| found != vec![1; 4096]));
    }
    assert!(lost > 0);
}

#[test]
fn a_full_disk_takes_what_fits_and_recovers_when_space_returns() {
    let executor = SimExecutor::new(1);
    let config = SimDiskConfig {
        capacity_bytes: 8 * 4096,
        ..SimDiskConfig::seeded(1)
    };
    let disk = SimDisk::new(&executor.handle(), config);
    executor.block_on(async {
        let first = durable_file(&disk, "/a", 1, 3).await;
        let second = disk.open("/b".as_ref(), OpenMode::CreateNew).await.unwrap();
        second.allocate(4 * 4096).await.unwrap();
        let error = first.write_at(filled(&disk, 2, 2), 3 * 4096).await.unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(disk.used_bytes(), 8 * 4096);
        second.write_at(filled(&disk, 3, 4), 0).await.unwrap(); // reserved before
        assert!(second.allocate(5 * 4096).await.unwrap_err().is_full());
        second.truncate(4096).await.unwrap();
        let space = disk.space("/".as_ref()).await.unwrap();
        assert_eq!(space.available_bytes, 3 * 4096);
        first.write_at(filled(&disk, 2, 2), 3 * 4096).await.unwrap();
        disk.remove_file("/b".as_ref()).await.unwrap();
        assert_eq!(disk.used_bytes(), 6 * 4096, "an open file keeps its blocks");
        second.close().await.unwrap();
        assert_eq!(disk.used_bytes(), 5 * 4096);
    });
}

#[test]
fn fault_rules_fail_the_operations_they_name_and_are_used_up() {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    disk.add_fault(
        SimFault::error(DiskOp::Read, "/a", io::ErrorKind::Other)
            .after(1)
            .times(2),
    );
    disk.add_fault(SimFault::delay(DiskOp::Open, "/slow", Duration::from_secs(5)));
    executor.block_on(async {
        let file = durable_file(&disk, "/a", 1, 1).await;
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            outcomes.push(file.read_at(0, 10).await.is_ok());
        }
        assert_eq!(outcomes, [true, false, false, true]);
        let before = executor.now();
        assert!(
            disk.open("/slow".as_ref(), OpenMode::Read)
                .await
                .unwrap_err()
                .is_not_found()
        );
        assert!(executor.now() - before >= Duration::from_secs(5));
    });
}

#[test]
fn after_a_failed_sync_a_second_one_succeeds_and_yet_data_is_lost() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = after_power_loss(seed, async |disk| {
            let file = durable_file(&disk, "/a", 1, 4).await;
            disk.add_fault(SimFault::error(DiskOp::Sync, "/a", io::ErrorKind::Other).times(1));
            for block in 0..4 {
                file.write_at(filled(&disk, 2, 1), block * 4096).await.unwrap();
            }
            assert!(file.sync().await.is_err());
            file.sync().await.unwrap();
            assert_eq!(disk.contents("/a").unwrap(), vec![2; 4 * 4096]);
        });
        lost += u32::from(disk.contents("/a").unwrap().contains(&1));
    }
    assert!(lost > 0, "retrying a failed sync must be seen to be wrong");
}

#[test]
fn bits_flip_on_the_way_and_on_the_disk() {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    executor.block_on(async {
        let file = durable_file(&disk, "/a", 0, 1).await;
        disk.configure(|config| config.read_flip_ppm = 1_000_000);
        let found = file.read_at(0, 4096).await.unwrap();
        assert_eq!(found.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        disk.configure(|config| config.read_flip_ppm = 0);
        assert_eq!(file.read_at(0, 4096).await.unwrap(), vec![0; 4096]);
        assert!(disk.flip_bits("/a", 100, 0x81).unwrap());
        assert!(!disk.flip_bits("/a", 4096, 1).unwrap());
        assert_eq!(file.read_at(99, 3).await.unwrap(), vec![0, 0x81, 0]);
        disk.configure(|config| config.read_error_ppm = 1_000_000);
        assert!(file.read_at(0, 1).await.is_err());
    });
    let disk = disk.restart(&executor.handle());
    assert_eq!(disk.contents("/a").unwrap()[100], 0x81);
}

#[test]
fn operations_suspend_and_overtake_each_other_by_seed() {
    let mut orders = BTreeSet::new();
    for seed in 0..20 {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        disk.record_trace();
        let order = Rc::new(RefCell::new(Vec::new()));
        for task in 0..3_u64 {
            let (disk, order) = (disk.clone(), Rc::clone(&order));
            executor.spawn(async move {
                disk.create_dir(format!("/{task}").as_ref()).await.unwrap();
                order.borrow_mut().push(task);
            });
        }
        executor.run_until_stalled();
        let trace = disk.take_trace();
        assert_eq!(trace.len(), 6);
        assert!(
            trace
                .iter()
                .take(3)
                .all(|entry| entry.phase == TracePhase::Issued)
        );
        assert!(trace.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        orders.insert(order.take());
    }
    assert!(orders.len() >= 4, "{orders:?}");
}

#[test]
fn an_operation_dropped_before_its_end_is_counted() {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    executor.block_on(or(
        async { disk.create_dir("/a".as_ref()).await.unwrap() },
        executor.sleep(Duration::from_nanos(500)),
    ));
    assert_eq!(disk.abandoned_operations(), 1);
}

#[test]
fn a_fork_is_the_same_disk_with_another_fate() {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    executor.block_on(async {
        let file = durable_file(&disk, "/a", 1, 8).await;
        file.write_at(filled(&disk, 2, 8), 0).await.unwrap();
    });
    let outcomes: BTreeSet<Vec<u8>> = (0..20)
        .map(|seed| {
            let fork = disk.fork(&executor.handle(), seed).restart(&executor.handle());
            fork.contents("/a").unwrap()
        })
        .collect();
    assert!(outcomes.len() > 5, "{} outcomes", outcomes.len());
    assert_eq!(disk.contents("/a").unwrap(), vec![2; 8 * 4096]);
}

/// How often, of 20 power losses after a sync of the file system of `/a`, the new files in `/a` and in `/b` are whole.
fn whole_after_sync_of_one(file_system_per_dir: bool) -> [usize; 2] {
    let survives = |seed, path| {
        let executor = SimExecutor::new(seed);
        let config = SimDiskConfig {
            file_system_per_dir,
            ..SimDiskConfig::seeded(seed)
        };
        let disk = SimDisk::new(&executor.handle(), config);
        executor.block_on(async {
            for dir in ["/a", "/b"] {
                disk.create_dir(dir.as_ref()).await.unwrap();
            }
            disk.sync_dir("/".as_ref()).await.unwrap();
            for path in ["/a/f", "/b/f"] {
                let file = disk.open(path.as_ref(), OpenMode::CreateNew).await.unwrap();
                file.write_at(filled(&disk, 7, 8), 0).await.unwrap();
                file.close().await.unwrap();
            }
            disk.sync_filesystem("/a".as_ref()).await.unwrap();
        });
        let disk = disk.restart(&executor.handle());
        disk.contents(path).is_ok_and(|found| found == vec![7; 8 * 4096])
    };
    ["/a/f", "/b/f"].map(|path| (0..20).filter(|seed| survives(*seed, path)).count())
}

#[test]
fn a_sync_of_one_file_system_does_not_cover_another() {
    assert_eq!(whole_after_sync_of_one(false), [20, 20]);
    let [synced, other] = whole_after_sync_of_one(true);
    assert_eq!(synced, 20);
    assert!(other < 20);
}

#[test]
fn two_runs_of_a_seed_leave_the_same_trace_and_the_same_disk() {
    let run = |seed| {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        disk.record_trace();
        for task in 0..4_u8 {
            let disk = disk.clone();
            executor.spawn(async move {
                let path = format!("/{task}");
                let file = durable_file(&disk, &path, task, 2).await;
                file.write_at(filled(&disk, 99, 2), 4096).await.unwrap();
            });
        }
        disk.crash_after(17);
        executor.run_until_stalled();
        let trace = disk.take_trace();
        let disk = disk.restart(&executor.handle());
        let files: Vec<_> = disk.paths().iter().map(|path| disk.contents(path).ok()).collect();
        (trace, files)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
