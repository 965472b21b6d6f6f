//! What there is to say of an algorithm: its name and its numbers, what it does and where it fits.

use crate::algorithm::Algorithm;
use crate::group::{Fit, Group};
use crate::kind::Kind;

/// Which numbers stand behind an algorithm's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// None.
    Nothing,
    /// The members of each group.
    Sizes,
    /// One: a base.
    Base,
    /// One: how many members serve.
    Servers,
}

impl Takes {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no numbers",
            Self::Sizes => "sizes of groups",
            Self::Base => "a base",
            Self::Servers => "a number of servers",
        }
    }

    pub(crate) const fn admits(self, count: usize) -> bool {
        match self {
            Self::Nothing => count == 0,
            Self::Sizes => count > 0,
            Self::Base | Self::Servers => count == 1,
        }
    }
}

/// What an algorithm's file says of it.
pub struct Entry {
    /// In the text form, in plans and in policies.
    pub name: &'static str,
    /// In a sentence, after "by".
    pub title: &'static str,
    /// Behind the name.
    pub takes: Takes,
    /// The names under which `hocket tune` measures it; none for one that is not measured.
    pub measured_as: &'static [&'static str],
    /// Collectives that Hocket runs by it, in some group; none for one that only others run.
    pub does: &'static [Kind],
    /// Whether its cost depends on the order of the members, so that `hocket order` can ask for it.
    pub ordered: bool,
    /// Whether plans propose it where nothing was measured: its predictions were compared with runs, on racks and on one host.
    pub proposed: bool,
    pub(crate) make: fn(Vec<u32>) -> Algorithm,
    pub(crate) fits: fn(Kind, &Group<'_>) -> Vec<Fit>,
}
