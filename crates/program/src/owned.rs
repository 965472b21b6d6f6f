//! Programs over owners of a bucket's parts: gradients to the owners and the owners' values to all, as one program, or
//! as two between which owners make values of the reduction. Unlike a collective's, the members of a route differ: some
//! may own without a gradient of their own.

use crate::passes::{Expansion, Weaver};
use crate::{BufferKind, Contract, DType, Op, Program, RankBuilder, Record, ReduceOp, Share, Slice};
use hocket_algorithms::{Call, Misfit, Owned};
use hocket_ids::{BufferId, Rank};

/// The direction of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the owners and back: an all-reduce of the workers.
    Both,
    /// To the owners: a reduce-scatter.
    ToOwners,
    /// From the owners: an all-gather.
    FromOwners,
}

/// The exchanged data: one bound buffer of each rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchanged {
    /// Length of the buffer.
    pub elements: usize,
    /// Element type.
    pub dtype: DType,
    /// The reduction.
    pub op: ReduceOp,
    /// Factor of the result.
    pub scale: f64,
}

impl Program {
    /// Ranks `0..owned.shares.len()` of `world` are the members; workers note before they send whether a gradient is
    /// not finite.
    pub fn owned(
        name: String,
        world: usize,
        owned: &Owned,
        direction: Direction,
        what: Exchanged,
    ) -> Result<Self, Misfit> {
        owned.check()?;
        let n = owned.shares.len();
        if n > world {
            return Err(Misfit::Owners("it has more members than there are ranks"));
        }
        let Exchanged { elements, dtype, op, scale } = what;
        let slice = Slice::new(BufferId(0), 0, elements);
        let builder = |rank: usize| {
            let mut builder = RankBuilder::new();
            builder.buffer("bucket", dtype, elements, BufferKind::Bound);
            if rank < owned.workers && direction != Direction::FromOwners {
                builder.push(Op::Record { what: Record::NonFinite, src: slice }, None);
            }
            builder
        };
        let mut weaver = Weaver::new((0..world).map(builder).collect(), &Self::default());
        let members: Vec<Rank> = (0..n).map(Rank::from_index).collect();
        let mut expansion = Expansion {
            weaver: &mut weaver,
            members: &members,
            slices: vec![slice; n],
            dsts: Vec::new(),
            op,
            scale,
        };
        let call = Call::new(n, elements);
        let (buffer, group) = (BufferId(0), members[..owned.workers].to_vec());
        let part = |(owner, part): (usize, std::ops::Range<usize>)| Share {
            owner: Rank::from_index(owner),
            start: part.start,
            stop: part.end,
        };
        let shares = || owned.parts(elements).into_iter().map(part).collect();
        let contract = match direction {
            Direction::Both => {
                owned.all_reduce(&call, &mut expansion);
                Contract::AllReduce { buffer, group, op, scale }
            }
            Direction::ToOwners => {
                owned.to_owners(&call, &mut expansion);
                Contract::ToOwners { buffer, group, op, scale, shares: shares() }
            }
            Direction::FromOwners => {
                owned.from_owners(&call, &mut expansion);
                Contract::FromOwners { buffer, group, shares: shares() }
            }
        };
        Ok(Self { name, ranks: weaver.finish(), ensures: vec![contract], ..Self::default() })
    }
}
