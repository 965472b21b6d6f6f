//! Members as threads, each with an arena of its own, as in separate processes.

use crate::communicator::{Communicator, Flat, Member};
use crate::error::Error;
use crate::{AREA_BYTES, call};
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_wire::memory::{Allocation, Arena, Region, map_peer};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const SUM: call::Reduction = (ReduceOp::Sum, DType::F32);

/// Runs `act` as each of `members` ranks, with memory of its arena to register; returns all results.
fn ranks<T: Send>(members: usize, act: impl Fn(usize, &mut Communicator, &Arc<Arena>) -> T + Sync) -> Vec<T> {
    ranks_with(Flat { registered_bytes: 20_000, other_bytes: 200_000 }, members, act)
}

fn ranks_with<T: Send>(
    flat: Flat,
    members: usize,
    act: impl Fn(usize, &mut Communicator, &Arc<Arena>) -> T + Sync,
) -> Vec<T> {
    let arenas: Vec<Arc<Arena>> = (0..members).map(|_| Arena::new(0).unwrap()).collect();
    let places: Vec<Allocation> = arenas.iter().map(|arena| arena.allocate(AREA_BYTES).unwrap()).collect();
    let (arenas, places, act) = (&arenas, &places, &act);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..members)
            .map(|own| {
                scope.spawn(move || {
                    let member = |at: usize| {
                        let memory = if at == own {
                            Arc::clone(arenas[at].mapping())
                        } else {
                            map_peer(arenas[at].fd()).unwrap()
                        };
                        let offset = places[at].region().arena_offset();
                        let area = Region::new(&memory, offset, AREA_BYTES as u64).unwrap();
                        Member { rank: Rank::from_index(at), area, arena: memory }
                    };
                    let members = (0..members).map(member).collect();
                    let mut group = Communicator::new(members, own, Duration::from_secs(20), flat).unwrap();
                    act(own, &mut group, &arenas[own])
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_ne_bytes).collect()
}

/// Elements whose sums are exact in every order.
fn input(own: usize, elements: usize) -> Vec<u8> {
    floats((0..elements).map(|at| ((at * 7 + own * 3) % 64) as f32))
}

fn total(members: usize, elements: usize) -> Vec<u8> {
    floats((0..elements).map(|at| (0..members).map(|own| ((at * 7 + own * 3) % 64) as f32).sum()))
}

const LENGTHS: [usize; 7] = [0, 1, 17, 4096, 40_000, 65_536 * 2 + 3, 400_001];

/// A wrong part or slot would be a wrong gradient of a few elements.
#[test]
fn all_reduce_of_any_length() {
    for members in [1, 2, 3, 5] {
        ranks(members, |own, group, arena| {
            for elements in LENGTHS {
                let mut bytes = input(own, elements);
                group.all_reduce(&mut bytes, SUM, &mut |_| None).unwrap();
                assert!(bytes == total(members, elements), "{members} ranks, {elements} elements");
                let bucket = arena.allocate((elements * 4).max(1)).unwrap();
                let bucket = &mut bucket.region().as_bytes_mut()[..elements * 4];
                bucket.copy_from_slice(&input(own, elements));
                group.all_reduce(bucket, SUM, &mut |_| None).unwrap();
                assert!(
                    bucket == total(members, elements),
                    "{members} ranks, {elements} registered elements"
                );
                let mut bytes = input(own, elements);
                let root = elements % members;
                group.reduce(&mut bytes, SUM, root, &mut |_| None).unwrap();
                let expected = if own == root { total(members, elements) } else { input(own, elements) };
                assert!(bytes == expected, "{members} ranks, {elements} elements to {root}");
            }
        });
    }
}

/// A tuning may have any limits, and members bring memory of both kinds: published and reduced lengths would not match.
#[test]
fn the_limits_of_flat_reductions_change_no_result() {
    for (registered_bytes, other_bytes) in
        [(0, 0), (usize::MAX, usize::MAX), (0, 200_000), (200_000, 0), (20_000, 200_000)]
    {
        ranks_with(Flat { registered_bytes, other_bytes }, 3, |own, group, arena| {
            for elements in LENGTHS {
                // No memory is registered, then rank 0's is, then two ranks', then all ranks'.
                for registered in 0..=3 {
                    let mut plain = input(own, elements);
                    let place = arena.allocate((elements * 4).max(1)).unwrap();
                    let bytes = if own < registered {
                        let bucket = &mut place.region().as_bytes_mut()[..elements * 4];
                        bucket.copy_from_slice(&plain);
                        bucket
                    } else {
                        &mut plain[..]
                    };
                    group.all_reduce(bytes, SUM, &mut |_| None).unwrap();
                    assert!(bytes == total(3, elements), "{elements} elements, {registered} registered");
                }
            }
        });
    }
}

/// A piece at the wrong place would go unnoticed: all have the same length.
#[test]
fn pieces_arrive_where_they_belong() {
    for members in [1, 2, 3, 5] {
        ranks(members, |own, group, _| {
            for elements in LENGTHS {
                let piece = |from: usize, to: usize| input(from * 8 + to, elements + from);
                let mut outputs: Vec<Vec<u8>> =
                    (0..members).map(|from| vec![0; piece(from, 0).len()]).collect();
                {
                    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|each| &mut each[..]).collect();
                    group.all_gather(&piece(own, 0), &mut outputs, &mut |_| None).unwrap();
                }
                assert!((0..members).all(|from| outputs[from] == piece(from, 0)));
                let inputs: Vec<Vec<u8>> = (0..members).map(|to| piece(own, to)).collect();
                let inputs: Vec<&[u8]> = inputs.iter().map(|each| &each[..]).collect();
                {
                    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|each| &mut each[..]).collect();
                    group.all_to_all(&inputs, &mut outputs, &mut |_| None).unwrap();
                }
                assert!((0..members).all(|from| outputs[from] == piece(from, own)));
                let root = elements % members;
                let mut bytes = input(own, elements);
                group.broadcast(&mut bytes, root, &mut |_| None).unwrap();
                assert!(bytes == input(root, elements));
                let mut output = vec![0; piece(root, own).len()];
                let given: &[&[u8]] = if own == root { &inputs } else { &[] };
                group.scatter(given, &mut output, root, &mut |_| None).unwrap();
                assert!(output == piece(root, own));
                let mut gathered: Vec<&mut [u8]> = if own == root {
                    outputs.iter_mut().map(|each| &mut each[..]).collect()
                } else {
                    Vec::new()
                };
                group.gather(&piece(own, 1), &mut gathered, root, &mut |_| None).unwrap();
                assert!(own != root || (0..members).all(|from| outputs[from] == piece(from, 1)));
                let inputs: Vec<Vec<u8>> = (0..members).map(|to| input(own + to, elements)).collect();
                let inputs: Vec<&[u8]> = inputs.iter().map(|each| &each[..]).collect();
                let mut output = vec![0; elements * 4];
                group.reduce_scatter(&inputs, &mut output, SUM, &mut |_| None).unwrap();
                let sum =
                    |at: usize| (0..members).map(|from| ((at * 7 + (from + own) * 3) % 64) as f32).sum();
                assert!(output == floats((0..elements).map(sum)));
                group.barrier(&mut |_| None).unwrap();
            }
        });
    }
}

