//! The description of an algorithm: its name and numbers, the collectives that it does, where it fits, and its
//! messages.

use crate::group::Group;
use crate::kind::Kind;
use crate::{Call, Misfit, Weave};

/// The kind of numbers behind an algorithm's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// The number of members of each group.
    Sizes,
    Base,
    /// One: the number of members that serve.
    Servers,
    /// Of each member the share that it collects; then of each, the share that it spreads.
    Shares,
    /// Of each pair of trees its weight, each member's parent on the way up, and each one's on the way down.
    Trees,
}

impl Takes {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no numbers",
            Self::Sizes => "sizes of groups",
            Self::Base => "a base",
            Self::Servers => "a number of servers",
            Self::Shares => "shares of each member, to collect and to spread",
            Self::Trees => "weights and parents of trees",
        }
    }

    pub(crate) const fn admits(self, count: usize) -> bool {
        match self {
            Self::Nothing => count == 0,
            Self::Sizes | Self::Trees => count > 0,
            Self::Shares => count > 0 && count.is_multiple_of(2),
            Self::Base | Self::Servers => count == 1,
        }
    }
}

/// Names under which an algorithm is measured, with numbers.
pub type Fits = Vec<(&'static str, Vec<u32>)>;

/// An algorithm's description, from its file. `numbers` has as many as the algorithm takes.
pub struct Entry {
    /// Its name in the text form, in plans and in policies.
    pub name: &'static str,
    /// Its name in a sentence, after "by".
    pub title: &'static str,
    /// The numbers behind its name.
    pub takes: Takes,
    /// The names under which `hocket tune` measures it; none for one that is not measured.
    pub measured_as: &'static [&'static str],
    /// Collectives that Hocket runs by it, in some group; none for one that only others run.
    pub does: &'static [Kind],
    /// Whether its cost depends on the order of the members, so that `hocket order` can ask for it.
    pub ordered: bool,
    /// Whether plans propose it where nothing was measured: its predictions were compared with runs, on racks and on one host.
    pub proposed: bool,
    /// If it fits the group: the names under which it is measured, with suitable numbers.
    pub(crate) fits: fn(Kind, &Group<'_>) -> Fits,
    /// Whether one of the collectives that it does can have that many members.
    pub(crate) check: fn(numbers: &[u32], Kind, n: usize) -> Result<(), Misfit>,
    /// Writes the messages of a validated collective, to and from the member at `root`.
    pub(crate) weave: fn(numbers: &[u32], Kind, root: usize, &Call, &mut dyn Weave),
    /// A number of elements that all parts of its messages divide evenly among `n` members.
    pub(crate) even_elements: fn(numbers: &[u32], n: usize) -> usize,
}

#[expect(clippy::unnecessary_wraps, reason = "entries hold it among checks that fail")]
pub const fn any_group(_: &[u32], _: Kind, _: usize) -> Result<(), Misfit> {
    Ok(())
}

/// Parts of which each member has one.
pub const fn one_each(_: &[u32], n: usize) -> usize {
    n
}
