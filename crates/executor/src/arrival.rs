//! Frames and posts from one peer, checked against the programs and passed to the core.

use crate::announcement::{Announcement, Offer};
use crate::core::Core;
use crate::instruction::Action;
use crate::loaded::Loaded;
use crate::lock::lock;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::frame::{Data, NO_PROGRAM};
use hocket_protocol::messages;
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use hocket_sync::meeting::Place;
use hocket_wire::link::{Arrivals, Landing, LinkError, Post, Sent, Sink};
use std::sync::Arc;

/// The sink of the link to one peer.
pub struct Arrival<'a> {
    core: &'a Core,
    peer: &'a Peer,
}

impl<'a> Arrival<'a> {
    /// For `peer`.
    pub fn new(core: &'a Core, peer: &'a Peer) -> Self {
        Self { core, peer }
    }

    /// A neighbour has copied the bytes of `op`, or has done its part of a collective in place.
    fn taken(&self, program: u32, instance: u32, op: u32) -> Result<(), String> {
        let (loaded, at) = self.core.addressed(program, op)?;
        let whole = loaded.is_running(instance) && !loaded.op(op).is_done(instance);
        if let Action::InPlace(own) = &loaded.instructions()[at].action
            && let (Some(member), true) = (own.position(self.peer.who.rank), whole)
        {
            if self.core.part_done(&loaded, op, instance, member)? {
                self.core.complete(&loaded, op);
            }
            return Ok(());
        }
        let ours =
            matches!(&loaded.instructions()[at].action, Action::Send(s) if s.peer == self.peer.who.rank);
        if !ours || !whole {
            return Err(format!("took what op {op} of program {program} did not give"));
        }
        self.core.complete(&loaded, op);
        Ok(())
    }
}

/// Adds a program under `chosen` or the next number, and applies what peers have already announced of it.
pub fn add(core: &Core, chosen: Option<u32>, make: impl FnOnce(u32) -> Loaded) -> Result<u32, String> {
    let (number, early) = core.programs.add(chosen, make)?;
    for announced in early {
        if let Err(what) = announce(core, announced) {
            let what = format!("broke the protocol: {what}");
            core.fail(core.peer(announced.from).failed(Why::Violation, None, what));
        }
    }
    Ok(number)
}

/// Notes an announcement; the message moves when our side is ready too. An announcement for a program that is not
/// loaded yet is kept until it is.
fn announce(core: &Core, announcement: Announcement) -> Result<(), String> {
    let Announcement { from, program, instance, op, offer } = announcement;
    if core.programs.keep_early(announcement)? {
        return Ok(());
    }
    let (loaded, at) = core.addressed(program, op)?;
    if !loaded.may_announce(instance) {
        return Err(format!(
            "program {program} launch {instance} while {} launches are known",
            loaded.launched()
        ));
    }
    match (&loaded.instructions()[at].action, offer) {
        (Action::InPlace(own), Some(Offer { offset_bytes, len_bytes, claims: Some(claims) })) => {
            let member = own.position(from).filter(|member| *member != own.own);
            let member = member
                .ok_or_else(|| format!("announced op {op} of program {program}, which it is no member of"))?;
            let place = Place { bytes: offset_bytes, claims };
            return core.brought(&loaded, op, instance, own, (member, place, len_bytes));
        }
        (Action::Receive(receive), Some(offer)) if receive.peer == from => {
            let wanted = receive.landing.region.len() / receive.dtype.bytes() * receive.peer_dtype.bytes();
            if offer.len_bytes != wanted as u64 {
                return Err(format!(
                    "{} bytes for op {op} of program {program}, which takes {wanted}",
                    offer.len_bytes
                ));
            }
            loaded.op(op).offer(instance, offer.offset_bytes);
        }
        (Action::Send(send), None) if send.peer == from => {}
        _ => return Err(format!("announced op {op} of program {program}, which is no message of it")),
    }
    let both = loaded.op(op).announce(instance);
    if both.map_err(|_| format!("announced op {op} of program {program} twice"))? {
        match offer {
            Some(_) => core.enqueue(&loaded, op),
            None => core.send(&loaded, op, instance),
        }
    }
    Ok(())
}

