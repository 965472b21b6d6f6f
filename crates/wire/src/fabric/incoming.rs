//! Messages that a link receives over the fabric: receives posted piece by piece, and pieces that have landed.

use super::shared::{Piece, Shared};
use super::{PIECE_BYTES, PIECES_UNDER_WAY, piece_bytes, pieces};
use crate::link::{Land, Landing, LinkError, Receive, Sink};
use hocket_fabric::{FabricError, Operation};
use hocket_protocol::checksum::{Damage, sum};
use hocket_protocol::frame::{Data, Frame};
use std::collections::HashMap;
use std::time::Duration;

/// How long pieces of an ended epoch, which its sender may have sent, are still taken.
const GRACE: Duration = Duration::from_secs(1);

/// A message whose pieces are expected.
struct Expected {
    receive: Receive,
    /// Tag of the first piece.
    tag: u64,
    posted: usize,
    under_way: usize,
    landed: usize,
    /// The other rank knows.
    announced: bool,
    /// The next piece, where the provider had no room for it.
    next: Option<(Data, Landing)>,
    /// Its epoch has ended. What its sender still sends is taken all the same, and thrown away: what nobody expects
    /// would hold up what comes later.
    dead: bool,
}

/// A piece that may come.
struct Coming {
    /// Of the first piece of its message.
    first_tag: u64,
    tag: u64,
    /// `None`: it is thrown away.
    target: Option<(Data, Landing)>,
    /// Where it lands before it is put in its place; `None`: there itself.
    staged: Option<Piece>,
}

/// The expected messages and pieces of one link, owned by the I/O thread.
pub struct Incoming {
    link: u32,
    /// Whether unconverted pieces land in their place. Not where an epoch may end: its memory could not be taken back.
    in_place: bool,
    /// Whether each piece needs a sum.
    checksums: bool,
    expected: Vec<Expected>,
    coming: HashMap<Operation, Coming>,
    /// Pieces whose sum has not come.
    unproved: HashMap<u64, Coming>,
    /// Sums whose piece has not come.
    sums: HashMap<u64, u32>,
    /// The epoch of the last messages that are dead.
    dead_epoch: u64,
    /// When those that have not come are cancelled, once their sender has begun another epoch.
    grace_ends: Option<Duration>,
    /// Pieces of this epoch that have landed.
    pieces: u64,
}

impl Incoming {
    pub fn new(link: u32, in_place: bool, checksums: bool) -> Self {
        Self {
            link,
            in_place,
            checksums,
            expected: Vec::new(),
            coming: HashMap::new(),
            unproved: HashMap::new(),
            sums: HashMap::new(),
            dead_epoch: 0,
            grace_ends: None,
            pieces: 0,
        }
    }

    /// Expects a message that is not empty.
    pub fn expect(&mut self, shared: &Shared, receive: Receive) {
        let tag = shared.tags(pieces(receive.bytes as usize));
        let (posted, under_way, landed) = (0, 0, 0);
        self.expected.push(Expected {
            receive,
            tag,
            posted,
            under_way,
            landed,
            announced: false,
            next: None,
            dead: false,
        });
    }

    /// Nothing of epoch `epoch` lands any more.
    pub fn stop(&mut self, shared: &Shared, epoch: u64) {
        (self.dead_epoch, self.grace_ends) = (epoch, None);
        self.expected.iter_mut().for_each(|expected| (expected.dead, expected.next) = (true, None));
        self.expected.retain(|expected| expected.announced);
        self.coming.values_mut().for_each(|coming| coming.target = None);
        self.sums.clear();
        for (_, coming) in std::mem::take(&mut self.unproved) {
            self.finish(shared, coming.first_tag, coming.staged);
        }
        self.pieces = 0;
    }

    /// Pieces of this epoch that have landed.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Operations under way and their memory; the link ends.
    pub fn take_under_way(&mut self) -> Vec<(Operation, Option<Piece>)> {
        self.coming.drain().map(|(operation, coming)| (operation, coming.staged)).collect()
    }

    /// Cancels receives of dead messages when nothing of them comes any more: the sender has `ended`, or has begun a
    /// later epoch, `theirs`, some time ago.
    pub fn cancel_dead(&mut self, shared: &Shared, now: Duration, theirs: u64, ended: bool) {
        if !(ended || theirs > self.dead_epoch) || self.coming.values().all(|coming| coming.target.is_some())
        {
            return;
        }
        let ends = *self.grace_ends.get_or_insert(now + GRACE);
        if ended || now >= ends {
            // Asked for again until it has ended: a provider may not cancel what has begun.
            self.grace_ends = Some(now + GRACE);
            self.expected.retain(|expected| !expected.dead);
            let dead = self.coming.iter().filter(|(_, coming)| coming.target.is_none());
            dead.for_each(|(operation, _)| shared.cancel(*operation));
        }
    }

