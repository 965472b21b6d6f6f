//! The members of a group whose memory the kernel lets this one access.

use hocket_wire::shm::large_pages::LargePages;
use hocket_wire::shm::reach::{CARD_WORDS, Card, Neighbour};
use std::io;

/// The members whose memory we can access.
#[derive(Debug)]
pub(crate) struct Reach {
    pub card: Card,
    pub found: Found,
    pub pages: LargePages,
    /// Blocks of a reduction, kept: fresh memory costs a page fault per page.
    pub blocks: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum Found {
    Open,
    /// By position; `None` for our own.
    All(Vec<Option<Neighbour>>),
    Refused(String),
}

/// Addresses of a member's bytes; `None` for our own.
pub(crate) type Place = Option<(Neighbour, u64)>;

impl Reach {
    pub fn new() -> io::Result<Self> {
        Ok(Self { card: Card::new()?, found: Found::Open, pages: LargePages::new(), blocks: Vec::new() })
    }

    pub fn card(&self) -> [u64; CARD_WORDS] {
        self.card.words()
    }

    pub fn told(&self) -> Option<String> {
        match &self.found {
            Found::Open => None,
            Found::All(_) => Some("read and written where it lies".to_owned()),
            Found::Refused(why) => Some(format!("copied through shared slots: {why}")),
        }
    }
}
