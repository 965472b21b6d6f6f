//! Links between ranks of one host: data stays in the sender's registered memory, and the receiver copies it from
//! there.

pub mod claims;
pub mod large_pages;
pub mod link;
pub mod mailbox;
pub mod pass_fd;
pub mod ping_pong;
pub mod reach;
pub mod reduce;
pub mod take;
