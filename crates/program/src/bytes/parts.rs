//! One rank's parts of many programs as bytes. Buckets of a job mostly differ in their lengths alone: programs of one shape, all
//! but their names and numbers of elements, are written and read once, and each of them is a copy with its own numbers.

use super::Damaged;
use super::field::{Field, Reader};
use crate::{Collective, Contract, Node, Op, Program, RankProgram, Slice};
use hocket_ids::Rank;
use std::collections::HashMap;

impl Program {
    /// What one rank needs to run: its own ops and those of the ranks that it exchanges messages with.
    #[must_use]
    pub fn part(&self, rank: Rank) -> Self {
        let mut part = self.clone();
        for (own, met) in part.ranks.iter_mut().zip(self.met(rank)) {
            if !met {
                *own = RankProgram::default();
            }
        }
        part
    }

    /// For each of `ranks`, its parts of the programs as bytes.
    pub fn parts_to_bytes<'a>(programs: impl IntoIterator<Item = &'a Self>, ranks: &[Rank]) -> Vec<Vec<u8>> {
        let mut written = vec![Vec::new(); ranks.len()];
        let mut shapes: HashMap<Vec<u8>, (usize, Vec<Vec<bool>>)> = HashMap::new();
        for program in programs {
            let (bare, new) = (Bare::of(program), shapes.len());
            let met = || ranks.iter().map(|rank| program.met(*rank)).collect();
            let (shape, met) = shapes.entry(bare.shape(|_| true)).or_insert_with(|| (new, met()));
            for (bytes, met) in written.iter_mut().zip(met) {
                shape.write(bytes);
                if *shape == new {
                    bytes.extend(bare.shape(|rank| met[rank]));
                }
                program.name.write(bytes);
                let ranks = bare.ranks.iter().zip(met).filter_map(|(rank, met)| met.then_some(rank));
                ranks.chain([&bare.rest]).for_each(|piece| bytes.extend(&piece.numbers));
            }
        }
        written
    }

    /// The inverse, for one rank.
    pub fn parts_from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Damaged> {
        let mut reader = Reader::new(bytes);
        let (mut shapes, mut parts) = (Vec::<Self>::new(), Vec::new());
        while reader.end().is_err() {
            let shape = usize::read(&mut reader)?;
            if shape == shapes.len() {
                shapes.push(Self::read(&mut reader)?);
            }
            let mut part = shapes.get(shape).ok_or(reader.damaged())?.clone();
            part.name = String::read(&mut reader)?;
            let mut whole = Ok(());
            let mut read = |number: &mut usize| match usize::read(&mut reader) {
                Ok(found) => *number = found,
                Err(damaged) => whole = whole.and(Err(damaged)),
            };
            part.ranks.iter_mut().for_each(|rank| of_rank(rank, &mut read));
            of_promises(&mut part.ensures, &mut read);
            whole?;
            parts.push(part);
        }
        Ok(parts)
    }

    /// By rank: whether it is the given one, or that one exchanges something with it.
    fn met(&self, rank: Rank) -> Vec<bool> {
        let mut met = vec![false; self.world()];
        let mut takes_part = |rank: Rank| {
            if let Some(met) = met.get_mut(rank.index()) {
                *met = true;
            }
        };
        takes_part(rank);
        for node in self.ranks.get(rank.index()).iter().flat_map(|ops| &ops.nodes) {
            match &node.op {
                Op::Send { peer, .. } | Op::Recv { peer, .. } => takes_part(*peer),
                Op::Collective { group, .. } => group.iter().for_each(|member| takes_part(*member)),
                _ => {}
            }
        }
        met
    }
}

/// A piece of a program in bytes: without its numbers of elements, which are 0 there, and these.
#[derive(Default)]
struct Piece {
    shape: Vec<u8>,
    numbers: Vec<u8>,
}

impl Piece {
    fn take(&mut self) -> impl FnMut(&mut usize) {
        |number| std::mem::take(number).write(&mut self.numbers)
    }
}

/// The pieces of a program but for its name: each rank's, and what is said of all.
struct Bare {
    ranks: Vec<Piece>,
    rest: Piece,
}

