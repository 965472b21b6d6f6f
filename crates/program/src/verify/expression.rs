//! The origin of a value, as a shared expression: equal expressions are equal bits.
//!
//! An expression is a function of the position in its buffer: `Input` with shift 3 is the input three elements further
//! on. A value that covers a thousand elements is thus one expression, and splitting a slice changes nothing.

use crate::{DType, KernelSpec, ReduceOp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A shared expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(u32);

/// An expression, shifted by this many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    pub expr: ExprId,
    pub shift: i64,
}

/// (rank, buffer, shift): one element of one rank's input.
pub type Term = (usize, u32, i64);

/// A run of elements for a kernel of whole slices: start, stop, and their expression.
pub type Run = (usize, usize, Value);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Expr {
    /// The contents of a state buffer from the previous launch: of one rank, or equal on all (`None`).
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

/// How often, and with which factor, each input is in a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Contributions {
    /// The reduction that combines them; `None` for a single input.
    pub op: Option<ReduceOp>,
    /// Times and factor.
    pub terms: BTreeMap<Term, (u32, f64)>,
}

/// All expressions of a program. Operands come before the expressions made of them.
#[derive(Default)]
pub struct Expressions {
    table: Vec<Expr>,
    known: HashMap<Expr, ExprId>,
    /// By expression: the number of the last walk that visited it.
    walked: Vec<u32>,
    walks: u32,
}

impl Expressions {
    /// The input of `rank`'s bound buffer, at the same position.
    pub fn input(&mut self, rank: usize, buffer: u32) -> Value {
        self.share(Expr::Input { rank, buffer })
    }

    /// The initial contents of a state buffer, on one rank or on all that have it.
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

    /// Ranks whose inputs values depend on.
    pub fn ranks(&mut self, exprs: impl IntoIterator<Item = ExprId>) -> BTreeSet<usize> {
        let walk = self.walk();
        let mut found = BTreeSet::new();
        let mut open: Vec<ExprId> = exprs.into_iter().collect();
        while let Some(expr) = open.pop() {
            if std::mem::replace(&mut self.walked[expr.0 as usize], walk) == walk {
                continue;
            }
            match &self.table[expr.0 as usize] {
                Expr::Input { rank, .. } => {
                    found.insert(*rank);
                }
                Expr::State { .. } => {}
                Expr::Scale { of, .. } | Expr::Round { of, .. } => open.push(*of),
                Expr::Reduce { left, right, .. } => open.extend([left.expr, right.expr]),
                Expr::Elementwise { inputs, .. } => open.extend(inputs.iter().map(|input| input.expr)),
                Expr::Whole { inputs, .. } => open.extend(inputs.iter().flatten().map(|run| run.2.expr)),
            }
        }
        found
    }

    fn walk(&mut self) -> u32 {
        self.walked.resize(self.table.len(), 0);
        self.walks += 1;
        self.walks
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

    /// `of`, stored in `dtype` in between; rounding twice to the same type is rounding once.
    pub fn round(&mut self, dtype: DType, of: Value) -> Value {
        if matches!(self.table[of.expr.0 as usize], Expr::Round { dtype: before, .. } if before == dtype) {
            return of;
        }
        let rounded = self.share(Expr::Round { dtype, of: of.expr });
        Value { shift: of.shift, ..rounded }
    }

    /// The inputs of a value; `None` for mixtures of reductions, which no contract covers.
    pub fn contributions(&mut self, expr: ExprId, kernels: &[KernelSpec]) -> Option<Contributions> {
        let mut made = Contributions { op: None, terms: BTreeMap::new() };
        // Work list of expressions, with their number of occurrences, shift and factor. Operands have
        // smaller numbers: once an expression is the largest, all its occurrences are known.
        let mut open: BTreeMap<(ExprId, i64, u64), u32> = BTreeMap::from([((expr, 0, 1.0f64.to_bits()), 1)]);
        while let Some(((expr, shift, factor), times)) = open.pop_last() {
            let mut part = |of: ExprId, by: i64, factor: u64| {
                let occurs = open.entry((of, shift + by, factor)).or_default();
                *occurs = occurs.saturating_add(times);
            };
            let joins = match &self.table[expr.0 as usize] {
                Expr::State { .. } | Expr::Whole { .. } => return None,
                Expr::Input { rank, buffer } => {
                    let factor = f64::from_bits(factor);
                    let known = made.terms.entry((*rank, *buffer, shift)).or_insert((0, factor));
                    known.0 = known.0.saturating_add(times);
                    None
                }
                // One input, changed element by element: still its contribution. Several: as the kernel declares.
                Expr::Elementwise { kernel, inputs, .. } => {
                    let joins = kernels[*kernel as usize].joins;
                    if inputs.len() != 1 && (inputs.is_empty() || joins.is_none()) {
                        return None;
                    }
                    for input in inputs {
                        part(input.expr, input.shift, factor);
                    }
                    joins.filter(|_| inputs.len() > 1)
                }
                Expr::Round { of, .. } => {
                    part(*of, 0, factor);
                    None
                }
                Expr::Scale { factor_bits, of } => {
                    part(*of, 0, (f64::from_bits(factor) * f64::from_bits(*factor_bits)).to_bits());
                    None
                }
                Expr::Reduce { op, left, right } => {
                    part(left.expr, left.shift, factor);
                    part(right.expr, right.shift, factor);
                    Some(*op)
                }
            };
            if joins.is_some() && made.op.is_some() && joins != made.op {
                return None;
            }
            made.op = made.op.or(joins);
        }
        Some(made)
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
