//! Framed connections: to ranks of other hosts over TCP, and the control channel to ranks of the same host.

mod buffer;
mod give_up;
mod info;
mod receive;
mod stream;
pub mod tls;
mod transmit;

pub use give_up::give_up;
pub use info::Info;
pub use receive::{Land, Landing, LinkError, Receiver, Sink};
pub use stream::Stream;
pub use transmit::{Message, Outcome, Outgoing, Pace, Sent, Transmitter};
