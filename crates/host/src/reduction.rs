//! Collectives that reduce. Contributions are always combined in the order of the group, so every member gets the same
//! bits.
//!
//! - Up to a limit (`Flat`): each member reads all contributions and reduces everything, with one barrier. Above it,
//!   more barriers cost less.
//! - Registered: each member reduces the blocks that it claims straight out of all buckets, and writes them to all
//!   while they are in the cache: memory is read once and written once, which is the minimum.
//! - Otherwise, where the kernel copies between processes: `reach`.
//! - Otherwise: slot by slot. While a slot is filled, the previous one is reduced, and the reduced parts of the one
//!   before that are copied out: one barrier per slot.

use crate::area::SLOT_BYTES;
use crate::call::{Call, NOWHERE, Reduction, What};
use crate::communicator::{Communicator, Step, Watch};
use crate::error::Error;
use hocket_kernels::{Source, reduce_many};
use hocket_wire::reduce::{part, reduce_in_place};
use hocket_wire::shm::reach::address;
use std::ops::Range;

/// Parts start at cache lines.
const LINE_BYTES: usize = 64;

impl Communicator {
    /// Reduces all members' `bytes`, in place.
    pub fn all_reduce(
        &mut self,
        bytes: &mut [u8],
        reduction: Reduction,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        self.reduce_to(What::AllReduce, bytes, reduction, None, watch)
    }

    /// The same for the member at `root` alone; others keep their bytes, unless all are registered.
    pub fn reduce(
        &mut self,
        bytes: &mut [u8],
        reduction: Reduction,
        root: usize,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        self.reduce_to(What::Reduce, bytes, reduction, Some(root), watch)
    }

    /// Reduces all members' pieces for us into `output`: piece *i* of `inputs`, which have one length, is for member
    /// *i*.
    pub fn reduce_scatter(
        &mut self,
        inputs: &[&[u8]],
        output: &mut [u8],
        reduction: Reduction,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        if inputs.len() != self.len() || inputs.iter().any(|piece| piece.len() != output.len()) {
            let lengths: Vec<usize> = inputs.iter().map(|piece| piece.len()).collect();
            let what = format!("reduce_scatter of pieces of {lengths:?} bytes into {}", output.len());
            return Err(Error::Usage(format!("{what}: {} equal pieces are needed", self.len())));
        }
        let bytes = output.len();
        let call = Call {
            what: What::ReduceScatter,
            reduction: Some(reduction),
            root: None,
            bytes,
            offset: None,
            address: NOWHERE,
        };
        self.run(call, watch, |group, step| {
            let room = SLOT_BYTES / group.len() / LINE_BYTES * LINE_BYTES;
            let mut at = 0;
            loop {
                let range = at..(at + room).min(bytes);
                for (to, piece) in inputs.iter().enumerate() {
                    let start = to * room;
                    let slot = group.area().slot_mut(group.next(), start..start + range.len());
                    slot.copy_from_slice(&piece[range.clone()]);
                }
                if at == 0 {
                    group.open(&call, step)?;
                } else {
                    group.meet(step)?;
                }
                let start = group.own * room;
                let sources = group.slots(start..start + range.len());
                let (op, dtype) = reduction;
                reduce_many(op, dtype, &mut output[range], &sources, bytes);
                at += room;
                if at >= bytes {
                    return Ok(());
                }
            }
        })
    }

    fn reduce_to(
        &mut self,
        what: What,
        bytes: &mut [u8],
        reduction: Reduction,
        root: Option<usize>,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let offset = self.offset(bytes).filter(|_| what == What::AllReduce);
        let at = address(bytes.as_mut_ptr());
        let call = Call { what, reduction: Some(reduction), root, bytes: bytes.len(), offset, address: at };
        let takes = root.is_none_or(|root| root == self.own);
        self.run(call, watch, |group, step| {
            let limits = &group.flat;
            let own_limit = if offset.is_some() { limits.registered_bytes } else { limits.other_bytes };
            if bytes.len() <= own_limit {
                group.area().slot_mut(group.next(), 0..bytes.len()).copy_from_slice(bytes);
            }
            if offset.is_none() {
                group.lend(at..at + bytes.len() as u64);
            }
            let calls = group.open(&call, step)?;
            if bytes.len() <= group.flat.limit(calls.registered, group.len()) {
                if takes {
                    let mut sources = group.slots(0..bytes.len());
                    sources[group.own] = Source::Dst;
                    let (op, dtype) = reduction;
                    reduce_many(op, dtype, bytes, &sources, bytes.len());
                }
                return Ok(());
            }
            if calls.registered == group.len() {
                group.reduce_in_place(reduction)?;
                return group.meet(step);
            }
            let addresses = group.addresses();
            if let Some(places) = group.places(&addresses, step)? {
                return group.reduce_by_reach(bytes, reduction, root, &places, step);
            }
            group.reduce_by_slots(bytes, reduction, takes, step)
        })
    }

    /// Bytes `range` of all published contributions.
    fn slots(&self, range: Range<usize>) -> Vec<Source<'_>> {
        self.areas.iter().map(|area| Source::Bytes(area.slot(self.barrier, range.clone()))).collect()
    }

    fn reduce_in_place(&self, (op, dtype): Reduction) -> Result<(), Error> {
        let mut buckets = Vec::with_capacity(self.len());
        for at in 0..self.len() {
            let outside =
                || Error::Usage(format!("rank {} published memory outside its arena", self.ranks[at]));
            buckets.push(self.brought(at).1.ok_or_else(outside)?);
        }
        let claimed = self.claims(self.opened, buckets[0].len());
        reduce_in_place(&buckets, claimed, op, dtype, 1.0, || true);
        Ok(())
    }

    fn reduce_by_slots(
        &mut self,
        bytes: &mut [u8],
        reduction: Reduction,
        takes: bool,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let members = self.len();
        let len = bytes.len();
        let steps = len.div_ceil(SLOT_BYTES);
        let chunk = |at: usize| at * SLOT_BYTES..((at + 1) * SLOT_BYTES).min(len);
        for at in 0..steps + 2 {
            if at < steps {
                // Our own part is read in place.
                let (range, own) = (chunk(at), part(chunk(at).len(), members, self.own));
                for others in [0..own.start, own.end..range.len()] {
                    let slot = self.area().slot_mut(self.next(), others.clone());
                    slot.copy_from_slice(&bytes[range.start + others.start..range.start + others.end]);
                }
            }
            if at > 0 && at <= steps {
                let range = chunk(at - 1);
                let own = part(range.len(), members, self.own);
                let place = range.start + own.start..range.start + own.end;
                let mut sources = self.slots(own);
                sources[self.own] = Source::Bytes(&bytes[place.clone()]);
                let result = self.area().result_mut(self.next(), 0..place.len());
                let (op, dtype) = reduction;
                reduce_many(op, dtype, result, &sources, result.len());
                if takes {
                    bytes[place].copy_from_slice(result);
                }
            }
            if at > 1 && takes {
                let range = chunk(at - 2);
                for from in (0..members).filter(|from| *from != self.own) {
                    let of = part(range.len(), members, from);
                    let result = self.areas[from].result(self.barrier, 0..of.len());
                    bytes[range.start + of.start..range.start + of.end].copy_from_slice(result);
                }
            }
            if at <= steps {
                self.meet(step)?;
            }
        }
        Ok(())
    }
}
