//! What a value is made of, as a shared expression: equal expressions are equal bits.
//!
//! An expression is a function of the position in its buffer: `Input` with shift 3 is the input three elements further on.
//! So a value that covers a thousand elements is one expression, and splitting a slice changes nothing.

use crate::{DType, ReduceOp};
use std::collections::{BTreeMap, HashMap};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Expr {
    Input { rank: usize, buffer: u32 },
    Reduce { op: ReduceOp, left: Value, right: Value },
    Scale { factor_bits: u64, of: ExprId },
    Round { dtype: DType, of: ExprId },
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
}

impl Expressions {
    /// The input of `rank`'s bound buffer, at the same position.
    pub fn input(&mut self, rank: usize, buffer: u32) -> Value {
        self.share(Expr::Input { rank, buffer })
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
    pub fn contributions(&mut self, expr: ExprId) -> Option<Contributions> {
        if let Some(known) = self.contributions.get(&expr) {
            return known.clone();
        }
        let found = match self.table[expr.0 as usize] {
            Expr::Input { rank, buffer } => {
                let terms = BTreeMap::from([((rank, buffer, 0), (1, 1.0))]);
                Some(Contributions { op: None, terms })
            }
            Expr::Round { of, .. } => self.contributions(of),
            Expr::Scale { factor_bits, of } => self.contributions(of).map(|mut inner| {
                inner.terms.values_mut().for_each(|(_, factor)| *factor *= f64::from_bits(factor_bits));
                inner
            }),
            Expr::Reduce { op, left, right } => self.joined(op, left, right),
        };
        self.contributions.insert(expr, found.clone());
        found
    }

    fn joined(&mut self, op: ReduceOp, left: Value, right: Value) -> Option<Contributions> {
        let mut sum = self.contributions(left.expr)?;
        let other = self.contributions(right.expr)?;
        if sum.op.is_some_and(|inner| inner != op) || other.op.is_some_and(|inner| inner != op) {
            return None;
        }
        // The left child's shift is zero by construction.
        for ((rank, buffer, shift), (times, factor)) in other.terms {
            let entry = sum.terms.entry((rank, buffer, shift + right.shift)).or_insert((0, factor));
            entry.0 += times;
        }
        sum.op = Some(op);
        Some(sum)
    }

    fn share(&mut self, expr: Expr) -> Value {
        let next = ExprId(self.table.len() as u32);
        let expr = *self.known.entry(expr).or_insert_with(|| {
            self.table.push(expr);
            next
        });
        Value { expr, shift: 0 }
    }
}
