//! Ranks are lost at every edge of every op, and the others go on with right sums.

#![expect(clippy::float_cmp, reason = "the sums are exact")]

use super::*;
use crate::loaded::Sending;
use crate::mesh::{TIMEOUT, each, mesh, mesh_of};
use hocket_ids::{BufferId, Tag};
use hocket_program::{Algorithm, BufferKind, Collective, DType, Op, Program, RankBuilder, ReduceOp, Slice};
use hocket_wire::life::Lifetime;
use hocket_wire::memory::Allocation;
use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;

mod steps;

const LEN: usize = 100_003;

/// A ring of messages.
fn ring(world: usize) -> Program {
    ring_of(world, LEN)
}

fn ring_of(world: usize, len: usize) -> Program {
    let rank = |rank: usize| {
        let mut b = RankBuilder::new();
        let buffer = b.buffer("bucket", DType::F32, len, BufferKind::Bound);
        let chunk = |at: usize| Slice::new(buffer, len * at / world, len * (at + 1) / world);
        let at = |steps: usize| Rank::from_index((rank + steps) % world);
        for step in 0..2 * (world - 1) {
            let reduce = (step < world - 1).then_some(ReduceOp::Sum);
            let (out, into) = ((rank + 2 * world - step) % world, (rank + 2 * world - step - 1) % world);
            let (wire, tag, count) = (DType::F32, Tag::from_index(step), None);
            b.push(Op::Send { src: chunk(out), wire, peer: at(1), tag, count }, None);
            b.push(Op::Recv { dst: chunk(into), wire, reduce, peer: at(world - 1), tag, count }, None);
        }
        b.finish()
    };
    Program { name: "ring".into(), ranks: (0..world).map(rank).collect(), ..Program::default() }
}

/// Straight in all ranks' buckets.
fn in_place(world: usize) -> Program {
    in_place_of(world, LEN)
}

fn in_place_of(world: usize, len: usize) -> Program {
    let rank = |_| {
        let mut b = RankBuilder::new();
        let buffer = b.buffer("bucket", DType::F32, len, BufferKind::Bound);
        let op = Op::Collective {
            what: Collective::AllReduce,
            slice: Slice::new(buffer, 0, len),
            group: (0..world).map(Rank::from_index).collect(),
            op: ReduceOp::Sum,
            scale: 1.0,
            algorithm: Some(Algorithm::InPlace),
        };
        b.push(op, None);
        b.finish()
    };
    Program { name: "in_place".into(), ranks: (0..world).map(rank).collect(), ..Program::default() }
}

fn value(at: usize, member: Member, launch: usize) -> f32 {
    ((at * 7 + member.0 as usize * 3 + launch) % 64) as f32
}

fn fill(memory: &Allocation, member: Member, launch: usize) {
    for (at, cell) in memory.region().as_bytes_mut()[..LEN * 4].chunks_exact_mut(4).enumerate() {
        cell.copy_from_slice(&value(at, member, launch).to_le_bytes());
    }
}

/// Loads the program of this world and launches it; every member's sum must be there after each launch.
fn reduce(
    engine: &Engine,
    memory: &Allocation,
    program: fn(usize) -> Program,
    launches: usize,
) -> Result<(), Error> {
    let members = engine.members();
    let own = members[engine.rank().index()];
    let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
    let program = program(members.len());
    let number = engine.load(&program, &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None)?;
    for launch in 0..launches {
        fill(memory, own, launch);
        engine.launch(number)?;
        assert!(engine.wait(number, TIMEOUT, || false)?);
        for (at, cell) in memory.region().as_bytes()[..LEN * 4].chunks_exact(4).enumerate() {
            let sum = f32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]]);
            let expected: f32 = members.iter().map(|member| value(at, *member, launch)).sum();
            assert!(sum == expected, "member {own} launch {launch} element {at}: {sum} for {expected}");
        }
    }
    Ok(())
}

