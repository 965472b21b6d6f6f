//! Words between ranks about their waits and their ends. Each fits the header of a frame, and belongs to no epoch.

use crate::header::{FrameError, NO_PROGRAM};
use hocket_ids::Rank;

/// In place of a rank: none.
const NOBODY: u32 = u32::MAX;

/// The sender's part in a launch that the addressee waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It has not launched it.
    Absent,
    /// It has, and waits for others or computes.
    Working,
    /// It has done its part.
    Done,
}

impl Part {
    const ALL: [Self; 3] = [Self::Absent, Self::Working, Self::Done];
}

/// A launch of a program: its number, the same on all ranks, and the launch count.
pub type Launched = (u32, u32);

/// What a rank says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The process of that rank ends with this exit code. Comes before the goodbye, or the abort, that it explains.
    Exit {
        /// The sender, or a rank that it reports.
        rank: Rank,
        /// Its exit code.
        code: u8,
    },
    /// Whom does the addressee wait for: in that launch if it takes part in it, otherwise in any wait of its script?
    Inquiry {
        /// A number of the sender's choice; its upper half is the epoch.
        inquiry: u64,
        /// The launch that the sender waits for, if it waits for one.
        launch: Option<Launched>,
    },
    /// A rank that the sender waits for; a word without a rank ends the answer.
    Waits {
        /// The number of the inquiry.
        inquiry: u64,
        /// The sender's part in the launch of the inquiry.
        part: Part,
        /// One of those that it waits for.
        rank: Option<Rank>,
    },
}

const EXIT: u8 = 12;
const INQUIRY: u8 = 13;
const WAITS: u8 = 14;

impl Word {
    /// Kind, and the header's fields: program, instance, offset.
    pub(crate) fn fields(self) -> (u8, u32, u32, u64) {
        match self {
            Self::Exit { rank, code } => (EXIT, code.into(), rank.0, 0),
            Self::Inquiry { inquiry, launch } => {
                let (program, instance) = launch.unwrap_or((NO_PROGRAM, 0));
                (INQUIRY, program, instance, inquiry)
            }
            Self::Waits { inquiry, part, rank } => {
                (WAITS, part as u32, rank.map_or(NOBODY, |rank| rank.0), inquiry)
            }
        }
    }

    /// The word of that kind, if there is one, from the same fields.
    pub(crate) fn from_fields(
        kind: u8,
        program: u32,
        instance: u32,
        offset: u64,
    ) -> Result<Option<Self>, FrameError> {
        Ok(Some(match kind {
            EXIT => {
                let code = u8::try_from(program).map_err(|_| FrameError::UnknownExit(program))?;
                Self::Exit { rank: Rank(instance), code }
            }
            INQUIRY => {
                let launch = (program != NO_PROGRAM).then_some((program, instance));
                Self::Inquiry { inquiry: offset, launch }
            }
            WAITS => {
                let part = Part::ALL.get(program as usize).copied();
                let part = part.ok_or(FrameError::UnknownPart(program))?;
                let rank = (instance != NOBODY).then_some(Rank(instance));
                Self::Waits { inquiry: offset, part, rank }
            }
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use proptest::prelude::*;

    proptest! {
        /// A rank would be blamed for another one's wait, or its exit code would be lost.
        #[test]
        fn words_survive_the_wire(number: u64, program in 0..NO_PROGRAM, instance: u32, rank in 0..NOBODY, code: u8, part in 0..3usize) {
            let (rank, part) = (Rank(rank), Part::ALL[part]);
            for word in [
                Word::Exit { rank, code },
                Word::Inquiry { inquiry: number, launch: Some((program, instance)) },
                Word::Inquiry { inquiry: number, launch: None },
                Word::Waits { inquiry: number, part, rank: Some(rank) },
                Word::Waits { inquiry: number, part, rank: None },
            ] {
                let frame = Frame::Word(word);
                prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
            }
        }
    }

    /// A number that means nothing would be taken for another rank's state.
    #[test]
    fn unknown_values_are_refused() {
        let mut bytes = Frame::Word(Word::Exit { rank: Rank(1), code: 3 }).encode();
        bytes[5] = 1;
        assert_eq!(Frame::decode(&bytes), Err(FrameError::UnknownExit(259)));
        let mut bytes = Frame::Word(Word::Waits { inquiry: 1, part: Part::Done, rank: None }).encode();
        bytes[4] = 3;
        assert_eq!(Frame::decode(&bytes), Err(FrameError::UnknownPart(3)));
    }
}
