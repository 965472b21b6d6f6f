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
    let reduced = to.ensures.iter().find(|contract| matches!(contract, Contract::ToOwners { .. }));
    let gathered = from.ensures.iter().find(|contract| matches!(contract, Contract::FromOwners { .. }));
    let wrong = match (reduced, gathered) {
        (None, _) => Some(format!("`{}` does not promise a reduction to owners", to.name)),
        (_, None) => Some(format!("`{}` does not promise what owners have", from.name)),
        (Some(reduced), Some(gathered)) => {
            let first =
                |left: &[_], right: &[_]| left.iter().zip(right).position(|(left, right)| left != right);
            let (reduced_of, gathered_of) = (reduced.shares(), gathered.shares());
            if to.world() != from.world() {
                Some(format!("one is for {} ranks, the other for {}", to.world(), from.world()))
            } else if reduced.subject().1 != gathered.subject().1 {
                Some("the ranks whose gradients are reduced are not those that get values".into())
            } else if let Some(at) = first(reduced_of, gathered_of) {
                let (left, right) = (reduced_of[at], gathered_of[at]);
                Some(format!(
                    "rank {} is brought elements {}..{}, and {}..{} are taken from rank {}",
                    left.owner, left.start, left.stop, right.start, right.stop, right.owner
                ))
            } else {
                (reduced_of.len() != gathered_of.len()).then(|| "one has more elements than the other".into())
            }
        }
    };
    if let Some(wrong) = wrong {
        found.whole(&[], format!("gradients to owners and values from owners do not fit: {wrong}"));
    }
    found.finish()
}
