//! The kernel's statistics of a connection: round trips, acknowledged bytes, busy time.

use hocket_protocol::congestion::Bearing;
use hocket_protocol::path;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Totals of a connection since it began, and its latest estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Smoothed round trip, microseconds.
    pub round_trip_us: u32,
    /// The shortest round trip of the last minutes, microseconds.
    pub round_trip_us_min: u32,
    /// Latest rate of delivery, byte/s.
    pub delivery_byte_per_s: u64,
    /// Bytes acknowledged by the peer.
    pub acknowledged_bytes: u64,
    /// Bytes received from the peer.
    pub received_bytes: u64,
    /// Time with unacknowledged data in flight, microseconds; the kernel counts it in ticks of a few milliseconds.
    pub busy_us: u64,
    /// Data segments sent, retransmissions included.
    pub sent: u32,
    /// Data segments sent again.
    pub sent_again: u32,
    /// Mean deviation of the round trip, microseconds.
    pub deviation_us: u32,
    /// Data segments on their way, or to be sent again.
    pub unacknowledged: u32,
    /// Time since the last acknowledgement, milliseconds.
    pub acknowledged_before_ms: u32,
    /// How it stands to random losses; not of the kernel.
    pub bearing: Bearing,
    /// How many connections this is of.
    pub connections: u32,
}

/// Offsets in the kernel's `struct tcp_info` (linux/tcp.h), which grows only at its end.
const UNACKNOWLEDGED: usize = 24;
const ACKNOWLEDGED_BEFORE: usize = 56;
const ROUND_TRIP: usize = 68;
const DEVIATION: usize = 72;
const SENT_AGAIN: usize = 100;
const ACKNOWLEDGED: usize = 120;
const RECEIVED: usize = 128;
const ROUND_TRIP_MIN: usize = 148;
const SENT: usize = 156;
const DELIVERY: usize = 160;
const BUSY: usize = 168;
const KNOWN_BYTES: usize = 256;

impl Info {
    /// Statistics of a TCP socket; a field that an old kernel lacks is 0.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0_u8; KNOWN_BYTES];
        let mut length = KNOWN_BYTES as libc::socklen_t;
        // SAFETY: `bytes` has room for `length` bytes; the kernel writes no more and stores how many it wrote. The
        // descriptor is borrowed for the call. `a_connection_tells_of_itself` would see a wrong offset as wrong
        // numbers.
        let status = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::parse(&bytes))
    }

    /// Statistics of a TCP socket, as `getsockopt` has stored them; a field that is missing is 0.
    pub fn of_option(stored: &[u8]) -> Self {
        let mut bytes = [0_u8; KNOWN_BYTES];
        let known = stored.len().min(KNOWN_BYTES);
        bytes[..known].copy_from_slice(&stored[..known]);
        Self::parse(&bytes)
    }

    /// Its smoothed and least round trip, rate of delivery, bytes acknowledged, time busy and segments sent again.
    pub fn numbers(&self) -> (u32, u32, u64, u64, u64, u32) {
        let &Self { round_trip_us, round_trip_us_min, delivery_byte_per_s, .. } = self;
        let &Self { acknowledged_bytes, busy_us, sent_again, .. } = self;
        (round_trip_us, round_trip_us_min, delivery_byte_per_s, acknowledged_bytes, busy_us, sent_again)
    }

    /// The shortest round trip; none without a sample.
    pub fn shortest(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.min(self.round_trip_us_min).into())
    }

    /// What it tells of the path.
    pub fn path_at(&self, at: Duration) -> path::Look {
        path::Look {
            at,
            unacknowledged: self.unacknowledged > 0,
            acknowledged_before: Duration::from_millis(self.acknowledged_before_ms.into()),
            round_trip: Duration::from_micros(self.round_trip_us.into()),
            deviation: Duration::from_micros(self.deviation_us.into()),
        }
    }

    /// Combines two connections between the same hosts.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        Self {
            round_trip_us: self.round_trip_us.min(other.round_trip_us),
            round_trip_us_min: self.round_trip_us_min.min(other.round_trip_us_min),
            delivery_byte_per_s: self.delivery_byte_per_s.saturating_add(other.delivery_byte_per_s),
            acknowledged_bytes: self.acknowledged_bytes.saturating_add(other.acknowledged_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            busy_us: self.busy_us.max(other.busy_us),
            sent: self.sent.saturating_add(other.sent),
            sent_again: self.sent_again.saturating_add(other.sent_again),
            deviation_us: self.deviation_us.min(other.deviation_us),
            unacknowledged: self.unacknowledged.saturating_add(other.unacknowledged),
            acknowledged_before_ms: self.acknowledged_before_ms.min(other.acknowledged_before_ms),
            bearing: self.bearing.max(other.bearing),
            connections: self.connections + other.connections,
        }
    }

    fn parse(bytes: &[u8; KNOWN_BYTES]) -> Self {
        Self {
            round_trip_us: word(bytes, ROUND_TRIP),
            round_trip_us_min: word(bytes, ROUND_TRIP_MIN),
            delivery_byte_per_s: long(bytes, DELIVERY),
            acknowledged_bytes: long(bytes, ACKNOWLEDGED),
            received_bytes: long(bytes, RECEIVED),
            busy_us: long(bytes, BUSY),
            sent: word(bytes, SENT),
            sent_again: word(bytes, SENT_AGAIN),
            deviation_us: word(bytes, DEVIATION),
            unacknowledged: word(bytes, UNACKNOWLEDGED),
            acknowledged_before_ms: word(bytes, ACKNOWLEDGED_BEFORE),
            bearing: Bearing::Plain,
            connections: 1,
        }
    }
}

fn word(bytes: &[u8; KNOWN_BYTES], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |four| u32::from_ne_bytes(*four))
}

fn long(bytes: &[u8; KNOWN_BYTES], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// Rank orders would be judged by another field of the kernel's structure.
    #[test]
    fn a_connection_tells_of_itself() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        // More than both ends' buffers hold: the connection is busy until somebody reads.
        let sent = vec![7; 32 << 20];
        let reader = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let mut came = vec![0; 32 << 20];
            far.read_exact(&mut came).and_then(|()| far.write_all(b"x"))
        });
        near.write_all(&sent)?;
        near.read_exact(&mut [0])?;
        reader.join().map_err(|_| io::ErrorKind::Other)??;
        let info = Info::of(near.as_fd())?;
        // The connection's own first byte (SYN) counts as well.
        assert_eq!(info.acknowledged_bytes, (32 << 20) + 1);
        assert!(info.round_trip_us > 0 && info.round_trip_us < 1_000_000, "{info:?}");
        assert!(info.round_trip_us_min <= info.round_trip_us, "{info:?}");
        assert!(info.busy_us > 50_000 && info.busy_us < 60_000_000, "{info:?}");
        assert!(info.delivery_byte_per_s > 100_000, "{info:?}");
        // A zero-window probe may be sent again; neighbouring fields of the structure are far larger.
        assert!(info.sent_again < 100, "{info:?}");
        assert!(info.sent >= (32 << 20) / 65_536 && info.sent < 100_000, "{info:?}");
        Ok(())
    }

    /// A descriptor that is no socket would be taken for an idle connection.
    #[test]
    fn what_is_no_connection_is_refused() -> io::Result<()> {
        assert!(Info::of(std::fs::File::open("/dev/null")?.as_fd()).is_err());
        Ok(())
    }
}
