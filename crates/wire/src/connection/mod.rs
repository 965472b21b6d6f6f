//! Framed connections, plain or within TLS: each link has one at least, which carries its words.

mod buffer;
mod framed;
mod give_up;
mod info;
mod lane;
mod receive;
mod stream;
pub mod tls;
mod transmit;

pub use framed::Framed;
pub use give_up::give_up;
pub use info::Info;
pub use lane::{Lane, Terms};
pub use receive::Receiver;
pub use stream::Stream;
pub use transmit::{Outcome, Outgoing, Transmitter};
