//! Checks all ranks' programs as one, before anything runs.
//!
//! In turn, each only when those before found nothing: structure (bounds, types, dependencies), messages (each send meets its
//! receive), races (conflicting ops that nothing orders), deadlock (a cycle through dependencies and rendezvous), values
//! (every contract, by symbolic execution; nothing is read before it is written). Findings are data; nothing is printed.

mod deadlock;
mod expression;
mod messages;
mod race;
mod structure;
mod values;

use crate::{Program, Source, text};
use std::fmt;

/// Findings reported at most; more are the same story.
const DIAGNOSTICS_MAX: usize = 20;

/// What is wrong with an op, or with the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// The op: rank and number.
    pub op: Option<(usize, usize)>,
    /// What is wrong.
    pub what: String,
    /// The user's line that made the op.
    pub source: Option<Source>,
    /// The op and its neighbours, as text.
    pub around: Vec<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((rank, op)) = self.op {
            write!(f, "rank {rank} op {op}")?;
            if let Some(source) = &self.source {
                write!(f, " ({}:{})", source.file, source.line)?;
            }
            write!(f, ": ")?;
        }
        f.write_str(&self.what)?;
        for line in &self.around {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// All findings of the first check that has any; empty for a program that may run.
pub fn verify(program: &Program) -> Vec<Diagnostic> {
    let mut found = Findings { program, diagnostics: Vec::new() };
    structure::check(program, &mut found);
    if !found.diagnostics.is_empty() {
        return found.diagnostics;
    }
    let messages = messages::check(program, &mut found);
    race::check(program, &mut found);
    if !found.diagnostics.is_empty() {
        return found.diagnostics;
    }
    if let Some(order) = deadlock::check(program, &messages, &mut found) {
        values::check(program, &messages, &order, &mut found);
    }
    found.diagnostics
}

/// Collects diagnostics.
struct Findings<'a> {
    program: &'a Program,
    diagnostics: Vec<Diagnostic>,
}

impl Findings<'_> {
    /// Something is wrong with an op.
    fn at(&mut self, rank: usize, op: usize, what: impl Into<String>) {
        if self.diagnostics.len() >= DIAGNOSTICS_MAX {
            return;
        }
        let nodes = &self.program.ranks[rank].nodes;
        let source = nodes.get(op).and_then(|node| node.source);
        let source = source.and_then(|source| self.program.sources.get(source.index()).cloned());
        let neighbours = op.saturating_sub(2)..(op + 3).min(nodes.len());
        let around = neighbours
            .map(|at| {
                let mark = if at == op { ">" } else { " " };
                format!("{mark} {at}: {}", text::node(&nodes[at]))
            })
            .collect();
        self.diagnostics.push(Diagnostic { op: Some((rank, op)), what: what.into(), source, around });
    }

    /// Something is wrong with the whole.
    fn whole(&mut self, what: impl Into<String>) {
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            let what = what.into();
            self.diagnostics.push(Diagnostic { op: None, what, source: None, around: Vec::new() });
        }
    }
}
