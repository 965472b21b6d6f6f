//! What a value is made of, as a shared expression: equal expressions are equal bits.
//!
//! An expression is a function of the position in its buffer: `Input` with shift 3 is the input three elements further on.
//! So a value that covers a thousand elements is one expression, and splitting a slice changes nothing.

use crate::{DType, KernelSpec, ReduceOp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A shared expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(u32);

/// An expression, moved by so many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    pub expr: ExprId,
    pub shift: i64,
}

/// (rank, buffer, shift): one element of one rank's input.
pub type Term = (usize, u32, i64);

/// A run of elements as a kernel of whole slices sees it: start, stop, what they hold.
pub type Run = (usize, usize, Value);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Expr {
    /// What the launch before left in a state buffer: of one rank, or the same on all (`None`).
    State {
        rank: Option<usize>,
        name: String,
    },
    /// One output of an elementwise kernel; the first input's shift is zero.
    Elementwise {
        kernel: u32,
        output: u32,
        inputs: Vec<Value>,
    },
    /// One output of a kernel of whole slices, which is a function of all elements of its inputs.
    Whole {
        kernel: u32,
        output: u32,
        inputs: Vec<Vec<Run>>,
    },
    Input {
        rank: usize,
        buffer: u32,
    },
    Reduce {
        op: ReduceOp,
        left: Value,
        right: Value,
    },
    Scale {
        factor_bits: u64,
        of: ExprId,
    },
    Round {
        dtype: DType,
        of: ExprId,
    },
}

/// How often and how much each input is in a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Contributions {
    /// The reduction that joins them; `None` for a single input.
    pub op: Option<ReduceOp>,
    /// Times and factor.
    pub terms: BTreeMap<Term, (u32, f64)>,
}

/// All expressions of a program.
#[derive(Default)]
pub struct Expressions {
    table: Vec<Expr>,
    known: HashMap<Expr, ExprId>,
    contributions: HashMap<ExprId, Option<Contributions>>,
    ranks: HashMap<ExprId, BTreeSet<usize>>,
}

impl Expressions {
    /// The input of `rank`'s bound buffer, at the same position.
    pub fn input(&mut self, rank: usize, buffer: u32) -> Value {
        self.share(Expr::Input { rank, buffer })
    }

    /// What a state buffer holds at the start, on one rank or on all that have it.
    pub fn state(&mut self, rank: Option<usize>, name: &str) -> Value {
        self.share(Expr::State { rank, name: name.to_owned() })
    }

    /// Output `output` of an elementwise kernel.
    pub fn elementwise(&mut self, kernel: u32, output: u32, mut inputs: Vec<Value>) -> Value {
        let shift = inputs.first().map_or(0, |first| first.shift);
        for input in &mut inputs {
            input.shift -= shift;
        }
        Value { shift, ..self.share(Expr::Elementwise { kernel, output, inputs }) }
    }

    /// Output `output` of a kernel of whole slices.
    pub fn whole(&mut self, kernel: u32, output: u32, inputs: Vec<Vec<Run>>) -> Value {
        self.share(Expr::Whole { kernel, output, inputs })
    }

    /// Ranks whose inputs a value depends on.
    pub fn ranks(&mut self, expr: ExprId) -> BTreeSet<usize> {
        if let Some(known) = self.ranks.get(&expr) {
            return known.clone();
        }
        let parts: Vec<ExprId> = match &self.table[expr.0 as usize] {
            Expr::Input { rank, .. } => return BTreeSet::from([*rank]),
            Expr::State { .. } => Vec::new(),
            Expr::Scale { of, .. } | Expr::Round { of, .. } => vec![*of],
            Expr::Reduce { left, right, .. } => vec![left.expr, right.expr],
            Expr::Elementwise { inputs, .. } => inputs.iter().map(|input| input.expr).collect(),
            Expr::Whole { inputs, .. } => inputs.iter().flatten().map(|run| run.2.expr).collect(),
        };
        let found: BTreeSet<usize> = parts.into_iter().flat_map(|part| self.ranks(part)).collect();
        self.ranks.insert(expr, found.clone());
        found
    }

