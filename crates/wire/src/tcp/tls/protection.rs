//! TLS 1.3 record protection (RFC 8446, §5.2 to §5.5): plain bytes to a sealed record and back, between any two pieces of memory.
//!
//! A record is a header of five bytes, which is authenticated too, then the content, its kind (one byte) and any zeros, all
//! encrypted, then a tag. The nonce is the record's number in its direction, so none is missing, twice or out of order.

use super::broken;
use aws_lc_rs::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use std::io;

/// Bytes before what is encrypted.
pub const HEADER_BYTES: usize = 5;
/// Plain bytes of one record (§5.1).
pub const CONTENT_BYTES_MAX: usize = 1 << 14;
/// What a record has beside its content: header, kind, tag.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// Bytes behind the header (§5.2).
pub const BODY_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;

const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
/// All records look like this one from outside.
const APPLICATION_DATA: u8 = 23;
const VERSION: [u8; 2] = [3, 3];

/// What a record is about (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An error, or the end.
    Alert,
    /// After the handshake: another key.
    Handshake,
    /// Our own bytes.
    Data,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::Data => APPLICATION_DATA,
        }
    }
}

/// The key of one direction, and the number of the next record.
pub struct Protection {
    key: LessSafeKey,
    mask: [u8; NONCE_BYTES],
    sequence: u64,
}

impl Protection {
    /// With the number of the first record.
    pub fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<Self> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(broken("a cipher that was never offered")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(broken)?;
        let mask = iv.as_ref().try_into().map_err(broken)?;
        Ok(Self { key: LessSafeKey::new(key), mask, sequence })
    }

    /// Records that this key has sealed or opened.
    pub fn records(&self) -> u64 {
        self.sequence
    }

    /// Seals `plain` into the start of `record`; returns its bytes there.
    pub fn seal(&mut self, kind: Kind, plain: &[u8], record: &mut [u8]) -> io::Result<usize> {
        let header = header(plain.len() + 1 + TAG_BYTES);
        let nonce = self.next_nonce()?;
        let record = &mut record[..plain.len() + OVERHEAD_BYTES];
        let (start, body) = record.split_at_mut(HEADER_BYTES);
        let (content, tail) = body.split_at_mut(plain.len());
        start.copy_from_slice(&header);
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(header), plain, content, &[kind.code()], tail)
            .map_err(|_| broken("a record cannot be sealed"))?;
        Ok(record.len())
    }

    /// Opens a record's `body` into `out`, which is as long as [`inner_bytes`] says; returns its kind and how much of `out` is
    /// content. When it fails, `out` holds anything.
    pub fn open_into(&mut self, body: &[u8], out: &mut [u8]) -> io::Result<(Kind, usize)> {
        let nonce = self.next_nonce()?;
        let (sealed, tag) = body.split_at(inner_bytes(body.len()));
        self.key
            .open_separate_gather(nonce, Aad::from(header(body.len())), sealed, tag, out)
            .map_err(|_| forged())?;
        content(out)
    }

    /// Opens a record's `body` where it lies; returns its kind and how much of its start is content.
    pub fn open_in_place(&mut self, body: &mut [u8]) -> io::Result<(Kind, usize)> {
        let nonce = self.next_nonce()?;
        let aad = Aad::from(header(body.len()));
        let plain = self.key.open_in_place(nonce, aad, body).map_err(|_| forged())?;
        content(plain)
    }

    fn next_nonce(&mut self) -> io::Result<Nonce> {
        let mut nonce = self.mask;
        for (byte, number) in nonce[NONCE_BYTES - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        // Keys are changed long before.
        self.sequence = self.sequence.checked_add(1).ok_or_else(|| broken("a key is used up"))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Bytes behind the header of the record that `bytes` begin with, once they are there to tell.
pub fn body_bytes(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(&[kind, major, minor, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([high, low]));
    if kind != APPLICATION_DATA
        || [major, minor] != VERSION
        || !(1 + TAG_BYTES..=BODY_BYTES_MAX).contains(&body)
    {
        return Err(broken("bytes that are no record"));
    }
    Ok(Some(body))
}

/// Bytes of content, kind and zeros in a body; at least one in any that [`body_bytes`] gives.
pub fn inner_bytes(body_bytes: usize) -> usize {
    body_bytes - TAG_BYTES
}

fn header(body_bytes: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (body_bytes as u16).to_be_bytes();
    [APPLICATION_DATA, VERSION[0], VERSION[1], high, low]
}

/// Kind and length of the content of opened bytes.
fn content(inner: &[u8]) -> io::Result<(Kind, usize)> {
    let at = inner.iter().rposition(|byte| *byte != 0).ok_or_else(|| broken("a record of no kind"))?;
    let kind = [Kind::Alert, Kind::Handshake, Kind::Data].into_iter().find(|kind| kind.code() == inner[at]);
    match kind {
        Some(kind) if at <= CONTENT_BYTES_MAX => Ok((kind, at)),
        Some(_) => Err(broken("a record that is too long")),
        None => Err(broken("a record of unknown kind")),
    }
}

fn forged() -> io::Error {
    broken("a record was not sealed with the session's key, or was changed on its way")
}
