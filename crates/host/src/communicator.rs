//! A group of ranks of one host, and the steps of all its collectives: publish, meet, compare.

use crate::area::{Area, SLOT_BYTES};
use crate::call::{Call, NOWHERE, What, describe};
use crate::error::Error;
use crate::reach::Reach;
use crate::waiting::{Patience, has_come};
use hocket_ids::Rank;
use hocket_wire::claims::Claims;
use hocket_wire::memory::{Mapping, Region};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One rank of a group, as known to every rank.
#[derive(Debug)]
pub struct Member {
    pub rank: Rank,
    /// [`crate::AREA_BYTES`] of its arena, zero-filled before the first call of any member.
    pub area: Region,
    pub arena: Arc<Mapping>,
}

/// Sizes up to which a flat reduction is faster, as measured: every member reads all contributions and reduces them for
/// itself. They depend on the path of larger ones: in place if all members' memory is registered, otherwise through the
/// slots.
#[derive(Clone, Copy, Debug)]
pub struct Flat {
    /// Limit if all have registered memory.
    pub registered_bytes: usize,
    pub other_bytes: usize,
}

impl Flat {
    /// The limit if this many of `members` have registered memory. If only some have, all contribute only below both
    /// limits.
    pub(crate) fn limit(self, registered: usize, members: usize) -> usize {
        match registered {
            0 => self.other_bytes,
            all if all == members => self.registered_bytes,
            _ => self.other_bytes.min(self.registered_bytes),
        }
    }
}

/// Called every 50 ms during waits, with the awaited rank where it is one; a reason ends the wait.
pub type Watch<'a> = &'a mut dyn FnMut(Option<Rank>) -> Option<String>;

/// This rank's end of a group. All members are made with the same members in the same order.
#[derive(Debug)]
pub struct Communicator {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) areas: Vec<Area>,
    pub(crate) arenas: Vec<Arc<Mapping>>,
    pub(crate) own: usize,
    /// The last barrier that we arrived at.
    pub(crate) barrier: u32,
    /// The barrier that opened the current call.
    pub(crate) opened: u32,
    pub(crate) flat: Flat,
    pub(crate) reach: Reach,
    patience: Patience,
    timeout: Duration,
    broken: Option<String>,
}

