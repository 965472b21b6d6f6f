//! Messages of no program, as this rank's threads move them: `hocket_protocol::messages` says which send meets which receive.
//!
//! Between neighbours the receiver copies out of the sender's registered memory; over a connection the sender's bytes go
//! straight into the receiver's. Who waits is told by whom it is kept waiting.

use crate::core::{Core, OUTSIDE, lock};
use crate::failure::Who;
use hocket_ids::Rank;
use hocket_kernels::DType;
use hocket_protocol::extents::Extents;
use hocket_protocol::frame::Frame;
use hocket_protocol::messages::{Messages, Offer, Wanted};
use hocket_protocol::why::Why;
use hocket_wire::memory::Region;
use hocket_wire::shm::mailbox::Post;
use hocket_wire::tcp::{Land, Landing, Message};
use std::collections::{HashMap, VecDeque};

/// In place of a program's number in frames.
pub const NO_PROGRAM: u32 = u32::MAX;
/// Of all messages: after every bucket that a user gave a priority would be too late for a pipeline's activations.
const PRIORITY: u32 = 0;

/// Sends and receives under way at this rank.
#[derive(Debug, Default)]
pub struct Table {
    messages: Messages,
    next: u32,
    open: HashMap<u32, Open>,
    /// Complete ones that somebody wants to hear of, in order.
    notices: VecDeque<u32>,
}

#[derive(Debug)]
struct Open {
    /// Who sends or takes; `None`: a receive from anyone that nobody offered anything.
    peer: Option<Rank>,
    sends: bool,
    region: Region,
    /// Bytes that have come over connections.
    received: u64,
    /// Bytes that came or are coming.
    claimed: Extents,
    notice: bool,
    done: bool,
}

impl Table {
    fn open(&mut self, peer: Option<Rank>, sends: bool, region: Region, notice: bool) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(
            number,
            Open { peer, sends, region, received: 0, claimed: Extents::default(), notice, done: false },
        );
        number
    }

    fn finish(&mut self, number: u32) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.done = true;
        if open.notice {
            self.notices.push_back(number);
        }
    }

    fn of(&mut self, peer: Rank, number: u32, sends: bool) -> Result<&mut Open, String> {
        let open = self.open.get_mut(&number).filter(|open| open.sends == sends && open.peer == Some(peer));
        open.filter(|open| !open.done).ok_or_else(|| format!("speaks of message {number}, which is not open"))
    }
}

impl Core {
    /// Offers `region` to `to`; its number.
    pub fn send_message(&self, to: Rank, tag: u64, region: Region, notice: bool) -> u32 {
        let (place, bytes) = (region.arena_offset(), region.len() as u64);
        let number = lock(&self.messages).open(Some(to), true, region, notice);
        let peer = self.peer(to);
        if let Some(shared) = &peer.shared {
            if let Err(error) = shared.post(Post::Offer { send: number, tag, place, bytes }) {
                self.fail_here(None, format_args!("cannot wake {}: {error}", peer.who));
            }
        } else {
            lock(&peer.outgoing).control(Frame::Offer { send: number, tag, bytes }, &[]);
            self.wake();
        }
        number
    }

    /// Receives into `region`; its number.
    pub fn receive_message(&self, from: Option<Rank>, tag: u64, region: Region, notice: bool) -> u32 {
        let bytes = region.len() as u64;
        let mut table = lock(&self.messages);
        let number = table.open(from, false, region, notice);
        let taken = table.messages.handle_receive(Wanted { receive: number, from, tag, bytes });
        drop(table);
        match taken {
            Ok(Some(offer)) => self.take(number, offer),
            Ok(None) => {}
            Err(what) => self.fail_here(None, what),
        }
        number
    }

    /// Where a message stands: the peer of a complete one, which is then forgotten.
    pub fn message_done(&self, number: u32) -> Option<Rank> {
        let mut table = lock(&self.messages);
        let peer = table.open.get(&number).filter(|open| open.done)?.peer;
        table.open.remove(&number);
        peer
    }

    /// The next complete message that was opened with a notice, and its peer; it is then forgotten.
    pub fn next_notice(&self) -> Option<(u32, Rank)> {
        let mut table = lock(&self.messages);
        let number = table.notices.pop_front()?;
        let peer = table.open.remove(&number)?.peer?;
        Some((number, peer))
    }

    /// Whether there is one.
    pub fn has_notice(&self) -> bool {
        !lock(&self.messages).notices.is_empty()
    }

