//! The coordinator's journal: decisions in an append-only file, each record with its CRC32C.
//!
//! A record is `length (4) crc (4) body`; a body is `version (1) kind (1) epoch (8) base (8) steps (8)` and three lists of members,
//! each `count (4) member (8)…`; all little-endian. A crash can tear only what was not yet synchronised, that is the tail:
//! it is cut, since nobody has been told of it. Damage before the last record is no crash and is refused.

use super::{Decision, Kind, MEMBERS_MAX};
use crate::planted::{Bug, Rules};
use hocket_ids::Member;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 8;
const FIXED_BYTES: usize = 26;
const LISTS: usize = 3;
/// The longest body.
pub(super) const BODY_BYTES_MAX: usize = FIXED_BYTES + LISTS * (4 + 8 * MEMBERS_MAX);

/// Why a journal is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Bytes that no crash leaves.
    #[error("the journal is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the record begins.
        at: usize,
        /// For people.
        what: &'static str,
    },
    /// Records that do not follow each other.
    #[error("the journal has epoch {epoch} on epoch {base}, which is not before it there")]
    Order {
        /// The record's.
        epoch: u64,
        /// The record's.
        base: u64,
    },
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In order of their numbers.
    pub decisions: Vec<Decision>,
    /// Bytes that are whole: the file is cut to this length before anything is appended.
    pub bytes: usize,
}

/// A decision as a record.
pub fn encode(decision: &Decision) -> Vec<u8> {
    let body = body(decision);
    let mut record = (body.len() as u32).to_le_bytes().to_vec();
    record.extend(crc32c::crc32c(&body).to_le_bytes());
    record.extend(body);
    record
}

/// A decision as a record's body.
pub(super) fn body(decision: &Decision) -> Vec<u8> {
    let (kind, steps) = match decision.kind {
        Kind::Founded => (0, 0),
        Kind::Planned => (1, 0),
        Kind::Loss { steps } => (2, steps),
    };
    let mut body = vec![VERSION, kind];
    for number in [decision.epoch, decision.base, steps] {
        body.extend(number.to_le_bytes());
    }
    for list in [&decision.members, &decision.fresh, &decision.evicted] {
        body.extend((list.len() as u32).to_le_bytes());
        body.extend(list.iter().flat_map(|member| member.0.to_le_bytes()));
    }
    body
}

/// The decision in a whole body, if it could be one of ours.
pub(super) fn read_body(body: &[u8]) -> Option<Decision> {
    parse(body, false)
}

/// Reads a whole journal.
pub fn decode(bytes: &[u8], rules: Rules) -> Result<History, JournalError> {
    let mut history = History::default();
    while let Some((decision, end)) = record(bytes, history.bytes, rules)? {
        follow(&history.decisions, &decision)?;
        history.decisions.push(decision);
        history.bytes = end;
    }
    Ok(history)
}

/// The record at `at` and where it ends; none at the end or at a torn tail.
fn record(bytes: &[u8], at: usize, rules: Rules) -> Result<Option<(Decision, usize)>, JournalError> {
    let damaged = |what| Err(JournalError::Damaged { at, what });
    let Some((head, rest)) = bytes[at..].split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let is_tail = rest.len() <= length;
    let body = &rest[..length.min(rest.len())];
    let whole = body.len() == length && crc32c::crc32c(body) == crc;
    if !whole && rules.broken(Bug::ReadTornTail) && body.len() >= FIXED_BYTES {
        return Ok(parse(body, true).map(|decision| (decision, bytes.len())));
    }
    // A tail of zeros is one that the file system had lengthened but not written; an empty body would match its checksum.
    if !whole && is_tail || bytes[at..].iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    if !whole {
        return damaged("a record before the last does not match its checksum");
    }
    if length > BODY_BYTES_MAX {
        return damaged("a record is too long");
    }
    match parse(body, false) {
        Some(decision) => Ok(Some((decision, at + HEAD_BYTES + length))),
        None => damaged("a record makes no sense"),
    }
}

