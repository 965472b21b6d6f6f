//! What arrives from one peer, checked against the programs and handed to the core.

use crate::announcement::{Announcement, Offer};
use crate::core::Core;
use crate::instruction::Action;
use crate::loaded::Loaded;
use crate::lock::lock;
use crate::messages::NO_PROGRAM;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::frame::Data;
use hocket_protocol::messages;
use hocket_protocol::why::Why;
use hocket_sync::meeting::Place;
use hocket_wire::shm::mailbox::Post;
use hocket_wire::tcp::{Landing, Sink};
use std::sync::Arc;

/// What is kept of one connection between arrivals.
pub struct Incoming {
    lane: usize,
    /// The program of the payload under way.
    landing: Option<Arc<Loaded>>,
    /// The peer said goodbye over it.
    left: bool,
}

impl Incoming {
    /// Nothing came yet over that connection to a peer.
    pub fn new(lane: usize) -> Self {
        Self { lane, landing: None, left: false }
    }

    /// Whether the peer may end the connection.
    pub fn has_left(&self) -> bool {
        self.left
    }
}

/// The receiving side of one peer.
pub struct Arrival<'a> {
    core: &'a Core,
    peer: &'a Peer,
    incoming: &'a mut Incoming,
}

impl<'a> Arrival<'a> {
    /// Of `peer`.
    pub fn new(core: &'a Core, peer: &'a Peer, incoming: &'a mut Incoming) -> Self {
        Self { core, peer, incoming }
    }

    /// A post in the mailbox.
    pub fn post(&mut self, post: Post) -> Result<(), String> {
        match post {
            Post::Ready { program, instance, op, offset_bytes, len_bytes } => {
                let offer = Some(Offer { offset_bytes, len_bytes, claims: None });
                announce(self.core, Announcement { from: self.peer.who.rank, program, instance, op, offer })
            }
            Post::Brought { program, instance, op, offset_bytes, len_bytes, claims } => {
                let offer = Some(Offer { offset_bytes, len_bytes, claims: Some(claims) });
                announce(self.core, Announcement { from: self.peer.who.rank, program, instance, op, offer })
            }
            Post::Taken { program, instance, op } => {
                let (loaded, at) = self.core.addressed(program, op)?;
                let whole = loaded.is_running(instance) && !loaded.is_done(op, instance);
                if let Action::InPlace(own) = &loaded.instructions[at].action
                    && let (Some(member), true) = (own.position(self.peer.who.rank), whole)
                {
                    if self.core.part_done(&loaded, op, instance, member)? {
                        self.core.complete(&loaded, op);
                    }
                    return Ok(());
                }
                let ours = matches!(&loaded.instructions[at].action, Action::Send(s) if s.peer == self.peer.who.rank);
                if !ours || !whole {
                    return Err(format!("took what op {op} of program {program} did not give"));
                }
                self.core.complete(&loaded, op);
                Ok(())
            }
            Post::Offer { send, tag, place, bytes } => {
                let place = Some(place);
                self.core.handle_offer(messages::Offer { from: self.peer.who.rank, send, tag, bytes, place })
            }
            Post::Given { send } => self.core.handle_taken(self.peer.who.rank, send),
        }
    }
}

/// Adds a program under `chosen` or the next number, and takes in what peers announced of it already.
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

/// Notes an announcement; the message moves when our side is ready too. One for a program that we have yet to load
/// is kept until we do.
fn announce(core: &Core, said: Announcement) -> Result<(), String> {
    let Announcement { from, program, instance, op, offer } = said;
    if core.programs.keep_early(said)? {
        return Ok(());
    }
    let (loaded, at) = core.addressed(program, op)?;
    if !loaded.may_announce(instance) {
        return Err(format!(
            "program {program} launch {instance} while {} launches are known",
            loaded.launched()
        ));
    }
    match (&loaded.instructions[at].action, offer) {
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
            loaded.offer(op, instance, offer.offset_bytes);
        }
        (Action::Send(send), None) if send.peer == from => {}
        _ => return Err(format!("announced op {op} of program {program}, which is no message of it")),
    }
    let both = loaded.announce(op, instance);
    if both.map_err(|_| format!("announced op {op} of program {program} twice"))? {
        match offer {
            Some(_) => core.enqueue(&loaded, op),
            None => core.send(&loaded, op, instance),
        }
    }
    Ok(())
}

impl Sink for Arrival<'_> {
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        let Data { program, instance, op, offset_bytes, payload_bytes } = *data;
        if program == NO_PROGRAM {
            return self.core.message_landing(self.peer.who.rank, instance, offset_bytes, payload_bytes);
        }
        let (loaded, landing) =
            self.core.landing(self.peer.who.rank, program, instance, op, offset_bytes, payload_bytes)?;
        self.incoming.landing = Some(loaded);
        Ok(landing)
    }

    fn landed(&mut self, data: &Data) {
        if data.program == NO_PROGRAM {
            return self.core.message_landed(data.instance, data.payload_bytes);
        }
        let loaded = self.incoming.landing.take().expect("a payload ends after it began");
        let received = loaded.land(data.op, u64::from(data.payload_bytes));
        let Action::Receive(receive) = &loaded.instructions[data.op as usize].action else {
            unreachable!("payloads land at receives");
        };
        if received == receive.wire_bytes() as u64 {
            // A message ends once, also for a peer that sends another empty frame of it.
            loaded.close(data.op);
            self.core.complete(&loaded, data.op);
        }
    }

    fn clear_to_send(&mut self, program: u32, instance: u32, op: u32) -> Result<(), String> {
        announce(self.core, Announcement { from: self.peer.who.rank, program, instance, op, offer: None })
    }

    fn offered(&mut self, send: u32, tag: u64, bytes: u64) -> Result<(), String> {
        self.core.handle_offer(messages::Offer { from: self.peer.who.rank, send, tag, bytes, place: None })
    }

    fn accepted(&mut self, send: u32, receive: u32) -> Result<(), String> {
        self.core.handle_accept(self.peer.who.rank, send, receive)
    }

    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        self.core.handle_abort(self.peer, rank, why, text)
    }

    fn left(&mut self) {
        if std::mem::replace(&mut self.incoming.left, true) || !self.peer.leave_lane() {
            return;
        }
        let rank = self.peer.who.rank;
        let waiting = self.core.programs.find_map(|loaded| {
            let needed = !loaded.is_complete() && loaded.unfinished().iter().any(|&(of, _)| of == rank);
            needed.then(|| Arc::clone(loaded))
        });
        if let Some(loaded) = waiting {
            let what = format_args!("left the job while `{}` still needs it", loaded.label);
            self.core.fail(self.peer.failed(Why::Left, Some(loaded.location(None)), what));
        }
        if lock(&self.core.messages).needs(rank) {
            self.core.fail(self.peer.failed(Why::Left, None, "left the job while a message waits for it"));
        }
        lock(&self.peer.outgoing).drop_messages();
    }

    fn asked(&mut self) {
        lock(&self.peer.outgoing).answer(self.incoming.lane);
    }
}
