//! Collectives on unregistered memory, if the kernel lets members access each other's. They take two barriers, whatever
//! the size.
//!
//! - A reduction: every member claims blocks, reads them from all members, and writes the sum to all while it is in the
//!   caches: one copy in, one out.
//! - A move: every member reads its part straight into place: one copy.
//!
//! The members find out together whether the kernel allows it, when it first matters; if one may not, all use the
//! slots.

use crate::area::CALL_WORDS;
use crate::call::Reduction;
use crate::communicator::{Communicator, Step};
use crate::error::Error;
use crate::reach::{Found, Place};
use hocket_ids::Rank;
use hocket_kernels::{Source, reduce_many};
use hocket_wire::claims::Claims;
use hocket_wire::shm::reach::Neighbour;
use std::io::{self, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Block of each member: all of them together stay in the second-level cache.
const BLOCK_BYTES: usize = 64 * 1024;
/// Limit of one system call: the kernel takes at most 2 GiB.
const READ_BYTES: usize = 64 * 1024 * 1024;
/// The job names a dead neighbour; its threads may need this long to notice.
const BLAME: Duration = Duration::from_secs(2);
const BLAME_LOOK: Duration = Duration::from_millis(10);

impl Communicator {
    /// Others are about to access our memory at `bytes`: it gets large pages if it is used repeatedly.
    pub(crate) fn lend(&mut self, bytes: Range<u64>) {
        self.reach.pages.note(bytes);
    }

    /// Addresses of the bytes that all members published with the last barrier.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.areas.iter().map(|area| area.call(self.barrier)[4]).collect()
    }

    /// The memory at `addresses`, by position, if every member can access every other's. All members make this call
    /// together.
    pub(crate) fn places(
        &mut self,
        addresses: &[u64],
        step: &mut Step<'_>,
    ) -> Result<Option<Vec<Place>>, Error> {
        if matches!(self.reach.found, Found::Open) {
            self.reach.found = self.look(step)?;
        }
        let Found::All(neighbours) = &self.reach.found else { return Ok(None) };
        let place = |(who, &at): (&Option<Neighbour>, &u64)| who.map(|who| (who, at));
        Ok(Some(neighbours.iter().zip(addresses).map(place).collect()))
    }

    /// Every member tries, and reports whether it may.
    fn look(&mut self, step: &mut Step<'_>) -> Result<Found, Error> {
        let try_all = || {
            let mut found = Vec::with_capacity(self.len());
            for (at, area) in self.areas.iter().enumerate() {
                let named = |error| {
                    let (own, other) = (self.ranks[self.own], self.ranks[at]);
                    format!("rank {own} may not use the memory of rank {other}: {error}")
                };
                let own = at == self.own;
                found.push(if own { None } else { Some(Neighbour::find(area.card()).map_err(named)?) });
            }
            Ok(found)
        };
        let found: Result<_, String> = try_all();
        let mut words = [0; CALL_WORDS];
        words[0] = u64::from(found.is_ok());
        self.area().publish_call(self.next(), words);
        self.meet(step)?;
        if let Err(why) = &found {
            // Standard error is the log of last resort; failing to write there must not stop the job.
            drop(writeln!(io::stderr(), "hocket: {why}; tensors are copied through shared slots instead"));
        }
        let other = self.areas.iter().position(|area| area.call(self.barrier)[0] == 0);
        Ok(match (found, other) {
            (Err(why), _) => Found::Refused(why),
            (Ok(_), Some(at)) => {
                Found::Refused(format!("rank {} may not use the memory of others", self.ranks[at]))
            }
            (Ok(found), None) => Found::All(found),
        })
    }

    /// Reduces every member's `bytes` in place, or into those of the member at `root` alone.
    pub(crate) fn reduce_by_reach(
        &mut self,
        bytes: &mut [u8],
        reduction: Reduction,
        root: Option<usize>,
        places: &[Place],
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let claimed = self.claims(self.opened, bytes.len());
        let part = Part { own: self.own, reduction, root, places };
        if let Err((at, error)) = part.reduce(bytes, claimed, &mut self.reach.blocks) {
            // We do not arrive at the barrier, so nobody reads missing data.
            return Err(blame(self.ranks[at], &error, step));
        }
        self.meet(step)
    }

    /// Copies the members' bytes at `places` to `outputs`; `own` is ours.
    pub(crate) fn take_by_reach(
        &mut self,
        own: &[u8],
        outputs: &mut [Option<&mut [u8]>],
        places: &[Place],
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        // Members start with different ones.
        for at in (self.own..self.len()).chain(0..self.own) {
            let Some(Some(output)) = outputs.get_mut(at) else { continue };
            let Some((neighbour, address)) = places[at] else {
                if own.as_ptr() != output.as_ptr() {
                    output.copy_from_slice(own);
                }
                continue;
            };
            for (turn, piece) in output.chunks_mut(READ_BYTES).enumerate() {
                if let Err(error) = neighbour.read(address + (turn * READ_BYTES) as u64, piece) {
                    return Err(blame(self.ranks[at], &error, step));
                }
            }
        }
        self.meet(step)
    }
}

/// Why a neighbour's memory is gone: if the neighbour died, the job knows.
fn blame(rank: Rank, error: &io::Error, step: &mut Step<'_>) -> Error {
    let began = Instant::now();
    while began.elapsed() < BLAME {
        if let Some(why) = step.watch() {
            return Error::GivenUp { what: step.what(), why };
        }
        std::thread::sleep(BLAME_LOOK);
    }
    Error::System { what: step.what(), why: format!("memory of rank {rank}: {error}") }
}

/// A member's work on everyone's bytes.
struct Part<'a> {
    own: usize,
    reduction: Reduction,
    /// The member that gets the result; `None`: all.
    root: Option<usize>,
    places: &'a [Place],
}

impl Part<'_> {
    /// Reduces the claimed blocks; an error names the owner of the memory.
    fn reduce(
        &self,
        bytes: &mut [u8],
        claimed: Claims,
        blocks: &mut Vec<u8>,
    ) -> Result<(), (usize, io::Error)> {
        let members = self.places.len();
        let pitch = BLOCK_BYTES.min(bytes.len());
        // The last block is for a result that another member copies: our bytes stay unchanged.
        if blocks.len() < pitch * (members + 1) {
            blocks.resize(pitch * (members + 1), 0);
        }
        let (blocks, aside) = blocks.split_at_mut(pitch * members);
        let takes = |at: usize| self.root.is_none_or(|root| root == at);
        for (start, len) in claimed.pieces(BLOCK_BYTES) {
            for (at, place) in self.places.iter().enumerate() {
                let Some((neighbour, address)) = place else { continue };
                let block = &mut blocks[at * pitch..at * pitch + len];
                neighbour.read(address + start as u64, block).map_err(|error| (at, error))?;
            }
            let mine = &mut bytes[start..start + len];
            let mut sources: Vec<Source<'_>> =
                (0..members).map(|at| Source::Bytes(&blocks[at * pitch..at * pitch + len])).collect();
            let (op, dtype) = self.reduction;
            let sum: &mut [u8] = if takes(self.own) {
                sources[self.own] = Source::Dst;
                mine
            } else {
                sources[self.own] = Source::Bytes(mine);
                &mut aside[..len]
            };
            reduce_many(op, dtype, sum, &sources, len);
            for (at, place) in self.places.iter().enumerate() {
                let Some((neighbour, address)) = place else { continue };
                if takes(at) {
                    neighbour.write(address + start as u64, sum).map_err(|error| (at, error))?;
                }
            }
        }
        Ok(())
    }
}
