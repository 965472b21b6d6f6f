//! A coordinator's journal of any bytes: what is read can be written again, byte for byte, and every epoch has members.

use hocket_ids::Member;
use hocket_protocol::membership::journal::{decode, encode};
use hocket_protocol::membership::{Decision, Kind};
use hocket_protocol::planted::Rules;

pub fn run(bytes: &[u8]) {
    let Ok(history) = decode(bytes, Rules::default()) else { return };
    let written: Vec<u8> = history.decisions.iter().flat_map(encode).collect();
    assert_eq!(written, bytes[..history.bytes]);
    for decision in &history.decisions {
        assert!(!decision.members.is_empty(), "{decision:?}");
        assert!(decision.evicted.iter().all(|&member| !decision.has(member)), "{decision:?}");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let of = |epoch, kind, members: &[u64], evicted: &[u64]| Decision {
        epoch,
        base: epoch - 1,
        kind,
        members: members.iter().copied().map(Member).collect(),
        fresh: members.iter().copied().map(Member).filter(|_| kind == Kind::Planned).take(1).collect(),
        evicted: evicted.iter().copied().map(Member).collect(),
    };
    let records = [
        of(1, Kind::Founded, &[0, 1, 2], &[]),
        of(2, Kind::Planned, &[3, 0, 1, 2], &[]),
        of(3, Kind::Loss { steps: 9 }, &[3, 1], &[0, 2]),
    ]
    .map(|decision| encode(&decision));
    let whole = records.concat();
    let torn = whole[..whole.len() - 5].to_vec();
    vec![records[0].clone(), whole, torn]
}
