//! Messages of no program: what their owner calls, and how they move; `hocket_protocol::messages` matches sends with receives.
//!
//! Between neighbours, the receiver copies out of the sender's registered memory; over a connection, the sender's bytes
//! go straight into the receiver's. An error names the rank that a wait is for.

use crate::core::{Core, OUTSIDE};
use crate::engine::{Engine, WAKE};
use crate::error::Error;
use crate::failure::Who;
use crate::lock::lock;
use crate::peer::Peers;
use crate::waiting::Waiting;
use crate::waits::NotedWait;
use hocket_ids::Rank;
use hocket_kernels::DType;
use hocket_protocol::frame::NO_PROGRAM;
use hocket_protocol::messages::Offer;
use hocket_protocol::why::Why;
use hocket_wire::link::{Cards, Land, Landing, Message, Post, Receive};
use hocket_wire::memory::Region;
use std::time::{Duration, Instant};

/// Priority of all messages: after every bucket that a user gave a priority would be too late for a pipeline's
/// activations.
const PRIORITY: u64 = 0;

impl Engine {
    /// Offers `region` to `to`; the region must not be written until the message is complete. Returns the message's
    /// number. [`Self::wait_message`] waits for it, or with `notice` [`Self::next_message`].
    pub fn send(&self, to: Rank, tag: u64, region: Region, notice: bool) -> Result<u32, Error> {
        let core = self.core();
        check_peer(&core, to, &region)?;
        Ok(core.send_message(to, tag, region, notice))
    }

    /// Receives a message with that tag from `from`, or from anyone, into `region`, which has the same size. Returns
    /// its number.
    pub fn receive(&self, from: Option<Rank>, tag: u64, region: Region, notice: bool) -> Result<u32, Error> {
        let core = self.core();
        if let Some(from) = from {
            check_peer(&core, from, &region)?;
        } else {
            check_mesh(&core)?.all().flatten().try_for_each(|peer| peer.register(&region))?;
        }
        Ok(core.receive_message(from, tag, region, notice))
    }

    /// Waits for a message; returns its peer. `interrupted` is as in [`Engine::wait`] and ends with `Ok(None)`. A receive
    /// that runs out of time is withdrawn.
    pub fn wait_message(
        &self,
        number: u32,
        timeout: Duration,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<Option<Rank>, Error> {
        let core = self.core();
        let deadline = Instant::now() + timeout;
        let mut noted = None;
        loop {
            if let Some(peer) = lock(&core.messages).remove_done(number) {
                return Ok(Some(peer));
            }
            if let Some(failure) = core.failure() {
                return Err(failure);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let error = self.give_up_message(number, timeout);
                return lock(&core.messages).remove_done(number).map(Some).ok_or(error);
            }
            core.wait_for_change(left.min(WAKE), || !lock(&core.messages).is_done(number));
            noted.get_or_insert_with(|| NotedWait::new(&core, Waiting::Message(number)));
            if interrupted() {
                return Ok(None);
            }
        }
    }

    /// Waits for the next complete message among those with a notice; returns it with its peer, or `None` when the time
    /// is up.
    pub fn next_message(&self, timeout: Duration) -> Result<Option<(u32, Rank)>, Error> {
        let core = self.core();
        let next_notice = || lock(&core.messages).next_notice();
        if let Some(message) = next_notice() {
            return Ok(Some(message));
        }
        core.wait_for_change(timeout, || !lock(&core.messages).has_notice());
        match next_notice() {
            Some(message) => Ok(Some(message)),
            None => core.failure().map_or(Ok(None), Err),
        }
    }
}

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

fn check_mesh(core: &Core) -> Result<&Peers, Error> {
    match core.peers.get() {
        Some(peers) => core.failure().map_or(Ok(peers), Err),
        None => Err(Error::Usage("messages are sent after `connect`".into())),
    }
}

fn check_peer(core: &Core, rank: Rank, region: &Region) -> Result<(), Error> {
    let own = core.own.rank;
    let peers = check_mesh(core)?;
    let peer = peers.get(rank).ok_or_else(|| {
        Error::Usage(match peers.who(rank).filter(|_| rank != own) {
            Some(who) => format!(
                "a message between rank {own} and {who}, which cannot reach each other: only collectives go through other ranks"
            ),
            None => format!("a message between rank {own} and rank {rank}"),
        })
    })?;
    if peer.link.has_left() {
        return Err(core.refused(peer.left(None, "")));
    }
    peer.register(region)
}
