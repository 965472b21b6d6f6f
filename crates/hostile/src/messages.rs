//! Peers' offers against our receives, in any order: each offer and each receive is matched at most once, and only if
//! they fit; the number of waiting ones is bounded by what was added.

use hocket_ids::Rank;
use hocket_protocol::messages::{Messages, Offer, Wanted};
use std::collections::BTreeSet;

const EVENT_BYTES: usize = 5;

pub fn run(bytes: &[u8]) {
    let mut messages = Messages::default();
    let (mut taken, mut given) = (BTreeSet::new(), BTreeSet::new());
    for (number, event) in bytes.chunks_exact(EVENT_BYTES).enumerate() {
        let (number, rank) = (number as u32, Rank(u32::from(event[1] % 4)));
        let (tag, bytes) = (u64::from(event[2] % 4), u64::from(event[3] % 2));
        let withdrawn = u32::from(event[4]);
        match event[0] % 4 {
            0 => {
                let offer = Offer { from: rank, send: number, tag, bytes, place: None };
                if let Ok(Some(wanted)) = messages.handle_offer(offer) {
                    assert!(wanted.tag == tag && wanted.bytes == bytes, "{wanted:?} takes {offer:?}");
                    assert!(wanted.from.is_none_or(|from| from == rank), "{wanted:?} takes {offer:?}");
                    assert!(taken.insert(wanted.receive), "{wanted:?} takes twice");
                }
            }
            1 | 2 => {
                let from = (event[0] % 4 == 1).then_some(rank);
                let wanted = Wanted { receive: number, from, tag, bytes };
                if let Ok(Some(offer)) = messages.handle_receive(wanted) {
                    assert!(offer.tag == tag && offer.bytes == bytes, "{wanted:?} takes {offer:?}");
                    assert!(from.is_none_or(|from| from == offer.from), "{wanted:?} takes {offer:?}");
                    assert!(given.insert(offer.send), "{offer:?} is given twice");
                    assert!(taken.insert(number), "{wanted:?} takes twice");
                }
            }
            _ => {
                if messages.withdraw(withdrawn) {
                    assert!(taken.insert(withdrawn), "receive {withdrawn} was taken and withdrawn");
                }
            }
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let (offer, receive, from_any) = ([0, 1, 2, 1, 0], [1, 1, 2, 1, 0], [2, 0, 2, 1, 0]);
    vec![
        [offer, receive, receive, offer].concat(),
        [from_any, offer, receive, [3, 0, 0, 0, 2], offer].concat(),
    ]
}
