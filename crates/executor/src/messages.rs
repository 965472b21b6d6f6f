//! Moves messages of no program; `hocket_protocol::messages` matches sends with receives.
//!
//! Between neighbours, the receiver copies out of the sender's registered memory; over a connection, the sender's bytes
//! go straight into the receiver's. An error names the rank that a wait is for.

use crate::core::{Core, OUTSIDE};
use crate::failure::Who;
use crate::lock::lock;
use hocket_ids::Rank;
use hocket_kernels::DType;
use hocket_protocol::frame::NO_PROGRAM;
use hocket_protocol::messages::Offer;
use hocket_protocol::why::Why;
use hocket_wire::link::{Cards, Land, Landing, Message, Post, Receive};
use hocket_wire::memory::Region;

/// Priority of all messages: after every bucket that a user gave a priority would be too late for a pipeline's
/// activations.
const PRIORITY: u64 = 0;

impl Core {
    /// Offers `region` to `to`; its number.
    pub fn send_message(&self, to: Rank, tag: u64, region: Region, notice: bool) -> u32 {
        let (place, bytes) = (region.arena_offset(), region.len() as u64);
        let number = lock(&self.messages).send(to, region, notice);
        let peer = self.peer(to);
        let place = peer.link.memory().map(|_| place);
        self.post(peer, Post::Offer { send: number, tag, bytes, place });
        number
    }

    /// Receives into `region`; its number.
    pub fn receive_message(&self, from: Option<Rank>, tag: u64, region: Region, notice: bool) -> u32 {
        let (number, taken) = lock(&self.messages).receive(from, tag, region, notice);
        match taken {
            Ok(Some(offer)) => self.take(number, offer),
            Ok(None) => {}
            Err(what) => self.fail_here(None, what),
        }
        number
    }

    /// The rank that an open message waits for, if it is one rank, and the end of a sentence about it.
    pub fn message_waits_for(&self, number: u32) -> (Option<Who>, String) {
        let Some((rank, sends)) = lock(&self.messages).ends(number) else { return (None, "nobody".into()) };
        let who = rank.map(|rank| self.peer(rank).who.clone());
        let name = who.as_ref().map_or_else(|| "any rank".to_owned(), ToString::to_string);
        (who, format!("{name} to {}", if sends { "receive" } else { "send" }))
    }

    /// A peer offers.
    pub fn handle_offer(&self, offer: Offer) -> Result<(), String> {
        let taken = lock(&self.messages).handle_offer(offer)?;
        if let Some(receive) = taken {
            self.take(receive, offer);
        }
        Ok(())
    }

    /// The peer is ready to receive our send over the connection.
    pub fn handle_accept(&self, from: Rank, send: u32, receive: u32) -> Result<(), String> {
        let region = lock(&self.messages).source(from, send)?;
        let message = Message {
            priority: PRIORITY,
            cards: Cards::ALL,
            program: NO_PROGRAM,
            instance: receive,
            op: send,
            peer_op: 0,
            region,
            dtype: DType::U8,
            wire: DType::U8,
        };
        self.push(self.peer(from), message);
        Ok(())
    }

    /// A neighbour has copied our send.
    pub fn handle_taken(&self, from: Rank, send: u32) -> Result<(), String> {
        lock(&self.messages).source(from, send)?;
        self.finish_message(send);
        Ok(())
    }

    /// All bytes of our send are with the system or the receiver, or all of our receive are in place.
    pub fn finish_message(&self, number: u32) {
        lock(&self.messages).finish(number);
        self.note_change();
    }

    /// Where a payload for one of our receives lands.
    pub fn message_landing(
        &self,
        from: Rank,
        receive: u32,
        offset_bytes: u64,
        payload_bytes: u32,
    ) -> Result<Landing, String> {
        let region = lock(&self.messages).landing(from, receive, offset_bytes, payload_bytes)?;
        Ok(Landing { region, land: Land::Store })
    }

    /// That payload is in place.
    pub fn message_landed(&self, receive: u32, payload_bytes: u32) {
        if lock(&self.messages).landed(receive, payload_bytes) {
            self.note_change();
        }
    }

    /// Receive `receive` takes `offer`: from a neighbour at once, otherwise when the bytes arrive.
    fn take(&self, receive: u32, offer: Offer) {
        let Some(region) = lock(&self.messages).take(receive, offer.from) else { return };
        let peer = self.peer(offer.from);
        let (Some(memory), Some(place)) = (peer.link.memory(), offer.place) else {
            let bytes = region.len() as u64;
            return self.invite(
                peer,
                Receive { program: NO_PROGRAM, instance: receive, op: 0, peer_op: offer.send, bytes },
            );
        };
        let Some(source) = Region::new(memory, place, offer.bytes) else {
            return self.fail(peer.failed(Why::Violation, None, OUTSIDE));
        };
        region.copy_from(&source, region.len());
        self.post(peer, Post::Given { send: offer.send });
        self.finish_message(receive);
    }
}
