//! What every disk must do, run alike against the simulated one, the plain one and the real one (on a temporary directory and, where
//! there is one, on a memory file system): a difference between them would make the simulation prove something else.
#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_lite::future::zip;
use storage::disk::plain::{self, PlainDisk};
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::disk::{BLOCK_BYTES, DirEntry, Disk, DiskBuf, DiskError, DiskFile, IO_BYTES_MAX, OpenMode};
use storage::sim_executor::SimExecutor;
use storage::sim_rng::SimRng;

/// A disk under test and the directory that is the test's own.
struct Bench<D> {
    disk: D,
    root: PathBuf,
}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl<D: Disk> Bench<D> {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A buffer with a pattern that tells positions and `salt`s apart.
    fn pattern(&self, salt: u8, len: usize) -> Rc<D::Buf> {
        let mut buf = self.disk.alloc(len);
        for (at, byte) in buf.iter_mut().enumerate() {
            *byte = pattern_byte(salt, at);
        }
        Rc::new(buf)
    }

    async fn create(&self, name: &str) -> D::File {
        self.disk
            .open(&self.path(name), OpenMode::CreateNew)
            .await
            .unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let entries = self.disk.list(&self.root).await.unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    }
}

fn pattern_byte(salt: u8, at: usize) -> u8 {
    u8::try_from(at % 251).unwrap().wrapping_add(salt)
}

fn kind<T: std::fmt::Debug>(result: Result<T, DiskError>) -> ErrorKind {
    result.unwrap_err().source.kind()
}

async fn open_modes<D: Disk>(bench: Bench<D>) {
    let path = bench.path("a");
    for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::ReadWriteDurable] {
        let error = bench.disk.open(&path, mode).await.unwrap_err();
        assert!(error.is_not_found(), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let file = bench.disk.open(&path, OpenMode::CreateNew).await.unwrap();
    file.write_at(bench.pattern(1, 8192), 0).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(
        kind(bench.disk.open(&path, OpenMode::CreateNew).await),
        ErrorKind::AlreadyExists
    );

    let file = bench.disk.open(&path, OpenMode::Read).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 8192);
    assert_eq!(
        kind(file.write_at(bench.pattern(2, 4096), 0).await),
        ErrorKind::PermissionDenied
    );
    assert_eq!(kind(file.truncate(0).await), ErrorKind::PermissionDenied);
    assert_eq!(kind(file.allocate(1 << 20).await), ErrorKind::PermissionDenied);
    file.sync().await.unwrap();

    let file = bench.disk.open(&path, OpenMode::ReadWrite).await.unwrap();
    file.write_at(bench.pattern(3, 4096), 0).await.unwrap();
    assert_eq!(file.read_at(0, 1).await.unwrap()[0], pattern_byte(3, 0));
    assert_eq!(file.size().await.unwrap(), 8192, "opened as it was");
    let file = bench.disk.open(&path, OpenMode::ReadWriteDurable).await.unwrap();
    file.write_at(bench.pattern(4, 4096), 4096).await.unwrap();
    assert_eq!(file.read_at(4096, 1).await.unwrap()[0], pattern_byte(4, 0));
    let file = bench.disk.open(&path, OpenMode::CreateOrTruncate).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 0);
    let missing_dir = bench.disk.open(&bench.path("no/a"), OpenMode::CreateNew).await;
    assert!(missing_dir.unwrap_err().is_not_found());
    bench.disk.create_dir(&bench.path("dir")).await.unwrap();
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        assert!(
            bench.disk.open(&bench.path("dir"), mode).await.is_err(),
            "a directory, {mode}"
        );
    }
}

async fn reads_at_any_position<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    file.write_at(bench.pattern(0, 3 * BLOCK_BYTES), 0).await.unwrap();
    file.truncate(9000).await.unwrap();
    for position in [
        0,
        1,
        511,
        512,
        4095,
        4096,
        4097,
        8191,
        8192,
        8999,
        9000,
        9001,
        1 << 40,
    ] {
        for len in [0, 1, 7, 512, 4095, 4096, 4097, 8192, 100_000] {
            let read = file.read_at(position, len).await.unwrap();
            let from = usize::try_from(position).unwrap().min(9000);
            let to = from.saturating_add(len).min(9000);
            let expected: Vec<u8> = (from..to).map(|at| pattern_byte(0, at)).collect();
            assert_eq!(read, expected, "{len} bytes at {position}");
        }
    }
}

