//! `hocket-switch`: carries frames between the TAP devices of an emulated cluster until its control pipe ends.
//!
//! `hocket.tools.testbed.switch` opens the devices, which requires namespaces and `ioctl`s, and then becomes this
//! program. It leaves descriptors in the Unix socket that is standard input: of the description (a file, see
//! [`parse`]), of the control pipe, and of a device per host. The program prints `ready`, then a line of counters for
//! each byte from the control pipe. It exits with 1 and a message on standard error when it cannot continue.
#![forbid(unsafe_code)]

use hocket_switch::{Switch, parse, run};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, recvmsg};
use std::error::Error;
use std::fs::File;
use std::io::{IoSliceMut, Read as _, Seek as _, Write as _, stderr, stdin, stdout};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

/// Memory limit of frames in flight: half a second of 4 Gbit/s.
const HELD_BYTES_MAX: usize = 256 << 20;
/// The maximum that the kernel passes in one message (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;

fn main() -> ExitCode {
    match carry() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If this fails, there is nobody left to notify.
            let _: Result<(), _> = writeln!(stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn carry() -> Result<(), Box<dyn Error>> {
    let mut handed = handed_over()?.into_iter();
    let (Some(description), Some(control)) = (handed.next(), handed.next()) else {
        return Err(
            "standard input hands over no description and control pipe: the testbed starts this program"
                .into(),
        );
    };
    let taps: Vec<OwnedFd> = handed.collect();
    let mut text = String::new();
    let mut file = File::from(description);
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let switch = Switch::new(&parse(&text, taps.len(), HELD_BYTES_MAX)?)?;
    let answers = stdout().as_fd().try_clone_to_owned()?;
    stdout().write_all(b"ready\n")?;
    stdout().flush()?;
    run(switch, &taps, &control, &answers)?;
    Ok(())
}

/// The descriptors waiting in standard input.
fn handed_over() -> Result<Vec<OwnedFd>, Box<dyn Error>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let _: RecvMsg =
        recvmsg(stdin().as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            .map_err(|cause| {
                format!("standard input is no Unix socket that hands over descriptors: {cause}")
            })?;
    let handed = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(handed.flatten().collect())
}
