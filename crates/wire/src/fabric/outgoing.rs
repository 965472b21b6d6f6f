//! Messages that a link sends over the fabric: the most urgent first, in pieces with the tags that the receiver chose.

use super::shared::{Piece, Shared};
use super::{LINK_PIECES_UNDER_WAY, PIECES_UNDER_WAY, piece_bytes, pieces};
use crate::clock::now_ns;
use crate::link::{Message, Sent};
use crate::shaper::Pace;
use hocket_fabric::{Destination, FabricError, Operation};
use hocket_kernels::cast;
use hocket_protocol::checksum::sum;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// A message whose pieces leave.
struct Flight {
    message: Message,
    /// Tag of the first piece.
    tag: u64,
    sequence: u64,
    /// Pieces posted so far.
    posted: usize,
    under_way: usize,
}

impl Flight {
    fn has_more(&self) -> bool {
        self.posted < pieces(self.message.wire_bytes())
    }
}

/// A piece under way.
struct Leaving {
    /// Its message, by sequence; `None`: of an epoch that has ended.
    sequence: Option<u64>,
    /// Where a converted piece lies.
    converted: Option<Piece>,
}

/// The piece that leaves next on an emulated network: that of this message, at this time.
struct Held {
    sequence: u64,
    leaves_ns: u64,
}

/// The queue and the pieces under way of one link, owned by the I/O thread.
pub struct Outgoing {
    link: u32,
    to: Destination,
    pace: Option<Pace>,
    held: Option<Held>,
    flights: Vec<Flight>,
    leaving: HashMap<Operation, Leaving>,
    sequence: u64,
    /// Pieces of this epoch that have left or are under way.
    pieces: u64,
}

/// Why a piece cannot be sent.
pub enum Trouble {
    /// The fabric.
    Fabric(FabricError),
    /// No memory for a converted piece.
    Memory(io::Error),
}

impl Outgoing {
    /// `pace` if the network is emulated.
    pub fn new(link: u32, to: Destination, pace: Option<Pace>) -> Self {
        Self {
            link,
            to,
            pace,
            held: None,
            flights: Vec::new(),
            leaving: HashMap::new(),
            sequence: 0,
            pieces: 0,
        }
    }

    /// Queues a message whose first piece has that tag.
    pub fn queue(&mut self, message: Message, tag: u64) {
        self.sequence += 1;
        self.flights.push(Flight { message, tag, sequence: self.sequence, posted: 0, under_way: 0 });
    }

    /// What has not been posted will never be needed; pieces under way belong to nobody.
    pub fn drop_messages(&mut self) {
        self.flights.clear();
        self.held = None;
        self.leaving.values_mut().for_each(|leaving| leaving.sequence = None);
    }

    /// A later epoch begins.
    pub fn enter(&mut self) {
        self.drop_messages();
        self.pieces = 0;
    }

    /// Whether messages of this epoch have not left.
    pub fn is_under_way(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Time until the emulated network lets the next piece leave.
    pub fn held(&self) -> Option<Duration> {
        let left_ns = self.held.as_ref()?.leaves_ns.checked_sub(now_ns())?;
        Some(Duration::from_nanos(left_ns))
    }

    /// Operations under way and their memory; the link ends.
    pub fn take_under_way(&mut self) -> Vec<(Operation, Option<Piece>)> {
        self.flights.clear();
        self.leaving.drain().map(|(operation, leaving)| (operation, leaving.converted)).collect()
    }

    /// Pieces of this epoch that have left.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Posts pieces while there is room; whether any was. `summed` is told of each piece's tag and sum, if sums are
    /// wanted.
    pub fn advance(
        &mut self,
        shared: &Shared,
        mut summed: Option<&mut dyn FnMut(u64, u32)>,
    ) -> Result<bool, Trouble> {
        let mut busy = false;
        let mut under_way = self.leaving.values().filter(|leaving| leaving.sequence.is_some()).count();
        while under_way < LINK_PIECES_UNDER_WAY {
            let Some(at) = self.next().filter(|at| self.may_leave(*at)) else { break };
            let flight = &mut self.flights[at];
            let message = &flight.message;
            let (wire, own) = (message.wire.bytes(), message.dtype.bytes());
            let bytes = piece_bytes(message.wire_bytes(), flight.posted);
            let start = flight.posted * super::PIECE_BYTES;
            let source = message.region.sub(start / wire * own, bytes / wire * own);
            let (region, converted) = if message.wire == message.dtype {
                (source, None)
            } else {
                let piece = shared.piece().map_err(Trouble::Memory)?;
                let region = piece.region(bytes);
                cast(message.wire, region.as_bytes_mut(), message.dtype, source.as_bytes());
                (region, Some(piece))
            };
            let tag = flight.tag + flight.posted as u64;
            let posted = shared.send(self.link, self.to, &region, tag);
            let Some(operation) = posted.map_err(Trouble::Fabric)? else {
                if let Some(piece) = converted {
                    shared.put_back(piece);
                }
                break;
            };
            if let Some(summed) = &mut summed {
                summed(tag, sum(region.as_bytes()));
            }
            self.leaving.insert(operation, Leaving { sequence: Some(flight.sequence), converted });
            flight.posted += 1;
            flight.under_way += 1;
            self.held = None;
            self.pieces += 1;
            under_way += 1;
            busy = true;
        }
        Ok(busy)
    }

    /// The message whose piece goes next.
    fn next(&self) -> Option<usize> {
        if let Some(held) = &self.held {
            return self.flights.iter().position(|flight| flight.sequence == held.sequence);
        }
        let open = self.flights.iter().enumerate();
        let open = open.filter(|(_, flight)| flight.has_more() && flight.under_way < PIECES_UNDER_WAY);
        open.min_by_key(|(_, flight)| (flight.message.priority, flight.sequence)).map(|(at, _)| at)
    }

    /// Whether the emulated network lets a piece of that message leave, for which it is reserved.
    fn may_leave(&mut self, at: usize) -> bool {
        let Some(pace) = &self.pace else { return true };
        let flight = &self.flights[at];
        let reserve = || {
            let bytes = piece_bytes(flight.message.wire_bytes(), flight.posted);
            Held { sequence: flight.sequence, leaves_ns: pace.reserve(bytes) }
        };
        self.held.get_or_insert_with(reserve).leaves_ns <= now_ns()
    }

    /// Whether `operation` is one of ours; the message that has left with it.
    pub fn end(
        &mut self,
        shared: &Shared,
        operation: Operation,
        outcome: &Result<usize, FabricError>,
    ) -> Option<Result<Option<Sent>, FabricError>> {
        let leaving = self.leaving.remove(&operation)?;
        if let Some(piece) = leaving.converted {
            shared.put_back(piece);
        }
        let at = leaving
            .sequence
            .and_then(|sequence| self.flights.iter().position(|flight| flight.sequence == sequence));
        let Some(at) = at else { return Some(Ok(None)) };
        if let Err(error) = outcome {
            return Some(Err(error.clone()));
        }
        let flight = &mut self.flights[at];
        flight.under_way -= 1;
        if flight.has_more() || flight.under_way > 0 {
            return Some(Ok(None));
        }
        let Message { program, instance, op, .. } = flight.message;
        let bytes = flight.message.wire_bytes();
        self.flights.swap_remove(at);
        Some(Ok(Some(Sent { program, instance, op, bytes })))
    }
}
