//! Collectives that only move bytes: all members read one member's contribution (`share`), or each reads its own slice
//! (`deal`).
//!
//! If a contribution is large and the kernel lets members read each other's memory, each member copies its part from
//! where it lies (`reach`). Otherwise a step fills one slot, meets, and copies; while others still copy, the next slot
//! is filled. Bytes thus cross a shared cache rather than memory, and the caller's buffers may lie anywhere.

use crate::area::SLOT_BYTES;
use crate::call::{Call, NOWHERE, What};
use crate::communicator::{Calls, Communicator, Step, Watch};
use crate::error::Error;
use crate::overlap::{are_apart, joined, place};
use std::ops::Range;

/// Larger contributions are copied from where they lie: for smaller ones, an extra copy costs less than a barrier.
const REACH_BYTES: usize = 64 * 1024;
/// Header of a dealt slice: the length of the whole piece, and its address.
const HEADER_BYTES: usize = 16;
/// Slices start at cache lines.
const LINE_BYTES: usize = 64;

impl Communicator {
    /// Broadcasts `bytes` of the member at `root`.
    pub fn broadcast(&mut self, bytes: &mut [u8], root: usize, watch: Watch<'_>) -> Result<(), Error> {
        let call = moving(What::Broadcast, Some(root), bytes.len());
        let own = self.own;
        if own == root {
            return self.run(call, watch, |group, step| group.share(&call, Some(bytes), &mut [], step));
        }
        let mut outputs = self.only_from(root, bytes);
        self.run(call, watch, |group, step| group.share(&call, None, &mut outputs, step))
    }

    /// Copies every member's `input` to its place in everyone's `outputs`; inputs may differ in length.
    pub fn all_gather(
        &mut self,
        input: &[u8],
        outputs: &mut [&mut [u8]],
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let call = moving(What::AllGather, None, input.len());
        let mut outputs = of_all(outputs);
        self.run(call, watch, |group, step| group.share(&call, Some(input), &mut outputs, step))
    }

    /// Copies every member's `input` to its place in the `outputs` of the member at `root`; others pass none.
    pub fn gather(
        &mut self,
        input: &[u8],
        outputs: &mut [&mut [u8]],
        root: usize,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let call = moving(What::Gather, Some(root), input.len());
        let mut outputs = of_all(outputs);
        self.run(call, watch, |group, step| group.share(&call, Some(input), &mut outputs, step))
    }

    /// Returns each member's piece of the root's `inputs`; other members pass none.
    pub fn scatter(
        &mut self,
        inputs: &[&[u8]],
        output: &mut [u8],
        root: usize,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let call = moving(What::Scatter, Some(root), longest(inputs));
        let mut outputs = self.only_from(root, output);
        self.run(call, watch, |group, step| group.deal(&call, inputs, &mut outputs, step))
    }

    /// Sends piece *i* of our `inputs` to member *i*, and receives member *i*'s piece for us in `outputs[i]`; pieces
    /// may differ in length.
    pub fn all_to_all(
        &mut self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let call = moving(What::AllToAll, None, longest(inputs));
        let mut outputs = of_all(outputs);
        self.run(call, watch, |group, step| group.deal(&call, inputs, &mut outputs, step))
    }

