//! Two-level all-reduce: each group reduces along a chain to its first member, the leaders run a ring, and each result
//! goes back along the chain. Between groups only leaders talk, so a slow link between racks carries the least.

use super::message::{Call, Weaver};
use super::ring;
use crate::passes::PassError;
use hocket_ids::Rank;

pub fn all_reduce(call: &Call<'_>, sizes: &[u32], weaver: &mut Weaver) -> Result<(), PassError> {
    let wrong = || PassError::Sizes { sizes: sizes.to_vec(), members: call.members.len() };
    let mut groups: Vec<&[Rank]> = Vec::with_capacity(sizes.len());
    let mut rest = call.members;
    for &size in sizes {
        let (group, after) = rest.split_at_checked(size as usize).ok_or_else(wrong)?;
        if group.is_empty() {
            return Err(wrong());
        }
        groups.push(group);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(wrong());
    }
    for group in &groups {
        for link in group.windows(2).rev() {
            weaver.message(link[1], link[0], call.slice, Some(call.op));
        }
    }
    let leaders: Vec<Rank> = groups.iter().map(|group| group[0]).collect();
    ring::all_reduce(&Call { members: &leaders, ..*call }, weaver);
    for group in &groups {
        for link in group.windows(2) {
            weaver.message(link[0], link[1], call.slice, None);
        }
    }
    Ok(())
}
