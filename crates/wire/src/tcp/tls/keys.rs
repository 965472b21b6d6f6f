//! The keys of a session: what rustls agreed on, as keys that seal and open records, and the keys that follow them.

use super::broken;
use super::protection::Protection;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{Error, ExtractedSecrets};
use std::io;

/// What the next keys of either direction are made from.
pub struct Keys(Side);

enum Side {
    Connector(KernelConnection<ClientConnectionData>),
    Acceptor(KernelConnection<ServerConnectionData>),
}

impl Keys {
    /// Of a session that we opened, whose handshake is done: also the first keys, to seal and to open with.
    pub fn of_connector(session: UnbufferedClientConnection) -> io::Result<(Self, Protection, Protection)> {
        let (secrets, rest) = session.dangerous_into_kernel_connection().map_err(broken)?;
        Self::first(Side::Connector(rest), secrets)
    }

    /// Of a session that a peer opened.
    pub fn of_acceptor(session: UnbufferedServerConnection) -> io::Result<(Self, Protection, Protection)> {
        let (secrets, rest) = session.dangerous_into_kernel_connection().map_err(broken)?;
        Self::first(Side::Acceptor(rest), secrets)
    }

    fn first(side: Side, secrets: ExtractedSecrets) -> io::Result<(Self, Protection, Protection)> {
        let ExtractedSecrets { tx: (sent, tx), rx: (received, rx) } = secrets;
        Ok((Self(side), Protection::new(sent, &tx)?, Protection::new(received, &rx)?))
    }

    /// The key that our next records are sealed with.
    pub fn next_to_seal(&mut self) -> io::Result<Protection> {
        let next: Result<_, Error> = match &mut self.0 {
            Side::Connector(side) => side.update_tx_secret(),
            Side::Acceptor(side) => side.update_tx_secret(),
        };
        let (sequence, secrets) = next.map_err(broken)?;
        Protection::new(sequence, &secrets)
    }

    /// The key that the peer's next records are sealed with.
    pub fn next_to_open(&mut self) -> io::Result<Protection> {
        let next: Result<_, Error> = match &mut self.0 {
            Side::Connector(side) => side.update_rx_secret(),
            Side::Acceptor(side) => side.update_rx_secret(),
        };
        let (sequence, secrets) = next.map_err(broken)?;
        Protection::new(sequence, &secrets)
    }
}
