//! A frame of a TAP device: an offload header, then Ethernet. Parsed as far as a switch needs.
//!
//! With offloads a frame may be a batch of TCP segments that share one header; on a wire each would have its own.

/// Of `struct virtio_net_hdr`, which precedes every frame: flags, kind of batch, three u16 and two offsets.
pub const HEADER_BYTES: usize = 10;
const MAC_BYTES: usize = 6;
const ETHERNET_BYTES: usize = 14;
const TCP_HEADER_BYTES_MIN: usize = 20;
const NO_BATCH: u8 = 0;
/// Addresses of hosts are these four bytes and then the index of the port, big-endian.
pub const MAC_PREFIX: [u8; 4] = [0x02, 0x68, 0x6b, 0x00];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Port(usize),
    Everyone,
    /// No host has that address, or the frame is too short to have one.
    Nobody,
}

/// A frame's size on a wire: bytes from the Ethernet header on, and how many of them come first as one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    pub bytes: u64,
    pub packet_bytes: u64,
}

/// One frame with its offload header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// From the bytes read from a TAP device.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes to write to a TAP device.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn destination(&self, ports: usize) -> Destination {
        let Some(address) = self.0.get(HEADER_BYTES..HEADER_BYTES + MAC_BYTES) else {
            return Destination::Nobody;
        };
        if address[0] & 1 == 1 {
            return Destination::Everyone;
        }
        let port = usize::from(u16::from_be_bytes([address[4], address[5]]));
        if address[..4] == MAC_PREFIX && port < ports { Destination::Port(port) } else { Destination::Nobody }
    }

    pub(crate) fn wire(&self) -> Wire {
        let whole = self.0.len().saturating_sub(HEADER_BYTES);
        self.batch(whole).unwrap_or(Wire { bytes: whole as u64, packet_bytes: whole as u64 })
    }

    /// The size of a batch, which repeats its headers up to the end of TCP's, once per segment. `None`: no batch.
    fn batch(&self, whole: usize) -> Option<Wire> {
        if *self.0.get(1)? == NO_BATCH {
            return None;
        }
        let (segment, transport) = (self.offload(4)?, self.offload(6)?);
        let data_offset = *self.0.get(HEADER_BYTES + transport + 12)?;
        let headers = transport + (usize::from(data_offset >> 4) * 4).max(TCP_HEADER_BYTES_MIN);
        let payload = whole.checked_sub(headers)?;
        if segment == 0 || payload <= segment || transport < ETHERNET_BYTES {
            return None;
        }
        let packets = payload.div_ceil(segment);
        Some(Wire { bytes: (payload + packets * headers) as u64, packet_bytes: (segment + headers) as u64 })
    }

    /// A number of the offload header: it is in the machine's own byte order.
    fn offload(&self, at: usize) -> Option<usize> {
        let pair = self.0.get(at..at + 2)?;
        Some(usize::from(u16::from_ne_bytes([pair[0], pair[1]])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(address: [u8; 6], header: [u8; HEADER_BYTES], body: usize) -> Frame {
        let mut bytes = header.to_vec();
        bytes.extend(address);
        bytes.resize(HEADER_BYTES + body, 0);
        Frame::new(bytes)
    }

    /// Frames would go to the wrong host, or ARP would find nobody.
    #[test]
    fn addresses_name_ports() {
        let to = |address| frame(address, [0; HEADER_BYTES], 60).destination(3);
        assert_eq!(to([0x02, 0x68, 0x6b, 0, 0, 2]), Destination::Port(2));
        assert_eq!(to([0x02, 0x68, 0x6b, 0, 0, 3]), Destination::Nobody);
        assert_eq!(to([0x02, 0x68, 0x6b, 1, 0, 2]), Destination::Nobody);
        assert_eq!(to([0xff; 6]), Destination::Everyone);
        assert_eq!(to([0x33, 0x33, 0, 0, 0, 1]), Destination::Everyone);
        assert_eq!(Frame::new(vec![0; HEADER_BYTES + 5]).destination(3), Destination::Nobody);
    }

    /// A batch of 44 segments would pass for one packet, and rates would be 3 % too high.
    #[test]
    fn a_batch_counts_the_headers_of_every_segment() {
        let mut header = [0; HEADER_BYTES];
        header[1] = 1;
        header[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        header[6..8].copy_from_slice(&34u16.to_ne_bytes());
        let mut bytes = frame([0; 6], header, 66 + 3 * 1448 + 100).bytes().to_vec();
        bytes[HEADER_BYTES + 34 + 12] = 8 << 4;
        let wire = Frame::new(bytes).wire();
        assert_eq!(wire, Wire { bytes: 4 * 66 + 3 * 1448 + 100, packet_bytes: 66 + 1448 });
        assert_eq!(frame([0; 6], [0; HEADER_BYTES], 1000).wire(), Wire { bytes: 1000, packet_bytes: 1000 });
    }

    proptest! {
        /// A host could crash the switch with a malformed frame.
        #[test]
        fn any_bytes_are_a_frame(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let frame = Frame::new(bytes.clone());
            frame.destination(4);
            let wire = frame.wire();
            prop_assert!(wire.packet_bytes <= wire.bytes);
            prop_assert!(wire.bytes >= bytes.len().saturating_sub(HEADER_BYTES) as u64);
        }
    }
}
