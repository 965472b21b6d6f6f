//! Writes records from many threads to one file; no thread waits for the disk.
//!
//! Budget of a push: one lock that hardly any other thread takes, and a copy of 64 bytes. Each thread has a shard of
//! its own (threads beyond [`SHARDS`] share). A background thread swaps filled buffers for empty ones and writes them,
//! so a crash loses the records of the last [`FLUSH_EVERY`]. A full shard drops records and counts them; so does a full
//! file, and one that cannot be written.

use crate::bounds::Bounds;
use crate::layout::RECORD_BYTES;
use crate::output::{Output, on_stderr};
use crate::record::{Kind, Record};
use std::io;
use std::path::PathBuf;
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

/// A file to record to, and what of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of the file, which is replaced if there is one.
    pub path: PathBuf,
    pub bounds: Bounds,
}

/// The recording end of a trace file. Dropping it finishes the file.
pub struct Recorder {
    shared: Arc<Shared>,
    bounds: Bounds,
    /// The step that runs, as far as marks tell.
    step: AtomicU32,
    /// Wakes the writer; dropping it stops the writer.
    wake: Mutex<Option<SyncSender<()>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    shards: [Mutex<Vec<[u8; RECORD_BYTES]>>; SHARDS],
    dropped: AtomicU64,
}

impl Recorder {
    /// Creates the file. A later failure to write it is told on standard error, once.
    pub fn create(wanted: &Wanted, rank: u32, world: u32) -> io::Result<Self> {
        let output = Output::create(&wanted.path, rank, world, wanted.bounds, on_stderr())?;
        let shared = Arc::<Shared>::default();
        let (wake, woken) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let writer = thread::Builder::new().name("hocket-trace".into()).spawn(move || {
            let mut flushing = Flushing { output, spare: Vec::new() };
            loop {
                let stopped = woken.recv_timeout(FLUSH_EVERY) == Err(RecvTimeoutError::Disconnected);
                flushing.flush(&theirs);
                if stopped {
                    return;
                }
            }
        })?;
        Ok(Self {
            shared,
            bounds: wanted.bounds,
            step: AtomicU32::new(0),
            wake: Mutex::new(Some(wake)),
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Whether what begins now is to be recorded, to its end.
    pub fn is_on(&self) -> bool {
        self.bounds.has(self.step.load(Ordering::Relaxed))
    }

    /// Adds a span of a step, if the step is one that is recorded. After a forward, its step runs; after
    /// [`Kind::Step`], the next one.
    pub fn mark(&self, span: &Record) {
        if self.bounds.has(span.instance) {
            self.push(span);
        }
        match span.kind {
            Kind::Forward => self.step.store(span.instance, Ordering::Relaxed),
            Kind::Step => self.step.store(span.instance.saturating_add(1), Ordering::Relaxed),
            _ => {}
        }
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

    /// Writes pending records and closes the file; idempotent.
    pub fn finish(&self) {
        let Some(writer) = lock(&self.writer).take() else { return };
        drop(lock(&self.wake).take());
        // The writer's own panic has been told where it happened; the run goes on without its trace.
        drop(writer.join());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The background thread's side.
struct Flushing {
    output: Output,
    /// Swapped with each shard's buffer in turn.
    spare: Vec<[u8; RECORD_BYTES]>,
}

impl Flushing {
    fn flush(&mut self, shared: &Shared) {
        for shard in &shared.shards {
            let mut waiting = lock(shard);
            if waiting.is_empty() {
                continue;
            }
            std::mem::swap(&mut *waiting, &mut self.spare);
            drop(waiting);
            shared.dropped.fetch_add(self.output.append(&self.spare), Ordering::Relaxed);
            self.spare.clear();
        }
        self.output.note_dropped(shared.dropped.load(Ordering::Relaxed));
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
    use crate::layout::HEADER_BYTES;
    use std::path::Path;

    fn scratch_file(name: &str, bounds: Bounds) -> Wanted {
        let path = std::env::temp_dir().join(format!("hocket-trace-{name}-{}", std::process::id()));
        Wanted { path, bounds }
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
        let wanted = scratch_file("threads", Bounds::default());
        let recorder = Recorder::create(&wanted, 3, 4).unwrap();
        thread::scope(|scope| {
            for each in 0..12 {
                let recorder = &recorder;
                scope.spawn(move || (0..1000).for_each(|index| recorder.push(&op(each * 1000 + index))));
            }
        });
        recorder.finish();
        recorder.finish();
        let (header, mut ops) = read(&wanted.path);
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
        let wanted = scratch_file("flush", Bounds::default());
        let recorder = Recorder::create(&wanted, 0, 1).unwrap();
        recorder.push(&op(1));
        let whole = (HEADER_BYTES + RECORD_BYTES) as u64;
        let mut turns = 0;
        while std::fs::metadata(&wanted.path).unwrap().len() < whole {
            turns += 1;
            assert!(turns < 1000, "nothing was written in 10 s");
            thread::sleep(Duration::from_millis(10));
        }
        drop(recorder);
        assert_eq!(read(&wanted.path).1, [1]);
    }

    /// Broken: a burst would grow memory without bound, or lose records silently.
    #[test]
    fn what_does_not_fit_is_counted_in_the_header() {
        let wanted = scratch_file("full", Bounds::default());
        let recorder = Recorder::create(&wanted, 0, 1).unwrap();
        lock(&recorder.shared.shards[own_number() as usize % SHARDS])
            .resize(SHARD_RECORDS_MAX, op(0).to_bytes(0));
        // The writer may run in between and write some; each record is either written or counted.
        (0..5).for_each(|index| recorder.push(&op(index)));
        recorder.finish();
        let (header, ops) = read(&wanted.path);
        assert_eq!(ops.len() as u64 + dropped(&header), SHARD_RECORDS_MAX as u64 + 5);
    }

    /// Broken: the one slow step of a long run could not be recorded without all others, or only in parts.
    #[test]
    fn of_bounded_steps_nothing_else_is_recorded() {
        let bounds = Bounds { first: 2, stop: Some(4), bytes_max: None };
        let wanted = scratch_file("steps", bounds);
        let recorder = Recorder::create(&wanted, 0, 1).unwrap();
        let mut on = Vec::new();
        for step in 0..6 {
            on.push(recorder.is_on());
            let span = Record { instance: step, op: step, ..Record::default() };
            recorder.mark(&Record { kind: Kind::Forward, ..span });
            recorder.mark(&Record { kind: Kind::Step, ..span });
        }
        recorder.mark(&Record { kind: Kind::Forward, instance: 3, ..Record::default() });
        assert!(recorder.is_on(), "whoever comes later begins with a later step");
        recorder.finish();
        assert_eq!(on, [false, false, true, true, false, false]);
        let (header, ops) = read(&wanted.path);
        assert_eq!(ops, [2, 2, 3, 3, 0]);
        assert_eq!(dropped(&header), 0, "what nobody asked for is not missing");
    }
}