async fn misaligned_writes_are_refused<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    for position in [1, 512, 4095] {
        let written = file.write_at(bench.pattern(0, 4096), position).await;
        assert_eq!(kind(written), ErrorKind::InvalidInput, "position {position}");
    }
    assert_eq!(file.size().await.unwrap(), 0);
}

async fn a_write_beyond_the_end_leaves_zeroes_before_it<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    file.write_at(bench.pattern(1, 4096), 2 * BLOCK).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 3 * BLOCK);
    assert_eq!(file.read_at(0, 8192).await.unwrap(), vec![0; 8192]);
    assert_eq!(file.read_at(8192, 1).await.unwrap()[0], pattern_byte(1, 0));
}

async fn allocation_extends_with_zeroes_and_never_shrinks<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    file.allocate(0).await.unwrap();
    file.allocate(10_000).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 10_000);
    file.write_at(bench.pattern(1, 4096), 4096).await.unwrap();
    file.allocate(5000).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 10_000, "never shrinks");
    file.allocate(1 << 20).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 1 << 20);
    let read = file.read_at(0, 1 << 20).await.unwrap();
    assert!(read[..4096].iter().all(|byte| *byte == 0));
    assert!(
        read[4096..8192]
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == pattern_byte(1, at))
    );
    assert!(read[8192..].iter().all(|byte| *byte == 0));
}

async fn truncation_cuts_and_extends<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    file.write_at(bench.pattern(1, 8192), 0).await.unwrap();
    file.truncate(100).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 100);
    file.truncate(6000).await.unwrap();
    let read = file.read_at(0, 10_000).await.unwrap();
    assert_eq!(read.len(), 6000);
    assert!(
        read[..100]
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == pattern_byte(1, at))
    );
    assert!(
        read[100..].iter().all(|byte| *byte == 0),
        "what was cut is gone for good"
    );
    file.truncate(0).await.unwrap();
    assert!(file.read_at(0, 10).await.unwrap().is_empty());
}

async fn lists_are_in_name_order_with_sizes<D: Disk>(bench: Bench<D>) {
    assert!(
        bench
            .disk
            .list(&bench.path("missing"))
            .await
            .unwrap_err()
            .is_not_found()
    );
    for name in ["b", "a.log", "a", "Z", "a-1"] {
        let file = bench.create(name).await;
        file.truncate(name.len() as u64).await.unwrap();
    }
    bench.disk.create_dir(&bench.path("a-0")).await.unwrap();
    let entries = bench.disk.list(&bench.root).await.unwrap();
    let found: Vec<(&str, bool, u64)> = entries
        .iter()
        .map(
            |DirEntry {
                 name, is_dir, size, ..
             }| (name.as_str(), *is_dir, *size),
        )
        .collect();
    let expected = [
        ("Z", false, 1),
        ("a", false, 1),
        ("a-0", true, 0),
        ("a-1", false, 3),
        ("a.log", false, 5),
        ("b", false, 1),
    ];
    assert_eq!(found, expected);
    assert!(
        entries.iter().all(|entry| entry.modified_ms > 1_600_000_000_000),
        "{entries:?}"
    );
    assert_eq!(
        kind(bench.disk.list(&bench.path("a")).await),
        ErrorKind::NotADirectory
    );
}

