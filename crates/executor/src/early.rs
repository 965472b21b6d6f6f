//! Work on single gradients of a bucket: what of a program may run before all of its gradients are there.
//!
//! An instruction that computes on the memory of one gradient waits for that gradient, one that computes on none for nothing, and
//! all others wait for the whole bucket, as messages do. These waits come on top of the program's own dependencies.

use crate::instruction::{Action, Instruction};
use hocket_kernels::DType;
use hocket_wire::memory::Region;
use std::ops::Range;

/// Instructions by what they wait for.
#[derive(Debug, PartialEq, Eq)]
pub struct Early {
    /// By gradient.
    of: Vec<Box<[u32]>>,
    /// For the whole bucket.
    rest: Box<[u32]>,
    /// By instruction: whether it is one of these.
    waits: Vec<bool>,
}

/// A step of a launch that begins before its bucket is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// All of it, at once.
    Whole,
    /// Its first gradient has come.
    Early,
    /// That gradient is there.
    Gradient(u32),
    /// All gradients are there.
    Rest,
}

impl Early {
    /// Of a bound buffer that is made of gradients of so many elements. `None`: nothing can run early.
    pub fn of(instructions: &[Instruction], bound: &[(Region, DType)], gradients: &[usize]) -> Option<Self> {
        let [(bucket, dtype)] = bound else { return None };
        let ends = gradients.iter().scan(0_usize, |end, elements| {
            *end = elements.checked_mul(dtype.bytes()).and_then(|bytes| end.checked_add(bytes))?;
            Some(*end)
        });
        let ends: Vec<usize> = ends.collect();
        if ends.len() < gradients.len() || ends.last() != Some(&bucket.len()) {
            return None;
        }
        let mut of = vec![Vec::new(); gradients.len()];
        let (mut rest, mut waits) = (Vec::new(), vec![true; instructions.len()]);
        for (at, instruction) in instructions.iter().enumerate() {
            let Action::Compute(compute) = &instruction.action else {
                rest.push(at as u32);
                continue;
            };
            // The gradient that a byte belongs to.
            let gradient = |byte: usize| ends.partition_point(|end| *end <= byte);
            let touched: Vec<_> =
                compute.regions().into_iter().filter_map(|region| within(bucket, region)).collect();
            let first = touched.iter().map(|range| gradient(range.start)).min();
            let last = touched.iter().map(|range| gradient(range.end - 1)).max();
            match first.zip(last) {
                None => waits[at] = false,
                Some((first, last)) if first == last => of[first].push(at as u32),
                Some(_) => rest.push(at as u32),
            }
        }
        let of: Vec<_> = of.into_iter().map(Vec::into_boxed_slice).collect();
        of.iter().any(|own| !own.is_empty()).then(|| Self { of, rest: rest.into(), waits })
    }

    /// How many more waits than its dependencies an instruction has.
    pub fn waits(&self, op: usize) -> u32 {
        u32::from(self.waits[op])
    }

    /// Instructions that wait for this.
    pub fn after(&self, go: Go) -> &[u32] {
        match go {
            Go::Gradient(gradient) => &self.of[gradient as usize],
            Go::Rest => &self.rest,
            Go::Whole | Go::Early => &[],
        }
    }

    /// How many gradients there are.
    pub fn gradients(&self) -> usize {
        self.of.len()
    }
}

/// Bytes of the bucket that lie in `region`, if any do.
fn within(bucket: &Region, region: &Region) -> Option<Range<usize>> {
    let (from, to) = (bucket.arena_offset() as usize, region.arena_offset() as usize);
    let start = to.max(from);
    let end = (to + region.len()).min(from + bucket.len());
    (start < end).then(|| start - from..end - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use hocket_ids::{BufferId, Rank, Tag};
    use hocket_program::{BufferKind, Op, Program, RankBuilder, Record, Slice};
    use hocket_wire::memory::Arena;

    const LENS: [usize; 3] = [3, 0, 5];

    fn early(gradients: &[usize], fill: impl Fn(&mut RankBuilder, BufferId, BufferId)) -> Option<Early> {
        let built = |own: bool| {
            let mut b = RankBuilder::new();
            let bucket = b.buffer("bucket", hocket_ids::DType::F32, 8, BufferKind::Bound);
            let half = b.buffer("half", hocket_ids::DType::F16, 8, BufferKind::Scratch);
            if own {
                fill(&mut b, bucket, half);
            } else {
                let (dst, peer, tag) = (Slice::new(bucket, 0, 1), Rank::from_index(0), Tag::from_index(0));
                b.push(
                    Op::Recv { dst, wire: hocket_ids::DType::F32, reduce: None, peer, tag, count: None },
                    None,
                );
            }
            b.finish()
        };
        let program =
            Program { name: "early".into(), ranks: vec![built(true), built(false)], ..Program::default() };
        let arena = Arena::new(0).unwrap();
        let memory = [arena.allocate(32).unwrap(), arena.allocate(16).unwrap()];
        let regions: Vec<_> = memory.iter().map(|own| Some(own.region().clone())).collect();
        let instructions = compile(&program, Rank::from_index(0), &regions, &[]).unwrap();
        Early::of(&instructions, &[(memory[0].region().clone(), DType::F32)], gradients)
    }

    /// A message, or work on another gradient, would start before its values are there.
    #[test]
    fn what_needs_one_gradient_waits_for_it_alone() {
        let early = early(&LENS, |b, bucket, half| {
            b.push(Op::Cast { src: Slice::new(bucket, 0, 3), dst: Slice::new(half, 0, 3) }, None);
            b.push(Op::Cast { src: Slice::new(half, 0, 3), dst: Slice::new(bucket, 0, 3) }, None);
            b.push(Op::Record { what: Record::NonFinite, src: Slice::new(bucket, 4, 8) }, None);
            b.push(Op::Cast { src: Slice::new(bucket, 2, 4), dst: Slice::new(half, 2, 4) }, None);
            b.push(Op::Copy { src: Slice::new(half, 0, 2), dst: Slice::new(half, 4, 6) }, None);
            let (src, tag, peer) = (Slice::new(bucket, 0, 1), Tag::from_index(0), Rank::from_index(1));
            b.push(Op::Send { src, wire: hocket_ids::DType::F32, peer, tag, count: None }, None);
        });
        let early = early.unwrap();
        assert_eq!(early.after(Go::Gradient(0)), [0, 1]);
        assert!(early.after(Go::Gradient(1)).is_empty());
        assert_eq!(early.after(Go::Gradient(2)), [2]);
        assert_eq!(early.after(Go::Rest), [3, 5]);
        assert_eq!((0..6).map(|op| early.waits(op)).collect::<Vec<_>>(), [1, 1, 1, 1, 0, 1]);
    }

    /// Gradients would be taken for others.
    #[test]
    fn gradients_that_are_not_the_bucket_begin_nothing_early() {
        let whole = |b: &mut RankBuilder, bucket, _| {
            b.push(Op::Record { what: Record::NonFinite, src: Slice::new(bucket, 0, 8) }, None);
        };
        assert_eq!(early(&LENS, whole), None, "nothing works on one gradient");
        assert!(early(&[8], whole).is_some());
        assert!(early(&[8, 1], whole).is_none() && early(&[], whole).is_none());
        assert!(early(&[usize::MAX, 9], whole).is_none());
    }
}
