//! The list of algorithms: what text form, passes, plans, policies, `hocket tune` and `hocket order` know of them comes from here.

use crate::{
    Algorithm, Call, Entry, Fit, Group, Kind, Misfit, Weave, bcube, direct, double_binary_tree,
    halving_doubling, in_place, parameter_server, recursive_doubling, ring, two_level,
};

/// All algorithms but libraries, simplest first.
pub const LIST: [Entry; 9] = [
    in_place::ENTRY,
    ring::ENTRY,
    direct::ENTRY,
    two_level::ENTRY,
    halving_doubling::ENTRY,
    recursive_doubling::ENTRY,
    double_binary_tree::ENTRY,
    bcube::ENTRY,
    parameter_server::ENTRY,
];

/// What can do a collective of a group, with numbers that suit the group; simplest first.
pub fn fitting(kind: Kind, group: &Group<'_>) -> Vec<Fit> {
    LIST.iter()
        .filter(|entry| entry.does.contains(&kind))
        .flat_map(|entry| (entry.fits)(kind, group))
        .collect()
}

impl Algorithm {
    /// The algorithm of that name with its numbers.
    pub fn new(name: &str, numbers: Vec<u32>) -> Result<Self, Misfit> {
        let entry = LIST.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| Misfit::Unknown(name.into()))?;
        if !entry.takes.admits(numbers.len()) {
            return Err(Misfit::Numbers { algorithm: entry.name, takes: entry.takes.name(), numbers });
        }
        Ok((entry.make)(numbers))
    }

    /// Its name in [`LIST`]; `library` for those of libraries.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ring => ring::ENTRY.name,
            Self::Direct => direct::ENTRY.name,
            Self::TwoLevel { .. } => two_level::ENTRY.name,
            Self::HalvingDoubling => halving_doubling::ENTRY.name,
            Self::DoubleBinaryTree => double_binary_tree::ENTRY.name,
            Self::Bcube { .. } => bcube::ENTRY.name,
            Self::ParameterServer { .. } => parameter_server::ENTRY.name,
            Self::InPlace => in_place::ENTRY.name,
            Self::RecursiveDoubling => recursive_doubling::ENTRY.name,
            Self::Library { .. } => "library",
        }
    }

    /// The numbers behind its name.
    pub fn numbers(&self) -> &[u32] {
        match self {
            Self::TwoLevel { sizes } => sizes,
            Self::Bcube { base: number } | Self::ParameterServer { servers: number } => {
                std::slice::from_ref(number)
            }
            _ => &[],
        }
    }

    /// Whether it can do that collective among `n` members with the numbers that it has.
    pub fn check(&self, kind: Kind, n: usize) -> Result<(), Misfit> {
        let known = LIST.iter().any(|entry| entry.name == self.name() && entry.does.contains(&kind));
        let serves = match self {
            Self::HalvingDoubling => halving_doubling::serves(kind, n),
            _ => known,
        };
        if !(known && serves) {
            return Err(Misfit::Unsupported { collective: kind.name(), algorithm: self.name().into() });
        }
        match self {
            Self::TwoLevel { sizes } => two_level::check(sizes, n),
            Self::Bcube { base } => bcube::check(*base),
            Self::ParameterServer { servers } => parameter_server::check(*servers, n),
            _ => Ok(()),
        }
    }

    /// Writes the messages of a collective; `root` is the position of the member that has or gets the whole, 0 where none does.
    pub fn weave(&self, kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) -> Result<(), Misfit> {
        self.check(kind, call.n())?;
        match self {
            Self::Ring => ring::weave(kind, root, call, weave),
            Self::Direct => direct::weave(kind, root, call, weave),
            Self::TwoLevel { sizes } => two_level::weave(sizes, call, weave),
            Self::HalvingDoubling => halving_doubling::weave(kind, root, call, weave),
            Self::DoubleBinaryTree => double_binary_tree::weave(kind, root, call, weave),
            Self::Bcube { base } => bcube::weave(*base, kind, call, weave),
            Self::ParameterServer { servers } => parameter_server::weave(*servers, call, weave),
            Self::InPlace => in_place::weave(call, weave),
            // `check` has refused them.
            Self::RecursiveDoubling | Self::Library { .. } => {}
        }
        let n = call.n();
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
        match self {
            Self::TwoLevel { sizes } => sizes.len(),
            Self::HalvingDoubling | Self::RecursiveDoubling => halving_doubling::split(n).0,
            Self::DoubleBinaryTree => 2,
            Self::ParameterServer { servers } => *servers as usize,
            Self::Ring | Self::Direct | Self::Bcube { .. } | Self::InPlace | Self::Library { .. } => n,
        }
    }
}