/// Ranks that make different calls would read each other's bytes as something else.
#[test]
fn different_calls_are_named_by_all() {
    let outcomes = ranks(2, |own, group, _| {
        let mut bytes = vec![0; 8 + own * 4];
        let first = group.all_reduce(&mut bytes, SUM, &mut |_| None);
        (first, group.barrier(&mut |_| None))
    });
    for (first, second) in outcomes {
        let text = first.unwrap_err().to_string();
        assert!(text.contains("all_reduce (sum, f32) of 8 bytes"), "{text}");
        assert!(text.contains("all_reduce (sum, f32) of 12 bytes"), "{text}");
        assert!(matches!(second, Err(Error::Broken(_))));
    }
}

/// A job would hang on a rank that does not arrive.
#[test]
fn who_does_not_come_is_named() {
    let outcomes = ranks(3, |own, group, _| {
        group.set_timeout(Duration::from_millis(300));
        if own == 1 { Ok(()) } else { group.barrier(&mut |_| None) }
    });
    let text = outcomes[0].clone().unwrap_err().to_string();
    assert_eq!(text, "barrier of 0 bytes: not complete within the timeout of 0.3 s; rank 1 did not come");
    let outcomes =
        ranks(
            2,
            |own, group, _| {
                if own == 1 { Ok(()) } else { group.barrier(&mut |_| Some("the job failed".into())) }
            },
        );
    assert!(matches!(&outcomes[0], Err(Error::GivenUp { why, .. }) if why == "the job failed"));
}

/// An area that is freed while another member is in the last call reads as zeros, and that member waits for ever.
#[test]
fn an_area_is_needed_until_all_members_have_left() {
    let arena = Arena::new(0).unwrap();
    let places = [(); 2].map(|()| arena.allocate(AREA_BYTES).unwrap());
    let flat = Flat { registered_bytes: 0, other_bytes: 0 };
    let [first, second] = [0, 1].map(|own| {
        let member = |at: usize| Member {
            rank: Rank::from_index(at),
            area: places[at].region().clone(),
            arena: Arc::clone(arena.mapping()),
        };
        Communicator::new(vec![member(0), member(1)], own, Duration::from_secs(20), flat).unwrap()
    });
    let early = first.leave();
    assert!(!early.is_over(), "the second member may still read it");
    let late = second.leave();
    assert!(early.is_over() && late.is_over());
}