/// Whether the victim died: it does at that edge of its ops, if it has as many.
fn lose(hosts: &[&str; 3], threads: usize, program: fn(usize) -> Program, victim: usize, edge: u32) -> bool {
    let engines = mesh_of(hosts, threads, 2, Some(Lifetime::Engine));
    engines[victim].core().death.after(edge);
    let survivors = Barrier::new(2);
    let first: Vec<Member> = (0..3).filter(|rank| *rank != victim as u64).map(Member).collect();
    each(&engines, |rank, engine| {
        let memory = engine.allocate(LEN * 4).unwrap();
        let outcome = reduce(engine, &memory, program, 2);
        let died = engines[victim].core().death.has_come();
        if rank == victim {
            assert!(died || outcome.is_ok(), "{outcome:?}");
            engine.close();
            return;
        }
        match outcome {
            Ok(()) => {}
            Err(Error::Interrupted { lost, .. }) => {
                assert!(lost.iter().any(|failure| failure.who.rank.index() == victim), "{lost:?}");
            }
            Err(error) => panic!("rank {rank}: {error}"),
        }
        engine.quiesce("a rank is lost", TIMEOUT).unwrap();
        survivors.wait();
        engine.resume(2, &first, &[], TIMEOUT).unwrap();
        assert_eq!((engine.epoch(), engine.members()), (2, first.clone()));
        reduce(engine, &memory, program, 3).unwrap();
    });
    let died = engines[victim].core().death.has_come();
    each(&engines, |_, engine| engine.close());
    died
}

fn lose_at_each_edge(hosts: [&str; 3], threads: usize, program: fn(usize) -> Program) {
    // Side by side: ranks mostly wait for their listeners to close.
    thread::scope(|scope| {
        for victim in 0..3 {
            scope.spawn(move || {
                let edges =
                    (0..1000).take_while(|&edge| lose(&hosts, threads, program, victim, edge)).count();
                assert!(edges >= 2, "only {edges} edges");
            });
        }
    });
}

/// A loss between hosts would end the job, or leave a wrong sum.
#[test]
fn a_loss_at_each_edge_of_a_ring_over_tcp() {
    lose_at_each_edge(["a", "b", "c"], 1, ring);
}

/// A loss within a host would.
#[test]
fn a_loss_at_each_edge_of_a_ring_over_shared_memory() {
    lose_at_each_edge(["a", "a", "a"], 1, ring);
}

/// A loss while all write into all buckets would.
#[test]
fn a_loss_at_each_edge_of_a_reduction_in_place() {
    lose_at_each_edge(["a", "a", "a"], 2, in_place);
}

/// A loss with both kinds of links, and several threads that compute.
#[test]
fn a_loss_at_each_edge_of_a_ring_over_both() {
    lose_at_each_edge(["a", "a", "b"], 3, ring);
}

/// Changes without a loss, down to a single member, with ranks in another order each time.
#[test]
fn epochs_follow_one_another_down_to_one_member() {
    for hosts in [["a", "b", "c"], ["a", "a", "a"], ["a", "a", "b"]] {
        let engines = mesh_of(&hosts, 2, 1, Some(Lifetime::Engine));
        let all = Barrier::new(3);
        each(&engines, |rank, engine| {
            let memory = engine.allocate(LEN * 4).unwrap();
            reduce(engine, &memory, ring, 1).unwrap();
            for (epoch, members) in [(2, vec![2, 1, 0]), (5, vec![0, 2]), (6, vec![2])] {
                let stays = members.contains(&(rank as u64));
                let members: Vec<Member> = members.into_iter().map(Member).collect();
                engine.quiesce("a change", TIMEOUT).unwrap();
                all.wait();
                if stays {
                    engine.resume(epoch, &members, &[], TIMEOUT).unwrap();
                    assert_eq!((engine.epoch(), engine.members()), (epoch, members));
                    reduce(engine, &memory, ring, 2).unwrap();
                } else {
                    engine.close();
                }
            }
        });
    }
}