/// `lenient`: what is missing at the end is taken for empty.
fn parse(body: &[u8], lenient: bool) -> Option<Decision> {
    let (fixed, mut rest) = body.split_first_chunk::<FIXED_BYTES>()?;
    let number = |at: usize| fixed[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let kind = match (fixed[0], fixed[1], number(18)?) {
        (VERSION, 0, 0) => Kind::Founded,
        (VERSION, 1, 0) => Kind::Planned,
        (VERSION, 2, steps) => Kind::Loss { steps },
        _ => return None,
    };
    let mut lists = [const { Vec::new() }; LISTS];
    for list in &mut lists {
        let Some((count, after)) = rest.split_first_chunk::<4>() else {
            if lenient {
                break;
            }
            return None;
        };
        let count = u32::from_le_bytes(*count) as usize;
        let bytes = after.get(..count.checked_mul(8)?);
        if lenient && bytes.is_none() {
            list.extend(
                after
                    .chunks_exact(8)
                    .filter_map(|each| Some(Member(u64::from_le_bytes(each.try_into().ok()?)))),
            );
            break;
        }
        let bytes = bytes?;
        list.extend(
            bytes.chunks_exact(8).filter_map(|each| Some(Member(u64::from_le_bytes(each.try_into().ok()?)))),
        );
        rest = &after[bytes.len()..];
    }
    let [members, fresh, evicted] = lists;
    let decision = Decision { epoch: number(2)?, base: number(10)?, kind, members, fresh, evicted };
    (lenient || rest.is_empty() && sound(&decision)).then_some(decision)
}

/// Whether a decision could be ours.
fn sound(decision: &Decision) -> bool {
    let each_once = |list: &[Member]| {
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    let Decision { members, fresh, evicted, .. } = decision;
    !members.is_empty()
        && [members, fresh, evicted].iter().all(|list| list.len() <= MEMBERS_MAX && each_once(list))
        && fresh.iter().all(|member| members.contains(member))
        && evicted.iter().all(|member| !members.contains(member))
}

/// Numbers rise, and each record's base is an earlier one's.
fn follow(before: &[Decision], next: &Decision) -> Result<(), JournalError> {
    let ordered = match before.last() {
        None => next.kind == Kind::Founded,
        Some(last) => {
            next.epoch > last.epoch
                && next.kind != Kind::Founded
                && before.iter().any(|earlier| earlier.epoch == next.base)
        }
    };
    if ordered { Ok(()) } else { Err(JournalError::Order { epoch: next.epoch, base: next.base }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn history(worlds: &[u64]) -> Vec<Decision> {
        let of = |(at, &world): (usize, &u64)| Decision {
            epoch: 1 + at as u64,
            base: at as u64,
            kind: if at == 0 { Kind::Founded } else { Kind::Loss { steps: world } },
            members: (0..world).map(Member).collect(),
            fresh: vec![Member(0)],
            evicted: vec![Member(world)],
        };
        worlds.iter().enumerate().map(of).collect()
    }

    proptest! {
        /// A restarted coordinator would forget a decision that members obey, or invent one.
        #[test]
        fn a_journal_survives_a_crash(worlds in prop::collection::vec(1u64..5, 1..6), cut: prop::sample::Index, flips in any::<bool>()) {
            let decisions = history(&worlds);
            let records: Vec<_> = decisions.iter().map(encode).collect();
            let bytes = records.concat();
            prop_assert_eq!(decode(&bytes, Rules::default()).unwrap().decisions, decisions.clone());
            // A torn last record: shorter, or with bytes that never came.
            let whole = bytes.len() - records.last().unwrap().len();
            let keep = whole + cut.index(bytes.len() - whole);
            let mut torn = bytes[..keep].to_vec();
            if flips { torn.resize(bytes.len(), 0); }
            let read = decode(&torn, Rules::default()).unwrap();
            let lost = torn != bytes;
            prop_assert_eq!(read.decisions.len(), decisions.len() - usize::from(lost));
            prop_assert_eq!(&read.decisions[..], &decisions[..read.decisions.len()]);
            prop_assert!(!lost || read.bytes == whole);
        }

        /// A hostile or rotten file would crash the coordinator, or make an epoch of nobody.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0u8..8) {
            let _ = decode(&bytes, Rules::default());
            let mut bytes = history(&[2, 1, 3]).iter().flat_map(encode).collect::<Vec<_>>();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(read) = decode(&bytes, Rules::default()) {
                prop_assert!(read.decisions.len() < 3, "a flipped bit passed");
            }
        }
    }

    /// An epoch without a base, or a number used twice, would split the job.
    #[test]
    fn records_follow_each_other() {
        let mut decisions = history(&[2, 1, 3]);
        decisions[2].base = 7;
        let bytes: Vec<_> = decisions.iter().flat_map(encode).collect();
        assert_eq!(decode(&bytes, Rules::default()), Err(JournalError::Order { epoch: 3, base: 7 }));
        decisions[2] = decisions[1].clone();
        let bytes: Vec<_> = decisions.iter().flat_map(encode).collect();
        assert_eq!(decode(&bytes, Rules::default()), Err(JournalError::Order { epoch: 2, base: 1 }));
    }
}
