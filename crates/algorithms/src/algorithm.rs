//! An algorithm as data; what is known of it is in `list.rs`.

/// Who moves the data of a collective, and how; with the numbers that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Around the group in its order.
    Ring,
    /// Everybody with everybody: each member owns its part.
    Direct,
    /// Chain-reduce to the leader of each group of members, ring among the leaders, broadcast within; groups are consecutive
    /// members.
    TwoLevel {
        /// Members of each group, in order; their sum is the size of the collective's group.
        sizes: Vec<u32>,
    },
    /// Recursive halving, then recursive doubling.
    HalvingDoubling,
    /// Two complementary binary trees, half of the data on each.
    DoubleBinaryTree,
    /// Like halving-doubling with groups of up to `base` in each round.
    Bcube {
        /// Largest number of peers that exchange in a round.
        base: u32,
    },
    /// The first so many members keep a part each, which all others push to and pull from.
    ParameterServer {
        /// How many members serve.
        servers: u32,
    },
    /// All-reduce of members that share memory, not lowered: each reduces its part straight out of all members' slices, and
    /// into all of them.
    InPlace,
    /// Everything to a partner at once, round by round; MPI libraries run it, Hocket does not.
    RecursiveDoubling,
    /// Not lowered: handed to a library of that name (Gloo, NCCL, MPI).
    Library {
        /// As the executor's owner knows it.
        name: String,
    },
}
