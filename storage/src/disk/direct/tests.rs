//! The glommio traps that touch files, each shown to stay cured. What any disk must do is in
//! `storage/tests/disk_contract.rs`.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering as AtomicOrdering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use crate::disk::DiskBuf;

/// Longer than any of these tests needs; a hang is a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `work` on an executor of its own with a disk in a fresh directory.
fn on_disk<F: Future<Output = ()>>(work: impl FnOnce(DirectDisk) -> F + Send + 'static) {
    let dir = tempfile::tempdir().unwrap();
    on_dir(dir.path().to_owned(), work);
}

fn on_dir<F: Future<Output = ()>>(dir: PathBuf, work: impl FnOnce(DirectDisk) -> F + Send + 'static) {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(run_with_disk(&dir, work)));
    ended
        .recv_timeout(DEADLINE)
        .expect("the test hung")
        .expect("the test failed");
}

fn filled(disk: &DirectDisk, byte: u8, len: usize) -> Rc<DirectBuf> {
    let mut buf = disk.alloc(len);
    buf.fill(byte);
    Rc::new(buf)
}

#[test]
fn trap_d2_a_file_created_empty_reads_back_on_a_fresh_executor() {
    // Twice: the warm-up is per executor.
    for _ in 0..2 {
        on_disk(async |disk| {
            let path = disk.dir().join("fresh");
            let file = disk.open(&path, OpenMode::CreateNew).await.unwrap();
            assert!(file.read_at(0, 100).await.unwrap().is_empty());
            file.write_at(filled(&disk, 7, 8192), 0).await.unwrap();
            assert_eq!(file.read_at(100, 8000).await.unwrap(), vec![7; 8000]);
        });
    }
}

#[test]
fn trap_d3_reads_near_the_end_return_exactly_the_bytes_of_the_file() {
    on_disk(async |disk| {
        let path = disk.dir().join("odd");
        std::fs::write(&path, vec![9; 5000]).unwrap();
        let file = disk.open(&path, OpenMode::Read).await.unwrap();
        for (position, len, expected) in [
            (4900, 1000, 100),
            (4900, 100, 100),
            (4999, 1, 1),
            (5000, 10, 0),
            (1 << 40, 10, 0),
            (0, 1 << 30, 5000),
            (4095, 2, 2),
            (0, 0, 0),
        ] {
            let read = file.read_at(position, len).await.unwrap();
            assert_eq!(read, vec![9; expected], "{len} bytes at {position}");
        }
        assert!(file.read_at(u64::MAX - 5, 10).await.is_err());
    });
}

#[test]
fn trap_d5_a_panic_in_a_blocking_call_is_an_error_and_the_next_call_works() {
    on_disk(async |disk| {
        for _ in 0..3 {
            let error = blocking(|| -> io::Result<()> { panic!("planted {}", 5) })
                .await
                .unwrap_err();
            assert!(error.to_string().contains("planted 5"), "{error}");
            let side = disk
                .inner
                .side
                .borrow_mut()
                .run(|| -> io::Result<()> { panic!("beside") });
            let error = side.unwrap().await.unwrap_err();
            assert!(error.to_string().contains("beside"), "{error}");
        }
        let file = disk
            .open(&disk.dir().join("after"), OpenMode::CreateNew)
            .await
            .unwrap();
        file.truncate(100).await.unwrap(); // runs on the same pool
        assert_eq!(disk.list(disk.dir()).await.unwrap().len(), 2);
        disk.sync_filesystem(disk.dir()).await.unwrap();
    });
}

#[test]
fn trap_d10_size_and_reads_follow_the_file_through_renames_and_removal() {
    on_disk(async |disk| {
        let (a, b) = (disk.dir().join("a"), disk.dir().join("b"));
        let file = disk.open(&a, OpenMode::CreateNew).await.unwrap();
        file.write_at(filled(&disk, 1, 4096), 0).await.unwrap();
        std::fs::rename(&a, &b).unwrap(); // behind its back
        std::fs::write(&a, [0; 10]).unwrap(); // and something else under the old name
        assert_eq!(file.size().await.unwrap(), 4096);
        file.truncate(300).await.unwrap();
        assert_eq!(std::fs::metadata(&b).unwrap().len(), 300);
        assert_eq!(std::fs::metadata(&a).unwrap().len(), 10);
        std::fs::remove_file(&b).unwrap();
        assert_eq!(file.size().await.unwrap(), 300);
        assert_eq!(file.read_at(0, 1000).await.unwrap(), vec![1; 300]);
        file.close().await.unwrap();
    });
}

