//! The receiving direction: records are opened from a buffer straight into the reader's memory.
//!
//! A record's kind comes after its content and is written with it, so a record goes straight where there is room for one byte
//! more than its content: all but the last of a payload. That one is opened in the buffer and copied.

use super::broken;
use super::protection::{BODY_BYTES_MAX, HEADER_BYTES, Kind, Protection, body_bytes, inner_bytes};
use super::room::Room;
use std::io::{self, Read};
use std::ops::Range;

/// Taken from the system at a time; many records, and they stay in the second-level cache.
const BUFFER_BYTES: usize = 128 * 1024;
const _: () = assert!(BUFFER_BYTES > HEADER_BYTES + BODY_BYTES_MAX);
/// Records in a row that carry nothing for the reader: more would only keep us busy.
const IDLE_RECORDS_MAX: u32 = 32;
/// Type and length of a `KeyUpdate` (RFC 8446, §4.6.3); what follows says whether another is asked for in return.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
const CLOSE_NOTIFY: u8 = 0;

/// What [`Incoming::take`] met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Bytes for the reader.
    Data,
    /// The peer's next records are sealed with its next key.
    KeyUpdate {
        /// It asks us for another, too.
        ours: bool,
    },
    /// A record that does not fit what room is left: for the next reader.
    Larger,
    /// Part of a record at most.
    Nothing,
    /// The peer ends its side.
    End,
}

/// Records that came.
pub struct Incoming {
    buffer: Box<[u8]>,
    /// Of `buffer`: opened, and the reader has yet to take it.
    plain: Range<usize>,
    /// Of `buffer`: came, and is yet to be opened.
    arrived: Range<usize>,
    opening: Protection,
    idle_records: u32,
    ended: bool,
}

impl Incoming {
    /// After a handshake that already opened `plain` and came upon `sealed`.
    pub fn new(opening: Protection, plain: &[u8], sealed: &[u8]) -> io::Result<Self> {
        let mut buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let (start, end) = (plain.len(), plain.len() + sealed.len());
        if end > buffer.len() {
            return Err(broken("too much comes with the handshake"));
        }
        buffer[..start].copy_from_slice(plain);
        buffer[start..end].copy_from_slice(sealed);
        Ok(Self { buffer, plain: 0..start, arrived: start..end, opening, idle_records: 0, ended: false })
    }

    /// Opens the next record with `opening`.
    pub fn change_key(&mut self, opening: Protection) {
        self.opening = opening;
    }

    /// Takes sealed bytes from the system; 0: its end. Only after [`Met::Nothing`].
    pub fn fill(&mut self, mut socket: impl Read) -> io::Result<usize> {
        self.buffer.copy_within(self.arrived.clone(), 0);
        self.arrived = 0..self.arrived.len();
        self.plain = 0..0;
        let bytes = socket.read(&mut self.buffer[self.arrived.end..])?;
        self.arrived.end += bytes;
        Ok(bytes)
    }

    /// Moves the rest of an opened record, or the next, into `room`.
    pub fn take(&mut self, room: &mut Room<'_, '_>) -> io::Result<Met> {
        if !self.plain.is_empty() {
            self.plain.start += room.put(&self.buffer[self.plain.clone()]);
            return Ok(Met::Data);
        }
        if self.ended {
            return Ok(Met::End);
        }
        let Some(body_bytes) = body_bytes(&self.buffer[self.arrived.clone()])? else {
            return Ok(Met::Nothing);
        };
        let start = self.arrived.start + HEADER_BYTES;
        let body = start..start + body_bytes;
        if body.end > self.arrived.end {
            return Ok(Met::Nothing);
        }
        let inner_bytes = inner_bytes(body_bytes);
        if room.filled() > 0 && inner_bytes - 1 > room.left() {
            return Ok(Met::Larger);
        }
        self.arrived.start = body.end;
        let (kind, content) = if let Some(out) = room.next(inner_bytes) {
            let (kind, bytes) = self.opening.open_into(&self.buffer[body], out)?;
            if kind == Kind::Data {
                room.advance(bytes);
                return self.met_data(bytes);
            }
            (kind, &out[..bytes])
        } else {
            let (kind, bytes) = self.opening.open_in_place(&mut self.buffer[body.clone()])?;
            if kind == Kind::Data {
                let taken = room.put(&self.buffer[start..start + bytes]);
                self.plain = start + taken..start + bytes;
                return self.met_data(bytes);
            }
            (kind, &self.buffer[start..start + bytes])
        };
        let met = meaning(kind, content)?;
        self.ended = met == Met::End;
        self.met_data(0)?;
        Ok(met)
    }

    /// Counts records without data.
    fn met_data(&mut self, bytes: usize) -> io::Result<Met> {
        self.idle_records = if bytes > 0 { 0 } else { self.idle_records + 1 };
        if self.idle_records > IDLE_RECORDS_MAX {
            return Err(broken("records that carry nothing"));
        }
        Ok(Met::Data)
    }
}

/// What a record without data says.
fn meaning(kind: Kind, content: &[u8]) -> io::Result<Met> {
    match (kind, content) {
        (Kind::Alert, [_, CLOSE_NOTIFY]) => Ok(Met::End),
        (Kind::Alert, [_, code]) => Err(broken(format!("the peer gives up, alert {code}"))),
        (Kind::Handshake, [start @ .., asks @ 0..=1]) if *start == KEY_UPDATE => {
            Ok(Met::KeyUpdate { ours: *asks == 1 })
        }
        _ => Err(broken("a message that makes no sense after the handshake")),
    }
}
