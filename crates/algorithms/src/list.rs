//! The list of algorithms: the source for the text form, passes, plans, policies, `hocket tune` and `hocket order`. An
//! algorithm is a file in `list/` and, here, its module and its line.

mod bcube;
mod collect_spread;
mod direct;
mod double_binary_tree;
mod halving_doubling;
mod in_place;
mod parameter_server;
mod recursive_doubling;
pub(crate) mod ring;
mod trees;
mod two_level;

use crate::{Call, Entry, Group, Kind, Misfit, Weave};
use serde::{Deserialize, Serialize};

pub use bcube::radices;
pub use collect_spread::pieces as collect_spread_pieces;
pub use double_binary_tree::{depth as tree_depth, parent as tree_parent, place as tree_place};
pub use ring::passed as ring_passed;

/// Defines [`Algorithm`] and [`LIST`] from a line for each: the variant, its numbers, and its module, which has its
/// `ENTRY`.
macro_rules! algorithms {
    ($($(#[$about:meta])* $variant:ident $({ $(#[$what:meta])* $numbers:ident: $type:ty })? = $file:ident;)*) => {
        /// The executor of a collective, and its algorithm with the numbers that it takes.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
        #[serde(try_from = "Named", into = "Named")]
        pub enum Algorithm {
            $($(#[$about])* $variant $({ $(#[$what])* $numbers: $type })?,)*
            /// Not lowered: handed to a library of that name (Gloo, NCCL, MPI).
            Library {
                name: String,
            },
        }

        /// All algorithms but libraries, simplest first.
        pub const LIST: &[Entry] = &[$($file::ENTRY),*];

        impl Algorithm {
            /// Its description; `None` for a library.
            const fn entry(&self) -> Option<&'static Entry> {
                match self {
                    $(Self::$variant { .. } => Some(&const { $file::ENTRY }),)*
                    Self::Library { .. } => None,
                }
            }

            fn listed(name: &str, numbers: Vec<u32>) -> Option<Self> {
                let mut numbers = Some(numbers);
                $(if name == $file::ENTRY.name {
                    return Some(Self::$variant $({ $numbers: Numbers::of(numbers.take()?) })?);
                })*
                None
            }

            pub fn numbers(&self) -> &[u32] {
                match self {
                    $(Self::$variant $({ $numbers })? => algorithms!(@numbers $($numbers)?),)*
                    Self::Library { .. } => &[],
                }
            }
        }
    };
    (@numbers) => { &[] };
    (@numbers $numbers:ident) => { $numbers.numbers() };
}

algorithms! {
    /// All-reduce of members that share memory, not lowered: each reduces its part straight out of all members' slices, and
    /// into all of them.
    InPlace = in_place;
    /// A ring around the group in its order.
    Ring = ring;
    /// All with all: each member owns its part.
    Direct = direct;
    /// Chain-reduce to the leader of each group of members, ring among the leaders, broadcast within; groups are consecutive
    /// members.
    TwoLevel {
        /// Members of each group, in order; their sum is the size of the collective's group.
        sizes: Vec<u32>
    } = two_level;
    HalvingDoubling = halving_doubling;
    /// Everything to a partner at once, round by round; MPI libraries run it, Hocket does not.
    RecursiveDoubling = recursive_doubling;
    /// Two complementary binary trees, half of the data on each.
    DoubleBinaryTree = double_binary_tree;
    /// Like halving-doubling with groups of up to `base` in each round.
    Bcube {
        /// Largest number of peers that exchange in a round.
        base: u32
    } = bcube;
    /// The first members, this many, keep a part each, which all others push to and pull from.
    ParameterServer {
        /// Number of members that serve.
        servers: u32
    } = parameter_server;
    /// Each part is collected by one member and spread by another, or by the same.
    CollectSpread {
        /// By member: the share that it collects; then, by member: the share that it spreads.
        shares: Vec<u32>
    } = collect_spread;
    /// Each part goes up a tree and down one.
    Trees {
        /// Of each part: its weight; by member, the parent on the way up; by member, the parent on the way down.
        numbers: Vec<u32>
    } = trees;
}

/// A variant's fields as the numbers behind its name.
trait Numbers {
    fn of(numbers: Vec<u32>) -> Self;
    fn numbers(&self) -> &[u32];
}

impl Numbers for Vec<u32> {
    fn of(numbers: Vec<u32>) -> Self {
        numbers
    }

    fn numbers(&self) -> &[u32] {
        self
    }
}

impl Numbers for u32 {
    fn of(numbers: Vec<u32>) -> Self {
        numbers.first().copied().unwrap_or_default()
    }

    fn numbers(&self) -> &[u32] {
        std::slice::from_ref(self)
    }
}

/// An algorithm as plan files have it.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Named {
    algorithm: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<u32>,
}

impl TryFrom<Named> for Algorithm {
    type Error = Misfit;

    fn try_from(Named { algorithm, sizes }: Named) -> Result<Self, Misfit> {
        Self::new(&algorithm, sizes)
    }
}

impl From<Algorithm> for Named {
    fn from(algorithm: Algorithm) -> Self {
        Self { algorithm: algorithm.name().into(), sizes: algorithm.numbers().to_vec() }
    }
}

/// An algorithm with numbers that suit a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The name under which `hocket tune` measures it.
    pub measured_as: &'static str,
    pub algorithm: Algorithm,
}

/// The algorithms for a collective of a group, with suitable numbers; simplest first.
pub fn fitting(kind: Kind, group: &Group<'_>) -> Vec<Fit> {
    let doing = LIST.iter().filter(|entry| entry.does.contains(&kind));
    let fits = doing.flat_map(|entry| (entry.fits)(kind, group).into_iter().map(|fit| (entry.name, fit)));
    let fit = |(name, (measured_as, numbers))| {
        Some(Fit { measured_as, algorithm: Algorithm::listed(name, numbers)? })
    };
    fits.filter_map(fit).collect()
}

impl Algorithm {
    pub fn new(name: &str, numbers: Vec<u32>) -> Result<Self, Misfit> {
        let entry = LIST.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| Misfit::Unknown(name.into()))?;
        if !entry.takes.admits(numbers.len()) {
            return Err(Misfit::Numbers { algorithm: entry.name, takes: entry.takes.name(), numbers });
        }
        Self::listed(name, numbers).ok_or_else(|| Misfit::Unknown(name.into()))
    }

    /// Its name in [`LIST`]; `library` for those of libraries.
    pub const fn name(&self) -> &'static str {
        match self.entry() {
            Some(entry) => entry.name,
            None => "library",
        }
    }

    /// Whether it can do that collective among `n` members with its numbers.
    pub fn check(&self, kind: Kind, n: usize) -> Result<(), Misfit> {
        self.doing(kind, n).map(|_| ())
    }

    /// Its description, for a collective that it can do.
    fn doing(&self, kind: Kind, n: usize) -> Result<&'static Entry, Misfit> {
        let entry = self.entry().filter(|entry| entry.does.contains(&kind));
        let entry = entry.ok_or_else(|| Misfit::unsupported(kind, self.name()))?;
        (entry.check)(self.numbers(), kind, n)?;
        Ok(entry)
    }

    /// Writes the messages of a collective; `root` is the position of its root, 0 where it has none.
    pub fn weave(&self, kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) -> Result<(), Misfit> {
        let n = call.n();
        let entry = self.doing(kind, n)?;
        (entry.weave)(self.numbers(), kind, root, call, weave);
        match kind {
            Kind::ReduceScatter => {
                (0..n).for_each(|member| call.complete(member, &call.part(member, n), weave));
            }
            Kind::Reduce => call.complete(root, &call.whole(), weave),
            _ => {}
        }
        Ok(())
    }

    /// A number of elements that all parts of its messages divide evenly among `n` members.
    pub fn even_elements(&self, n: usize) -> usize {
        self.entry().map_or(n, |entry| (entry.even_elements)(self.numbers(), n))
    }
}
