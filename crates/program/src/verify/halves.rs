//! Two programs with one promise: the first reduces to owners, and the second sends the owners' results to all.
//!
//! Each keeps its own contract, which `verify` proves. It remains to show that they have the same owners, parts and
//! group: then each element of every worker is what its one owner made of all workers' contributions, with the same
//! bits on all.

use super::{Diagnostic, Findings};
use crate::{Contract, Program};

/// The error between a program to owners and one from owners that are both without findings.
pub fn halves(to: &Program, from: &Program) -> Vec<Diagnostic> {
    let mut found = Findings::of(from);
    if let Some(wrong) = misfit(to, from) {
        found.whole(&[], format!("gradients to owners and values from owners do not fit: {wrong}"));
    }
    found.finish()
}

fn misfit(to: &Program, from: &Program) -> Option<String> {
    let reduced: Vec<_> =
        to.ensures.iter().filter(|contract| matches!(contract, Contract::ToOwners { .. })).collect();
    let gathered: Vec<_> =
        from.ensures.iter().filter(|contract| matches!(contract, Contract::FromOwners { .. })).collect();
    if reduced.is_empty() {
        Some(format!("`{}` does not promise a reduction to owners", to.name))
    } else if gathered.is_empty() {
        Some(format!("`{}` does not promise what owners have", from.name))
    } else if to.world() != from.world() {
        Some(format!("one is for {} ranks, the other for {}", to.world(), from.world()))
    } else if reduced.len() != gathered.len() {
        Some("one is of more buffers than the other".into())
    } else {
        reduced.iter().zip(&gathered).find_map(|(reduced, gathered)| of_buffer(reduced, gathered))
    }
}

fn of_buffer(reduced: &Contract, gathered: &Contract) -> Option<String> {
    let (reduced_of, gathered_of) = (reduced.shares(), gathered.shares());
    if reduced.subject().0 != gathered.subject().0 {
        Some(format!("one is of %{}, the other of %{}", reduced.subject().0, gathered.subject().0))
    } else if reduced.subject().1 != gathered.subject().1 {
        Some("the ranks whose gradients are reduced are not those that get values".into())
    } else if let Some((left, right)) = reduced_of.iter().zip(gathered_of).find(|(left, right)| left != right)
    {
        Some(format!(
            "rank {} is brought elements {}..{}, and {}..{} are taken from rank {}",
            left.owner, left.start, left.stop, right.start, right.stop, right.owner
        ))
    } else {
        (reduced_of.len() != gathered_of.len()).then(|| "one has more elements than the other".into())
    }
}