impl Bare {
    fn of(program: &Program) -> Self {
        let of_rank = |rank: &RankProgram| {
            let (mut piece, mut rank) = (Piece::default(), rank.clone());
            of_rank(&mut rank, &mut piece.take());
            rank.write(&mut piece.shape);
            piece
        };
        let (mut rest, mut ensures) = (Piece::default(), program.ensures.clone());
        of_promises(&mut ensures, &mut rest.take());
        ensures.write(&mut rest.shape);
        program.sources.write(&mut rest.shape);
        program.kernels.write(&mut rest.shape);
        Self { ranks: program.ranks.iter().map(of_rank).collect(), rest }
    }

    /// The program without its name and numbers, with the ops of some ranks.
    fn shape(&self, with: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut shape = Vec::new();
        String::new().write(&mut shape);
        self.ranks.len().write(&mut shape);
        for (rank, piece) in self.ranks.iter().enumerate() {
            if with(rank) { shape.extend(&piece.shape) } else { RankProgram::default().write(&mut shape) }
        }
        shape.extend(&self.rest.shape);
        shape
    }
}

/// Calls `each` with every number of elements of a rank, in the same order for all programs of a shape.
fn of_rank(rank: &mut RankProgram, each: &mut impl FnMut(&mut usize)) {
    rank.buffers.iter_mut().for_each(|buffer| each(&mut buffer.len));
    for Node { op, .. } in &mut rank.nodes {
        let mut of_slice = |slice: &mut Slice| {
            each(&mut slice.start);
            each(&mut slice.stop);
        };
        match op {
            Op::Copy { src, dst } | Op::Cast { src, dst } | Op::Reduce { src, dst, .. } => {
                of_slice(src);
                of_slice(dst);
            }
            Op::Apply { dst: slice, .. } | Op::Record { src: slice, .. } => of_slice(slice),
            Op::Send { src: slice, count, .. } | Op::Recv { dst: slice, count, .. } => {
                of_slice(slice);
                count.iter_mut().for_each(of_slice);
            }
            Op::Call { inputs, outputs, .. } => inputs.iter_mut().chain(outputs).for_each(of_slice),
            Op::Collective { what, slice, .. } => {
                of_slice(slice);
                if let Collective::AllToAll { dst } = what {
                    of_slice(dst);
                }
            }
        }
    }
}

fn of_promises(promises: &mut [Contract], each: &mut impl FnMut(&mut usize)) {
    for promise in promises {
        if let Contract::ToOwners { shares, .. } | Contract::FromOwners { shares, .. } = promise {
            for share in shares {
                each(&mut share.start);
                each(&mut share.stop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::program;
    use crate::Program;
    use hocket_ids::Rank;
    use proptest::prelude::*;

    fn met() -> Program {
        let mut whole = program(4);
        whole.ranks[1] = whole.ranks[0].clone();
        whole.ranks[2] = whole.ranks[0].clone();
        whole
    }

    /// A rank would not find the other end of its messages, or would read the programs of a thousand others.
    #[test]
    fn a_part_has_the_ranks_that_are_met() {
        let whole = met();
        let part = whole.part(Rank(0));
        assert_eq!(part.ranks[..2], whole.ranks[..2]);
        assert!(part.ranks[2].nodes.is_empty());
        assert_eq!(part, Program { ranks: part.ranks.clone(), ..whole });
    }

    proptest! {
        /// A rank would run the program of another bucket, or of another rank.
        #[test]
        fn parts_are_read_as_they_were(sizes in prop::collection::vec(1usize..5000, 0..5), named in any::<bool>()) {
            let mut programs: Vec<Program> = sizes.into_iter().map(program).collect();
            programs.push(Program { name: "other".into(), ..met() });
            if named {
                // Another shape between those that are alike.
                programs.insert(0, Program { sources: Vec::new(), ..program(7) });
            }
            let ranks = [Rank(0), Rank(2)];
            for (rank, bytes) in ranks.into_iter().zip(Program::parts_to_bytes(&programs, &ranks)) {
                let parts: Vec<Program> = programs.iter().map(|each| each.part(rank)).collect();
                prop_assert_eq!(Program::parts_from_bytes(&bytes).unwrap(), parts);
            }
        }
    }

    /// Reading would take as long as it does without a shape, and entries would be as large.
    #[test]
    fn what_differs_in_lengths_alone_has_one_shape() {
        let programs: Vec<Program> = (1000..1100).map(program).collect();
        let whole = programs[0].to_bytes().len();
        let bytes = &Program::parts_to_bytes(&programs, &[Rank(0)])[0];
        assert!(bytes.len() < 40 * whole, "{} bytes, {whole} of one program", bytes.len());
    }
}