impl Communicator {
    /// `own` is our position among `members`; `timeout` limits each wait of a collective; `flat` must be equal on all
    /// members.
    pub fn new(members: Vec<Member>, own: usize, timeout: Duration, flat: Flat) -> Result<Self, Error> {
        if own >= members.len() {
            return Err(Error::Usage(format!("position {own} in a group of {}", members.len())));
        }
        let patience = Patience::of(members.len());
        let (mut ranks, mut areas, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for Member { rank, area, arena } in members {
            let too_small = || Error::Usage(format!("the area of rank {rank} is too small"));
            ranks.push(rank);
            areas.push(Area::new(area).ok_or_else(too_small)?);
            memory.push(arena);
        }
        let reach = Reach::new().map_err(|error| Error::Usage(format!("no random numbers: {error}")))?;
        areas[own].publish_card(reach.card());
        let flat = Flat {
            registered_bytes: flat.registered_bytes.min(SLOT_BYTES),
            other_bytes: flat.other_bytes.min(SLOT_BYTES),
        };
        Ok(Self {
            ranks,
            areas,
            arenas: memory,
            own,
            barrier: 0,
            opened: 0,
            flat,
            reach,
            patience,
            timeout,
            broken: None,
        })
    }

    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Always false: a group has at least our rank.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// How unregistered memory is reduced: a sentence, once that is decided.
    pub fn other_memory(&self) -> Option<String> {
        self.reach.told()
    }

    /// Sets the time limit of further waits.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Leaves the group after its last call. Others may still be in theirs, and read our area: its memory must last
    /// until [`Departure::is_over`].
    pub fn leave(self) -> Departure {
        self.areas.iter().for_each(Area::leave);
        Departure { area: self.areas[self.own].clone(), members: self.len() as u32 }
    }

    /// Returns after every member has called.
    pub fn barrier(&mut self, watch: Watch<'_>) -> Result<(), Error> {
        let call = Call {
            what: What::Barrier,
            reduction: None,
            root: None,
            bytes: 0,
            offset: None,
            address: NOWHERE,
        };
        self.run(call, watch, |group, watch| group.open(&call, watch).map(drop))
    }

    /// Runs one collective; after a failure, members are at different points, so no other can follow.
    pub(crate) fn run(
        &mut self,
        call: Call,
        watch: Watch<'_>,
        act: impl FnOnce(&mut Self, &mut Step<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(why) = &self.broken {
            return Err(Error::Broken(why.clone()));
        }
        if call.root.is_some_and(|root| root >= self.len()) {
            return Err(Error::Usage(format!("{call}: the group has {} ranks", self.len())));
        }
        let outcome = act(self, &mut Step { call, watch });
        if let Err(error) = &outcome {
            self.broken = Some(error.to_string());
        }
        outcome
    }

    /// The next barrier: contributions written now are published with it.
    pub(crate) fn next(&self) -> u32 {
        self.barrier.wrapping_add(1)
    }

    pub(crate) fn area(&self) -> &Area {
        &self.areas[self.own]
    }

    /// Publishes our call and contribution, meets all members, and returns their calls, which match ours.
    pub(crate) fn open(&mut self, call: &Call, step: &mut Step<'_>) -> Result<Calls, Error> {
        self.area().publish_call(self.next(), call.encode());
        if self.own == 0 {
            // All members are done with the slot of two barriers ago: they have arrived at the last one.
            self.claims(self.next(), 0).reset();
        }
        self.meet(step)?;
        self.opened = self.barrier;
        let mut calls = Calls { most_bytes: 0, registered: 0, may_be_reached: true };
        for (at, area) in self.areas.iter().enumerate() {
            let words = area.call(self.barrier);
            if !call.agrees_with(&words) {
                return Err(Error::Mismatch {
                    own: self.ranks[self.own],
                    ours: call.to_string(),
                    other: self.ranks[at],
                    theirs: describe(&words),
                });
            }
            calls.most_bytes = calls.most_bytes.max(words[2] as usize);
            calls.registered += usize::from(words[3] != u64::MAX);
            calls.may_be_reached &= words[4] != NOWHERE;
        }
        Ok(calls)
    }

    /// Publishes our contribution and waits until all members have done so.
    pub(crate) fn meet(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.barrier = self.next();
        let system = |error: io::Error| Error::System { what: step.call.to_string(), why: error.to_string() };
        self.area().arrive(self.barrier).map_err(system)?;
        let mut deadline = None; // reads no clock unless we must sleep
        let mut given_up = None;
        for (at, area) in self.areas.iter().enumerate() {
            if at == self.own {
                continue;
            }
            let ask = || {
                given_up = (step.watch)(Some(self.ranks[at]));
                let now = Instant::now();
                given_up.is_some() || now >= *deadline.get_or_insert(now + self.timeout)
            };
            if !self.patience.wait(area, self.barrier, ask).map_err(system)? {
                return Err(match given_up {
                    Some(why) => Error::GivenUp { what: step.call.to_string(), why },
                    None => self.absent(&step.call),
                });
            }
        }
        Ok(())
    }

    /// Our blocks of `bytes` to reduce, in the call that `barrier` opened.
    pub(crate) fn claims(&self, barrier: u32, bytes: usize) -> Claims {
        self.areas[0].claims(barrier, bytes, self.len())
    }

    /// A member's published contribution: its bytes and, if registered, their offset.
    pub(crate) fn brought(&self, at: usize) -> (usize, Option<Region>) {
        let words = self.areas[at].call(self.barrier);
        let bytes = words[2] as usize;
        (bytes, Region::new(&self.arenas[at], words[3], bytes as u64))
    }

    /// The offset of `bytes` in our arena, if they lie there.
    pub(crate) fn offset(&self, bytes: &[u8]) -> Option<u64> {
        self.arenas[self.own].offset_of(bytes)
    }

    fn absent(&self, call: &Call) -> Error {
        let late = |at: &usize| !has_come(self.areas[*at].arrived(), self.barrier);
        let absent = (0..self.len()).filter(late).map(|at| self.ranks[at]).collect();
        Error::Absent { what: call.to_string(), absent, timeout_s: self.timeout.as_secs_f64() }
    }
}

/// The area of a member that has left.
#[derive(Debug)]
pub struct Departure {
    area: Area,
    members: u32,
}

impl Departure {
    /// Whether all members have left: nobody looks at the area any more. False for good if one has died.
    pub fn is_over(&self) -> bool {
        self.area.left() == self.members
    }
}

pub(crate) struct Step<'a> {
    call: Call,
    watch: Watch<'a>,
}

impl Step<'_> {
    /// The reason to give up, if there is one.
    pub fn watch(&mut self) -> Option<String> {
        (self.watch)(None)
    }

    pub fn what(&self) -> String {
        self.call.to_string()
    }
}

pub(crate) struct Calls {
    pub most_bytes: usize,
    /// Number of members whose contribution lies in their arena.
    pub registered: usize,
    /// Whether every member lets the others access its memory.
    pub may_be_reached: bool,
}
