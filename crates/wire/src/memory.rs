//! Registered memory: each rank has one sparse memfd, and the other ranks of its host map all of it.
//!
//! A memfd leaves nothing behind however its owner dies, is not limited by the size of `/dev/shm`, and costs only the
//! pages that are touched. Gradients and scratch buffers are [`Region`]s of it, so peers reduce straight out of them.
//!
//! Every `unsafe` here rests on one invariant. A region stays inside its mapping, which lives as long as the region
//! does. No two threads or ranks race on a region's bytes: the program verifier proves that dependencies and messages
//! order all conflicting ops, and `tests/oracle` would catch a violation.

use hocket_kernels::{DType, ReduceOp};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Allocation granularity: a page, so that freed ranges can be given back to the system.
pub const PAGE_BYTES: usize = 4096;

/// Address space of an arena: more than any host's memory; only touched pages exist.
const ARENA_BYTES: usize = 1 << 40;

/// A shared mapping of a memfd, unmapped when the last region of it is gone.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: the pointer is to shared memory that is valid from any thread for the lifetime of the value; the module's
// invariant covers the bytes behind it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of a fresh mapping, so it aliases nothing.
        let base = unsafe {
            mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED | MapFlags::NORESERVE, fd, 0)?
        };
        Ok(Self { base: base.cast(), len })
    }

    /// The word at `offset`, a multiple of eight. Every rank accesses it only as an atomic.
    pub(crate) fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "word at {offset} of {} bytes", self.len);
        // SAFETY: checked to lie inside and to be aligned (mappings start at a page); every process accesses it only as
        // an atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// Position of `bytes` in this mapping, if all of them lie inside.
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.base as usize)?;
        (offset.checked_add(bytes.len())? <= self.len).then_some(offset as u64)
    }

    /// Address of byte `offset`, which must lie inside.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "offset {offset} in a mapping of {} bytes", self.len);
        // SAFETY: checked to stay inside the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.base.cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}

/// A rank's registered memory.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    mapping: Arc<Mapping>,
    free: Mutex<FreeList>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
}

/// Who must know when memory is given back to the system, because a card reads or writes it.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// The region's pages are about to be given back.
    fn freed(&self, region: &Region);
}

impl Arena {
    /// A new arena; its first `reserved_bytes` hold the mailboxes and are never allocated.
    pub fn new(reserved_bytes: usize) -> io::Result<Arc<Self>> {
        let fd = memfd_create("hocket", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, ARENA_BYTES as u64)?;
        let mapping = Arc::new(Mapping::new(fd.as_fd(), ARENA_BYTES)?);
        let free = Mutex::new(FreeList::new(reserved_bytes.next_multiple_of(PAGE_BYTES), ARENA_BYTES));
        Ok(Arc::new(Self { fd, mapping, free, watchers: Mutex::default() }))
    }

    /// Tells `watcher` of memory that is given back, as long as it lives.
    pub fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    fn tell(&self, region: &Region) {
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.freed(region));
    }

    /// Zero-filled memory of `len` bytes, page-aligned, given back when the allocation is dropped.
    pub fn allocate(self: &Arc<Self>, len: usize) -> io::Result<Allocation> {
        let reserved = len.max(1).next_multiple_of(PAGE_BYTES);
        let offset = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(reserved)
            .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "registered memory is used up"))?;
        let region = Region { mapping: Arc::clone(&self.mapping), offset, len };
        Ok(Allocation { arena: Arc::clone(self), region, reserved, kept: AtomicBool::new(false) })
    }

    /// The descriptor that peers map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The arena's own mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// Maps a peer's arena from the descriptor that the peer passed.
pub fn map_peer(fd: BorrowedFd<'_>) -> io::Result<Arc<Mapping>> {
    Ok(Arc::new(Mapping::new(fd, ARENA_BYTES)?))
}

/// An allocation within an arena; dropping it frees the range.
#[derive(Debug)]
pub struct Allocation {
    arena: Arc<Arena>,
    region: Region,
    reserved: usize,
    kept: AtomicBool,
}

impl Allocation {
    /// The whole allocation as one region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The range lasts as long as the arena, also when this is dropped: another rank may still read it.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if *self.kept.get_mut() {
            return;
        }
        let (offset, len) = (self.region.offset, self.reserved);
        self.arena.tell(&self.region);
        // The hole reads as zeros, so the next owner finds zero-filled memory. If the kernel refuses, the range is
        // leaked: reusing it would expose old contents.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(self.arena.fd(), flags, offset as u64, len as u64).is_ok() {
            self.arena.free.lock().unwrap_or_else(PoisonError::into_inner).give(offset, len);
        }
    }
}

