//! Messages of no program: a send and a receive are matched by peer and tag when both are there.
//!
//! A send is offered, and its bytes move when a receive accepts the offer: a message that nobody receives costs its
//! receiver an entry here, but no memory for bytes. Offers of one sender are accepted in order, and so are receives
//! that match the same offer (MPI 4.1, §3.5). No I/O: the caller moves the bytes.

use hocket_ids::Rank;
use std::collections::VecDeque;

/// Limit of offers without a receive: far more than any sane program has open.
pub const OFFERS_MAX: usize = 1 << 16;

/// A peer's offer of a message to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The offering rank.
    pub from: Rank,
    /// Its number of the send.
    pub send: u32,
    /// Must equal the receive's tag.
    pub tag: u64,
    /// Length of the message.
    pub bytes: u64,
    /// Offset of the bytes in its arena, if it is a neighbour.
    pub place: Option<u64>,
}

/// A receive that was offered nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Our number of the receive.
    pub receive: u32,
    /// The source; `None` for any rank.
    pub from: Option<Rank>,
    /// Must equal the send's tag.
    pub tag: u64,
    /// Length of the message.
    pub bytes: u64,
}

impl Wanted {
    fn takes(&self, offer: &Offer) -> bool {
        self.tag == offer.tag && self.from.is_none_or(|from| from == offer.from)
    }
}

/// Open offers and receives of one rank.
#[derive(Debug, Default)]
pub struct Messages {
    offers: VecDeque<Offer>,
    wanted: VecDeque<Wanted>,
}

impl Messages {
    /// Opens a receive; returns the offer that it accepts, if there is one. `Err`: the two differ in size.
    pub fn handle_receive(&mut self, wanted: Wanted) -> Result<Option<Offer>, String> {
        let Some(at) = self.offers.iter().position(|offer| wanted.takes(offer)) else {
            self.wanted.push_back(wanted);
            return Ok(None);
        };
        let offer = self.offers.remove(at);
        offer.map(|offer| same_size(&wanted, &offer).map(|()| offer)).transpose()
    }

    /// Adds a peer's offer; returns the receive that accepts it, if there is one. `Err`: the two differ in size, or the
    /// peer has too many offers.
    pub fn handle_offer(&mut self, offer: Offer) -> Result<Option<Wanted>, String> {
        let Some(at) = self.wanted.iter().position(|wanted| wanted.takes(&offer)) else {
            if self.offers.len() >= OFFERS_MAX {
                return Err(format!("{OFFERS_MAX} messages are offered that nobody receives"));
            }
            self.offers.push_back(offer);
            return Ok(None);
        };
        let wanted = self.wanted.remove(at);
        wanted.map(|wanted| same_size(&wanted, &offer).map(|()| wanted)).transpose()
    }

    /// Withdraws a receive; whether it was still open.
    pub fn withdraw(&mut self, receive: u32) -> bool {
        let before = self.wanted.len();
        self.wanted.retain(|wanted| wanted.receive != receive);
        self.wanted.len() < before
    }

    /// Whether a receive waits for this particular rank.
    pub fn wants_of(&self, rank: Rank) -> bool {
        self.wanted.iter().any(|wanted| wanted.from == Some(rank))
    }
}

fn same_size(wanted: &Wanted, offer: &Offer) -> Result<(), String> {
    if wanted.bytes == offer.bytes {
        return Ok(());
    }
    Err(format!(
        "rank {} sends {} bytes where {} are received (tag {:#x})",
        offer.from, offer.bytes, wanted.bytes, offer.tag
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(receive: u32, from: Option<u32>, tag: u64) -> Wanted {
        Wanted { receive, from: from.map(Rank), tag, bytes: 8 }
    }

    fn offer(from: u32, send: u32, tag: u64) -> Offer {
        Offer { from: Rank(from), send, tag, bytes: 8, place: None }
    }

    /// Two messages of one sender would be swapped: a later activation would arrive in place of an earlier one.
    #[test]
    fn offers_are_taken_in_order_whatever_comes_first() {
        let mut messages = Messages::default();
        for send in 0..2 {
            assert_eq!(messages.handle_offer(offer(1, send, 5)), Ok(None));
        }
        assert_eq!(messages.handle_receive(wanted(7, Some(1), 5)).unwrap().unwrap().send, 0);
        assert_eq!(messages.handle_receive(wanted(8, None, 5)).unwrap().unwrap().send, 1);
        assert_eq!(messages.handle_receive(wanted(9, None, 5)), Ok(None));
        assert_eq!(messages.handle_receive(wanted(10, Some(1), 5)), Ok(None));
        assert_eq!(messages.handle_offer(offer(1, 2, 5)).unwrap().unwrap().receive, 9);
        assert_eq!(messages.handle_offer(offer(1, 3, 6)), Ok(None));
        assert!(messages.wants_of(Rank(1)));
        assert!(messages.withdraw(10));
        assert!(!messages.withdraw(10));
    }

    /// Bytes would land past the end of a receiver's buffer.
    #[test]
    fn sizes_that_differ_are_named() {
        let mut messages = Messages::default();
        assert_eq!(messages.handle_offer(Offer { bytes: 12, ..offer(3, 0, 1) }), Ok(None));
        let refusal = messages.handle_receive(wanted(0, Some(3), 1)).unwrap_err();
        assert_eq!(refusal, "rank 3 sends 12 bytes where 8 are received (tag 0x1)");
    }

    proptest! {
        /// A message that is lost, or received twice or by the wrong receive, hangs or corrupts a job. Compares with
        /// the plain definition.
        #[test]
        fn every_pair_meets_once(events in prop::collection::vec((any::<bool>(), 0..3u32, 0..2u64, any::<bool>()), 0..60)) {
            let mut messages = Messages::default();
            let (mut offers, mut wants) = (Vec::new(), Vec::new());
            for (at, (is_offer, from, tag, any)) in events.into_iter().enumerate() {
                if is_offer {
                    let made = offer(from, at as u32, tag);
                    let expected = wants.iter().position(|each: &Wanted| each.takes(&made)).map(|at| wants.remove(at));
                    if expected.is_none() { offers.push(made); }
                    prop_assert_eq!(messages.handle_offer(made).unwrap(), expected);
                } else {
                    let made = wanted(at as u32, (!any).then_some(from), tag);
                    let expected = offers.iter().position(|each| made.takes(each)).map(|at| offers.remove(at));
                    if expected.is_none() { wants.push(made); }
                    prop_assert_eq!(messages.handle_receive(made).unwrap(), expected);
                }
            }
        }
    }
}