    /// Destinations of the contributions, at the member at `root` alone.
    fn only_from<'a>(&self, root: usize, output: &'a mut [u8]) -> Vec<Option<&'a mut [u8]>> {
        let mut outputs: Vec<_> = self.ranks.iter().map(|_| None).collect();
        if let Some(place) = outputs.get_mut(root) {
            *place = Some(output);
        }
        outputs
    }

    fn share(
        &mut self,
        call: &Call,
        input: Option<&[u8]>,
        outputs: &mut [Option<&mut [u8]>],
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let input = input.unwrap_or_default();
        let address = self.lend_all(&[input], outputs).map_or(NOWHERE, |()| place(input).start);
        let published = Call { bytes: input.len(), address, ..*call };
        if input.len() <= REACH_BYTES {
            self.put_shared(input, 0);
        }
        let calls = self.open(&published, step)?;
        for (from, output) in outputs.iter().enumerate() {
            let Some(output) = output else { continue };
            let brought = self.brought(from).0;
            if brought != output.len() {
                return Err(self.other_length(&published, from, brought, output.len()));
            }
        }
        let addresses = self.addresses();
        if calls.most_bytes > REACH_BYTES {
            if self.take_much(&calls, input, outputs, &addresses, step)? {
                return Ok(());
            }
            self.put_shared(input, 0);
            self.meet(step)?;
        }
        let mut at = 0;
        loop {
            for (from, output) in outputs.iter_mut().enumerate() {
                let Some(output) = output else { continue };
                let range = within(output.len(), at, SLOT_BYTES);
                let source = self.areas[from].slot(self.barrier, 0..range.len());
                output[range].copy_from_slice(source);
            }
            at += SLOT_BYTES;
            if at >= calls.most_bytes {
                return Ok(());
            }
            self.put_shared(input, at);
            self.meet(step)?;
        }
    }

    fn put_shared(&self, input: &[u8], at: usize) {
        let range = within(input.len(), at, SLOT_BYTES);
        self.area().slot_mut(self.next(), 0..range.len()).copy_from_slice(&input[range]);
    }

    fn deal(
        &mut self,
        call: &Call,
        inputs: &[&[u8]],
        outputs: &mut [Option<&mut [u8]>],
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let pitch = SLOT_BYTES / self.len() / LINE_BYTES * LINE_BYTES;
        let room = pitch - HEADER_BYTES;
        let own = inputs.get(self.own).copied().unwrap_or_default();
        let address = self.lend_all(inputs, outputs).map_or(NOWHERE, |()| place(own).start);
        self.put_headers(inputs, pitch);
        if call.bytes <= REACH_BYTES {
            self.put_dealt(inputs, 0, pitch);
        }
        let calls = self.open(&Call { address, ..*call }, step)?;
        let mut addresses = vec![NOWHERE; self.len()];
        for (from, output) in outputs.iter().enumerate() {
            let Some(output) = output else { continue };
            let start = self.own * pitch;
            let header = self.areas[from].slot(self.barrier, start..start + HEADER_BYTES);
            let word = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
            if word(0) != output.len() as u64 {
                return Err(self.other_length(call, from, word(0) as usize, output.len()));
            }
            addresses[from] = word(8);
        }
        if calls.most_bytes > REACH_BYTES {
            if self.take_much(&calls, own, outputs, &addresses, step)? {
                return Ok(());
            }
            self.put_dealt(inputs, 0, pitch);
            self.meet(step)?;
        }
        let mut at = 0;
        loop {
            for (from, output) in outputs.iter_mut().enumerate() {
                let Some(output) = output else { continue };
                let range = within(output.len(), at, room);
                let start = self.own * pitch + HEADER_BYTES;
                let slot = self.areas[from].slot(self.barrier, start..start + range.len());
                output[range].copy_from_slice(slot);
            }
            at += room;
            if at >= calls.most_bytes {
                return Ok(());
            }
            self.put_dealt(inputs, at, pitch);
            self.meet(step)?;
        }
    }

    fn put_headers(&self, inputs: &[&[u8]], pitch: usize) {
        for (to, piece) in inputs.iter().enumerate() {
            let header = self.area().slot_mut(self.next(), to * pitch..to * pitch + HEADER_BYTES);
            header[..8].copy_from_slice(&(piece.len() as u64).to_ne_bytes());
            header[8..].copy_from_slice(&place(piece).start.to_ne_bytes());
        }
    }

    fn put_dealt(&self, inputs: &[&[u8]], at: usize, pitch: usize) {
        for (to, piece) in inputs.iter().enumerate() {
            let range = within(piece.len(), at, pitch - HEADER_BYTES);
            let start = to * pitch + HEADER_BYTES;
            let slot = self.area().slot_mut(self.next(), start..start + range.len());
            slot.copy_from_slice(&piece[range]);
        }
    }

    /// Copies our part from where it lies, if every member can access every other one's memory; all reach the same
    /// decision.
    fn take_much(
        &mut self,
        calls: &Calls,
        own: &[u8],
        outputs: &mut [Option<&mut [u8]>],
        addresses: &[u64],
        step: &mut Step<'_>,
    ) -> Result<bool, Error> {
        if !calls.may_be_reached {
            return Ok(false);
        }
        let Some(places) = self.places(addresses, step)? else { return Ok(false) };
        self.take_by_reach(own, outputs, &places, step)?;
        Ok(true)
    }

    /// Our memory that others may read while we write; `None`: we write to part of what they read.
    fn lend_all(&mut self, inputs: &[&[u8]], outputs: &[Option<&mut [u8]>]) -> Option<()> {
        let inputs: Vec<_> = inputs.iter().map(|input| place(input)).collect();
        let outputs: Vec<_> =
            outputs.iter().map(|output| output.as_ref().map(|bytes| place(bytes))).collect();
        if !are_apart(&inputs, &outputs, self.own) {
            return None;
        }
        let outputs: Vec<_> = outputs.into_iter().flatten().collect();
        for all in [joined(&inputs), joined(&outputs)].into_iter().flatten() {
            self.lend(all);
        }
        Some(())
    }

    fn other_length(&self, call: &Call, from: usize, brought: usize, expected: usize) -> Error {
        Error::Mismatch {
            own: self.ranks[self.own],
            ours: format!("{call}, expecting {expected} bytes of rank {}", self.ranks[from]),
            other: self.ranks[from],
            theirs: format!("{} with {brought} bytes", call.what),
        }
    }
}

/// Destinations of each member's contribution.
fn of_all<'a>(outputs: &'a mut [&mut [u8]]) -> Vec<Option<&'a mut [u8]>> {
    outputs.iter_mut().map(|output| Some(&mut **output)).collect()
}

fn moving(what: What, root: Option<usize>, bytes: usize) -> Call {
    Call { what, reduction: None, root, bytes, offset: None, address: NOWHERE }
}

fn longest(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).max().unwrap_or(0)
}

/// The bytes of `len` that the step at `at` moves.
fn within(len: usize, at: usize, most: usize) -> Range<usize> {
    at.min(len)..(at + most).min(len)
}
