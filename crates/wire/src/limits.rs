//! Names the system limit that an error came from and how to raise it, which "too many open files" does not.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;

/// The same error, with a hint if a limit is the cause.
#[must_use]
pub fn explained(error: io::Error) -> io::Error {
    match error.raw_os_error().and_then(hint) {
        Some(hint) => io::Error::new(error.kind(), format!("{error}\nhint: {hint}")),
        None => error,
    }
}

/// Whether a limit of this process is the cause.
pub fn is_met(error: &io::Error) -> bool {
    error.raw_os_error().and_then(hint).is_some()
}

/// Whether this process has no descriptors left: anything that needs one would wait in vain.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

fn hint(code: i32) -> Option<String> {
    Some(match Errno::from_raw_os_error(code) {
        Errno::MFILE => format!(
            "raise `ulimit -n`, which is {}: a rank needs up to three descriptors for each other rank, and thirty more",
            current(Resource::Nofile)
        ),
        Errno::NFILE => "the host's limit is met: raise `sysctl fs.file-max`".into(),
        Errno::FBIG => format!(
            "raise `ulimit -f` to `unlimited`, it is {} bytes: registered memory is one long file in memory, of which only what is \
             used exists",
            current(Resource::Fsize)
        ),
        Errno::NOMEM => out_of_addresses(getrlimit(Resource::As).current),
        _ => return None,
    })
}

/// Of a mapping: memory itself runs out later, where it is touched.
fn out_of_addresses(limit: Option<u64>) -> String {
    let raise = limit.map_or_else(
        || "drop engines that are closed: a process has addresses for about a hundred".into(),
        |limit| format!("raise `ulimit -v` to `unlimited`, it is {limit} bytes"),
    );
    format!(
        "{raise}, and set `sysctl vm.overcommit_memory` to 0 or 1: registered memory reserves a terabyte of addresses, of which \
         only what is used takes memory"
    )
}

fn current(resource: Resource) -> String {
    getrlimit(resource).current.map_or_else(|| "unlimited".into(), |limit| limit.to_string())
}