/// A slice of a mapping that ops read and write.
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Region {
    /// `len` bytes at `offset` of a mapping; `None` when they do not all lie inside.
    pub fn new(mapping: &Arc<Mapping>, offset: u64, len: u64) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= mapping.len as u64).then(|| Self {
            mapping: Arc::clone(mapping),
            offset: offset as usize,
            len: len as usize,
        })
    }

    /// `len` bytes at `offset` of this region.
    ///
    /// # Panics
    /// When they do not all lie inside: the caller computed them.
    #[must_use]
    pub fn sub(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "{offset}+{len} in a region of {} bytes", self.len);
        Self { mapping: Arc::clone(&self.mapping), offset: self.offset + offset, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset in its arena, by which a peer finds it.
    pub fn arena_offset(&self) -> u64 {
        self.offset as u64
    }

    /// Whether its bytes lie in `mapping`.
    pub fn is_of(&self, mapping: &Arc<Mapping>) -> bool {
        Arc::ptr_eq(&self.mapping, mapping)
    }

    /// Address of the first byte, for frameworks that share the memory.
    pub fn address(&self) -> *mut u8 {
        self.mapping.at(self.offset)
    }

    /// The word at `offset`. Every rank accesses it only as an atomic.
    ///
    /// # Panics
    /// When it does not lie inside, or not at a multiple of its size.
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.len, "word at {offset} of {} bytes", self.len);
        self.mapping.atomic_u64(self.offset + offset)
    }

    /// [`Self::atomic_u64`] for a 32-bit word.
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        let at = self.offset + offset;
        assert!(offset + 4 <= self.len && at.is_multiple_of(4), "word at {offset} of {} bytes", self.len);
        // SAFETY: checked to lie inside and to be aligned; every process accesses it only as an atomic.
        unsafe { AtomicU32::from_ptr(self.mapping.at(at).cast()) }
    }

    /// The bytes, to write to a socket.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: inside a live mapping by construction; races are excluded by the module's invariant.
        unsafe { std::slice::from_raw_parts(self.address(), self.len) }
    }

    /// The bytes, to read from a socket. Takes `&self`: regions are views, ordered by the program.
    #[expect(
        clippy::mut_from_ref,
        reason = "exclusive by the program's dependencies, not by the borrow checker"
    )]
    pub fn as_bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.len) }
    }

    /// Bytes `range`, as [`Self::as_bytes`].
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.as_bytes()[range]
    }

    /// Bytes `range`, as [`Self::as_bytes_mut`].
    pub fn slice_mut(&self, range: Range<usize>) -> &mut [u8] {
        &mut self.as_bytes_mut()[range]
    }

    /// `self = src`; this is part of `together_bytes` moved in one go.
    pub fn copy_from(&self, src: &Self, together_bytes: usize) {
        hocket_kernels::copy(self.as_bytes_mut(), src.as_bytes(), together_bytes);
    }

    /// `self = convert(src)`.
    pub fn cast_from(&self, dtype: DType, src_dtype: DType, src: &[u8]) {
        hocket_kernels::cast(dtype, self.as_bytes_mut(), src_dtype, src);
    }

    /// `self = self ⊕ convert(src)`.
    pub fn reduce_from(&self, op: ReduceOp, dtype: DType, src_dtype: DType, src: &[u8]) {
        hocket_kernels::reduce(op, dtype, self.as_bytes_mut(), src_dtype, src);
    }
}

/// Free ranges of an arena, first fit, neighbours joined.
#[derive(Debug)]
struct FreeList {
    /// (start, length), ascending, never touching.
    ranges: Vec<(usize, usize)>,
}

impl FreeList {
    fn new(start: usize, end: usize) -> Self {
        Self { ranges: vec![(start, end - start)] }
    }

    fn take(&mut self, len: usize) -> Option<usize> {
        let at = self.ranges.iter().position(|&(_, free)| free >= len)?;
        let (start, free) = self.ranges[at];
        if free == len {
            self.ranges.remove(at);
        } else {
            self.ranges[at] = (start + len, free - len);
        }
        Some(start)
    }

    fn give(&mut self, start: usize, len: usize) {
        let at = self.ranges.partition_point(|&(other, _)| other < start);
        self.ranges.insert(at, (start, len));
        for right in [at + 1, at] {
            if right > 0 && right < self.ranges.len() {
                let (left_start, left_len) = self.ranges[right - 1];
                let (right_start, right_len) = self.ranges[right];
                if left_start + left_len == right_start {
                    self.ranges[right - 1].1 += right_len;
                    self.ranges.remove(right);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second run in one process would find stale gradients, or run out of address space.
    #[test]
    fn freed_memory_is_reused_and_zero() {
        let arena = Arena::new(100).unwrap();
        let first = arena.allocate(5000).unwrap();
        first.region().as_bytes_mut().fill(7);
        let offset = first.region().arena_offset();
        drop(first);
        let second = arena.allocate(5000).unwrap();
        assert_eq!(second.region().arena_offset(), offset);
        assert!(second.region().as_bytes().iter().all(|&byte| byte == 0));
    }

    /// Ranges given back in any order must become one again.
    #[test]
    fn neighbours_join() {
        let mut free = FreeList::new(0, 100);
        let starts: Vec<usize> = (0..4).map(|_| free.take(10).unwrap()).collect();
        for at in [1, 3, 0, 2] {
            free.give(starts[at], 10);
        }
        assert_eq!(free.ranges, vec![(0, 100)]);
    }

    /// A peer's bad descriptor must not become a wild pointer.
    #[test]
    fn regions_outside_the_mapping_are_refused() {
        let arena = Arena::new(0).unwrap();
        assert!(Region::new(arena.mapping(), u64::MAX, 2).is_none());
        assert!(Region::new(arena.mapping(), ARENA_BYTES as u64 - 1, 2).is_none());
    }
}