/// A thread that writes after its rank's report would write into restored gradients, of whichever rank.
#[test]
fn nothing_is_written_once_all_have_quiesced() {
    let programs: [fn(usize) -> Program; 2] = [ring, in_place];
    for program in programs {
        for delay_us in (0..1000).step_by(50) {
            let hosts = if delay_us % 100 == 0 { ["a", "a", "a"] } else { ["a", "b", "c"] };
            if hosts[1] == "b" && program(3).name == "in_place" {
                continue;
            }
            let engines = mesh_of(&hosts, 2, 1, Some(Lifetime::Engine));
            let all = Barrier::new(3);
            each(&engines, |rank, engine| {
                let memory = engine.allocate(LEN * 4).unwrap();
                let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
                let number = engine
                    .load(&program(3), &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None)
                    .unwrap();
                fill(&memory, Member(rank as u64), 0);
                all.wait();
                engine.launch(number).unwrap();
                thread::sleep(Duration::from_micros(delay_us));
                engine.quiesce("the test", TIMEOUT).unwrap();
                all.wait();
                let before = memory.region().as_bytes().to_vec();
                thread::sleep(Duration::from_millis(2));
                all.wait();
                assert!(memory.region().as_bytes() == before, "rank {rank} after {delay_us} µs");
                let all_members: Vec<_> = (0..3).map(Member).collect();
                engine.resume(2, &all_members, &[], TIMEOUT).unwrap();
                reduce(engine, &memory, program, 1).unwrap();
            });
            each(&engines, |_, engine| engine.close());
        }
    }
}

/// A stopped neighbour that goes on would write an old sum into a new one.
#[test]
fn a_neighbour_that_lives_must_end_before_the_next_epoch() {
    let engines = mesh_of(&["a", "a"], 1, 1, Some(Lifetime::Engine));
    let alone = [Member(0)];
    let refused = engines[0].resume(2, &alone, &[], Duration::from_millis(20)).unwrap_err();
    assert!(
        matches!(&refused, Error::System(what) if what.contains("rank 1 on a may still write")),
        "{refused}"
    );
    assert_eq!(engines[0].epoch(), 1);
    engines[1].close();
    engines[0].resume(2, &alone, &[], TIMEOUT).unwrap();
    assert_eq!(engines[0].epoch(), 2);
}

/// A neighbour that leaves in order would be killed before it has saved what it wants to keep.
#[test]
fn a_neighbour_that_has_left_may_live_on() {
    let engines = mesh_of(&["a", "a", "a"], 1, 1, Some(Lifetime::Engine));
    let (stay, left) = ([Member(0), Member(1)], [Member(2)]);
    each(&engines[..2], |_, engine| {
        let memory = engine.allocate(LEN * 4).unwrap();
        engine.resume(2, &stay, &left, Duration::from_millis(20)).unwrap();
        reduce(engine, &memory, in_place, 2).unwrap();
    });
    assert_eq!(engines[2].epoch(), 1);
    each(&engines, |_, engine| engine.close());
}

/// Whoever has begun the next epoch sends nothing of this one any more: others would wait for it until their deadline.
#[test]
fn a_wait_ends_when_another_member_has_begun_the_next_epoch() {
    for (hosts, program) in [(["a", "b", "c"], ring as fn(usize) -> Program), (["a", "a", "a"], in_place)] {
        let engines = mesh_of(&hosts, 1, 1, Some(Lifetime::Engine));
        let [slow, fast, _leaver] = &engines[..] else { unreachable!("three ranks") };
        let (stay, left) = ([Member(0), Member(1)], [Member(2)]);
        let memory = slow.allocate(LEN * 4).unwrap();
        thread::scope(|scope| {
            let wait = scope.spawn(|| reduce(slow, &memory, program, 1));
            fast.resume(2, &stay, &left, TIMEOUT).unwrap();
            let outcome = wait.join().unwrap();
            assert!(
                matches!(&outcome, Err(Error::Interrupted { what, lost }) if what.contains("has begun epoch 2") && lost.is_empty()),
                "{outcome:?}"
            );
        });
        slow.resume(2, &stay, &left, TIMEOUT).unwrap();
        each(&engines[..2], |_, engine| {
            let memory = engine.allocate(LEN * 4).unwrap();
            reduce(engine, &memory, program, 2).unwrap();
        });
        each(&engines, |_, engine| engine.close());
    }
}

