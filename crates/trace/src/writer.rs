//! Writes records from many threads to one file; no thread waits for the disk.
//!
//! Budget of a push: one lock that hardly any other thread takes, and a copy of 64 bytes. Each thread has a shard of
//! its own (threads beyond [`SHARDS`] share). A background thread swaps filled buffers for empty ones and writes them,
//! so a crash loses the records of the last [`FLUSH_EVERY`]. A full shard drops records and counts them; so does a full
//! file, and one that cannot be written.

use crate::layout::{DROPPED_AT, HEADER_BYTES, RECORD_BYTES, header};
use crate::record::Record;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Buffers shared out among threads: more than a rank has native threads.
const SHARDS: usize = 8;

/// How often buffers are written.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Records that one shard holds between two flushes: 4 MiB, thirty times the observed rate of a rank's thread.
const SHARD_RECORDS_MAX: usize = 1 << 16;

/// Fill level at which the writer is woken early.
const SHARD_RECORDS_HALF: usize = SHARD_RECORDS_MAX / 2;

/// Limit of records in a file: 4 GiB, more than anyone can analyse and less than fills a disk unnoticed.
const FILE_RECORDS_MAX: u64 = 1 << 26;

/// The recording end of a trace file. Dropping it finishes the file.
pub struct Recorder {
    shared: Arc<Shared>,
    /// Wakes the writer; dropping it stops the writer.
    wake: Mutex<Option<SyncSender<()>>>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

struct Shared {
    shards: [Mutex<Vec<[u8; RECORD_BYTES]>>; SHARDS],
    dropped: AtomicU64,
}

impl Recorder {
    /// Creates the file.
    pub fn create(path: &Path, rank: u32, world: u32) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(&header(rank, world))?;
        let shared = Arc::new(Shared { shards: Default::default(), dropped: AtomicU64::new(0) });
        let (wake, woken) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let writer = thread::Builder::new().name("hocket-trace".into()).spawn(move || {
            let mut output = Output::new(file);
            loop {
                let stopped = woken.recv_timeout(FLUSH_EVERY) == Err(RecvTimeoutError::Disconnected);
                output.flush(&theirs);
                if stopped {
                    return output.failure.map_or(Ok(()), Err);
                }
            }
        })?;
        Ok(Self { shared, wake: Mutex::new(Some(wake)), writer: Mutex::new(Some(writer)) })
    }

    /// Adds a record without waiting. Records after [`Self::finish`] are lost.
    pub fn push(&self, record: &Record) {
        let thread = own_number();
        let mut waiting = lock(&self.shared.shards[thread as usize % SHARDS]);
        if waiting.len() >= SHARD_RECORDS_MAX {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push(record.to_bytes(thread));
        if waiting.len() == SHARD_RECORDS_HALF {
            drop(waiting);
            if let Some(wake) = &*lock(&self.wake) {
                // An error means that the writer is awake already.
                let _ = wake.try_send(());
            }
        }
    }

    /// Writes pending records and closes the file. The first call returns the writer's first error; later calls do
    /// nothing.
    pub fn finish(&self) -> io::Result<()> {
        let Some(writer) = lock(&self.writer).take() else { return Ok(()) };
        drop(lock(&self.wake).take());
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the trace's writer panicked")))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // A caller that must know whether the trace is whole calls `finish` before.
        drop(self.finish());
    }
}

/// The background thread's side.
struct Output {
    file: File,
    /// Swapped with each shard's buffer in turn.
    spare: Vec<[u8; RECORD_BYTES]>,
    written: u64,
    /// The fields of the header.
    dropped: u64,
    failure: Option<io::Error>,
}

impl Output {
    fn new(file: File) -> Self {
        Self { file, spare: Vec::new(), written: 0, dropped: 0, failure: None }
    }

    fn flush(&mut self, shared: &Shared) {
        for shard in &shared.shards {
            let mut waiting = lock(shard);
            if waiting.is_empty() {
                continue;
            }
            std::mem::swap(&mut *waiting, &mut self.spare);
            drop(waiting);
            let room = (FILE_RECORDS_MAX - self.written).min(self.spare.len() as u64) as usize;
            let mut lost = (self.spare.len() - room) as u64;
            if self.failure.is_none()
                && let Err(error) = self.append(room)
            {
                self.failure = Some(error);
            }
            if self.failure.is_some() {
                lost = self.spare.len() as u64;
            } else {
                self.written += room as u64;
            }
            shared.dropped.fetch_add(lost, Ordering::Relaxed);
            self.spare.clear();
        }
        self.say_dropped(shared.dropped.load(Ordering::Relaxed));
    }