async fn directories_come_with_their_parents_and_go_with_their_content<D: Disk>(bench: Bench<D>) {
    let disk = &bench.disk;
    let deep = bench.path("x/y/z");
    disk.create_dir(&deep).await.unwrap();
    disk.create_dir(&deep).await.unwrap();
    let file = disk.open(&deep.join("f"), OpenMode::CreateNew).await.unwrap();
    disk.sync_dir(&deep).await.unwrap();
    disk.sync_dir(&bench.root).await.unwrap();
    assert!(
        disk.create_dir(&deep.join("f")).await.is_err(),
        "a file is in the way"
    );
    assert!(
        disk.remove_dir_all(&deep.join("f")).await.is_err(),
        "a file is no directory"
    );
    assert_eq!(
        kind(disk.remove_file(&bench.path("x")).await),
        ErrorKind::IsADirectory
    );
    disk.remove_dir_all(&bench.path("x")).await.unwrap();
    assert!(bench.names().await.is_empty());
    file.write_at(bench.pattern(1, 4096), 0).await.unwrap(); // open files stay usable
    assert!(
        disk.remove_dir_all(&bench.path("x"))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        disk.remove_file(&bench.path("x"))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(disk.sync_dir(&bench.path("x")).await.unwrap_err().is_not_found());
}

async fn renames_replace_files_and_move_directories<D: Disk>(bench: Bench<D>) {
    let disk = &bench.disk;
    let (a, b) = (bench.path("a"), bench.path("b"));
    let file = bench.create("a").await;
    file.write_at(bench.pattern(1, 4096), 0).await.unwrap();
    let replaced = bench.create("b").await;
    disk.rename(&a, &b).await.unwrap();
    assert_eq!(bench.names().await, ["b"]);
    assert_eq!(
        file.size().await.unwrap(),
        4096,
        "the open file is the renamed one"
    );
    assert_eq!(replaced.size().await.unwrap(), 0);
    let found = disk.open(&b, OpenMode::Read).await.unwrap();
    assert_eq!(found.read_at(0, 1).await.unwrap()[0], pattern_byte(1, 0));
    disk.rename(&b, &b).await.unwrap();
    assert!(disk.rename(&a, &b).await.unwrap_err().is_not_found());

    disk.create_dir(&bench.path("d/e")).await.unwrap();
    disk.rename(&b, &bench.path("d/e/f")).await.unwrap();
    disk.rename(&bench.path("d"), &bench.path("g")).await.unwrap();
    assert_eq!(bench.names().await, ["g"]);
    let moved = disk.open(&bench.path("g/e/f"), OpenMode::Read).await.unwrap();
    assert_eq!(moved.size().await.unwrap(), 4096);
    disk.create_dir(&bench.path("h")).await.unwrap();
    assert!(
        disk.rename(&bench.path("h"), &bench.path("g")).await.is_err(),
        "g is not empty"
    );
    assert!(
        disk.rename(&bench.path("g"), &bench.path("g/inside"))
            .await
            .is_err()
    );
    assert!(
        disk.rename(&bench.path("g/e/f"), &bench.path("h")).await.is_err(),
        "a file over a directory"
    );
    assert!(
        disk.rename(&bench.path("h"), &bench.path("g/e/f")).await.is_err(),
        "a directory over a file"
    );
    assert!(
        disk.rename(&bench.path("h"), &bench.path("no/h"))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

async fn syncs_succeed_and_check_their_directory<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    file.write_at(bench.pattern(1, 4096), 0).await.unwrap();
    file.sync().await.unwrap();
    bench.disk.sync_dir(&bench.root).await.unwrap();
    bench.disk.sync_filesystem(&bench.root).await.unwrap();
    assert_eq!(
        kind(bench.disk.sync_dir(&bench.path("a")).await),
        ErrorKind::NotADirectory
    );
    assert!(
        bench
            .disk
            .sync_filesystem(&bench.path("x"))
            .await
            .unwrap_err()
            .is_not_found()
    );
    let space = bench.disk.space(&bench.root).await.unwrap();
    assert!(space.total_bytes >= space.available_bytes && space.available_bytes > 0);
    assert!(
        bench
            .disk
            .space(&bench.path("x"))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

async fn only_absolute_plain_paths_are_taken<D: Disk>(bench: Bench<D>) {
    for path in ["", "a", "./a", "../a", "/tmp/../a"].map(Path::new) {
        let disk = &bench.disk;
        assert_eq!(
            kind(disk.open(path, OpenMode::CreateNew).await),
            ErrorKind::InvalidInput,
            "{path:?}"
        );
        assert_eq!(
            kind(disk.create_dir(path).await),
            ErrorKind::InvalidInput,
            "{path:?}"
        );
        assert_eq!(
            kind(disk.remove_file(path).await),
            ErrorKind::InvalidInput,
            "{path:?}"
        );
        assert_eq!(kind(disk.list(path).await), ErrorKind::InvalidInput, "{path:?}");
        let file = bench
            .disk
            .open(&bench.path("b"), OpenMode::CreateOrTruncate)
            .await
            .unwrap();
        assert_eq!(
            kind(disk.rename(&bench.path("b"), path).await),
            ErrorKind::InvalidInput,
            "{path:?}"
        );
        drop(file);
    }
}

async fn large_buffers_are_written_whole<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    let len = 2 * IO_BYTES_MAX + 3 * BLOCK_BYTES;
    let buf = bench.pattern(9, len);
    file.write_at(Rc::clone(&buf), BLOCK).await.unwrap();
    let read = file.read_at(0, 2 * len).await.unwrap();
    assert_eq!(read.len(), len + BLOCK_BYTES);
    assert!(read[BLOCK_BYTES..] == buf[..]);
    assert_eq!(
        Rc::strong_count(&buf),
        1,
        "the disk keeps nothing of a finished write"
    );
}

async fn concurrent_operations_do_not_disturb_each_other<D: Disk>(bench: Bench<D>) {
    let file = bench.create("a").await;
    let other = bench.create("b").await;
    file.allocate(64 * BLOCK).await.unwrap();
    let left = async {
        for block in 0..32 {
            file.write_at(bench.pattern(1, 4096), block * BLOCK)
                .await
                .unwrap();
        }
    };
    let right = async {
        for block in 32..64 {
            file.write_at(bench.pattern(2, 4096), block * BLOCK)
                .await
                .unwrap();
            other
                .write_at(bench.pattern(3, 4096), block * BLOCK)
                .await
                .unwrap();
            file.sync().await.unwrap();
        }
    };
    zip(left, right).await;
    let read = file.read_at(0, 64 * BLOCK_BYTES).await.unwrap();
    for (block, bytes) in read.chunks(BLOCK_BYTES).enumerate() {
        let salt = if block < 32 { 1 } else { 2 };
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == pattern_byte(salt, at)),
            "block {block}"
        );
    }
    assert_eq!(other.size().await.unwrap(), 64 * BLOCK);
}

async fn buffers_are_whole_blocks<D: Disk>(bench: Bench<D>) {
    for (asked, given) in [
        (0, 4096),
        (1, 4096),
        (4096, 4096),
        (4097, 8192),
        (1 << 20, 1 << 20),
    ] {
        assert_eq!(bench.disk.alloc(asked).len(), given);
    }
    let mut buf = bench.disk.alloc(3 * BLOCK_BYTES);
    buf.trim(5 * BLOCK_BYTES);
    assert_eq!(buf.len(), 3 * BLOCK_BYTES);
    buf.trim(BLOCK_BYTES);
    let file = bench.create("a").await;
    file.write_at(Rc::new(buf), 0).await.unwrap();
    assert_eq!(file.size().await.unwrap(), BLOCK);
}

/// A long seeded sequence of operations, the file compared with a plain vector after each.
async fn a_file_behaves_as_a_vector_of_bytes<D: Disk>(bench: Bench<D>) {
    let mut rng = SimRng::new(7, "contract");
    let mut model: Vec<u8> = Vec::new();
    let mut file = bench.create("a").await;
    for step in 0..200_u8 {
        let position = usize::try_from(rng.below(16)).unwrap() * BLOCK_BYTES;
        match rng.below(6) {
            0 | 1 => {
                let len = (1 + rng.index(4)) * BLOCK_BYTES;
                let buf = bench.pattern(step, len);
                file.write_at(Rc::clone(&buf), position as u64).await.unwrap();
                model.resize(model.len().max(position + len), 0);
                model[position..position + len].copy_from_slice(&buf);
            }
            2 => {
                let size = rng.index(80_000);
                file.truncate(size as u64).await.unwrap();
                model.resize(size, 0);
            }
            3 => {
                let size = rng.index(80_000);
                file.allocate(size as u64).await.unwrap();
                model.resize(model.len().max(size), 0);
            }
            4 => file.sync().await.unwrap(),
            _ => {
                file.close().await.unwrap();
                file = bench
                    .disk
                    .open(&bench.path("a"), OpenMode::ReadWrite)
                    .await
                    .unwrap();
            }
        }
        assert_eq!(file.size().await.unwrap(), model.len() as u64, "step {step}");
        let (from, len) = (rng.index(90_000), rng.index(30_000));
        let (start, end) = (from.min(model.len()), (from + len).min(model.len()));
        let read = file.read_at(from as u64, len).await.unwrap();
        assert!(
            read[..] == model[start..end.max(start)],
            "step {step}: {len} bytes at {from}"
        );
    }
    assert!(file.read_at(0, 1 << 20).await.unwrap() == model);
}

fn on_sim<F: Future<Output = ()>>(case: impl Fn(Bench<SimDisk>) -> F) {
    for seed in 0..5 {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        executor.block_on(async {
            let root = PathBuf::from("/data/test");
            disk.create_dir(&root).await.unwrap();
            case(Bench {
                disk: disk.clone(),
                root,
            })
            .await;
        });
        assert_eq!(disk.abandoned_operations(), 0);
    }
}

#[cfg(feature = "direct")]
mod direct {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use storage::disk::direct::{DirectDisk, run_with_disk};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    pub(super) fn on_direct<F: Future<Output = ()>>(
        case: impl Fn(Bench<DirectDisk>) -> F + Send + Copy + 'static,
    ) {
        for parent in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
            let Ok(dir) = tempfile::tempdir_in(parent) else {
                continue; // this host has no such file system
            };
            let (path, (done, ended)) = (dir.path().to_owned(), mpsc::channel());
            thread::spawn(move || {
                let run = run_with_disk(&path, move |disk: DirectDisk| async move {
                    let root = disk.dir().join("test");
                    disk.create_dir(&root).await.unwrap();
                    case(Bench { disk, root }).await;
                });
                done.send(run).unwrap();
            });
            ended
                .recv_timeout(DEADLINE)
                .expect("the case hung")
                .expect("the case failed");
        }
    }
}

