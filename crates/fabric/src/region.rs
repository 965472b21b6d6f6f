//! Names of endpoints in shared memory, whose files in `/dev/shm` outlive a process that is killed.
//!
//! libfabric names them by process id alone. A process that gets the id of one that was killed then cannot enable its
//! endpoint, and processes of two PID namespaces that share `/dev/shm` take each other's files. Our names say which
//! process it is, so that whoever opens an endpoint next removes what dead ones have left.

use crate::error::FabricError;
use std::fmt::Display;
use std::fs;

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "hocket-fabric";

/// A process of this machine, once and for all: its PID namespace, its id there, and when it began, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    namespace: u64,
    id: u32,
    began: u64,
}

impl Process {
    /// `None`: there is no such process, or what `/proc` says of it has another form.
    fn running(namespace: u64, id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The second field, a command's name in parentheses, may have spaces; the start is the 22nd (proc_pid_stat(5)).
        let (_, after) = stat.rsplit_once(')')?;
        Some(Self { namespace, id, began: after.split_whitespace().nth(19)?.parse().ok()? })
    }

    fn own() -> Result<Self, FabricError> {
        let failed = |cause: &dyn Display| {
            FabricError::Library(format!(
                "endpoints in shared memory are named by what /proc says of a process: {cause}"
            ))
        };
        let link = fs::read_link("/proc/self/ns/pid").map_err(|cause| failed(&cause))?;
        let digits: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        let namespace = digits.parse().map_err(|cause| failed(&cause))?;
        Self::running(namespace, std::process::id()).ok_or_else(|| failed(&"no start in /proc/self/stat"))
    }

    fn name(self) -> String {
        format!("{PREFIX}-{}-{}-{}", self.namespace, self.id, self.began)
    }

    /// The process that has named this file; libfabric appends more, after a colon.
    fn of(file: &str) -> Option<Self> {
        let (name, _) = file.split_once(':')?;
        let mut numbers = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
        let process = Self {
            namespace: numbers.next()?.parse().ok()?,
            id: numbers.next()?.parse().ok()?,
            began: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(process)
    }
}

/// This process's name for its endpoints, once files that dead processes of our namespace have left are removed.
pub(crate) fn own_name() -> Result<String, FabricError> {
    let own = Process::own()?;
    remove_left(own.namespace);
    Ok(own.name())
}

/// Files that another user owns stay for that user's next job.
fn remove_left(namespace: u64) {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(Process::of) else { continue };
        if process.namespace == namespace && Process::running(namespace, process.id) != Some(process) {
            let _not_ours = fs::remove_file(entry.path());
        }
    }
}
