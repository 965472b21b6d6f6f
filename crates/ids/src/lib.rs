//! Typed indices, units and element types shared by every crate.
//!
//! Knows nothing of programs, sockets or clocks. A rank is not a slot, a byte count is not an element
//! count: each has its own type here, so a mix-up does not compile.
#![forbid(unsafe_code)]

mod dtype;
mod reduce_op;

pub use dtype::DType;
pub use reduce_op::ReduceOp;
use std::fmt;

/// Identity of a process of the job. Given once, never reused; its rank is its place in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub u64);

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as `usize`, to look up in a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// From a table position.
            ///
            /// # Panics
            /// When the position does not fit 32 bits: no table of ours may grow that long.
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect(concat!(stringify!($name), " beyond 32 bits")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index!(
    /// A process of the job, `0..world`.
    Rank
);
index!(
    /// A buffer of one rank's program.
    BufferId
);
index!(
    /// An op (node) of one rank's program.
    OpId
);
index!(
    /// Names one message between an ordered pair of ranks within a program.
    Tag
);
index!(
    /// A function of whole slices that ops of a program call.
    KernelId
);
index!(
    /// A line of the user's source that ops point back to.
    SourceId
);
index!(
    /// A program loaded into an executor; equal on all ranks.
    ProgramId
);
