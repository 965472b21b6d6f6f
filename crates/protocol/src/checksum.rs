//! CRC32C over whole frames, for networks whose own checks are not trusted: TCP's 16-bit sum misses one damaged segment
//! in 65,536, and nothing protects bytes between a network card and memory.
//!
//! The sum covers the header (with its checksum field zero) and the payload; it travels in the header. A second, short
//! one covers the header alone: a receiver must not wait for a payload of a length that nobody sent. Both detect
//! accidents, not attacks: an attacker who writes to the wire can also compute the sums, and TLS protects against those.
//! The polynomial is Castagnoli's (RFC 3720, §12.1), because processors have an instruction for it.

use crate::frame::{CHECKSUM_AT, FLAGS_AT, HEADER_BYTES, HEADER_SUM_AT, SEALED};

/// Adds the flag and both sums to an encoded header whose frame carries `payload`.
pub fn seal(header: &mut [u8; HEADER_BYTES], payload: &[u8]) {
    header[FLAGS_AT] |= SEALED;
    let own = header_sum(header);
    header[HEADER_SUM_AT..HEADER_SUM_AT + 2].copy_from_slice(&own.to_le_bytes());
    let sum = crc32c::crc32c_append(sum_of(header), payload);
    header[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
}

/// The sum of a frame that arrives in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    wanted: u32,
    found: u32,
}

/// A frame whose checksum does not match, or a header that does not match its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The sum in its header.
    pub wanted: u32,
    /// The sum of the received bytes.
    pub found: u32,
}

/// What a job whose frames carry sums makes of a header, before it looks at anything else there.
pub fn check_header(header: &[u8; HEADER_BYTES]) -> Result<(), HeaderError> {
    let [low, high] = [header[HEADER_SUM_AT], header[HEADER_SUM_AT + 1]];
    let wanted = u16::from_le_bytes([low, high]);
    if header[FLAGS_AT] == 0 && wanted == 0 && header[CHECKSUM_AT..] == [0; 4] {
        return Err(HeaderError::Unsealed);
    }
    let found = header_sum(header);
    if wanted != found || header[FLAGS_AT] != SEALED {
        return Err(HeaderError::Damaged(Damage { wanted: wanted.into(), found: found.into() }));
    }
    Ok(())
}

/// A header that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The sender adds no sums to its frames.
    Unsealed,
    /// The header changed on its way.
    Damaged(Damage),
}

impl Check {
    /// Starts with the header; `None` when it carries no checksum.
    pub fn begin(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut wanted = [0; 4];
        wanted.copy_from_slice(&header[CHECKSUM_AT..]);
        (header[FLAGS_AT] & SEALED != 0)
            .then(|| Self { wanted: u32::from_le_bytes(wanted), found: sum_of(header) })
    }

    /// Adds payload, in the order of arrival.
    pub fn add(&mut self, bytes: &[u8]) {
        self.found = crc32c::crc32c_append(self.found, bytes);
    }

    /// Whether the whole frame matches its checksum.
    pub fn finish(self) -> Result<(), Damage> {
        let Self { wanted, found } = self;
        if wanted == found { Ok(()) } else { Err(Damage { wanted, found }) }
    }
}

/// The sum of bytes that no frame carries.
pub fn sum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Of the header without its two sums. Folded to 16 bits, it still finds every flipped bit.
fn header_sum(header: &[u8; HEADER_BYTES]) -> u16 {
    let mut sum = crc32c::crc32c(&header[..HEADER_SUM_AT]);
    sum = crc32c::crc32c_append(sum, &header[HEADER_SUM_AT + 2..CHECKSUM_AT]);
    (sum ^ sum >> 16) as u16
}

fn sum_of(header: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..CHECKSUM_AT]), &[0; HEADER_BYTES - CHECKSUM_AT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Data, Frame};
    use proptest::prelude::*;

    /// The polynomial's check value (RFC 3720, appendix B.4): with another polynomial, two builds could not talk to
    /// each other.
    #[test]
    fn the_polynomial_is_castagnolis() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    /// A receiver would wait for bytes that nobody sends, or take a frame for another one, until its payload is there.
    #[test]
    fn every_flipped_bit_of_a_header_is_found_without_its_payload() {
        let mut header =
            Frame::Data(Data { program: 1, instance: 2, op: 3, offset_bytes: 4, payload_bytes: 5 }).encode();
        assert_eq!(check_header(&header), Err(HeaderError::Unsealed));
        seal(&mut header, b"value");
        assert_eq!(check_header(&header), Ok(()));
        for bit in 0..CHECKSUM_AT * 8 {
            let mut damaged = header;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(check_header(&damaged), Err(HeaderError::Damaged(_))), "bit {bit}");
        }
    }

    proptest! {
        /// One damaged bit anywhere in a frame would pass as a gradient.
        #[test]
        fn every_flipped_bit_is_found(payload in prop::collection::vec(any::<u8>(), 0..300), at: prop::sample::Index, cut: prop::sample::Index) {
            let data = Data { program: 1, instance: 2, op: 3, offset_bytes: 4, payload_bytes: payload.len() as u32 };
            let mut header = Frame::Data(data).encode();
            seal(&mut header, &payload);
            let mut bytes = [&header[..], &payload].concat();
            let check = |bytes: &[u8]| {
                let (header, payload) = bytes.split_first_chunk().unwrap();
                let (first, rest) = payload.split_at(cut.index(payload.len() + 1));
                let mut check = Check::begin(header)?;
                check.add(first);
                check.add(rest);
                Some(check.finish())
            };
            prop_assert_eq!(check(&bytes), Some(Ok(())));
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Without its flag a frame has no sum to compare; a receiver that requires sums refuses it.
            prop_assert_ne!(check(&bytes), Some(Ok(())));
        }
    }
}
