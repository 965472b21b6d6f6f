//! Collectives that move bytes as they are: all members read what one put (`share`), or each reads its own slice (`deal`).
//!
//! A step puts one slot, meets, and takes; while others still take, the next slot is put. Bytes so cross a cache that all
//! share rather than memory, and the caller's buffers may lie anywhere.

use crate::area::SLOT_BYTES;
use crate::call::{Call, What};
use crate::communicator::{Communicator, Step, Watch};
use crate::error::Error;
use std::ops::Range;

/// In front of a dealt slice: the bytes of the whole piece.
const LENGTH_BYTES: usize = 8;
/// Slices start at cache lines.
const LINE_BYTES: usize = 64;

impl Communicator {
    /// `bytes` of the member at `root` become everyone's.
    pub fn broadcast(&mut self, bytes: &mut [u8], root: usize, watch: Watch<'_>) -> Result<(), Error> {
        let call = moving(What::Broadcast, Some(root), bytes.len());
        let own = self.own;
        if own == root {
            return self.run(call, watch, |group, step| group.share(&call, Some(bytes), &mut [], step));
        }
        let mut outputs = self.only_from(root, bytes);
        self.run(call, watch, |group, step| group.share(&call, None, &mut outputs, step))
    }

    /// Every member's `input`, at its place in everyone's `outputs`; inputs may differ in length.
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

    /// Every member's `input`, at its place in the `outputs` of the member at `root`; others give none.
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

    /// Each member's piece of the root's `inputs`, which others leave empty.
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

    /// Piece *i* of our `inputs` goes to member *i*, and what member *i* has for us into `outputs[i]`; pieces may differ in length.
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

    /// Where what the members bring goes: that of the one at `root` alone.
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
        self.put_shared(input, 0);
        let published = Call { bytes: input.len(), ..*call };
        let calls = self.open(&published, step)?;
        for (from, output) in outputs.iter().enumerate() {
            let Some(output) = output else { continue };
            let brought = self.brought(from).0;
            if brought != output.len() {
                return Err(self.other_length(&published, from, brought, output.len()));
            }
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
        let room = pitch - LENGTH_BYTES;
        self.put_dealt(inputs, 0, pitch);
        let most_bytes = self.open(call, step)?.most_bytes;
        let mut at = 0;
        loop {
            for (from, output) in outputs.iter_mut().enumerate() {
                let Some(output) = output else { continue };
                let start = self.own * pitch;
                let slot = self.areas[from].slot(self.barrier, start..start + pitch);
                let brought = slot[..LENGTH_BYTES].try_into().map_or(0, u64::from_ne_bytes) as usize;
                if brought != output.len() {
                    return Err(self.other_length(call, from, brought, output.len()));
                }
                let range = within(output.len(), at, room);
                let len = range.len();
                output[range].copy_from_slice(&slot[LENGTH_BYTES..LENGTH_BYTES + len]);
            }
            at += room;
            if at >= most_bytes {
                return Ok(());
            }
            self.put_dealt(inputs, at, pitch);
            self.meet(step)?;
        }
    }

    fn put_dealt(&self, inputs: &[&[u8]], at: usize, pitch: usize) {
        for (to, piece) in inputs.iter().enumerate() {
            let range = within(piece.len(), at, pitch - LENGTH_BYTES);
            let slot = self.area().slot_mut(self.next(), to * pitch..(to + 1) * pitch);
            slot[..LENGTH_BYTES].copy_from_slice(&(piece.len() as u64).to_ne_bytes());
            slot[LENGTH_BYTES..LENGTH_BYTES + range.len()].copy_from_slice(&piece[range]);
        }
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

/// Where what the members bring goes: that of each.
fn of_all<'a>(outputs: &'a mut [&mut [u8]]) -> Vec<Option<&'a mut [u8]>> {
    outputs.iter_mut().map(|output| Some(&mut **output)).collect()
}

fn moving(what: What, root: Option<usize>, bytes: usize) -> Call {
    Call { what, reduction: None, root, bytes, offset: None, address: 0 }
}

fn longest(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).max().unwrap_or(0)
}

/// The bytes of `len` that the step at `at` moves.
fn within(len: usize, at: usize, most: usize) -> Range<usize> {
    at.min(len)..(at + most).min(len)
}
