//! Writes records to a file without making native threads wait for the disk.
//!
//! Budget: a push copies 64 bytes under a lock that is held for nothing else (some tens of nanoseconds); a thread of its
//! own swaps the buffer out and writes it. What a crash can lose is what came since the last swap.

use crate::record::{RECORD_BYTES, Record, header};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the buffer is written out.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Records that wait for the disk at most: 64 MiB. More are counted and dropped, and the header says how many.
const WAITING_BYTES_MAX: usize = 64 << 20;

struct Shared {
    buffer: Mutex<Buffer>,
    stop: Condvar,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    dropped: u64,
    stopping: bool,
}

/// The recording end of a trace file.
pub struct Recorder {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Recorder {
    /// Creates the file. `clock_offset_ns` added to a time gives rank 0's.
    pub fn create(path: &Path, rank: u32, world: u32, clock_offset_ns: i64) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(&header(rank, world, clock_offset_ns, 0))?;
        let shared = Arc::new(Shared { buffer: Mutex::default(), stop: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let writer = thread::Builder::new().name("hocket-trace".into()).spawn(move || {
            let dropped = write_until_stopped(&theirs, &mut file)?;
            if dropped > 0 {
                file.seek(SeekFrom::Start(0))?;
                file.write_all(&header(rank, world, clock_offset_ns, dropped))?;
            }
            file.flush()
        })?;
        Ok(Self { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Adds a record.
    pub fn push(&self, record: &Record) {
        let mut buffer = lock(&self.shared.buffer);
        if buffer.bytes.len() + RECORD_BYTES > WAITING_BYTES_MAX {
            buffer.dropped += 1;
        } else {
            buffer.bytes.extend_from_slice(&record.encode());
        }
    }

    /// Writes what waits and closes the file; idempotent.
    pub fn finish(&self) -> io::Result<()> {
        let Some(writer) = lock(&self.writer).take() else { return Ok(()) };
        lock(&self.shared.buffer).stopping = true;
        self.shared.stop.notify_all();
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the trace's writer panicked")))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Whoever needs to know that the trace is whole calls `finish`.
        drop(self.finish());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the count of dropped records.
fn write_until_stopped(shared: &Shared, file: &mut File) -> io::Result<u64> {
    let mut full = Vec::new();
    loop {
        let mut buffer = lock(&shared.buffer);
        if !buffer.stopping {
            let waited = shared.stop.wait_timeout(buffer, FLUSH_EVERY);
            buffer = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (stopping, dropped) = (buffer.stopping, buffer.dropped);
        std::mem::swap(&mut buffer.bytes, &mut full);
        drop(buffer);
        file.write_all(&full)?;
        full.clear();
        if stopping {
            return Ok(dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HEADER_BYTES;

    /// A report would miss events that native threads recorded.
    #[test]
    fn every_push_of_every_thread_is_in_the_file() {
        let path = std::env::temp_dir().join(format!("hocket-recorder-{}", std::process::id()));
        let recorder = Recorder::create(&path, 0, 1, 0).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|op| recorder.push(&Record { op, ..Record::default() })));
            }
        });
        recorder.finish().unwrap();
        recorder.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes.len(), HEADER_BYTES + 4000 * RECORD_BYTES);
    }
}