fn on_plain<F: Future<Output = ()>>(case: impl Fn(Bench<PlainDisk>) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("test");
    plain::wait(async {
        let disk = PlainDisk::new();
        disk.create_dir(&root).await.unwrap();
        case(Bench { disk, root }).await;
    });
}

macro_rules! contract {
    ($($case:ident)*) => {
        mod sim_disk {
            $(#[test] fn $case() { super::on_sim(super::$case); })*
        }
        #[cfg(feature = "direct")]
        mod direct_disk {
            $(#[test] fn $case() { super::direct::on_direct(super::$case); })*
        }
    };
}

/// The plain disk does not know the space that is left.
macro_rules! plain_contract {
    ($($case:ident)*) => {
        mod plain_disk {
            $(#[test] fn $case() { super::on_plain(super::$case); })*
        }
    };
}

plain_contract! {
    open_modes
    reads_at_any_position
    misaligned_writes_are_refused
    a_write_beyond_the_end_leaves_zeroes_before_it
    allocation_extends_with_zeroes_and_never_shrinks
    truncation_cuts_and_extends
    lists_are_in_name_order_with_sizes
    directories_come_with_their_parents_and_go_with_their_content
    renames_replace_files_and_move_directories
    only_absolute_plain_paths_are_taken
    large_buffers_are_written_whole
    concurrent_operations_do_not_disturb_each_other
    buffers_are_whole_blocks
    a_file_behaves_as_a_vector_of_bytes
}

contract! {
    open_modes
    reads_at_any_position
    misaligned_writes_are_refused
    a_write_beyond_the_end_leaves_zeroes_before_it
    allocation_extends_with_zeroes_and_never_shrinks
    truncation_cuts_and_extends
    lists_are_in_name_order_with_sizes
    directories_come_with_their_parents_and_go_with_their_content
    renames_replace_files_and_move_directories
    syncs_succeed_and_check_their_directory
    only_absolute_plain_paths_are_taken
    large_buffers_are_written_whole
    concurrent_operations_do_not_disturb_each_other
    buffers_are_whole_blocks
    a_file_behaves_as_a_vector_of_bytes
}