    /// Whole records: the next attempt overwrites a partly written one, or readers skip it.
    fn append(&mut self, records: usize) -> io::Result<()> {
        let at = HEADER_BYTES as u64 + self.written * RECORD_BYTES as u64;
        self.file.write_all_at(self.spare[..records].as_flattened(), at)
    }

    fn say_dropped(&mut self, dropped: u64) {
        if dropped == self.dropped {
            return;
        }
        match self.file.write_all_at(&dropped.to_le_bytes(), DROPPED_AT) {
            Ok(()) => self.dropped = dropped,
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// Threads are numbered by their first push.
fn own_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

/// Locks; a panic elsewhere is reported where it happens, and buffers are consistent between pushes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn scratch_file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("hocket-trace-{name}-{}", std::process::id()))
    }

    fn read(path: &Path) -> (Vec<u8>, Vec<u32>) {
        let bytes = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        let (header, records) = bytes.split_at(HEADER_BYTES);
        assert_eq!(records.len() % RECORD_BYTES, 0);
        let ops =
            records.chunks(RECORD_BYTES).map(|record| u32::from_le_bytes(record[40..44].try_into().unwrap()));
        (header.to_vec(), ops.collect())
    }

    fn dropped(header: &[u8]) -> u64 {
        u64::from_le_bytes(header[24..32].try_into().unwrap())
    }

    fn op(op: u32) -> Record {
        Record { op, ..Record::default() }
    }

    /// Broken: a report would miss events that native threads recorded, or show them twice.
    #[test]
    fn every_push_of_every_thread_is_in_the_file_once() {
        let path = scratch_file("threads");
        let recorder = Recorder::create(&path, 3, 4).unwrap();
        thread::scope(|scope| {
            for each in 0..12 {
                let recorder = &recorder;
                scope.spawn(move || (0..1000).for_each(|index| recorder.push(&op(each * 1000 + index))));
            }
        });
        recorder.finish().unwrap();
        recorder.finish().unwrap();
        let (header, mut ops) = read(&path);
        ops.sort_unstable();
        assert_eq!(ops, (0..12_000).collect::<Vec<_>>());
        let mut want = b"HKTRACE1".to_vec();
        for word in [2_u32, 64, 3, 4] {
            want.extend(word.to_le_bytes());
        }
        want.resize(HEADER_BYTES, 0);
        assert_eq!(header, want);
    }

    /// Broken: the report of a run that crashed would be empty.
    #[test]
    fn records_reach_the_file_while_the_recorder_lives() {
        let path = scratch_file("flush");
        let recorder = Recorder::create(&path, 0, 1).unwrap();
        recorder.push(&op(1));
        let whole = (HEADER_BYTES + RECORD_BYTES) as u64;
        let mut turns = 0;
        while std::fs::metadata(&path).unwrap().len() < whole {
            turns += 1;
            assert!(turns < 1000, "nothing was written in 10 s");
            thread::sleep(Duration::from_millis(10));
        }
        drop(recorder);
        assert_eq!(read(&path).1, [1]);
    }

    /// Broken: a burst would grow memory without bound, or lose records silently.
    #[test]
    fn what_does_not_fit_is_counted_in_the_header() {
        let path = scratch_file("full");
        let recorder = Recorder::create(&path, 0, 1).unwrap();
        lock(&recorder.shared.shards[own_number() as usize % SHARDS])
            .resize(SHARD_RECORDS_MAX, op(0).to_bytes(0));
        // The writer may run in between and write some; each record is either written or counted.
        (0..5).for_each(|index| recorder.push(&op(index)));
        recorder.finish().unwrap();
        let (header, ops) = read(&path);
        assert_eq!(ops.len() as u64 + dropped(&header), SHARD_RECORDS_MAX as u64 + 5);
    }

    /// Broken: a full disk would pass as a whole trace.
    #[test]
    fn a_disk_that_is_full_is_an_error_at_the_end() {
        let recorder = Recorder::create(Path::new("/dev/full"), 0, 1);
        assert_eq!(recorder.err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
        let file = File::options().write(true).open("/dev/full").unwrap();
        let shared = Shared { shards: Default::default(), dropped: AtomicU64::new(0) };
        lock(&shared.shards[0]).push(op(0).to_bytes(0));
        let mut output = Output::new(file);
        output.flush(&shared);
        assert_eq!(output.failure.map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
        assert_eq!(shared.dropped.into_inner(), 1);
    }
}
