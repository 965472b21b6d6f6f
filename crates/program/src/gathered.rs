//! Programs that gather rows of sparse gradients: every rank gets the rows that any rank has touched, as many as there are, and
//! adds them up where it wants a dense gradient.

use crate::passes::{Expansion, Weaver};
use crate::{
    Algorithm, BufferKind, Contract, DType, KernelSpec, Op, Program, RankBuilder, ReduceOp, Share, Slice,
};
use hocket_algorithms::{Call, Kind, Misfit, Weave};
use hocket_ids::{BufferId, KernelId, Rank};
use std::ops::Range;

/// What is gathered. Each rank binds four buffers, and fills its own block of the first three: that of its position in the order.
///
/// | buffer | block of a rank |
/// | --- | --- |
/// | `rows` | `rows_max · elements` elements: its rows, one after the other |
/// | `numbers` | `rows_max` i64: which row of the table each is |
/// | `counts` | two i64: how many rows there are, and how many elements these have |
/// | `table` | none: all ranks' rows, added to zero in the order of the blocks; only where the table has rows |
///
/// Beyond its count, a block of another rank keeps what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The most of one rank.
    pub rows_max: usize,
    /// Of a row.
    pub elements: usize,
    /// Of an element.
    pub dtype: DType,
    /// Rows of the table that they are added to; 0: they are not.
    pub table: usize,
}

const ROWS: BufferId = BufferId(0);
const NUMBERS: BufferId = BufferId(1);
const COUNTS: BufferId = BufferId(2);
const TABLE: BufferId = BufferId(3);

/// Counts of a block: rows, and their elements.
const COUNTS_OF_BLOCK: usize = 2;

impl Rows {
    fn block(&self, at: usize) -> Slice {
        let len = self.rows_max * self.elements;
        Slice::new(ROWS, at * len, (at + 1) * len)
    }

    fn numbers(&self, at: usize) -> Slice {
        Slice::new(NUMBERS, at * self.rows_max, (at + 1) * self.rows_max)
    }
}

/// How many rows a block has, or how many elements these have.
fn count(at: usize, which: usize) -> Slice {
    Slice::new(COUNTS, at * COUNTS_OF_BLOCK + which, at * COUNTS_OF_BLOCK + which + 1)
}

impl Program {
    /// Over `n` ranks, by an algorithm of all-gathers.
    pub fn gathered(name: String, n: usize, algorithm: &Algorithm, rows: Rows) -> Result<Self, Misfit> {
        let builder = |_| {
            let mut builder = RankBuilder::new();
            builder.buffer("rows", rows.dtype, n * rows.rows_max * rows.elements, BufferKind::Bound);
            builder.buffer("numbers", DType::I64, n * rows.rows_max, BufferKind::Bound);
            builder.buffer("counts", DType::I64, n * COUNTS_OF_BLOCK, BufferKind::Bound);
            if rows.table > 0 {
                builder.buffer("table", rows.dtype, rows.table * rows.elements, BufferKind::Bound);
            }
            builder
        };
        let mut weaver = Weaver::new((0..n).map(builder).collect(), &Self::default());
        let members: Vec<Rank> = (0..n).map(Rank::from_index).collect();
        let counts = Slice::new(COUNTS, 0, n * COUNTS_OF_BLOCK);
        let mut expansion = Expansion {
            weaver: &mut weaver,
            members: &members,
            slices: vec![counts; n],
            dsts: Vec::new(),
            op: ReduceOp::Sum,
            scale: 1.0,
        };
        algorithm.weave(Kind::AllGather, 0, &Call::new(n, counts.len()), &mut expansion)?;
        // Blocks travel as the elements of a gather of one element each.
        let mut blocks = Blocks { weaver: &mut weaver, members: &members, rows };
        algorithm.weave(Kind::AllGather, 0, &Call::new(n, n), &mut blocks)?;
        let mut kernels = Vec::new();
        if rows.table > 0 {
            let kernel = |name: &str, elementwise, parameter| KernelSpec {
                name: format!("{name}.{}", rows.dtype.name()),
                elementwise,
                updates: !elementwise,
                joins: None,
                parameters: vec![parameter],
            };
            kernels =
                vec![kernel("fill", true, 0.0), kernel("scatter_add_rows", false, rows.elements as f64)];
            for rank in 0..n {
                add_up(weaver.builder(rank), n, &rows);
            }
        }
        let group = || (0..n).map(Rank::from_index).collect();
        let blocks = |buffer, len: usize| {
            let share =
                |(at, owner): (usize, &Rank)| Share { owner: *owner, start: at * len, stop: (at + 1) * len };
            let shares = members.iter().enumerate().map(share).filter(|share| share.start < share.stop);
            Contract::FromOwners { buffer, group: group(), shares: shares.collect() }
        };
        let mut ensures = vec![
            blocks(ROWS, rows.rows_max * rows.elements),
            blocks(NUMBERS, rows.rows_max),
            blocks(COUNTS, COUNTS_OF_BLOCK),
        ];
        if rows.table > 0 {
            ensures.push(Contract::Same { buffer: TABLE, group: group() });
        }
        Ok(Self { name, ranks: weaver.finish(), ensures, kernels, ..Self::default() })
    }
}

/// Every rank adds the blocks in one order: the same bits on all.
fn add_up(builder: &mut RankBuilder, n: usize, rows: &Rows) {
    let table = Slice::new(TABLE, 0, rows.table * rows.elements);
    builder.push(Op::Call { kernel: KernelId(0), inputs: Vec::new(), outputs: vec![table] }, None);
    for at in 0..n {
        let inputs = vec![rows.block(at), rows.numbers(at), count(at, 0)];
        builder.push(Op::Call { kernel: KernelId(1), inputs, outputs: vec![table] }, None);
    }
}

/// Moves blocks of rows, each as long as its count says.
struct Blocks<'a> {
    weaver: &'a mut Weaver,
    members: &'a [Rank],
    rows: Rows,
}

impl Weave for Blocks<'_> {
    fn message(&mut self, from: usize, to: usize, part: &Range<usize>, _: bool) {
        let (from, to) = (self.members[from], self.members[to]);
        for at in part.clone() {
            self.weaver.counted(from, to, self.rows.numbers(at), count(at, 0));
            self.weaver.counted(from, to, self.rows.block(at), count(at, 1));
        }
    }

    fn complete(&mut self, _: usize, _: &Range<usize>) {}

    /// Gathers have none.
    fn exchange(&mut self, _: usize, _: &Range<usize>, _: usize, _: &Range<usize>) {}
}
