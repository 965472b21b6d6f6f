//! Notes and orders of any bytes: what is read can be written again, byte for byte.

use hocket_ids::Member;
use hocket_protocol::membership::codec::{MESSAGE_BYTES_MAX, first};
use hocket_protocol::membership::{Decision, Ending, Kind, Note, Order, Report, Script};
use std::time::Duration;

pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((body, end))) = first(rest) {
        assert!(body.len() <= MESSAGE_BYTES_MAX);
        if let Ok(note) = Note::decode(body) {
            assert_eq!(note.encode(), rest[..end], "{note:?}");
        }
        if let Ok(order) = Order::decode(body) {
            assert_eq!(order.encode(), rest[..end], "{order:?}");
        }
        rest = &rest[end..];
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let members = vec![Member(3), Member(1)];
    let report = Report {
        epoch: Some(3),
        steps: Some(9),
        prepared: true,
        script: Script::Waits,
        suspects: vec![Member(2)],
    };
    let decision = Decision {
        epoch: 4,
        base: 3,
        kind: Kind::Loss { steps: 9 },
        members: members.clone(),
        fresh: Vec::new(),
        evicted: vec![Member(2)],
    };
    let notes = [
        Note::Hello { epoch: None, host: 1, founds: true },
        Note::Report(report.clone()),
        Note::Entered { epoch: 4 },
        Note::Gone { member: Member(2) },
        Note::Leave,
    ];
    let lost = members;
    let orders = [
        Order::Propose(decision.clone()),
        Order::Recall { next: 5 },
        Order::Decide(decision),
        Order::Evicted { epoch: 4, why: "silent".into() },
        Order::Released,
        Order::End(Ending::BelowMinimum {
            left: 1,
            needed: 2,
            waited: Duration::from_secs(1),
            lost: lost.clone(),
        }),
        Order::End(Ending::StateLost { lost }),
        Order::End(Ending::Stuck { members: 2, steps: 9 }),
        Order::End(Ending::OldJournal { member: Member(1), epoch: 5, newest: 4 }),
        Order::End(Ending::Contradiction { steps: 9, member: Member(1), report }),
    ];
    let all = notes.iter().map(Note::encode).chain(orders.iter().map(Order::encode));
    let mut seeds: Vec<_> = all.collect();
    seeds.push(seeds.concat());
    seeds
}
