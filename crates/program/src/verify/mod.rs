//! Checks all ranks' programs as one, before anything runs.
//!
//! The checks run in turn, each only when those before found nothing: structure (bounds, types, dependencies), messages
//! (each send meets its receive), races (conflicting ops that nothing orders), deadlock (a cycle through dependencies
//! and rendezvous), values (every contract, by symbolic execution; nothing is read before it is written). Findings are
//! data; nothing is printed.

mod alike;
mod collectives;
mod deadlock;
mod expression;
mod halves;
mod judge;
mod messages;
mod race;
mod runs;
mod structure;
mod values;

pub use alike::Proofs;
pub use halves::halves;

use crate::{Program, Source, text};
use std::fmt;

/// Ops shown with one finding.
const OPS_SHOWN_MAX: usize = 12;

/// Limit of reported findings; more add no information.
const DIAGNOSTICS_MAX: usize = 20;

/// An error of an op, or of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The op: rank and number.
    pub op: Option<(usize, usize)>,
    /// The pass after which it occurs; `None` for the finished program.
    pub after_pass: Option<&'static str>,
    /// The error.
    pub what: String,
    /// The user's line that made the op.
    pub source: Option<Source>,
    /// The smallest faulty part of the program: the op and those in conflict with it, as text.
    pub around: Vec<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((rank, op)) = self.op {
            write!(f, "rank {rank} op {op}")?;
            if let Some(pass) = self.after_pass {
                write!(f, " after `{pass}`")?;
            }
            if let Some(source) = &self.source {
                write!(f, " ({source})")?;
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

/// All findings of the first check with any; empty for a program that may run.
pub fn verify(program: &Program) -> Vec<Diagnostic> {
    let mut found = Findings::of(program);
    structure::check(program, &mut found);
    if !found.diagnostics.is_empty() {
        return found.diagnostics;
    }
    let messages = messages::check(program, &mut found);
    let collectives = collectives::check(program, &mut found);
    race::check(program, &mut found);
    if !found.diagnostics.is_empty() {
        return found.diagnostics;
    }
    if let Some(order) = deadlock::check(program, &messages, &collectives, &mut found) {
        let mut state = values::check(program, &messages, &collectives, &order, &mut found);
        if found.diagnostics.is_empty() {
            for contract in &program.ensures {
                judge::contract(contract, &mut state, &mut found);
            }
            judge::shared_state(&state, &mut found);
        }
    }
    found.diagnostics
}

/// Whether ranks of a program whose messages match wait for one another in a cycle.
pub fn deadlocks(program: &Program) -> bool {
    let mut found = Findings::of(program);
    let messages = messages::check(program, &mut found);
    let collectives = collectives::check(program, &mut found);
    deadlock::check(program, &messages, &collectives, &mut found).is_none()
}

/// Collects diagnostics.
pub(crate) struct Findings<'a> {
    program: &'a Program,
    after_pass: Option<&'static str>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Findings<'a> {
    fn of(program: &'a Program) -> Self {
        Self { program, after_pass: None, diagnostics: Vec::new() }
    }

    /// For a program after a pass.
    pub(crate) const fn after(pass: &'static str, program: &'a Program) -> Self {
        Self { program, after_pass: Some(pass), diagnostics: Vec::new() }
    }

    /// The findings.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// Adds an error of an op.
    pub(crate) fn at(&mut self, rank: usize, op: usize, what: impl Into<String>) {
        self.between(rank, op, &[], what);
    }

    /// Adds an error between an op and `others` (rank, op).
    fn between(&mut self, rank: usize, op: usize, others: &[(usize, usize)], what: impl Into<String>) {
        if self.diagnostics.len() >= DIAGNOSTICS_MAX {
            return;
        }
        let mut involved = vec![(rank, op)];
        involved.extend(others.iter().take(OPS_SHOWN_MAX).filter(|other| **other != (rank, op)));
        involved.sort_unstable();
        let around = involved.iter().map(|&place| self.line(place, place == (rank, op))).collect();
        let source = self.source(rank, op).cloned();
        let after_pass = self.after_pass;
        self.diagnostics.push(Diagnostic {
            op: Some((rank, op)),
            after_pass,
            what: what.into(),
            source,
            around,
        });
    }

    /// Adds an error of the whole; `involved` (rank, op) shows where.
    fn whole(&mut self, involved: &[(usize, usize)], what: impl Into<String>) {
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            let what = what.into();
            let around = involved.iter().take(OPS_SHOWN_MAX).map(|&place| self.line(place, false)).collect();
            let after_pass = self.after_pass;
            self.diagnostics.push(Diagnostic { op: None, after_pass, what, source: None, around });
        }
    }

    fn source(&self, rank: usize, op: usize) -> Option<&Source> {
        let source = self.program.ranks[rank].nodes.get(op)?.source?;
        self.program.sources.get(source.index())
    }

    fn line(&self, (rank, op): (usize, usize), marked: bool) -> String {
        let mark = if marked { ">" } else { " " };
        let node = self.program.ranks[rank].nodes.get(op).map(text::node).unwrap_or_default();
        let source = self.source(rank, op).map_or(String::new(), |source| format!("  ({source})"));
        format!("{mark} rank {rank} op {op}: {node}{source}")
    }
}
