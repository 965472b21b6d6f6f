//! Why a job fails because of a rank. An abort carries this beside its text, so that no code parses the text.

/// What a rank did, or what happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It stopped by itself and notified the others: an exception in its script, or its mesh did not come up.
    GaveUp,
    /// Its connection ended without a goodbye: its process died, or the network broke.
    Lost,
    /// It left in order while something still needed it.
    Left,
    /// It was silent for longer than allowed.
    Silent,
    /// It sent something that makes no sense.
    Violation,
    /// Its data was damaged on the way.
    Damaged,
    /// One of its own operations failed.
    Failed,
    /// It refused a connection because the two ends are configured differently.
    Refused,
    /// It did not take part in an operation in time; it may only be slow.
    Timeout,
}

impl Why {
    /// All reasons, by code.
    pub const ALL: [Self; 9] = [
        Self::GaveUp,
        Self::Lost,
        Self::Left,
        Self::Silent,
        Self::Violation,
        Self::Damaged,
        Self::Failed,
        Self::Refused,
        Self::Timeout,
    ];

    /// Its code in frames.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The reason with that code.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// The reason with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.name() == name)
    }

    /// A name for programs to compare.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GaveUp => "gave_up",
            Self::Lost => "lost",
            Self::Left => "left",
            Self::Silent => "silent",
            Self::Violation => "violation",
            Self::Damaged => "damaged",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
        }
    }
}