impl Arrivals for Arrival<'_> {
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        let Data { program, instance, op, offset_bytes, payload_bytes } = *data;
        let from = self.peer.who.rank;
        if program == NO_PROGRAM {
            return self.core.message_landing(from, instance, offset_bytes, payload_bytes);
        }
        self.core.landing(from, program, instance, op, offset_bytes, payload_bytes)
    }

    fn landed(&mut self, data: &Data) {
        if data.program == NO_PROGRAM {
            return self.core.message_landed(data.instance, data.payload_bytes);
        }
        // A program with a payload in flight is not complete, so it stays loaded.
        let Ok((loaded, at)) = self.core.addressed(data.program, data.op) else { return };
        let received = loaded.op(data.op).land(u64::from(data.payload_bytes));
        let Action::Receive(receive) = &loaded.instructions()[at].action else {
            unreachable!("payloads land at receives");
        };
        if received == receive.wire_bytes() as u64 {
            // A message ends once, even if the peer sends another empty frame of it.
            loaded.op(data.op).close();
            self.core.complete(&loaded, data.op);
        }
    }

    fn posted(&mut self, post: Post) -> Result<(), String> {
        let from = self.peer.who.rank;
        match post {
            Post::Posted { program, instance, op, .. } => {
                announce(self.core, Announcement { from, program, instance, op, offer: None })
            }
            Post::Ready { program, instance, op, offset_bytes, len_bytes } => {
                let offer = Some(Offer { offset_bytes, len_bytes, claims: None });
                announce(self.core, Announcement { from, program, instance, op, offer })
            }
            Post::Brought { program, instance, op, offset_bytes, len_bytes, claims } => {
                let offer = Some(Offer { offset_bytes, len_bytes, claims: Some(claims) });
                announce(self.core, Announcement { from, program, instance, op, offer })
            }
            Post::Taken { program, instance, op } => self.taken(program, instance, op),
            Post::Offer { send, tag, bytes, place } => {
                self.core.handle_offer(messages::Offer { from, send, tag, bytes, place })
            }
            Post::Accept { send, receive, .. } => self.core.handle_accept(from, send, receive),
            Post::Given { send } => self.core.handle_taken(from, send),
        }
    }

    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        self.core.handle_abort(self.peer, rank, why, text)
    }

    fn heard(&mut self, word: Word) -> Result<(), String> {
        match word {
            Word::Exit { rank, code } => self.core.handle_exit(rank, code),
            Word::Inquiry { inquiry, launch } => {
                self.core.handle_inquiry(self.peer, inquiry, launch);
                Ok(())
            }
            Word::Waits { inquiry, part, rank } => {
                self.core.handle_waits(self.peer.who.rank, inquiry, part, rank)
            }
        }
    }

    fn began(&mut self, epoch: u64) {
        if self.core.elastic && epoch > self.core.epoch {
            self.core.interrupt(&format!("{} has begun epoch {epoch}", self.peer.who));
        }
    }
}

impl Sink for Arrival<'_> {
    fn sent(&mut self, sent: Sent) {
        if sent.program == NO_PROGRAM {
            self.core.finish_message(sent.op);
        } else if let Some(loaded) = self.core.programs.get(sent.program)
            && !self.core.has_stopped()
        {
            self.core.complete(&loaded, sent.op);
        }
    }

    fn left(&mut self) {
        let rank = self.peer.who.rank;
        let waiting = self.core.programs.find_map(|loaded| {
            let needed = !loaded.is_complete() && loaded.unfinished().iter().any(|&(of, _)| of == rank);
            needed.then(|| Arc::clone(loaded))
        });
        if let Some(loaded) = waiting {
            let what = format_args!(" while `{}` still needs it", loaded.label);
            self.core.fail(self.peer.left(Some(loaded.location(None)), what));
        }
        if lock(&self.core.messages).needs(rank) {
            self.core.fail(self.peer.left(None, " while a message waits for it"));
        }
    }

    fn is_awaited(&mut self) -> bool {
        !self.core.has_stopped() && self.core.awaited_of(self.peer.who.rank).is_some()
    }

    fn ended(&mut self, ends: Option<&str>, error: &LinkError) {
        // Once we are leaving, a peer may leave without a goodbye.
        if !self.core.is_closing() {
            self.core.lose(self.peer, ends, error);
        }
    }
}
