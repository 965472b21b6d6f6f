//! All-reduce of ranks of one host, in place. Each member says where its bytes lie; who has heard all reduces the blocks that it
//! claims (`hocket_wire::shm::claims`) and says so to all; who has heard that from all is done.
//!
//! Two posts to each member, whatever the size: messages would cost as many for each chunk, and move each byte once more.

use crate::core::{Core, OUTSIDE};
use crate::loaded::Loaded;
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_program::{Algorithm, Collective, Op, Program, Slice};
use hocket_protocol::why::Why;
use hocket_sync::meeting::{MEMBERS_MAX, Place};
use hocket_wire::memory::{Allocation, Region};
use hocket_wire::shm::claims::{CLAIMS_BYTES, Claims};
use hocket_wire::shm::mailbox::Post;
use hocket_wire::shm::reduce::reduce_in_place;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// This rank's end.
#[derive(Debug)]
pub struct InPlace {
    /// Who takes part, in the order in which slices are reduced, and the number of the instruction there.
    pub members: Vec<(Rank, u32)>,
    /// Our position.
    pub own: usize,
    /// Our slice.
    pub region: Region,
    /// How two elements become one.
    pub op: ReduceOp,
    /// Element type.
    pub dtype: DType,
    /// What the reduction is multiplied with.
    pub factor: f64,
    /// By which members claim blocks, by parity of the launch count; of the first member alone.
    pub claims: Option<Allocation>,
}

impl InPlace {
    /// The position of a rank.
    pub fn position(&self, rank: Rank) -> Option<usize> {
        self.members.iter().position(|(member, _)| *member == rank)
    }

    /// Where members claim blocks of a launch, if that is our memory.
    fn claims(&self, instance: u32) -> Option<Region> {
        let half = (instance & 1) as usize * CLAIMS_BYTES;
        self.claims.as_ref().map(|memory| memory.region().sub(half, CLAIMS_BYTES))
    }

    /// All members but us.
    pub fn others(&self) -> impl Iterator<Item = &(Rank, u32)> {
        let others = self.members.iter().enumerate().filter(|(at, _)| *at != self.own);
        others.map(|(_, member)| member)
    }
}

/// Members of the collective `op` of `rank`, with the number of its instruction on each: the same turn among the collectives of its group.
pub fn members(program: &Program, rank: Rank, op: usize) -> Result<Vec<(Rank, u32)>, String> {
    let Some((group, slice)) = of(&program.ranks[rank.index()].nodes[op].op) else {
        return Err("is no collective in place".into());
    };
    if group.len() > MEMBERS_MAX {
        return Err(format!("{} members: at most {MEMBERS_MAX} reduce in place", group.len()));
    }
    let turns = |member: Rank| {
        let nodes = program.ranks[member.index()].nodes.iter().enumerate();
        nodes.filter_map(|(at, node)| {
            of(&node.op).filter(|(other, _)| *other == group).map(|(_, slice)| (at, slice))
        })
    };
    let turn = turns(rank).position(|(at, _)| at == op).unwrap_or_default();
    let kind = |rank: Rank, slice: &Slice| {
        (slice.len(), program.ranks[rank.index()].buffers[slice.buffer.index()].dtype)
    };
    let mut members = Vec::with_capacity(group.len());
    for &member in group {
        match turns(member).nth(turn) {
            Some((at, theirs)) if kind(member, theirs) == kind(rank, slice) => {
                members.push((member, at as u32));
            }
            Some(_) => return Err(format!("rank {member} brings other elements")),
            None => return Err(format!("rank {member} does not take part")),
        }
    }
    Ok(members)
}

fn of(op: &Op) -> Option<(&[Rank], &Slice)> {
    match op {
        Op::Collective {
            what: Collective::AllReduce,
            slice,
            group,
            algorithm: Some(Algorithm::InPlace),
            ..
        } => Some((group, slice)),
        _ => None,
    }
}

impl Core {
    /// Whether we share memory with all members.
    pub fn shares_memory(&self, own: &InPlace) -> Result<(), String> {
        let far = own.others().map(|(rank, _)| self.peer(*rank)).find(|peer| peer.shared.is_none());
        far.map_or(Ok(()), |far| {
            Err(format!("in_place is for ranks of one host, and {} is on another", far.who))
        })
    }