    /// Posts pieces, and says which receives are ready by `announce`; whether anything was posted.
    pub fn advance(
        &mut self,
        shared: &Shared,
        sink: &mut dyn Sink,
        mut announce: impl FnMut(&Receive, u64),
    ) -> Result<bool, LinkError> {
        let mut busy = false;
        for expected in &mut self.expected {
            let all = pieces(expected.receive.bytes as usize);
            while expected.posted < all && expected.under_way < PIECES_UNDER_WAY {
                let target = match expected.next.take() {
                    Some(next) => Some(next),
                    None if expected.dead => None,
                    None => Some(expected.landing(sink)?),
                };
                let in_place = self.in_place && !expected.dead;
                let (region, staged) = match &target {
                    Some((_, Landing { region, land: Land::Store })) if in_place => (region.clone(), None),
                    _ => {
                        let piece = shared.piece()?;
                        let bytes = piece_bytes(expected.receive.bytes as usize, expected.posted);
                        (piece.region(bytes), Some(piece))
                    }
                };
                let tag = expected.tag + expected.posted as u64;
                let posted =
                    shared.receive(self.link, &region, tag).map_err(|error| failed(shared, &error))?;
                let Some(operation) = posted else {
                    if let Some(piece) = staged {
                        shared.put_back(piece);
                    }
                    expected.next = target;
                    break;
                };
                let coming = Coming { first_tag: expected.tag, tag, target, staged };
                self.coming.insert(operation, coming);
                expected.posted += 1;
                expected.under_way += 1;
                busy = true;
            }
            if expected.posted > 0 && !std::mem::replace(&mut expected.announced, true) {
                announce(&expected.receive, expected.tag);
            }
        }
        Ok(busy)
    }

    /// An operation that is ours has ended.
    pub fn end(
        &mut self,
        shared: &Shared,
        sink: &mut dyn Sink,
        operation: Operation,
        outcome: Result<usize, FabricError>,
    ) -> Result<(), LinkError> {
        let Some(coming) = self.coming.remove(&operation) else {
            return Err(failed(shared, &FabricError::Broken("it ended what was not begun".into())));
        };
        let Some((data, _)) = &coming.target else {
            self.finish(shared, coming.first_tag, coming.staged);
            return Ok(());
        };
        let wanted = data.payload_bytes as usize;
        let error = match outcome {
            Ok(bytes) if bytes == wanted => None,
            Ok(bytes) => Some(LinkError::Violation(format!("a piece of {bytes} bytes, where {wanted} fit"))),
            Err(error @ FabricError::Truncated { .. }) => Some(LinkError::Violation(error.to_string())),
            Err(error) => Some(failed(shared, &error)),
        };
        if let Some(error) = error {
            self.finish(shared, coming.first_tag, coming.staged);
            return Err(error);
        }
        if !self.checksums {
            self.land(shared, sink, coming);
            return Ok(());
        }
        if let Some(crc32c) = self.sums.remove(&coming.tag) {
            return self.prove(shared, sink, coming, crc32c);
        }
        self.unproved.insert(coming.tag, coming);
        Ok(())
    }

    /// The sum of a piece has come.
    pub fn handle_sum(
        &mut self,
        shared: &Shared,
        sink: &mut dyn Sink,
        (tag, crc32c): (u64, u32),
    ) -> Result<(), LinkError> {
        if let Some(coming) = self.unproved.remove(&tag) {
            return self.prove(shared, sink, coming, crc32c);
        }
        let is_expected = |expected: &Expected| {
            let end = expected.tag + pieces(expected.receive.bytes as usize) as u64;
            (expected.tag..end).contains(&tag)
        };
        if !self.checksums || !self.expected.iter().any(is_expected) {
            return Err(LinkError::Violation("the sum of a piece that is not expected".into()));
        }
        self.sums.insert(tag, crc32c);
        Ok(())
    }

    fn prove(
        &mut self,
        shared: &Shared,
        sink: &mut dyn Sink,
        coming: Coming,
        wanted: u32,
    ) -> Result<(), LinkError> {
        let Some((data, landing)) = &coming.target else {
            self.finish(shared, coming.first_tag, coming.staged);
            return Ok(());
        };
        let staged = coming.staged.as_ref().map(|piece| piece.region(data.payload_bytes as usize));
        let found = sum(staged.as_ref().unwrap_or(&landing.region).as_bytes());
        if found == wanted {
            self.land(shared, sink, coming);
            return Ok(());
        }
        let frame = Frame::Data(*data);
        self.finish(shared, coming.first_tag, coming.staged);
        Err(LinkError::Damaged { frame: Some(frame), damage: Damage { wanted, found } })
    }

    fn land(&mut self, shared: &Shared, sink: &mut dyn Sink, coming: Coming) {
        let Coming { first_tag, target, staged, .. } = coming;
        if let (Some((data, landing)), Some(piece)) = (&target, &staged) {
            let region = piece.region(data.payload_bytes as usize);
            landing.land.apply(&landing.region, region.as_bytes());
        }
        self.finish(shared, first_tag, staged);
        if let Some((data, _)) = target {
            self.pieces += 1;
            sink.landed(&data);
        }
    }

    /// A piece of the message with that first tag has come.
    fn finish(&mut self, shared: &Shared, first_tag: u64, staged: Option<Piece>) {
        if let Some(piece) = staged {
            shared.put_back(piece);
        }
        let at = self.expected.iter().position(|expected| expected.tag == first_tag);
        let Some(at) = at else { return };
        let expected = &mut self.expected[at];
        expected.under_way -= 1;
        expected.landed += 1;
        if expected.landed == pieces(expected.receive.bytes as usize) {
            self.expected.swap_remove(at);
        }
    }
}

impl Expected {
    /// The next piece, and where it lands.
    fn landing(&self, sink: &mut dyn Sink) -> Result<(Data, Landing), LinkError> {
        let Receive { program, instance, op, bytes, .. } = self.receive;
        let payload_bytes = piece_bytes(bytes as usize, self.posted) as u32;
        let offset_bytes = (self.posted * PIECE_BYTES) as u64;
        let data = Data { program, instance, op, offset_bytes, payload_bytes };
        let landing = sink.landing(&data).map_err(LinkError::Violation)?;
        Ok((data, landing))
    }
}

/// The link's error for one of its fabric.
pub fn failed(shared: &Shared, error: &FabricError) -> LinkError {
    LinkError::Fabric { provider: shared.provider().to_owned(), what: error.to_string() }
}
