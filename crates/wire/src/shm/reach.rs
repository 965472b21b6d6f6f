//! Access to unregistered memory of another process, with one copy by the kernel (`process_vm_readv`,
//! `process_vm_writev`).
//!
//! The kernel's permission depends on the user, capabilities, Yama's `ptrace_scope` and seccomp, so it is tried. A
//! process publishes the address of a random word of its own. If reading that word by process number succeeds and the
//! value matches, the number names the right process, even across PID namespaces.
//!
//! The callers keep the invariants: a process lends the memory at an address for as long as a collective lasts, and no
//! two processes write the same bytes of it. Our own process is refused; the language guards its memory.

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// The words by which others find a process.
pub const CARD_WORDS: usize = 3;

/// Makes this process reachable for others while it is kept.
#[derive(Debug)]
pub struct Card(Box<AtomicU64>);

impl Card {
    /// With a random word.
    pub fn new() -> io::Result<Self> {
        let mut word = [0; 8];
        getrandom::fill(&mut word).map_err(io::Error::other)?;
        Ok(Self(Box::new(AtomicU64::new(u64::from_ne_bytes(word)))))
    }

    /// The card to give to the others.
    pub fn words(&self) -> [u64; CARD_WORDS] {
        [u64::from(std::process::id()), address(self.0.as_ptr()), self.0.load(Ordering::Relaxed)]
    }
}

/// Another process of this machine whose memory we may access.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour(Pid);

impl Neighbour {
    /// The process with that card. Errors: the kernel refuses, or the card is another process's or our own.
    pub fn find([pid, place, word]: [u64; CARD_WORDS]) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(|_| io::Error::other("no process has such a number"))?;
        if pid.unsigned_abs() == std::process::id() {
            return Err(io::Error::other("it is the same process"));
        }
        let found = Self(Pid::from_raw(pid));
        let mut seen = [0; 8];
        found.read(place, &mut seen)?;
        if u64::from_ne_bytes(seen) == word {
            Ok(found)
        } else {
            Err(io::Error::other("its number is another process's here"))
        }
    }

    /// Fills `into` from its memory at `address`.
    pub fn read(self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let len = into.len();
        let there = [RemoteIoVec { base: address as usize, len }];
        whole(process_vm_readv(self.0, &mut [IoSliceMut::new(into)], &there)?, len)
    }

    /// Writes `bytes` to its memory at `address`.
    pub fn write(self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let there = [RemoteIoVec { base: address as usize, len: bytes.len() }];
        whole(process_vm_writev(self.0, &[IoSlice::new(bytes)], &there)?, bytes.len())
    }
}

/// Memory at an address of another process.
pub fn address<T>(memory: *const T) -> u64 {
    memory.expose_provenance() as u64
}

/// The kernel stops at the first page that is not mapped.
fn whole(moved: usize, asked: usize) -> io::Result<()> {
    if moved == asked {
        return Ok(());
    }
    Err(io::Error::other(format!("{moved} of {asked} bytes are there")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes would be written into a process outside the job, or into memory that we use ourselves.
    #[test]
    fn only_the_process_of_the_card_is_found() {
        let card = Card::new().unwrap();
        let [own, place, word] = card.words();
        assert!(Neighbour::find([own, place, word]).unwrap_err().to_string().contains("the same process"));
        assert!(Neighbour::find([1 << 40, place, word]).is_err());
        assert!(Neighbour::find([0x3fff_fff0, place, word]).is_err());
        let mut child = std::process::Command::new("sleep").arg("20").spawn().unwrap();
        let other = Neighbour::find([u64::from(child.id()), place, word]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.is_err(), "a process without our word");
    }
}