    /// `left ⊕ right`; the order does not matter, which is true of the bits too.
    pub fn reduce(&mut self, op: ReduceOp, left: Value, right: Value) -> Value {
        let (mut left, mut right) = if left <= right { (left, right) } else { (right, left) };
        let shift = left.shift;
        (left.shift, right.shift) = (0, right.shift - shift);
        Value { shift, ..self.share(Expr::Reduce { op, left, right }) }
    }

    /// `factor · of`.
    pub fn scale(&mut self, factor: f64, of: Value) -> Value {
        let scaled = self.share(Expr::Scale { factor_bits: factor.to_bits(), of: of.expr });
        Value { shift: of.shift, ..scaled }
    }

    /// `of`, held in `dtype` on the way; rounding twice to the same type is rounding once.
    pub fn round(&mut self, dtype: DType, of: Value) -> Value {
        if matches!(self.table[of.expr.0 as usize], Expr::Round { dtype: before, .. } if before == dtype) {
            return of;
        }
        let rounded = self.share(Expr::Round { dtype, of: of.expr });
        Value { shift: of.shift, ..rounded }
    }

    /// What a value is made of; `None` for mixtures of reductions, which no contract speaks of.
    pub fn contributions(&mut self, expr: ExprId, kernels: &[KernelSpec]) -> Option<Contributions> {
        if let Some(known) = self.contributions.get(&expr) {
            return known.clone();
        }
        let found = match self.table[expr.0 as usize].clone() {
            Expr::State { .. } | Expr::Whole { .. } => None,
            // One input, changed element by element: still its contribution. Several: as the kernel declares.
            Expr::Elementwise { kernel, inputs, .. } => match (&inputs[..], kernels[kernel as usize].joins) {
                ([only], _) => self.contributions(only.expr, kernels),
                ([first, rest @ ..], Some(op)) => {
                    let first = self.contributions(first.expr, kernels);
                    rest.iter().fold(first, |sum, next| {
                        let next_made = self.contributions(next.expr, kernels)?;
                        joined(op, sum?, next_made, next.shift)
                    })
                }
                _ => None,
            },
            Expr::Input { rank, buffer } => {
                let terms = BTreeMap::from([((rank, buffer, 0), (1, 1.0))]);
                Some(Contributions { op: None, terms })
            }
            Expr::Round { of, .. } => self.contributions(of, kernels),
            Expr::Scale { factor_bits, of } => self.contributions(of, kernels).map(|mut inner| {
                inner.terms.values_mut().for_each(|(_, factor)| *factor *= f64::from_bits(factor_bits));
                inner
            }),
            Expr::Reduce { op, left, right } => {
                let left = self.contributions(left.expr, kernels);
                let made = self.contributions(right.expr, kernels);
                // The left child's shift is zero by construction.
                left.zip(made).and_then(|(left, made)| joined(op, left, made, right.shift))
            }
        };
        self.contributions.insert(expr, found.clone());
        found
    }

    fn share(&mut self, expr: Expr) -> Value {
        let next = ExprId(self.table.len() as u32);
        if let Some(&expr) = self.known.get(&expr) {
            return Value { expr, shift: 0 };
        }
        self.table.push(expr.clone());
        self.known.insert(expr, next);
        Value { expr: next, shift: 0 }
    }
}

/// `sum ⊕ other`, whose terms are `shift` further on; `None` when either is of another reduction.
fn joined(op: ReduceOp, mut sum: Contributions, other: Contributions, shift: i64) -> Option<Contributions> {
    if sum.op.is_some_and(|inner| inner != op) || other.op.is_some_and(|inner| inner != op) {
        return None;
    }
    for ((rank, buffer, own), (times, factor)) in other.terms {
        let entry = sum.terms.entry((rank, buffer, own + shift)).or_insert((0, factor));
        entry.0 += times;
    }
    sum.op = Some(op);
    Some(sum)
}
