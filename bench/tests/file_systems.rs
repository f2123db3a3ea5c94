//! The kill test once on each file system that the broker is said to work on, mounted for the purpose: ext4 and XFS with direct
//! I/O, overlayfs on top of the host's own, tmpfs through memory. Needs root, and `mkfs` of the kind.
#![allow(clippy::print_stdout)] // the report is what the test is for

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::clients::{report_skip, require_all};
use bench::kill::{Scenario, run};
use bench::process::Profile;
use bench::target::{Kind, Target};

/// Kills on each file system.
const KILLS: u32 = 2;
/// Size of a file system that is made, bytes; its image is sparse. Several times what two producers write in a run.
const IMAGE_BYTES: u64 = 3 << 30;

/// A mounted file system; unmounted when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a broker that a failed test left behind may still have files open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Why there is nothing to test on.
enum Absent {
    /// A program that can be installed is missing.
    Program(String),
    /// The host does not let this process mount.
    Mount(String),
}

/// Runs a program to its end; what it wrote when it failed.
fn say(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Makes a file system of this kind in a file below `dir` and mounts it.
fn image(kind: &str, dir: &Path) -> Result<Mounted, Absent> {
    let file = dir.join("image");
    let made = std::fs::File::create(&file).and_then(|image| image.set_len(IMAGE_BYTES));
    made.expect("a sparse file in the temporary folder");
    let mut make = Command::new(format!("mkfs.{kind}"));
    say(make.arg("-q").arg(&file)).map_err(Absent::Program)?;
    let at = dir.join("mounted");
    mount(&["-t", kind, "-o", "loop"], &file, at)
}

fn mount(options: &[&str], what: &Path, at: PathBuf) -> Result<Mounted, Absent> {
    std::fs::create_dir_all(&at).expect("a folder to mount on");
    say(Command::new("mount").args(options).arg(what).arg(&at)).map_err(Absent::Mount)?;
    Ok(Mounted(at))
}

/// Kills a broker whose data lie on what `make` mounts. `says` is what
/// the start has to say of it.
fn survives(name: &str, make: impl FnOnce(&Path) -> Result<Mounted, Absent>, says: Option<&str>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mounted = match make(dir.path()) {
        Ok(mounted) => mounted,
        Err(Absent::Program(why)) => {
            assert!(!require_all(), "{why}");
            return report_skip(name, &why);
        }
        Err(Absent::Mount(why)) => return report_skip(name, &why),
    };
    let on = mounted.0.as_path();
    let mut target = Target::new(Kind::Penstock(Profile::Dev), &on.join("broker"), &[]).expect("a broker");
    let scenario = Scenario {
        acks: "all",
        kills: KILLS,
        reshard: false,
        seed: 1,
    };
    let report = run(&mut target, &scenario, on).unwrap_or_else(|error| panic!("{error}"));
    let Some(report) = report else {
        assert!(!require_all(), "python3 is missing");
        return report_skip(name, "python3 is missing");
    };
    println!("{name}: {report}");
    let said = std::fs::read_to_string(on.join("broker/stdout-1")).expect("what the broker wrote")
        + &std::fs::read_to_string(on.join("broker/stderr-1")).expect("what the broker logged");
    let names_the_directory = said.contains("log directory: ");
    assert_eq!(names_the_directory, says.is_some(), "{said}");
    assert!(
        said.contains(says.unwrap_or_default()),
        "the start does not say {says:?}:\n{said}"
    );
    assert_eq!(report.verifiable.violations(), 0, "VerifiableProducer: {report}");
    assert_eq!(report.librdkafka.violations(), 0, "librdkafka: {report}");
    assert!(report.verifiable.acknowledged > 2_000 && report.librdkafka.acknowledged > 2_000);
}

#[test]
fn ext4() {
    survives("ext4", |dir| image("ext4", dir), None);
}

#[test]
fn xfs() {
    survives("xfs", |dir| image("xfs", dir), None);
}

#[test]
fn tmpfs() {
    let make = |dir: &Path| {
        let options = ["-t", "tmpfs", "-o", "size=3g"];
        mount(&options, Path::new("penstock-test"), dir.join("mounted"))
    };
    survives("tmpfs", make, Some("lies in memory (tmpfs)"));
}

#[test]
fn overlayfs() {
    let make = |dir: &Path| {
        let layer = |name: &str| {
            let layer = dir.join(name);
            std::fs::create_dir_all(&layer).expect("a folder of the overlay");
            layer.display().to_string()
        };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            layer("lower"),
            layer("upper"),
            layer("work")
        );
        mount(
            &["-t", "overlay", "-o", &options],
            Path::new("penstock-test"),
            dir.join("mounted"),
        )
    };
    survives("overlayfs", make, None);
}
