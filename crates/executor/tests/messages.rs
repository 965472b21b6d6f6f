//! Messages of no program between executors, over sockets and shared memory.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_executor::{Engine, Error, Who, Why};
use hocket_ids::Rank;
use std::time::{Duration, Instant};

mod mesh;
use mesh::{TIMEOUT, each, mesh};

/// Lengths of several frames, and of none.
const LENGTHS: [usize; 4] = [0, 1, 4096, 3_000_001];
const TAG: u64 = 7 << 32;

fn byte(at: usize, from: usize, tag: u64) -> u8 {
    (at * 7 + from * 31 + tag as usize) as u8
}

fn wait(engine: &Engine, number: u32) -> Option<Rank> {
    engine.wait_message(number, TIMEOUT, || false).unwrap()
}

/// A pipeline's activations would arrive as others', in part or never.
#[test]
fn every_rank_to_every_other() {
    for hosts in [["a", "a", "a"], ["a", "b", "c"], ["a", "a", "b"]] {
        let engines = mesh(&hosts, 1);
        each(&engines, |rank, engine| {
            for len in LENGTHS {
                let others: Vec<usize> = (0..3).filter(|&other| other != rank).collect();
                let mut open = Vec::new();
                // Receives of the second tag are there before the first is sent, sends in the other order.
                for tag in [TAG + 1, TAG] {
                    for &from in &others {
                        let into = engine.allocate(len.max(1)).unwrap();
                        let region = into.region().sub(0, len);
                        let number =
                            engine.receive(Some(Rank::from_index(from)), tag, region, false).unwrap();
                        open.push((number, from, tag, into));
                    }
                }
                let mut sent = Vec::new();
                for tag in [TAG, TAG + 1] {
                    for &to in &others {
                        let bytes = engine.allocate(len.max(1)).unwrap();
                        let region = bytes.region().sub(0, len);
                        for (at, cell) in region.as_bytes_mut().iter_mut().enumerate() {
                            *cell = byte(at, rank, tag);
                        }
                        sent.push((engine.send(Rank::from_index(to), tag, region, false).unwrap(), bytes));
                    }
                }
                for (number, from, tag, into) in open {
                    assert_eq!(wait(engine, number), Some(Rank::from_index(from)));
                    let region = into.region().sub(0, len);
                    let right =
                        region.as_bytes().iter().enumerate().all(|(at, &cell)| cell == byte(at, from, tag));
                    assert!(right, "rank {rank}: {len} bytes of rank {from}");
                }
                for (number, _) in sent {
                    wait(engine, number);
                }
            }
        });
        each(&engines, |_, engine| engine.close());
    }
}

/// A caller that polls instead of waiting would never learn of a message, or learn of another's.
#[test]
fn notices_come_once_each() {
    let engines = mesh(&["a", "a", "b"], 1);
    each(&engines, |rank, engine| {
        let memory = engine.allocate(64).unwrap();
        let region = |at: usize| memory.region().sub(at * 8, 8);
        let mut open = Vec::new();
        for other in (0..3).filter(|&other| other != rank) {
            open.push(engine.receive(None, TAG, region(other), true).unwrap());
            open.push(engine.send(Rank::from_index(other), TAG, region(4 + other), true).unwrap());
        }
        while !open.is_empty() {
            let (number, _) = engine.next_message(TIMEOUT).unwrap().unwrap();
            let at = open.iter().position(|&each| each == number).unwrap();
            open.remove(at);
        }
        assert!(engine.next_message(Duration::from_millis(10)).unwrap().is_none());
    });
    each(&engines, |_, engine| engine.close());
}

/// A wait would have no end, or its error would name no rank.
#[test]
fn who_does_not_send_or_dies_is_named() {
    let engines = mesh(&["a", "b", "a"], 1);
    let started = Instant::now();
    each(&engines, |rank, engine| {
        let memory = engine.allocate(8).unwrap();
        if rank == 0 {
            let number = engine.receive(Some(Rank(1)), TAG, memory.region().clone(), false).unwrap();
            let outcome = engine.wait_message(number, Duration::from_millis(100), || false);
            let Err(Error::Timeout { missing, location: None, .. }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(missing, [Who { rank: Rank(1), host: "b".into() }]);
            let number = engine.receive(Some(Rank(2)), TAG, memory.region().clone(), false).unwrap();
            let outcome = engine.wait_message(number, TIMEOUT, || false);
            let Err(Error::Peer(failure)) = outcome else { panic!("{outcome:?}") };
            assert_eq!((failure.who.rank, &*failure.who.host, failure.why), (Rank(2), "a", Why::GaveUp));
            assert_eq!(failure.what, "rank 2 on a gave up: something went wrong");
        }
        if rank == 2 {
            std::thread::sleep(Duration::from_millis(300));
            engine.abort("something went wrong");
        }
    });
    assert!(started.elapsed() < TIMEOUT);
}

/// Bytes would land past the end of a receiver's buffer.
#[test]
fn sizes_that_differ_end_the_job_on_both_sides() {
    for hosts in [["a", "a"], ["a", "b"]] {
        let engines = mesh(&hosts, 1);
        each(&engines, |rank, engine| {
            let memory = engine.allocate(16).unwrap();
            let opened = if rank == 0 {
                engine.send(Rank(1), TAG, memory.region().clone(), false)
            } else {
                engine.receive(Some(Rank(0)), TAG, memory.region().sub(0, 8), false)
            };
            let outcome = opened.and_then(|number| engine.wait_message(number, TIMEOUT, || false));
            let Err(Error::Peer(failure)) = outcome else { panic!("rank {rank}: {outcome:?}") };
            // Whichever was there first, at the receiver.
            let known = [(Rank(0), Why::Violation), (Rank(1), Why::Failed)];
            assert!(known.contains(&(failure.who.rank, failure.why)), "{failure:?}");
            assert!(failure.what.contains("rank 0 sends 16 bytes where 8 are received"), "{failure}");
        });
    }
}
