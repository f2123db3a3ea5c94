//! Whether io_uring can be used, asked of the kernel by raw system call before the runtime does: the runtime's own answer
//! to "no" is a panic or an exit without a reason.
#![allow(unsafe_code)] // two system calls that libc has no function for

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Finding;

const SUBJECT: &str = "io_uring";

/// `IORING_REGISTER_PROBE` (io_uring_register(2)).
const REGISTER_PROBE: libc::c_ulong = 8;

/// The operations the runtime uses, by their numbers in `linux/io_uring.h`; the last two came with Linux 5.6.
const OPERATIONS: [u8; 23] = [
    0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 21, 22, 23, 26, 27,
];

/// What the kernel answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// A ring was set up; these operations of those needed are missing.
    Usable {
        /// By number.
        missing: Vec<u8>,
    },
    /// No ring could be set up.
    Failed {
        /// The error number.
        errno: i32,
        /// `kernel.io_uring_disabled`, where the kernel has it: 0 for all, 1 for members of a group, 2 for nobody.
        disabled: Option<u8>,
    },
}

/// Sets up a ring, asks it what it can do, and closes it.
#[must_use]
pub fn probe() -> Probe {
    match set_up().and_then(|ring| missing_operations(&ring)) {
        Ok(missing) => Probe::Usable { missing },
        Err(error) => Probe::Failed {
            errno: error.raw_os_error().unwrap_or(0),
            disabled: fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
        },
    }
}

/// Turns the answer into a sentence.
#[must_use]
pub fn judge(probe: &Probe) -> Finding {
    match probe {
        Probe::Usable { missing } if missing.is_empty() => Finding::ok(SUBJECT, "Available."),
        Probe::Usable { .. } => Finding::refuse(
            SUBJECT,
            "This kernel's io_uring lacks operations that the broker needs.",
            "Run it on Linux 5.15 or later.",
        ),
        Probe::Failed {
            disabled: Some(2), ..
        } => Finding::refuse(
            SUBJECT,
            "It is switched off for all processes of this host (kernel.io_uring_disabled=2).",
            "Allow it: sysctl -w kernel.io_uring_disabled=0.",
        ),
        Probe::Failed {
            errno: libc::EPERM,
            disabled: Some(1),
        } => Finding::refuse(
            SUBJECT,
            "It is allowed to one group of users only (kernel.io_uring_disabled=1).",
            "Add the broker's user to the group in kernel.io_uring_group, or set kernel.io_uring_disabled=0.",
        ),
        Probe::Failed {
            errno: libc::EPERM | libc::EACCES,
            ..
        } => Finding::refuse(
            SUBJECT,
            "A security policy forbids it; the default seccomp profiles of Docker, containerd and Podman do.",
            "Run the container with a profile that allows io_uring_setup, io_uring_enter and io_uring_register, or with --security-opt seccomp=unconfined.",
        ),
        Probe::Failed {
            errno: libc::ENOSYS, ..
        } => Finding::refuse(
            SUBJECT,
            "This kernel does not have it, or a sandbox such as gVisor hides it.",
            "Run the broker on Linux 5.15 or later, outside of the sandbox.",
        ),
        Probe::Failed {
            errno: libc::ENOMEM, ..
        } => Finding::refuse(
            SUBJECT,
            "There is not enough locked memory for it: other processes of this user may hold it.",
            "Raise the limit: LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container.",
        ),
        Probe::Failed { errno, .. } => Finding::refuse(
            SUBJECT,
            format!("It cannot be set up: {}.", io::Error::from_raw_os_error(*errno)),
            "Look at the kernel's log for the reason.",
        ),
    }
}

/// The smallest ring there is.
fn set_up() -> io::Result<OwnedFd> {
    // struct io_uring_params: 120 bytes in every version so far, all zero for the defaults.
    let mut params = [0_u64; 15];
    // SAFETY: the second argument points to a writable, zeroed io_uring_params of the size the kernel writes back.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, params.as_mut_ptr()) };
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn missing_operations(ring: &OwnedFd) -> io::Result<Vec<u8>> {
    const SLOTS: usize = 256;
    // struct io_uring_probe: a header of 16 bytes, then 8 bytes per operation with its flags at byte 2.
    let mut answer = [0_u64; 2 + SLOTS];
    // SAFETY: the third argument points to a zeroed io_uring_probe with room for the number of operations given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_PROBE,
            answer.as_mut_ptr(),
            SLOTS as libc::c_uint,
        )
    };
    if done < 0 {
        return match io::Error::last_os_error() {
            // Before Linux 5.6 there is no such question, nor all of the operations.
            e if e.raw_os_error() == Some(libc::EINVAL) => Ok(OPERATIONS.to_vec()),
            e => Err(e),
        };
    }
    let supported = |operation: u8| {
        let flags = answer[2 + usize::from(operation)].to_ne_bytes();
        flags[2] & 1 == 1
    };
    Ok(OPERATIONS
        .into_iter()
        .filter(|operation| !supported(*operation))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Verdict;

    #[test]
    fn the_kernel_of_the_tests_has_it() {
        assert_eq!(probe(), Probe::Usable { missing: vec![] });
    }

    #[test]
    fn each_way_to_be_without_it_names_what_to_change() {
        let failed = |errno, disabled| judge(&Probe::Failed { errno, disabled });
        let cases = [
            (
                failed(libc::EPERM, Some(2)),
                "sysctl -w kernel.io_uring_disabled=0",
            ),
            (failed(libc::EPERM, Some(1)), "kernel.io_uring_group"),
            (failed(libc::EPERM, Some(0)), "seccomp=unconfined"),
            (failed(libc::EPERM, None), "seccomp=unconfined"),
            (failed(libc::ENOSYS, None), "Linux 5.15"),
            (failed(libc::ENOMEM, Some(0)), "LimitMEMLOCK=infinity"),
            (failed(libc::EIO, Some(0)), "kernel's log"),
            (judge(&Probe::Usable { missing: vec![27] }), "Linux 5.15"),
        ];
        for (finding, part) in cases {
            assert_eq!(finding.verdict, Verdict::Refuse);
            assert!(finding.advice.contains(part), "{finding}");
        }
    }
}