/// A member that is lost before the epoch that counts on it begins would be waited for.
#[test]
fn a_loss_before_an_epoch_interrupts_it() {
    for hosts in [["a", "b"], ["a", "a"]] {
        let engines = mesh_of(&hosts, 1, 1, Some(Lifetime::Engine));
        for engine in &engines {
            engine.quiesce("a change", TIMEOUT).unwrap();
        }
        let [survivor, victim] = &engines[..] else { unreachable!("two ranks") };
        victim.core().death.after(0);
        assert!(victim.core().dies());
        victim.close();
        let deadline = Instant::now() + TIMEOUT;
        while !survivor.lost().iter().any(|(member, _)| *member == Member(1)) {
            assert!(Instant::now() < deadline, "the loss is not noticed");
            thread::sleep(Duration::from_millis(1));
        }
        // The decision came before the loss.
        let members = [Member(1), Member(0)];
        let Err(Error::Interrupted { lost, .. }) = survivor.resume(2, &members, &[], TIMEOUT) else {
            panic!("nobody tells of the loss")
        };
        assert_eq!(lost[0].who, Who { rank: Rank(0), host: hosts[1].into() });
        assert_eq!((survivor.epoch(), survivor.rank()), (2, Rank(1)));
        survivor.resume(3, &[Member(0)], &[], TIMEOUT).unwrap();
        assert_eq!((survivor.rank(), survivor.lost().len()), (Rank(0), 0));
    }
}

/// Waits of all kinds would last until their deadlines.
#[test]
fn waits_and_callbacks_end_with_the_epoch() {
    let engines = mesh_of(&["a", "b"], 1, 1, Some(Lifetime::Engine));
    let engine = &engines[0];
    let memory = engine.allocate(LEN * 4).unwrap();
    let buffers = HashMap::from([(BufferId(0), memory.region().clone())]);
    let number =
        engine.load(&ring(2), &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
    engine.launch(number).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    engine.on_complete(number, TIMEOUT, move |outcome| tell.send(outcome).unwrap()).unwrap();
    let message = engine.receive(Some(Rank(1)), 1, memory.region().sub(0, 8), false).unwrap();
    let interrupted = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Interrupted { what, lost }) if what.contains("the operator") && lost.is_empty());
    thread::scope(|scope| {
        let wait = scope.spawn(|| engine.wait(number, TIMEOUT, || false).map(drop));
        let message = scope.spawn(move || engine.wait_message(message, TIMEOUT, || false).map(drop));
        thread::sleep(Duration::from_millis(20));
        engine.interrupt("the operator wants it").unwrap();
        assert!(interrupted(wait.join().unwrap()) && interrupted(message.join().unwrap()));
    });
    assert!(interrupted(told.recv_timeout(TIMEOUT).unwrap()));
    assert!(interrupted(engine.launch(number)));
    engine.resume(2, &[Member(0)], &[], TIMEOUT).unwrap();
    assert!(matches!(engine.launch(number), Err(Error::Usage(what)) if what.contains("no program")));
    // The one that was shut out loses its connections, and nothing else.
    let deadline = Instant::now() + TIMEOUT;
    while engines[1].lost().is_empty() {
        assert!(Instant::now() < deadline, "the one that was shut out is not told");
        thread::sleep(Duration::from_millis(1));
    }
}

/// An operator's mistake would end a job that is not elastic.
#[test]
fn a_job_that_is_not_elastic_has_one_epoch() {
    let engines = mesh(&["a", "b"], 1);
    assert!(matches!(engines[0].interrupt("no"), Err(Error::Usage(_))));
    assert!(matches!(engines[0].resume(2, &[Member(0)], &[], TIMEOUT), Err(Error::Usage(_))));
    assert!(engines[0].failure().is_none());
}