    /// Whether it is complete.
    pub fn is_message_done(&self, number: u32) -> bool {
        lock(&self.messages).open.get(&number).is_some_and(|open| open.done)
    }

    /// Whom an open message waits for, if for one rank, and a sentence's end about it.
    pub fn message_waits_for(&self, number: u32) -> (Option<Who>, String) {
        let table = lock(&self.messages);
        let Some(open) = table.open.get(&number) else { return (None, "nobody".into()) };
        let who = open.peer.map(|rank| self.peer(rank).who.clone());
        let name = who.as_ref().map_or_else(|| "any rank".to_owned(), ToString::to_string);
        (who, format!("{name} to {}", if open.sends { "receive" } else { "send" }))
    }

    /// Withdraws a receive that nothing was offered for; whether it could.
    pub fn withdraw_message(&self, number: u32) -> bool {
        let mut table = lock(&self.messages);
        let withdrawn = table.messages.withdraw(number);
        if withdrawn {
            table.open.remove(&number);
        }
        withdrawn
    }

    /// Whether an open message needs that peer.
    pub fn messages_need(&self, rank: Rank) -> bool {
        let table = lock(&self.messages);
        table.messages.wants_of(rank) || table.open.values().any(|open| !open.done && open.peer == Some(rank))
    }

    /// A peer offers.
    pub fn handle_offer(&self, offer: Offer) -> Result<(), String> {
        let taken = lock(&self.messages).messages.handle_offer(offer)?;
        if let Some(wanted) = taken {
            self.take(wanted.receive, offer);
        }
        Ok(())
    }

    /// The peer is ready to receive our send over the connection.
    pub fn handle_accept(&self, from: Rank, send: u32, receive: u32) -> Result<(), String> {
        let region = lock(&self.messages).of(from, send, true)?.region.clone();
        lock(&self.peer(from).outgoing).message(Message {
            priority: PRIORITY,
            program: NO_PROGRAM,
            instance: receive,
            op: send,
            peer_op: 0,
            region,
            dtype: DType::U8,
            wire: DType::U8,
        });
        self.wake();
        Ok(())
    }

    /// A neighbour has copied our send.
    pub fn handle_taken(&self, from: Rank, send: u32) -> Result<(), String> {
        let mut table = lock(&self.messages);
        table.of(from, send, true)?;
        table.finish(send);
        drop(table);
        self.note_change();
        Ok(())
    }

    /// The last byte of our send is with the system.
    pub fn message_sent(&self, send: u32) {
        lock(&self.messages).finish(send);
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
        let mut table = lock(&self.messages);
        let open = table.of(from, receive, false)?;
        let end = offset_bytes.saturating_add(u64::from(payload_bytes));
        let len = open.region.len();
        if end > len as u64 {
            return Err(format!("bytes {offset_bytes}..{end} of a message of {len}"));
        }
        let claimed = open.claimed.claim(offset_bytes, end);
        claimed.map_err(|why| format!("bytes {offset_bytes}..{end} of a message of {len}, {why}"))?;
        let region = open.region.sub(offset_bytes as usize, payload_bytes as usize);
        Ok(Landing { region, land: Land::Store })
    }

    /// That payload is in place.
    pub fn message_landed(&self, receive: u32, payload_bytes: u32) {
        let mut table = lock(&self.messages);
        let Some(open) = table.open.get_mut(&receive) else { return };
        open.received += u64::from(payload_bytes);
        if open.received == open.region.len() as u64 {
            table.finish(receive);
            drop(table);
            self.note_change();
        }
    }

    /// Receive `receive` takes `offer`: of a neighbour at once, else when the bytes come.
    fn take(&self, receive: u32, offer: Offer) {
        let mut table = lock(&self.messages);
        let Some(open) = table.open.get_mut(&receive) else { return };
        open.peer = Some(offer.from);
        let region = open.region.clone();
        drop(table);
        let peer = self.peer(offer.from);
        let (Some(shared), Some(place)) = (&peer.shared, offer.place) else {
            lock(&peer.outgoing).control(Frame::Accept { send: offer.send, receive }, &[]);
            return self.wake();
        };
        let Some(source) = Region::new(&shared.arena, place, offer.bytes) else {
            return self.fail(peer.failed(Why::Violation, None, OUTSIDE));
        };
        region.copy_from(&source, region.len());
        if let Err(error) = shared.post(Post::Given { send: offer.send }) {
            return self.fail_here(None, format_args!("cannot wake {}: {error}", peer.who));
        }
        lock(&self.messages).finish(receive);
        self.note_change();
    }
}
