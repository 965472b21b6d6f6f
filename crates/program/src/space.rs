//! Memory spaces: the processor whose memory a buffer is in, and the pairs between which messages move.

/// Where a buffer's memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Memory of the CPU.
    #[default]
    Host,
    /// Memory of the rank's device. Only copies pass between it and the host.
    Device,
}

impl Space {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Host, Self::Device];

    /// The name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
        }
    }

    /// The inverse of [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }

    /// Whether a link moves messages from this space to space `to`. A link with more abilities is one more line here.
    pub const fn reaches(self, to: Self) -> bool {
        matches!((self, to), (Self::Host, Self::Host))
    }
}
