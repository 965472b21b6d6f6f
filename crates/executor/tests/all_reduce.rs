//! All-reduces over real sockets and shared memory between executors, against sums computed here.
//!
//! The programs are written by hand, so that a fault of a pass cannot hide one of the executor.

#![expect(clippy::unwrap_used, clippy::float_cmp, reason = "a test; the sums are exact")]

use hocket_executor::readiness::Readiness;
use hocket_executor::{Allocation, Cards, Engine, Error, Location, Sending, Who, Why};
use hocket_ids::{BufferId, Rank, Tag};
use hocket_program::{BufferKind, DType, Op, Program, RankBuilder, RankProgram, ReduceOp, Slice};
use hocket_schedule::{At, Due, Schedule, Sent, Turn, Turns};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

mod mesh;
use mesh::{TIMEOUT, each, mesh, mesh_of, mesh_on};

/// Ring all-reduce of `len` elements, `wire` between ranks.
fn ring(world: usize, len: usize, wire: DType) -> Program {
    let ranks = (0..world).map(|rank| ring_rank(world, rank, len, wire)).collect();
    Program { name: "test.ring".into(), ranks, ..Program::default() }
}

fn ring_rank(world: usize, rank: usize, len: usize, wire: DType) -> RankProgram {
    let mut b = RankBuilder::new();
    let buffer = b.buffer("bucket", DType::F32, len, BufferKind::Bound);
    let chunk = |at: usize| Slice::new(buffer, len * at / world, len * (at + 1) / world);
    let (next, before) = (Rank::from_index((rank + 1) % world), Rank::from_index((rank + world - 1) % world));
    for step in 0..2 * (world - 1) {
        let reduce = (step < world - 1).then_some(ReduceOp::Sum);
        let (out, into) = ((rank + 2 * world - step) % world, (rank + 2 * world - step - 1) % world);
        let tag = Tag::from_index(step);
        b.push(Op::Send { src: chunk(out), wire, peer: next, tag, count: None }, None);
        b.push(Op::Recv { dst: chunk(into), wire, reduce, peer: before, tag, count: None }, None);
    }
    b.finish()
}

