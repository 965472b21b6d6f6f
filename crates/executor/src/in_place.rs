//! All-reduce of the ranks of one host, in place. Each member announces where its bytes lie. A member that has all
//! announcements reduces the blocks that it claims (`hocket_wire::claims`) and announces that to all. A member is
//! done when all have announced it.
//!
//! This takes two posts to each member, whatever the size: messages would take as many per chunk, and move each byte
//! once more.

use crate::core::{Core, OUTSIDE};
use crate::instruction::InPlace;
use crate::loaded::Loaded;
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use hocket_sync::meeting::Place;
use hocket_wire::claims::{CLAIMS_BYTES, Claims};
use hocket_wire::link::Post;
use hocket_wire::memory::Region;
use hocket_wire::reduce::reduce_in_place;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// Whether we share memory with all members.
    pub fn shares_memory(&self, own: &InPlace) -> Result<(), String> {
        let far = own.others().map(|(rank, _)| self.peer(*rank)).find(|peer| peer.link.memory().is_none());
        far.map_or(Ok(()), |far| {
            Err(format!("in_place is for ranks of one host, and {} is on another", far.who))
        })
    }

    /// Our bytes are ready: announces them to the others.
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
        let all = loaded.op(op).meeting().come(instance, own.own, Place { bytes: offset_bytes, claims });
        if all.expect("an instruction's dependencies are met once per instance") {
            self.enqueue(loaded, op);
        }
    }

    /// A member's bytes are ready.
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
        let all = loaded.op(op).meeting().come(instance, member, place);
        if all.map_err(|_| format!("announced op {op} of program {program} twice"))? {
            self.enqueue(loaded, op);
        }
        Ok(())
    }

    /// All bytes are ready: reduces our claims, and tells the others. Returns whether all parts are done.
    pub fn reduce_part(&self, loaded: &Arc<Loaded>, op: u32, own: &InPlace) -> bool {
        let instance = loaded.instance();
        let meeting = loaded.op(op).meeting();
        let here = loaded.location(Some(op));
        let outside = |who: Rank| {
            self.fail(self.peer(who).failed(Why::Violation, Some(here), OUTSIDE));
            false
        };
        let mut buckets = Vec::with_capacity(own.members.len());
        for (at, (rank, _)) in own.members.iter().enumerate() {
            if at == own.own {
                buckets.push(own.region.clone());
                continue;
            }
            let peer = self.peer(*rank);
            let place = meeting.place(instance, at).bytes;
            let Some(bucket) =
                peer.link.memory().and_then(|memory| Region::new(memory, place, own.region.len() as u64))
            else {
                return outside(*rank);
            };
            buckets.push(bucket);
        }
        let (first, _) = own.members[0];
        let memory = own.claims(instance).or_else(|| {
            let memory = self.peer(first).link.memory()?;
            Region::new(memory, meeting.place(instance, 0).claims, CLAIMS_BYTES as u64)
        });
        let claimed = memory.and_then(|memory| Claims::new(memory, own.region.len(), own.members.len()));
        let Some(claimed) = claimed else { return outside(first) };
        let go_on = || !self.is_interrupted();
        if !reduce_in_place(&buckets, claimed, own.op, own.dtype, own.factor, go_on) {
            return false;
        }
        self.post_all(own, |op| Post::Taken { program: loaded.number, instance, op });
        self.part_done(loaded, op, instance, own.own).expect("a part is done once, after all have come")
    }

    /// A member's part is done in our bytes, too; whether all parts are.
    pub fn part_done(
        &self,
        loaded: &Arc<Loaded>,
        op: u32,
        instance: u32,
        member: usize,
    ) -> Result<bool, String> {
        let all = loaded.op(op).meeting().done(instance, member);
        let wrong = |_| format!("did a part of op {op} of program {} twice or too early", loaded.number);
        let all = all.map_err(wrong)?;
        if all {
            self.meetings.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(all)
    }

    fn post_all(&self, own: &InPlace, post: impl Fn(u32) -> Post) {
        for &(rank, op) in own.others() {
            self.post(self.peer(rank), post(op));
        }
    }
}