#[test]
fn trap_d10_relative_paths_are_refused() {
    on_disk(async |disk| {
        for path in ["relative", "./relative", "/tmp/../etc/passwd"] {
            let error = disk.open(path.as_ref(), OpenMode::CreateNew).await.unwrap_err();
            assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput, "{error}");
            let error = disk
                .rename(&disk.dir().join("a"), path.as_ref())
                .await
                .unwrap_err();
            assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    });
}

#[test]
fn trap_d10_opening_a_file_that_is_being_renamed_never_panics_the_executor() {
    on_disk(async |disk| {
        let (a, b) = (disk.dir().join("a"), disk.dir().join("b"));
        std::fs::write(&a, [1; 4096]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, from, to) = (Arc::clone(&stop), a.clone(), b.clone());
        let renamer = thread::spawn(move || {
            while !flag.load(AtomicOrdering::Relaxed) {
                std::fs::rename(&from, &to).unwrap();
                std::fs::rename(&to, &from).unwrap();
            }
        });
        let (mut opened, mut missed) = (0, 0);
        for _ in 0..4000 {
            match disk.open(&a, OpenMode::Read).await {
                Ok(file) => {
                    opened += 1;
                    file.close().await.unwrap();
                }
                Err(error) if error.is_not_found() => missed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, AtomicOrdering::Relaxed);
        renamer.join().unwrap();
        assert_eq!(opened + missed, 4000);
    });
}

#[test]
fn a_large_write_is_split_and_reads_back_from_any_position() {
    on_disk(async |disk| {
        let len = 3 * IO_BYTES_MAX + BLOCK_BYTES;
        let mut buf = disk.alloc(len);
        for (index, byte) in buf.iter_mut().enumerate() {
            *byte = u8::try_from(index % 251).unwrap();
        }
        let buf = Rc::new(buf);
        let file = disk
            .open(&disk.dir().join("large"), OpenMode::CreateNew)
            .await
            .unwrap();
        file.write_at(Rc::clone(&buf), 4096).await.unwrap();
        let read = file.read_at(4096, len + 5).await.unwrap();
        assert!(read[..] == buf[..]);
        let (from, to) = (IO_BYTES_MAX - 7, 2 * IO_BYTES_MAX + 9);
        let read = file.read_at(4096 + from as u64, to - from).await.unwrap();
        assert!(read[..] == buf[from..to]);
        assert!(
            Rc::try_unwrap(buf).is_ok(),
            "the disk keeps no reference after the write"
        );
    });
}

/// The child process of the test below: a file size limit makes the kernel cut writes short.
fn write_beyond_the_file_size_limit() {
    // SAFETY: plain calls at the start of a process of its own; the signal would end it.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit {
            rlim_cur: 512 * 1024,
            rlim_max: 512 * 1024,
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    on_disk(async |disk| {
        let file = disk
            .open(&disk.dir().join("short"), OpenMode::CreateNew)
            .await
            .unwrap();
        let error = file.write_at(filled(&disk, 3, 1 << 20), 0).await.unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(file.size().await.unwrap(), 512 * 1024);
        assert_eq!(file.read_at(512 * 1024 - 10, 100).await.unwrap(), vec![3; 10]);
        file.write_at(filled(&disk, 4, 4096), 4096).await.unwrap();
        assert_eq!(file.read_at(4096, 1).await.unwrap()[0], 4);
    });
}

#[test]
fn a_short_write_is_carried_on_until_the_reason_shows() {
    const CHILD: &str = "PENSTOCK_TEST_FILE_SIZE_LIMIT";
    if std::env::var_os(CHILD).is_some() {
        return write_beyond_the_file_size_limit();
    }
    passes_in_child("a_short_write_is_carried_on_until_the_reason_shows", CHILD);
}

/// Runs a test of this file in a process of its own, with `variable` set: it changes limits of the process.
fn passes_in_child(test: &str, variable: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("disk::direct::tests::{test}")])
        .env(variable, "1")
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr),
    );
    assert!(child.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

/// Takes every descriptor of the process and gives them back after a while.
fn use_up_descriptors(pause: Duration) -> thread::JoinHandle<()> {
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    thread::spawn(move || {
        thread::sleep(pause);
        drop(hoard);
    })
}

fn wait_for_descriptors() {
    let limit = libc::rlimit {
        rlim_cur: 128,
        rlim_max: 128,
    };
    // SAFETY: a plain call with a struct that lives through it.
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) },
        0
    );
    on_disk(async |disk| {
        let path = disk.dir().join("file");
        // The side thread is there already.
        disk.sync_filesystem(disk.dir()).await.unwrap();
        let rounds: [(&str, AsyncWork); 4] = [
            ("open", |disk, path| {
                Box::pin(async move {
                    // Dropping it would close it some time later.
                    disk.open(&path, OpenMode::CreateOrTruncate).await?.close().await
                })
            }),
            ("list", |disk, _| {
                Box::pin(async move { disk.list(disk.dir()).await.map(drop) })
            }),
            ("sync_dir", |disk, _| {
                Box::pin(async move { disk.sync_dir(disk.dir()).await })
            }),
            ("sync_filesystem", |disk, _| {
                Box::pin(async move { disk.sync_filesystem(disk.dir()).await })
            }),
        ];
        for (name, operation) in rounds {
            let pause = Duration::from_millis(200);
            let began = std::time::Instant::now();
            let hoarder = use_up_descriptors(pause);
            let ended = operation(disk.clone(), path.clone()).await;
            assert!(ended.is_ok(), "{name}: {ended:?}");
            assert!(began.elapsed() >= pause, "{name} needed no descriptor");
            hoarder.join().unwrap();
        }
        let error = disk
            .open(&disk.dir().join("none"), OpenMode::Read)
            .await
            .unwrap_err();
        assert!(error.is_not_found(), "other errors are not waited for: {error}");
    });
}

