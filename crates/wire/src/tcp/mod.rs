//! Framed connections: to ranks of other hosts over TCP, and the control channel to ranks of the same host.

mod buffer;
mod framed;
mod give_up;
mod info;
mod lane;
mod link;
mod receive;
mod stream;
pub mod tls;
mod transmit;

pub use framed::Framed;
pub use give_up::give_up;
pub use info::Info;
pub use lane::{Lane, Terms};
pub use link::{TcpLink, TcpPort};
pub use receive::Receiver;
pub use stream::Stream;
pub use transmit::{Outcome, Outgoing, Pace, Transmitter};
