//! The sending direction: plain bytes are sealed from where they lie into a buffer that the system takes.

use super::GATHERED_BYTES_MAX;
use super::keys::Keys;
use super::protection::{CONTENT_BYTES_MAX, Kind, OVERHEAD_BYTES, Protection};
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;

/// Full records of a turn: a frame's payload, in one call to the system.
const TURN_RECORDS: usize = 16;
/// Beside them: a record of what is gathered, and a change of key.
const TURN_BYTES: usize = TURN_RECORDS * (CONTENT_BYTES_MAX + OVERHEAD_BYTES)
    + (GATHERED_BYTES_MAX + OVERHEAD_BYTES)
    + (KEY_UPDATE.len() + OVERHEAD_BYTES);
/// A `KeyUpdate` that asks for none in return (RFC 8446, §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
/// After so many records the key is changed: 128 GiB of full ones. AES-GCM is good for 2^24.5 (RFC 8446, §5.5).
const KEY_RECORDS_MAX: u64 = if cfg!(test) { 64 } else { 1 << 23 };

/// Sealed records on their way out.
pub struct Outgoing {
    buffer: Box<[u8]>,
    /// Of `buffer`: the system has yet to take it.
    sealed: Range<usize>,
    sealing: Protection,
    /// The peer asked for another key.
    owes_key: bool,
}

impl Outgoing {
    /// Nothing yet.
    pub fn new(sealing: Protection) -> Self {
        let buffer = vec![0; TURN_BYTES].into_boxed_slice();
        Self { buffer, sealed: 0..0, sealing, owes_key: false }
    }

    /// The key is changed before the next record.
    pub fn change_key(&mut self) {
        self.owes_key = true;
    }

    /// Seals as much of `plain` as there is room for; returns how much.
    pub fn seal(&mut self, keys: &mut Keys, plain: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        while taken < plain.len() {
            let besides = OVERHEAD_BYTES + KEY_UPDATE.len() + OVERHEAD_BYTES;
            let room = (self.buffer.len() - self.sealed.end).saturating_sub(besides);
            if room == 0 {
                break;
            }
            if self.owes_key || self.sealing.records() >= KEY_RECORDS_MAX {
                self.put(Kind::Handshake, &KEY_UPDATE)?;
                self.sealing = keys.next_to_seal()?;
                self.owes_key = false;
            }
            let piece = &plain[taken..];
            let piece = &piece[..piece.len().min(CONTENT_BYTES_MAX).min(room)];
            self.put(Kind::Data, piece)?;
            taken += piece.len();
        }
        Ok(taken)
    }

    /// Gives records to the system; whether it took them all.
    pub fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        while !self.sealed.is_empty() {
            match socket.write(&self.buffer[self.sealed.clone()]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sealed.start += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sealed = 0..0;
        Ok(true)
    }

    fn put(&mut self, kind: Kind, plain: &[u8]) -> io::Result<()> {
        self.sealed.end += self.sealing.seal(kind, plain, &mut self.buffer[self.sealed.end..])?;
        Ok(())
    }
}
