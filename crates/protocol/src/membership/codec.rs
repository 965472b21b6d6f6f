//! Notes and orders as bytes, between a member and the coordinator.
//!
//! A message is `length (4) body`; a body is `kind (1)` and the fields in their order, all little-endian. A number has eight bytes, a
//! time as many (nanoseconds), an optional number one more in front. Lists and texts begin with `count (4)`. A decision is the
//! body of its journal record. Lengths are checked before anything is allocated for them.

use super::journal::{BODY_BYTES_MAX, body, read_body};
use super::{Decision, Ending, MEMBERS_MAX, Note, Order, Report, Script};
use hocket_ids::Member;
use std::time::Duration;

/// The longest body: a decision, or the report and the list of an ending.
pub const MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX + TEXT_BYTES_MAX + 64;
/// The longest text; the rest of a longer one is cut.
pub const TEXT_BYTES_MAX: usize = 4096;
const LENGTH_BYTES: usize = 4;
/// By the byte that stands for each.
const SCRIPTS: [Script; 4] = [Script::Computes, Script::Waits, Script::Overdue, Script::Ended];

/// Bytes that no member and no coordinator of this version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A length beyond the limit.
    #[error("a message announces {bytes} bytes; the limit is {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// As announced.
        bytes: usize,
    },
    /// A body that is none.
    #[error("a message of {bytes} bytes and kind {kind} makes no sense")]
    Malformed {
        /// Its length.
        bytes: usize,
        /// Its first byte, or 0.
        kind: u8,
    },
}

/// The first whole message's body in a stream's bytes, and where the next message begins; none while bytes are missing.
pub fn first(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, CodecError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(CodecError::TooLong { bytes: length });
    }
    Ok(rest.get(..length).map(|body| (body, LENGTH_BYTES + length)))
}

impl Note {
    /// As a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Self::Hello { epoch, host, founds } => {
                out.byte(1).option(*epoch).number(u64::from(*host)).byte(u8::from(*founds));
            }
            Self::Report(report) => {
                out.byte(2).report(report);
            }
            Self::Entered { epoch } => {
                out.byte(3).number(*epoch);
            }
            Self::Gone { member } => {
                out.byte(4).number(member.0);
            }
            Self::Leave => {
                out.byte(5);
            }
        }
        out.message()
    }

    /// From a message's body.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        In::whole(body, |from| {
            Some(match from.byte()? {
                1 => Self::Hello {
                    epoch: from.option()?,
                    host: u32::try_from(from.number()?).ok()?,
                    founds: from.flag()?,
                },
                2 => Self::Report(from.report()?),
                3 => Self::Entered { epoch: from.number()? },
                4 => Self::Gone { member: Member(from.number()?) },
                5 => Self::Leave,
                _ => return None,
            })
        })
    }
}

impl Order {
    /// As a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Self::Propose(decision) => out.byte(1).decision(decision),
            Self::Recall { next } => out.byte(2).number(*next),
            Self::Decide(decision) => out.byte(3).decision(decision),
            Self::Evicted { epoch, why } => out.byte(4).number(*epoch).text(why),
            Self::Released => out.byte(5),
            Self::End(Ending::BelowMinimum { left, needed, waited, lost }) => {
                out.byte(6).number(*left as u64).number(*needed as u64).time(*waited).members(lost)
            }
            Self::End(Ending::StateLost { lost }) => out.byte(7).members(lost),
            Self::End(Ending::OldJournal { member, epoch, newest }) => {
                out.byte(8).number(member.0).number(*epoch).number(*newest)
            }
            Self::End(Ending::Contradiction { steps, member, report }) => {
                out.byte(9).number(*steps).number(member.0).report(report)
            }
            Self::End(Ending::Stuck { members, steps }) => {
                out.byte(10).number(*members as u64).number(*steps)
            }
        };
        out.message()
    }

    /// From a message's body.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        In::whole(body, |from| {
            Some(match from.byte()? {
                1 => Self::Propose(from.decision()?),
                2 => Self::Recall { next: from.number()? },
                3 => Self::Decide(from.decision()?),
                4 => Self::Evicted { epoch: from.number()?, why: from.text()? },
                5 => Self::Released,
                6 => Self::End(Ending::BelowMinimum {
                    left: from.size()?,
                    needed: from.size()?,
                    waited: Duration::from_nanos(from.number()?),
                    lost: from.members()?,
                }),
                7 => Self::End(Ending::StateLost { lost: from.members()? }),
                8 => Self::End(Ending::OldJournal {
                    member: Member(from.number()?),
                    epoch: from.number()?,
                    newest: from.number()?,
                }),
                9 => Self::End(Ending::Contradiction {
                    steps: from.number()?,
                    member: Member(from.number()?),
                    report: from.report()?,
                }),
                10 => Self::End(Ending::Stuck { members: from.size()?, steps: from.number()? }),
                _ => return None,
            })
        })
    }
}