/// The program, loaded with two sets of memory of `len` elements.
fn on_two_sets(engine: &Engine, program: &Program, len: usize) -> (Vec<Allocation>, u32) {
    let memory: Vec<_> = (0..2).map(|_| engine.allocate(len * 4).unwrap()).collect();
    let set = |at: usize| HashMap::from([(BufferId(0), memory[at].region().clone())]);
    let sets = [set(0), set(1)];
    let number = engine.load(program, &sets, &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
    (memory, number)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn check(hosts: &[&str], len: usize, wire: DType, launches: usize, threads: usize) {
    check_on(&mesh(hosts, threads), len, wire, launches);
}

fn check_on(engines: &[Arc<Engine>], len: usize, wire: DType, launches: usize) {
    let world = engines.len();
    let program = ring(world, len, wire);
    each(engines, |rank, engine| {
        let memory = engine.allocate(len * 4).unwrap();
        let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
        let number =
            engine.load(&program, &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
        for launch in 0..launches {
            let value = |at: usize, rank: usize| ((at * 7 + rank * 3 + launch) % 64) as f32;
            for (at, cell) in memory.region().as_bytes_mut().chunks_exact_mut(4).enumerate() {
                cell.copy_from_slice(&value(at, rank).to_le_bytes());
            }
            engine.launch(number).unwrap();
            assert!(engine.wait(number, TIMEOUT, || false).unwrap());
            let sums = floats(memory.region().as_bytes());
            for (at, &sum) in sums.iter().enumerate() {
                let expected: f32 = (0..world).map(|rank| value(at, rank)).sum();
                assert!(sum == expected, "rank {rank} launch {launch} element {at}: {sum} for {expected}");
            }
        }
    });
    each(engines, |_, engine| engine.close());
}

/// Gradients would be wrong between hosts.
#[test]
fn ring_over_tcp() {
    for (world, len) in [(2, 1), (2, 1000), (3, 7), (4, 300_001), (5, 64)] {
        let hosts: Vec<String> = (0..world).map(|rank| format!("h{rank}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        check(&hosts, len, DType::F32, 3, 1);
    }
}

/// Pieces that overtake each other on several connections would land in the wrong place, twice, or never.
#[test]
fn ring_over_several_connections() {
    for (streams, len, wire) in [(2, 1, DType::F32), (3, 700_001, DType::F32), (4, 600_000, DType::F16)] {
        check_on(&mesh_of(&["a", "b", "c"], 1, streams, None), len, wire, 3);
    }
}

/// Gradients on chosen cards would be wrong, or a message would wait for a card that it may not use.
#[test]
fn programs_on_cards_of_their_own() {
    const LEN: usize = 400_001;
    let engines = mesh_on(&["a", "b", "c"], 1, 2, &[1, 2], None);
    let program = ring(3, LEN, DType::F32);
    let chosen = [Cards::ALL, Cards::only(&[0]).unwrap(), Cards::only(&[1]).unwrap()];
    each(&engines, |rank, engine| {
        let load = |cards: Cards| {
            let memory = engine.allocate(LEN * 4).unwrap();
            let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
            let sending = Sending { priority: 0, cards };
            (memory, engine.load(&program, &[buffers], &HashMap::new(), sending, "bucket", None))
        };
        let loaded = chosen.map(load);
        for launch in 0..3 {
            for (memory, number) in &loaded {
                let value = |at: usize| ((at + rank * 5 + launch) % 32) as f32;
                let bytes = memory.region().as_bytes_mut().chunks_exact_mut(4);
                bytes.enumerate().for_each(|(at, own)| own.copy_from_slice(&value(at).to_le_bytes()));
                engine.launch(*number.as_ref().unwrap()).unwrap();
            }
            for (memory, number) in &loaded {
                engine.wait(*number.as_ref().unwrap(), TIMEOUT, || false).unwrap();
                let sum = |at: usize| (0..3).map(|rank| ((at + rank * 5 + launch) % 32) as f32).sum::<f32>();
                assert!(
                    floats(memory.region().as_bytes())
                        .into_iter()
                        .enumerate()
                        .all(|(at, got)| got == sum(at))
                );
            }
        }
        let refused = load(Cards::only(&[2]).unwrap()).1.unwrap_err().to_string();
        assert!(refused.contains("use card 2, and there are 2 on the way to"), "{refused}");
        engine.close();
    });
}

/// Gradients would be wrong within a host.
#[test]
fn ring_over_shared_memory() {
    for (world, len) in [(2, 1), (3, 7), (4, 300_001)] {
        check(&vec!["h"; world], len, DType::F32, 20, 1);
    }
}

/// Mixed hosts, several native threads and a codec at once.
#[test]
fn ring_over_both_with_threads_and_codec() {
    check(&["a", "a", "b", "b"], 100_003, DType::F16, 10, 3);
    check(&["a", "b", "a", "b"], 100_003, DType::F32, 10, 2);
}

/// The other ranks must name a rank that dies, not wait for it.
#[test]
fn a_dead_rank_is_named() {
    let engines = mesh(&["a", "a", "b"], 1);
    let program = ring(3, 999, DType::F32);
    let started = Instant::now();
    each(&engines, |rank, engine| {
        let memory = engine.allocate(999 * 4).unwrap();
        let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
        let number =
            engine.load(&program, &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
        if rank == 1 {
            engine.close();
            return;
        }
        let outcome = engine.launch(number).and_then(|()| engine.wait(number, TIMEOUT, || false));
        let Err(Error::Peer(failure)) = outcome else { panic!("rank {rank}: {outcome:?}") };
        assert_eq!((failure.who.rank, &*failure.who.host, failure.why), (Rank(1), "a", Why::Left));
    });
    assert!(started.elapsed() < TIMEOUT);
}

/// A wait that ends must name the rank that it waited for.
#[test]
fn a_time_out_names_the_rank() {
    let engines = mesh(&["a", "b"], 1);
    let program = ring(2, 10, DType::F32);
    each(&engines, |rank, engine| {
        let memory = engine.allocate(40).unwrap();
        let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
        let number =
            engine.load(&program, &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
        if rank == 0 {
            engine.launch(number).unwrap();
            let outcome = engine.wait(number, Duration::from_millis(200), || false);
            let Err(Error::Timeout { missing, location, .. }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(missing, [Who { rank: Rank(1), host: "b".into() }]);
            let Some(Location { program, launch: 0, op: Some(_) }) = location else { panic!("{location:?}") };
            assert_eq!(program, number);
        } else {
            thread::sleep(Duration::from_millis(400));
        }
    });
}

/// A mean would be applied before it is there, when training goes on with turns that wait for one another.
#[test]
fn launches_that_wait_for_others_are_counted() {
    const LEN: usize = 1001;
    let engines = mesh(&["a", "b"], 1);
    let program = ring(2, LEN, DType::F32);
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    each(&engines, |rank, engine| {
        let (_memory, number) = on_two_sets(engine, &program, LEN);
        if rank == 1 {
            for set in 0..2 {
                told.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
                engine.launch_on(number, set, 1.0, 0).unwrap();
            }
            assert!(engine.wait(number, TIMEOUT, || false).unwrap());
            return;
        }
        engine.launch_on(number, 0, 1.0, 0).unwrap();
        engine.launch_on(number, 1, 1.0, 0).unwrap();
        let late = Turn { first: 0, last: 0, sent: Sent::Ready, due: Due { iteration: 1, at: At::End } };
        let schedule = Schedule::new(1, vec![vec![late]]);
        let mut turns = Turns::new(schedule, &[0]).unwrap();
        // Two have ended, and the first is due.
        (0..2).for_each(|_| drop(turns.finish()));
        let readiness = Readiness::over(Arc::clone(&engines[rank]), &[(number, 1, 0)], turns, &[2]).unwrap();
        let is_here = || readiness.wait(0, TIMEOUT, &mut || true).unwrap();
        assert!(!is_here());
        tell.send(()).unwrap();
        assert!(readiness.wait(0, TIMEOUT, &mut || false).unwrap());
        readiness.applied(0).unwrap();
        assert!(!is_here());
        assert!(!engine.is_complete(number).unwrap());
        tell.send(()).unwrap();
        assert!(readiness.wait(0, TIMEOUT, &mut || false).unwrap());
        assert!(engine.wait(number, TIMEOUT, || false).unwrap());
    });
    each(&engines, |_, engine| engine.close());
}

/// Merged and late gradients would be summed into what is under way, overtake one another, or have the wrong mean.
#[test]
fn launches_alternate_between_sets_of_memory() {
    const LEN: usize = 70_001;
    for (hosts, threads) in [(["a", "b", "c"], 1), (["a", "a", "a"], 1), (["a", "a", "b"], 3)] {
        let engines = mesh(&hosts, threads);
        let program = ring(3, LEN, DType::F32);
        each(&engines, |rank, engine| {
            let (memory, number) = on_two_sets(engine, &program, LEN);
            let value = |at: usize, rank: usize, launch: usize| ((at * 7 + rank * 3 + launch) % 64) as f32;
            let fill = |launch: usize| {
                let cells = memory[launch % 2].region().as_bytes_mut().chunks_exact_mut(4).enumerate();
                cells.for_each(|(at, cell)| cell.copy_from_slice(&value(at, rank, launch).to_le_bytes()));
            };
            // A factor for every other launch: a power of two keeps the sums exact.
            let factor = |launch: usize| if launch % 4 < 2 { 1.0 } else { 0.25 };
            for launch in 0..8_usize {
                fill(launch);
                engine.launch_on(number, launch as u32 % 2, factor(launch), 0).unwrap();
                let Some(due) = launch.checked_sub(1) else { continue };
                assert!(engine.wait_for(number, due as u32 + 1, TIMEOUT, || false).unwrap());
                for (at, &sum) in floats(memory[due % 2].region().as_bytes()).iter().enumerate() {
                    let sums: f32 = (0..3).map(|rank| value(at, rank, due)).sum();
                    let expected = sums * factor(due) as f32;
                    assert!(sum == expected, "rank {rank} launch {due} element {at}: {sum} for {expected}");
                }
            }
            assert!(engine.wait(number, TIMEOUT, || false).unwrap());
        });
        each(&engines, |_, engine| engine.close());
    }
}

/// A turn that is reduced again after a loss would be of gradients that were divided already.
#[test]
fn a_factor_leaves_what_a_retained_program_is_given() {
    const LEN: usize = 200_001;
    for hosts in [["a", "b"], ["a", "a"]] {
        let engines = mesh(&hosts, 1);
        let program = ring(2, LEN, DType::F32).retained();
        each(&engines, |rank, engine| {
            let memory: Vec<_> = (0..4).map(|_| engine.allocate(LEN * 4).unwrap()).collect();
            let set = |at: usize| {
                let region = |at: usize| memory[at].region().clone();
                HashMap::from([(BufferId(0), region(at)), (BufferId(1), region(2 + at))])
            };
            let number = engine
                .load(&program, &[set(0), set(1)], &HashMap::new(), Sending::urgent(0), "bucket", None)
                .unwrap();
            let value = |at: usize, rank: usize, set: usize| ((at * 7 + rank * 3 + set) % 64) as f32;
            let given = |set: usize| (0..LEN).map(move |at| value(at, rank, set)).collect::<Vec<_>>();
            for (set, gradient) in memory.iter().take(2).enumerate() {
                let cells = gradient.region().as_bytes_mut().chunks_exact_mut(4);
                cells.zip(given(set)).for_each(|(cell, value)| cell.copy_from_slice(&value.to_le_bytes()));
            }
            for (launch, factor) in [0.5, 0.25, 1.0, 0.125].into_iter().enumerate() {
                let set = launch % 2;
                engine.launch_on(number, set as u32, factor, 0).unwrap();
                assert!(engine.wait(number, TIMEOUT, || false).unwrap());
                assert_eq!(
                    floats(memory[set].region().as_bytes()),
                    given(set),
                    "rank {rank} launch {launch}"
                );
                let expected: Vec<_> =
                    (0..LEN).map(|at| (value(at, 0, set) + value(at, 1, set)) * factor as f32).collect();
                assert_eq!(
                    floats(memory[2 + set].region().as_bytes()),
                    expected,
                    "rank {rank} launch {launch}"
                );
            }
        });
        each(&engines, |_, engine| engine.close());
    }
}

/// Gradients would be written while they travel, and nobody would know.
#[test]
fn a_set_that_is_in_use_is_not_launched() {
    let engines = mesh(&["a", "b"], 1);
    let program = ring(2, 10, DType::F32);
    let used =
        |outcome: Result<(), Error>| matches!(outcome, Err(Error::Usage(what)) if what.contains("runs"));
    each(&engines, |rank, engine| {
        let memory: Vec<_> = (0..2).map(|_| engine.allocate(40).unwrap()).collect();
        let set = |at: usize| HashMap::from([(BufferId(0), memory[at].region().clone())]);
        let overlapping =
            engine.load(&program, &[set(0), set(0)], &HashMap::new(), Sending::urgent(0), "bucket", None);
        assert!(
            matches!(overlapping, Err(Error::Program { what, .. }) if what.contains("0 and 1 of its memory"))
        );
        let number = engine
            .load(&program, &[set(0), set(1)], &HashMap::new(), Sending::urgent(0), "bucket", None)
            .unwrap();
        if rank == 1 {
            thread::sleep(Duration::from_millis(100));
        }
        engine.launch_on(number, 0, 1.0, 0).unwrap();
        engine.launch_on(number, 1, 1.0, 0).unwrap();
        if rank == 0 {
            assert!(used(engine.launch_on(number, 0, 1.0, 0)) && used(engine.launch_on(number, 1, 1.0, 0)));
            assert!(
                matches!(engine.launch_on(number, 2, 1.0, 0), Err(Error::Usage(what)) if what.contains("no set 2"))
            );
        }
        assert!(engine.wait_for(number, 2, TIMEOUT, || false).unwrap());
    });
}

/// A rank that dies between two launches that were asked for must be named, too.
#[test]
fn a_rank_that_is_gone_when_a_waiting_launch_starts_is_named() {
    let engines = mesh(&["a", "b"], 1);
    let program = ring(2, 10, DType::F32);
    each(&engines, |rank, engine| {
        let memory: Vec<_> = (0..2).map(|_| engine.allocate(40).unwrap()).collect();
        let set = |at: usize| HashMap::from([(BufferId(0), memory[at].region().clone())]);
        let number = engine
            .load(&program, &[set(0), set(1)], &HashMap::new(), Sending::urgent(0), "bucket", None)
            .unwrap();
        if rank == 1 {
            // Rank 0 has asked for both by then, and only the first becomes complete.
            thread::sleep(Duration::from_millis(200));
            engine.launch_on(number, 0, 1.0, 0).unwrap();
            assert!(engine.wait(number, TIMEOUT, || false).unwrap());
            return engine.close();
        }
        engine.launch_on(number, 0, 1.0, 0).unwrap();
        engine.launch_on(number, 1, 1.0, 0).unwrap();
        let outcome = engine.wait_for(number, 2, TIMEOUT, || false);
        let Err(Error::Peer(failure)) = outcome else { panic!("{outcome:?}") };
        assert_eq!((failure.who.rank, failure.why), (Rank(1), Why::Left));
    });
}
