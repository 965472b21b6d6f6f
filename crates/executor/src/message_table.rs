//! Messages of no program in progress at this rank: what each still waits for, and which of its bytes have arrived.

use hocket_ids::Rank;
use hocket_protocol::extents::Extents;
use hocket_protocol::messages::{Messages, Offer, Wanted};
use hocket_wire::memory::Region;
use std::collections::{HashMap, VecDeque};

/// Sends and receives in progress at this rank.
#[derive(Debug, Default)]
pub struct MessageTable {
    messages: Messages,
    next: u32,
    open: HashMap<u32, Open>,
    /// Complete messages with a notice, in order.
    notices: VecDeque<u32>,
}

#[derive(Debug)]
struct Open {
    /// The peer; `None` for a receive from anyone that was offered nothing yet.
    peer: Option<Rank>,
    sends: bool,
    region: Region,
    /// Bytes received over connections.
    received: u64,
    /// Ranges received or being received.
    claimed: Extents,
    notice: bool,
    done: bool,
}

impl MessageTable {
    /// Opens a send to `to`; returns its number.
    pub fn send(&mut self, to: Rank, region: Region, notice: bool) -> u32 {
        self.open(Some(to), true, region, notice)
    }

    /// Opens a receive; returns its number, and the offer that it takes, if there is one.
    pub fn receive(
        &mut self,
        from: Option<Rank>,
        tag: u64,
        region: Region,
        notice: bool,
    ) -> (u32, Result<Option<Offer>, String>) {
        let bytes = region.len() as u64;
        let number = self.open(from, false, region, notice);
        (number, self.messages.handle_receive(Wanted { receive: number, from, tag, bytes }))
    }

    fn open(&mut self, peer: Option<Rank>, sends: bool, region: Region, notice: bool) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(
            number,
            Open { peer, sends, region, received: 0, claimed: Extents::default(), notice, done: false },
        );
        number
    }

    /// The receive that takes a peer's offer, if one is open.
    pub fn handle_offer(&mut self, offer: Offer) -> Result<Option<u32>, String> {
        Ok(self.messages.handle_offer(offer)?.map(|wanted| wanted.receive))
    }

    /// Receive `receive` takes the offer of `from`; returns its destination.
    pub fn take(&mut self, receive: u32, from: Rank) -> Option<Region> {
        let open = self.open.get_mut(&receive)?;
        open.peer = Some(from);
        Some(open.region.clone())
    }

    /// The bytes of an open send to `to`.
    pub fn source(&mut self, to: Rank, send: u32) -> Result<Region, String> {
        Ok(self.of(to, send, true)?.region.clone())
    }

    /// Where bytes `offset_bytes..` of a receive from `from` land; none of them may arrive again.
    pub fn landing(
        &mut self,
        from: Rank,
        receive: u32,
        offset_bytes: u64,
        payload_bytes: u32,
    ) -> Result<Region, String> {
        let open = self.of(from, receive, false)?;
        let end = offset_bytes.saturating_add(u64::from(payload_bytes));
        let len = open.region.len();
        if end > len as u64 {
            return Err(format!("bytes {offset_bytes}..{end} of a message of {len}"));
        }
        let claimed = open.claimed.claim(offset_bytes, end);
        claimed.map_err(|why| format!("bytes {offset_bytes}..{end} of a message of {len}, {why}"))?;
        Ok(open.region.sub(offset_bytes as usize, payload_bytes as usize))
    }

    /// This many more bytes of a receive are in place; whether that completes it.
    pub fn landed(&mut self, receive: u32, payload_bytes: u32) -> bool {
        let Some(open) = self.open.get_mut(&receive) else { return false };
        open.received += u64::from(payload_bytes);
        let complete = open.received == open.region.len() as u64;
        if complete {
            self.finish(receive);
        }
        complete
    }

    fn of(&mut self, peer: Rank, number: u32, sends: bool) -> Result<&mut Open, String> {
        let open = self.open.get_mut(&number).filter(|open| open.sends == sends && open.peer == Some(peer));
        open.filter(|open| !open.done).ok_or_else(|| format!("speaks of message {number}, which is not open"))
    }

    /// Marks a message complete.
    pub fn finish(&mut self, number: u32) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.done = true;
        if open.notice {
            self.notices.push_back(number);
        }
    }

    /// The peer of a complete message, which is then forgotten.
    pub fn remove_done(&mut self, number: u32) -> Option<Rank> {
        let peer = self.open.get(&number).filter(|open| open.done)?.peer;
        self.open.remove(&number);
        peer
    }

    /// The next complete message that was opened with a notice, and its peer; it is then forgotten.
    pub fn next_notice(&mut self) -> Option<(u32, Rank)> {
        let number = self.notices.pop_front()?;
        let peer = self.open.remove(&number)?.peer?;
        Some((number, peer))
    }

    /// Whether there is one.
    pub fn has_notice(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Whether a message is complete.
    pub fn is_done(&self, number: u32) -> bool {
        self.open.get(&number).is_some_and(|open| open.done)
    }

    /// The peer of an open message, if known, and whether the message is a send.
    pub fn ends(&self, number: u32) -> Option<(Option<Rank>, bool)> {
        self.open.get(&number).map(|open| (open.peer, open.sends))
    }

    /// Withdraws a receive that was offered nothing; whether it could.
    pub fn withdraw(&mut self, number: u32) -> bool {
        let withdrawn = self.messages.withdraw(number);
        if withdrawn {
            self.open.remove(&number);
        }
        withdrawn
    }

    /// Whether an open message needs that peer.
    pub fn needs(&self, rank: Rank) -> bool {
        self.messages.wants_of(rank) || self.open.values().any(|open| !open.done && open.peer == Some(rank))
    }
}
