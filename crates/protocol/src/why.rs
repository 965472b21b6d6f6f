//! Why a job fails because of a rank. An abort carries it beside its text, so that nobody has to read the text.

/// What a rank did, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It stopped by itself and notified the others: an exception in its script, or its mesh did not come up.
    GaveUp,
    /// Its connection ended without a goodbye: its process died, or the network between broke.
    Lost,
    /// It left in order while something still needed it.
    Left,
    /// It was silent for longer than a peer may be.
    Silent,
    /// It sent what makes no sense.
    Violation,
    /// What it sent was changed on its way.
    Damaged,
    /// One of its own operations failed.
    Failed,
    /// It refused a connection, since both ends are set up differently.
    Refused,
}

impl Why {
    /// All, by code.
    pub const ALL: [Self; 8] = [
        Self::GaveUp,
        Self::Lost,
        Self::Left,
        Self::Silent,
        Self::Violation,
        Self::Damaged,
        Self::Failed,
        Self::Refused,
    ];

    /// Its number in frames.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The reason with that number.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// In a word, as programs compare it.
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
        }
    }
}