/// A body under construction.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn option(&mut self, number: Option<u64>) -> &mut Self {
        self.byte(u8::from(number.is_some())).number(number.unwrap_or_default())
    }

    fn time(&mut self, time: Duration) -> &mut Self {
        self.number(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    fn members(&mut self, members: &[Member]) -> &mut Self {
        self.0.extend((members.len() as u32).to_le_bytes());
        self.0.extend(members.iter().flat_map(|member| member.0.to_le_bytes()));
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let most = text.len().min(TEXT_BYTES_MAX);
        let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        let text = &text[..end];
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    fn report(&mut self, report: &Report) -> &mut Self {
        let Report { epoch, steps, prepared, script, suspects } = report;
        let script = SCRIPTS.iter().position(|each| each == script).unwrap_or_default();
        self.option(*epoch).option(*steps).byte(u8::from(*prepared)).byte(script as u8).members(suspects)
    }

    fn decision(&mut self, decision: &Decision) -> &mut Self {
        self.0.extend(body(decision));
        self
    }

    fn message(self) -> Vec<u8> {
        let mut message = (self.0.len() as u32).to_le_bytes().to_vec();
        message.extend(self.0);
        message
    }
}

/// A body's bytes that are not read yet.
struct In<'a>(&'a [u8]);

impl In<'_> {
    /// What `read` makes of all of `body`.
    fn whole<T>(body: &[u8], read: impl FnOnce(&mut In<'_>) -> Option<T>) -> Result<T, CodecError> {
        let mut from = In(body);
        let kind = body.first().copied().unwrap_or_default();
        read(&mut from).filter(|_| from.0.is_empty()).ok_or(CodecError::Malformed { bytes: body.len(), kind })
    }

    fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|byte| *byte <= 1).map(|byte| byte == 1)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    #[expect(clippy::option_option, reason = "the outer one tells whether the bytes make sense")]
    fn option(&mut self) -> Option<Option<u64>> {
        match (self.flag()?, self.number()?) {
            (true, number) => Some(Some(number)),
            (false, 0) => Some(None),
            (false, _) => None,
        }
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        let count = self.take(4)?.try_into().ok().map(u32::from_le_bytes)? as usize;
        (count <= most).then_some(count)
    }

    fn members(&mut self) -> Option<Vec<Member>> {
        let count = self.count(MEMBERS_MAX)?;
        let bytes = self.take(count * 8)?.chunks_exact(8);
        bytes.map(|each| each.try_into().ok().map(u64::from_le_bytes).map(Member)).collect()
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.count(TEXT_BYTES_MAX)?;
        String::from_utf8(self.take(bytes)?.to_vec()).ok()
    }

    fn report(&mut self) -> Option<Report> {
        Some(Report {
            epoch: self.option()?,
            steps: self.option()?,
            prepared: self.flag()?,
            script: *SCRIPTS.get(usize::from(self.byte()?))?,
            suspects: self.members()?,
        })
    }

    /// Takes the rest.
    fn decision(&mut self) -> Option<Decision> {
        read_body(std::mem::take(&mut self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;
    use proptest::prelude::*;

    fn report(suspects: u64) -> Report {
        let script = SCRIPTS[suspects as usize % SCRIPTS.len()];
        let suspects = (0..suspects).map(Member).collect();
        Report { epoch: Some(3), steps: None, prepared: true, script, suspects }
    }

    fn notes() -> Vec<Note> {
        vec![
            Note::Hello { epoch: None, host: u32::MAX, founds: true },
            Note::Hello { epoch: Some(0), host: 0, founds: false },
            Note::Report(report(0)),
            Note::Report(report(1)),
            Note::Report(report(2)),
            Note::Report(report(3)),
            Note::Report(report(MEMBERS_MAX as u64)),
            Note::Entered { epoch: u64::MAX },
            Note::Gone { member: Member(7) },
            Note::Leave,
        ]
    }

    fn decision(members: u64) -> Decision {
        let members: Vec<_> = (1..=members).map(Member).collect();
        let (fresh, evicted) = (vec![members[0]], vec![Member(0)]);
        Decision { epoch: 9, base: 7, kind: Kind::Loss { steps: 5 }, members, fresh, evicted }
    }

    fn orders() -> Vec<Order> {
        let lost: Vec<_> = (0..MEMBERS_MAX as u64).map(Member).collect();
        vec![
            Order::Propose(decision(1)),
            Order::Recall { next: 4 },
            Order::Decide(decision(MEMBERS_MAX as u64)),
            Order::Evicted { epoch: 2, why: "2 members cannot hear it: é".into() },
            Order::Released,
            Order::End(Ending::BelowMinimum {
                left: 1,
                needed: 2,
                waited: Duration::from_millis(1500),
                lost: lost.clone(),
            }),
            Order::End(Ending::StateLost { lost }),
            Order::End(Ending::Stuck { members: 3, steps: 7 }),
            Order::End(Ending::OldJournal { member: Member(1), epoch: 2, newest: 3 }),
            Order::End(Ending::Contradiction {
                steps: 4,
                member: Member(5),
                report: report(MEMBERS_MAX as u64),
            }),
        ]
    }

    fn body_of(message: &[u8]) -> &[u8] {
        let (body, end) = first(message).unwrap().unwrap();
        assert_eq!(end, message.len());
        body
    }

    /// A member would obey another decision than the journal's.
    #[test]
    fn messages_survive_the_wire() {
        for note in notes() {
            assert_eq!(Note::decode(body_of(&note.encode())), Ok(note));
        }
        for order in orders() {
            assert_eq!(Order::decode(body_of(&order.encode())), Ok(order));
        }
    }

    /// A reason that is too long must neither be refused nor cut in the middle of a character.
    #[test]
    fn long_texts_are_cut() {
        let why = format!("{}é", "x".repeat(TEXT_BYTES_MAX - 1));
        let Ok(Order::Evicted { why: told, .. }) =
            Order::decode(body_of(&Order::Evicted { epoch: 1, why: why.clone() }.encode()))
        else {
            panic!("refused")
        };
        assert_eq!(told, why[..TEXT_BYTES_MAX - 1]);
    }

    /// A stream gives bytes as they come.
    #[test]
    fn a_part_of_a_message_is_no_message() {
        let (one, other) = (Note::Entered { epoch: 1 }.encode(), Note::Leave.encode());
        let bytes = [one.clone(), other].concat();
        for have in 0..bytes.len() {
            let found = first(&bytes[..have]).unwrap();
            assert_eq!(found.map(|(_, end)| end), (have >= one.len()).then_some(one.len()));
        }
        let long = (MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes();
        assert_eq!(first(&long), Err(CodecError::TooLong { bytes: MESSAGE_BYTES_MAX + 1 }));
    }

    proptest! {
        /// A damaged or forged message must be refused or be one that could have been sent.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, which: prop::sample::Index, to: u8) {
            let _ = Note::decode(&bytes);
            let _ = Order::decode(&bytes);
            let messages: Vec<_> = notes().iter().map(Note::encode).filter(|each| each.len() < 200).collect();
            let mut bytes = messages[which.index(messages.len())].clone();
            let at = LENGTH_BYTES + at.index(bytes.len() - LENGTH_BYTES);
            bytes[at] = to;
            if let Ok(note) = Note::decode(&bytes[LENGTH_BYTES..]) {
                prop_assert_eq!(note.encode(), bytes);
            }
        }
    }
}
