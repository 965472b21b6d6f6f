//! Large pages for unregistered memory that ranks of one host access again and again, such as gradients.
//!
//! The kernel looks up every page of another process's memory that it copies, and a virtual machine translates each
//! page twice. An all-reduce of 25 MB on 4 ranks took 10 ms on pages of 4 KiB and 5 ms on pages of 2 MiB. The kernel
//! moves memory onto large pages on request (`MADV_COLLAPSE`, Linux 6.1), which costs about as much as one such
//! all-reduce; the request is therefore made when a place is used for the second time. If the kernel refuses, only
//! speed is lost.

use std::ops::Range;

/// Size of a large page, on x86-64 and on aarch64 with pages of 4 KiB.
const PAGE_BYTES: u64 = 2 * 1024 * 1024;
/// Uses of a place after which the request is repeated: its owner may have freed the memory and got the same address
/// back.
const USES: u32 = 32;
/// Places remembered; the least recently used one is dropped first.
const PLACES_MAX: usize = 256;
/// The administrator may disable large pages: then this file says `[never]`.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The places that one process uses.
#[derive(Debug)]
pub struct LargePages {
    wanted: bool,
    /// The most recently used last.
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    bytes: Range<u64>,
    uses: u32,
}

impl LargePages {
    /// Reads from the system whether it has large pages.
    pub fn new() -> Self {
        let setting = std::fs::read_to_string(SETTING);
        Self { wanted: setting.is_ok_and(|setting| !setting.contains("[never]")), places: Vec::new() }
    }

    /// Memory of this process at these addresses is about to be accessed by other processes. Its contents stay.
    pub fn note(&mut self, bytes: Range<u64>) {
        // Includes the pages at its ends, which it shares with other memory of the same mapping: otherwise, half of a 4
        // MB tensor stayed on small pages.
        let whole = bytes.start / PAGE_BYTES * PAGE_BYTES..bytes.end.next_multiple_of(PAGE_BYTES);
        if self.wanted && bytes.end - bytes.start >= PAGE_BYTES && self.is_due(bytes) {
            collapse(whole);
        }
    }

    fn is_due(&mut self, bytes: Range<u64>) -> bool {
        let known = self.places.iter().position(|place| place.bytes == bytes);
        let mut place = match known {
            Some(at) => self.places.remove(at),
            None => Place { bytes, uses: 0 },
        };
        if self.places.len() == PLACES_MAX {
            self.places.remove(0);
        }
        place.uses += 1;
        let due = place.uses == 2;
        if place.uses == USES {
            place.uses = 1;
        }
        self.places.push(place);
        due
    }
}

impl Default for LargePages {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes the request, without pages that do not lie in one mapping. A refusal (memory is scarce, or of a kind without
/// large pages) changes nothing.
fn collapse(whole: Range<u64>) {
    let start = std::ptr::without_provenance_mut::<libc::c_void>(whole.start as usize);
    // SAFETY: the advice changes neither contents nor protection of any memory, whatever lies there.
    unsafe {
        libc::madvise(start, (whole.end - whole.start) as usize, libc::MADV_COLLAPSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that is reduced once would pay for pages that nobody uses; memory at a reused address would stay on small
    /// pages.
    #[test]
    fn the_second_use_asks_and_then_one_in_many() {
        let mut pages = LargePages { wanted: true, places: Vec::new() };
        let place = 4096..4096 + 3 * PAGE_BYTES;
        let due: Vec<u32> = (1..100).filter(|_| pages.is_due(place.clone())).collect();
        assert_eq!(due, [2, 33, 64, 95]);
    }

    /// A program whose tensors never come back would fill memory with their addresses.
    #[test]
    fn few_places_are_remembered() {
        let mut pages = LargePages { wanted: true, places: Vec::new() };
        for at in 0..2 * PLACES_MAX as u64 {
            assert!(!pages.is_due(at..at + 1));
        }
        assert_eq!(pages.places.len(), PLACES_MAX);
        assert!(pages.is_due(2 * PLACES_MAX as u64 - 1..2 * PLACES_MAX as u64));
    }

    /// Gradients would change.
    #[test]
    fn contents_stay() {
        let mut pages = LargePages::new();
        let bytes: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
        let start = bytes.as_ptr().expose_provenance() as u64;
        pages.note(start..start + bytes.len() as u64);
        pages.note(start..start + bytes.len() as u64);
        assert!(bytes.iter().zip(0u64..).all(|(&byte, at)| byte == (at % 251) as u8));
    }
}
