//! The file, as the thread that writes it sees it: when it ends before its run does, people are told so once.

use crate::bounds::Bounds;
use crate::layout::{End, HEADER_BYTES, Header, RECORD_BYTES};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub type Say = Box<dyn FnMut(&str) + Send>;

/// Says it on standard error, as no thread of the script has to do anything for that.
pub fn on_stderr() -> Say {
    // Without standard error, nobody could be told of that either.
    Box::new(|sentence| drop(writeln!(io::stderr(), "hocket: {sentence}")))
}

pub struct Output {
    file: File,
    path: PathBuf,
    /// As it should be in the file.
    header: Header,
    shown: (u64, End),
    records_max: u64,
    written: u64,
    say: Say,
}

impl Output {
    pub fn create(path: &Path, rank: u32, world: u32, bounds: Bounds, say: Say) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let header = Header { rank, world, bounds, ..Header::default() };
        file.write_all(&header.to_bytes())?;
        Ok(Self::on(file, path, header, say))
    }

    fn on(file: File, path: &Path, header: Header, say: Say) -> Self {
        let records_max = header.bounds.records_max(HEADER_BYTES, RECORD_BYTES);
        Self { file, path: path.into(), header, shown: (0, End::Whole), records_max, written: 0, say }
    }

    /// Whether it takes no more records.
    pub fn has_ended(&self) -> bool {
        self.header.end != End::Whole
    }

    /// Appends these records, or as many as it takes; returns how many it does not.
    pub fn append(&mut self, records: &[[u8; RECORD_BYTES]]) -> u64 {
        let given = records.len() as u64;
        if self.has_ended() {
            return given;
        }
        let room = given.min(self.records_max - self.written);
        let before = self.written;
        if let Err(error) = self.write(records[..room as usize].as_flattened()) {
            self.end(End::Unwritable, &format!("cannot be written: {error}"));
        } else if room < given {
            let bytes = HEADER_BYTES as u64 + self.records_max * RECORD_BYTES as u64;
            let hint = if self.header.bounds.bytes_max.is_some() { " (HOCKET_TRACE_BYTES)" } else { "" };
            self.end(End::Full, &format!("has {bytes} bytes, as many as it may{hint}"));
        }
        given - (self.written - before)
    }

    /// So many records have been dropped up to now.
    pub fn note_dropped(&mut self, dropped: u64) {
        self.header.dropped = dropped;
        let shown = (dropped, self.header.end);
        if shown == self.shown {
            return;
        }
        match self.file.write_all_at(&self.header.to_bytes(), 0) {
            Ok(()) => self.shown = shown,
            Err(error) => self.end(End::Unwritable, &format!("cannot be written: {error}")),
        }
    }

    /// Whole records that lie there count as written, whatever happens to the others.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let at = HEADER_BYTES as u64 + self.written * RECORD_BYTES as u64;
        let mut done = 0;
        let result = loop {
            if done == bytes.len() {
                break Ok(());
            }
            match self.file.write_at(&bytes[done..], at + done as u64) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(more) => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.written += (done / RECORD_BYTES) as u64;
        if result.is_err() {
            // Where this fails, too, readers pass over the part of a record at the end.
            drop(self.file.set_len(HEADER_BYTES as u64 + self.written * RECORD_BYTES as u64));
        }
        result
    }

    fn end(&mut self, end: End, what: &str) {
        if self.has_ended() {
            return;
        }
        self.header.end = end;
        (self.say)(&format!(
            "rank {}: the trace's events: not in the trace any more, and training goes on without: {} {what}",
            self.header.rank,
            self.path.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const RECORD: [u8; RECORD_BYTES] = [7; RECORD_BYTES];

    fn collected() -> (Arc<Mutex<Vec<String>>>, Say) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&said);
        (said, Box::new(move |sentence| theirs.lock().unwrap().push(sentence.to_owned())))
    }

    /// Broken: a full disk would pass as a whole trace, be told in each flush, or cost the training.
    #[test]
    fn a_disk_that_is_full_is_said_once_and_what_it_does_not_take_is_counted() {
        let path = Path::new("/dev/full");
        let refused = Output::create(path, 0, 1, Bounds::default(), on_stderr());
        assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::StorageFull));
        let (said, say) = collected();
        let file = File::options().write(true).open(path).unwrap();
        let mut output = Output::on(file, path, Header { rank: 3, ..Header::default() }, say);
        assert_eq!(output.append(&[RECORD; 2]), 2);
        assert_eq!(output.append(&[RECORD]), 1);
        output.note_dropped(3);
        assert!(output.has_ended());
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("rank 3: the trace's events: not in the trace any more"), "{said:?}");
        assert!(said[0].contains("/dev/full cannot be written: No space left on device"), "{said:?}");
    }

    /// Broken: a bounded trace would grow beyond its bound, or nobody could tell that it has one.
    #[test]
    fn a_full_file_is_said_once_and_keeps_to_its_bytes() {
        let path = std::env::temp_dir().join(format!("hocket-trace-bounded-{}", std::process::id()));
        let bounds = Bounds { first: 2, stop: Some(9), bytes_max: Some(300) };
        let (said, say) = collected();
        let mut output = Output::create(&path, 0, 1, bounds, say).unwrap();
        assert_eq!(output.append(&[RECORD; 2]), 0);
        assert!(said.lock().unwrap().is_empty());
        let dropped = output.append(&[RECORD; 2]) + output.append(&[RECORD; 2]);
        output.note_dropped(dropped);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let header = Header { rank: 0, world: 1, bounds, dropped: 3, end: End::Full };
        assert_eq!(bytes[..HEADER_BYTES], header.to_bytes());
        assert_eq!(bytes.len(), HEADER_BYTES + 3 * RECORD_BYTES);
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].ends_with("has 256 bytes, as many as it may (HOCKET_TRACE_BYTES)"), "{said:?}");
    }
}
