//! Programs as bytes, for ranks that use what another one compiled: short, and read in a fraction of the time of
//! compiling.
//!
//! For the same build alone: there is no version, and a reader of other bytes finds them damaged or gets another
//! program. Code that keeps or sends them adds a digest.

mod field;
mod parts;
mod types;

use crate::Program;
pub use field::Damaged;
use field::{Field, Reader};

impl Program {
    /// The program as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// The inverse of `to_bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let program = Self::read(&mut reader)?;
        reader.end()?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Algorithm, BufferKind, Collective, Contract, DType, Kernel, KernelSpec, Op, Program, RankBuilder,
    };
    use crate::{ReduceOp, Share, Slice, Source};
    use hocket_ids::{BufferId, KernelId, Rank, SourceId, Tag};
    use proptest::prelude::*;

    /// An op of each kind, over which `n` is spread.
    pub(super) fn program(n: usize) -> Program {
        let mut builder = RankBuilder::new();
        let a = builder.buffer("bucket", DType::F32, 4 * n, BufferKind::Bound);
        let b = builder.buffer("t", DType::F16, 4 * n, BufferKind::Scratch);
        let count = builder.buffer("count", DType::I64, 1, BufferKind::SharedState);
        let (src, dst) = (Slice::new(a, n, 2 * n), Slice::new(b, 0, n));
        let counted = Some(Slice::new(count, 0, 1));
        let group = vec![Rank(0), Rank(1)];
        let collective = |what, algorithm| Op::Collective {
            what,
            slice: src,
            group: group.clone(),
            op: ReduceOp::Max,
            scale: 0.5,
            algorithm,
        };
        let ops = [
            Op::Cast { src, dst },
            Op::Copy { src: dst, dst },
            Op::Reduce { op: ReduceOp::Min, src, dst: src },
            Op::Apply { kernel: Kernel::Scale(0.1), dst: src },
            Op::Apply { kernel: Kernel::Round(DType::BF16), dst: src },
            Op::Send { src, wire: DType::F16, peer: Rank(1), tag: Tag(300), count: counted },
            Op::Recv {
                dst: src,
                wire: DType::F32,
                reduce: Some(ReduceOp::Sum),
                peer: Rank(1),
                tag: Tag(0),
                count: None,
            },
            Op::Record { what: crate::Record::NonFinite, src },
            Op::Call { kernel: KernelId(0), inputs: vec![src], outputs: vec![dst] },
            collective(Collective::AllToAll { dst: src }, Some(Algorithm::Library { name: "mpi".into() })),
            collective(
                Collective::Broadcast { root: Rank(1) },
                Some(Algorithm::TwoLevel { sizes: vec![1, 1] }),
            ),
            collective(Collective::AllGather, None),
        ];
        for op in ops {
            builder.push(op, Some(SourceId(0)));
        }
        let all = vec![Rank(0), Rank(1), Rank(2)];
        Program {
            name: "every op".into(),
            ranks: vec![builder.finish(), RankBuilder::new().finish(), RankBuilder::new().finish()],
            ensures: vec![
                Contract::AllReduce {
                    buffer: BufferId(0),
                    group: all.clone(),
                    op: ReduceOp::Sum,
                    scale: 1.0 / 3.0,
                },
                Contract::AllGather { buffer: BufferId(0), group: all.clone() },
                Contract::Same { buffer: BufferId(1), group: all.clone() },
                Contract::ToOwners {
                    buffer: BufferId(0),
                    group: all.clone(),
                    op: ReduceOp::Sum,
                    scale: 0.5,
                    shares: vec![Share { owner: Rank(2), start: 0, stop: 4 * n }],
                },
                Contract::FromOwners { buffer: BufferId(0), group: all, shares: Vec::new() },
            ],
            sources: vec![Source { file: "a.py".into(), line: 7 }],
            kernels: vec![KernelSpec {
                name: "mine".into(),
                elementwise: true,
                updates: false,
                joins: Some(ReduceOp::Sum),
                parameters: vec![0.25],
            }],
        }
    }

    proptest! {
        /// A rank would run another program than the one that was proven.
        #[test]
        fn what_is_read_is_what_was_written(n in 1usize..5000) {
            let program = program(n);
            prop_assert_eq!(Program::from_bytes(&program.to_bytes()), Ok(program));
        }

        /// A damaged file would end the process.
        #[test]
        fn damage_is_refused_or_gives_a_program(at in any::<prop::sample::Index>(), to in any::<u8>()) {
            let mut bytes = program(9).to_bytes();
            let at = at.index(bytes.len());
            prop_assert!(Program::from_bytes(&bytes[..at]).is_err());
            bytes[at] = to;
            let _ = Program::from_bytes(&bytes);
            let mut bytes = Program::parts_to_bytes(&[program(9)], &[Rank(0)]).remove(0);
            let at = at % bytes.len();
            prop_assert!(at == 0 || Program::parts_from_bytes(&bytes[..at]).is_err());
            bytes[at] = to;
            let _ = Program::parts_from_bytes(&bytes);
        }
    }
}
