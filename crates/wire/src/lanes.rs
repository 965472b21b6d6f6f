//! The paths between two ranks of different hosts: which interface of one meets which of the other, and how often.
//!
//! The first interface of one host meets the first of the other, the second the second, and so on; the host with fewer
//! interfaces starts again at its first. Pure except for `Towards::open`.

use crate::identity::Address;
use hocket_protocol::congestion::STREAMS_MAX;
use socket2::{Domain, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Source interface and destination of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Towards {
    /// Our own interface if we have several; otherwise the system chooses.
    from: Option<IpAddr>,
    to: SocketAddr,
}

/// Connections between two ranks, at least and at most.
pub fn lanes(own: &Address, peer: &Address) -> RangeInclusive<usize> {
    let (least, most) = if peer.streams == 0 { (1, STREAMS_MAX) } else { (peer.streams, peer.streams) };
    let cards = cards(own, peer);
    cards * least..=cards * most
}

/// Cards that a message between two ranks may choose among; lane `n` is on card `n` modulo their number.
pub fn cards(own: &Address, peer: &Address) -> usize {
    own.tcp.len().max(peer.tcp.len())
}

/// The path of connection `at`, for the side that calls.
pub fn towards(own: &Address, peer: &Address, lane: usize) -> Towards {
    let to = peer.tcp[lane % peer.tcp.len()];
    let from = own.tcp[lane % own.tcp.len()].ip();
    let bound = own.tcp.len() > 1 && from.is_ipv4() == to.is_ipv4();
    Towards { from: bound.then_some(from), to }
}

impl Towards {
    /// Connects, within `timeout`.
    pub fn open(self, timeout: Duration) -> io::Result<TcpStream> {
        let Some(from) = self.from else { return TcpStream::connect_timeout(&self.to, timeout) };
        let socket = Socket::new(Domain::for_address(self.to), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect_timeout(&self.to.into(), timeout)?;
        Ok(socket.into())
    }
}

impl fmt::Display for Towards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => write!(f, "from {from} to {}", self.to),
            None => write!(f, "to {}", self.to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(interfaces: &[&str], streams: usize) -> Address {
        let tcp = interfaces.iter().map(|text| text.parse().unwrap()).collect();
        Address { tcp, host: String::new(), streams }
    }

    /// Two cards would carry what one carries, or a rank would wait for a lane that nobody opens.
    #[test]
    fn interfaces_meet_in_order_and_lanes_are_the_same_from_both_ends() {
        let two = address(&["10.0.1.1:5", "10.0.2.1:6"], 2);
        let one = address(&["10.0.1.2:7"], 2);
        assert_eq!((lanes(&two, &one), lanes(&one, &two)), (4..=4, 4..=4));
        let free = address(&["10.0.1.2:7"], 0);
        assert_eq!(lanes(&two, &free), 2..=2 * STREAMS_MAX);
        let said: Vec<String> = (0..4).map(|lane| towards(&two, &one, lane).to_string()).collect();
        assert_eq!(said[..2], ["from 10.0.1.1 to 10.0.1.2:7", "from 10.0.2.1 to 10.0.1.2:7"]);
        assert_eq!(said[2..], said[..2]);
        let back: Vec<String> = (0..2).map(|lane| towards(&one, &two, lane).to_string()).collect();
        assert_eq!(back, ["to 10.0.1.1:5", "to 10.0.2.1:6"]);
    }

    /// A host whose second interface speaks only IPv6 could not be reached over IPv4 from it.
    #[test]
    fn families_are_not_mixed() {
        let mixed = address(&["10.0.1.1:5", "[fd00::1]:6"], 1);
        let peer = address(&["[fd00::2]:7", "10.0.1.2:8"], 1);
        assert_eq!(towards(&mixed, &peer, 0).to_string(), "to [fd00::2]:7");
    }
}