    /// Our bytes are there: tells the others.
    pub fn bring(&self, loaded: &Arc<Loaded>, op: u32, own: &InPlace) {
        self.meetings.fetch_add(1, Ordering::Relaxed);
        let (program, instance) = (loaded.number, loaded.instance());
        let (offset_bytes, len_bytes) = (own.region.arena_offset(), own.region.len() as u64);
        let place = own.claims(instance).map(|memory| {
            if let Some(claims) = Claims::new(memory.clone(), own.region.len(), own.members.len()) {
                claims.reset();
            }
            memory.arena_offset()
        });
        let claims = place.unwrap_or_default();
        let post = |op| Post::Brought { program, instance, op, offset_bytes, len_bytes, claims };
        self.post_all(own, post);
        let all = loaded.meeting(op).come(instance, own.own, Place { bytes: offset_bytes, claims });
        if all.expect("an instruction's dependencies are met once per instance") {
            self.enqueue(loaded, op);
        }
    }

    /// A member's bytes are there.
    pub fn brought(
        &self,
        loaded: &Arc<Loaded>,
        op: u32,
        instance: u32,
        own: &InPlace,
        (member, place, len_bytes): (usize, Place, u64),
    ) -> Result<(), String> {
        let program = loaded.number;
        if len_bytes != own.region.len() as u64 {
            return Err(format!(
                "{len_bytes} bytes for op {op} of program {program}, which takes {}",
                own.region.len()
            ));
        }
        let all = loaded.meeting(op).come(instance, member, place);
        if all.map_err(|_| format!("announced op {op} of program {program} twice"))? {
            self.enqueue(loaded, op);
        }
        Ok(())
    }

    /// All bytes are there: reduces what we claim of them, and tells the others.
    pub fn reduce_part(&self, loaded: &Arc<Loaded>, op: u32, own: &InPlace) {
        let instance = loaded.instance();
        let meeting = loaded.meeting(op);
        let here = loaded.location(Some(op));
        let outside = |who: Rank| self.fail(self.peer(who).failed(Why::Violation, Some(here), OUTSIDE));
        let mut buckets = Vec::with_capacity(own.members.len());
        for (at, (rank, _)) in own.members.iter().enumerate() {
            if at == own.own {
                buckets.push(own.region.clone());
                continue;
            }
            let peer = self.peer(*rank);
            let place = meeting.place(instance, at).bytes;
            let shared = peer.shared.as_ref();
            let Some(bucket) =
                shared.and_then(|shared| Region::new(&shared.arena, place, own.region.len() as u64))
            else {
                return outside(*rank);
            };
            buckets.push(bucket);
        }
        let (first, _) = own.members[0];
        let memory = own.claims(instance).or_else(|| {
            let shared = self.peer(first).shared.as_ref()?;
            Region::new(&shared.arena, meeting.place(instance, 0).claims, CLAIMS_BYTES as u64)
        });
        let claimed = memory.and_then(|memory| Claims::new(memory, own.region.len(), own.members.len()));
        let Some(claimed) = claimed else { return outside(first) };
        reduce_in_place(&buckets, claimed, own.op, own.dtype, own.factor);
        self.post_all(own, |op| Post::Taken { program: loaded.number, instance, op });
        self.part_done(loaded, op, instance, own.own).expect("a part is done once, after all have come");
    }

    /// A member's part is done in our bytes too.
    pub fn part_done(
        &self,
        loaded: &Arc<Loaded>,
        op: u32,
        instance: u32,
        member: usize,
    ) -> Result<(), String> {
        let all = loaded.meeting(op).done(instance, member);
        let wrong = |_| format!("did a part of op {op} of program {} twice or too early", loaded.number);
        if all.map_err(wrong)? {
            self.meetings.fetch_sub(1, Ordering::Relaxed);
            self.complete(loaded, op);
        }
        Ok(())
    }

    fn post_all(&self, own: &InPlace, post: impl Fn(u32) -> Post) {
        for &(rank, op) in own.others() {
            let peer = self.peer(rank);
            let posted = peer.shared.as_ref().map_or(Ok(()), |shared| shared.post(post(op)));
            if let Err(error) = posted {
                self.fail_here(None, format_args!("cannot wake {}: {error}", peer.who));
            }
        }
    }
}