type AsyncWork = fn(DirectDisk, PathBuf) -> std::pin::Pin<Box<dyn Future<Output = Result<(), DiskError>>>>;

#[test]
fn a_lack_of_descriptors_is_waited_out() {
    const CHILD: &str = "PENSTOCK_TEST_DESCRIPTORS";
    if std::env::var_os(CHILD).is_some() {
        return wait_for_descriptors();
    }
    passes_in_child("a_lack_of_descriptors_is_waited_out", CHILD);
}

#[test]
fn the_scratch_file_is_gone_and_the_kind_is_told() {
    on_disk(async |disk| {
        let private = disk.list(&disk.dir().join(PRIVATE_DIR)).await.unwrap();
        assert!(private.is_empty(), "{private:?}");
        assert_eq!(
            disk.kind().to_string(),
            if disk.kind() == DiskKind::Direct {
                "direct"
            } else {
                "buffered"
            }
        );
    });
}

#[test]
fn a_memory_file_system_works() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return; // this host has none
    };
    on_dir(dir.path().to_owned(), async |disk| {
        let file = disk
            .open(&disk.dir().join("a"), OpenMode::CreateNew)
            .await
            .unwrap();
        file.allocate(1 << 20).await.unwrap();
        file.write_at(filled(&disk, 5, 8192), 4096).await.unwrap();
        file.sync().await.unwrap();
        disk.sync_dir(disk.dir()).await.unwrap();
        disk.sync_filesystem(disk.dir()).await.unwrap();
        file.truncate(5000).await.unwrap();
        assert_eq!(
            file.read_at(4000, 5000).await.unwrap(),
            [vec![0; 96], vec![5; 904]].concat()
        );
    });
}

#[test]
fn an_unusable_log_directory_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let below = file.join("data");
    on_disk(async move |_| {
        let Err(error) = DirectDisk::open(&below).await else {
            panic!("a directory below a file");
        };
        let text = error.to_string();
        assert!(
            text.contains("change log.dirs") && text.contains("file/data"),
            "{text}"
        );
        assert!(DirectDisk::open("data").await.is_err(), "a relative directory");
    });
}

#[test]
fn buffers_are_aligned_and_trim_to_whole_blocks() {
    on_disk(async |disk| {
        let mut buf = disk.alloc(10_000);
        assert_eq!(buf.len(), 12_288);
        assert_eq!(buf.as_ptr() as usize % BLOCK_BYTES, 0);
        buf.fill(1);
        buf.trim(20_480); // longer than it is: stays
        buf.trim(4096);
        assert_eq!(&buf[..], &[1; 4096]);
        assert_eq!(disk.alloc(0).len(), BLOCK_BYTES);
    });
}

#[test]
fn a_panic_of_the_work_is_an_error_of_its_caller() {
    let dir = tempfile::tempdir().unwrap();
    let error = run_with_disk(dir.path(), async |_| -> () { panic!("planted") }).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    let length = run_with_disk(dir.path(), async |disk| disk.kind().to_string().len());
    assert!(length.unwrap() > 3);
}

#[test]
fn several_shards_prepare_one_new_directory_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("deep/data");
    let shards = (0..4).map(|shard| {
        let dir = new.clone();
        thread::spawn(move || {
            run_with_disk(&dir, async move |disk| {
                let path = disk.dir().join(format!("{shard}"));
                let file = disk.open(&path, OpenMode::CreateNew).await.unwrap();
                file.write_at(filled(&disk, shard, 4096), 0).await.unwrap();
            })
        })
    });
    let shards: Vec<_> = shards.collect();
    for shard in shards {
        shard.join().unwrap().unwrap();
    }
    assert_eq!(std::fs::read_dir(&new).unwrap().count(), 5);
    assert_eq!(std::fs::read_dir(new.join(PRIVATE_DIR)).unwrap().count(), 0);
}
