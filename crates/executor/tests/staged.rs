//! All-reduces of memory that the executor does not have: copies between it and its twin are executed here, late.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_executor::{Engine, Error, Region, Sending, Way};
use hocket_ids::{BufferId, Member, Rank};
use hocket_program::passes::{Options, compile};
use hocket_program::{
    Algorithm, BufferKind, Collective, DType, Op, Program, RankBuilder, ReduceOp, Slice, Space,
};
use hocket_wire::life::Lifetime;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

#[allow(dead_code, reason = "other tests use more of it")]
mod mesh;
use mesh::{TIMEOUT, each, mesh, mesh_of};

const LEN: usize = 100_003;
const LOOK: Duration = Duration::from_millis(20);

fn all_reduce(algorithm: &Algorithm) -> Program {
    let group: Vec<Rank> = (0..2).map(Rank::from_index).collect();
    let rank = || {
        let mut builder = RankBuilder::new();
        let bucket = builder.buffer("bucket", DType::F32, LEN, BufferKind::Bound);
        let (what, slice) = (Collective::AllReduce, Slice::new(bucket, 0, LEN));
        let (group, algorithm) = (group.clone(), Some(algorithm.clone()));
        builder.push(Op::Collective { what, slice, group, op: ReduceOp::Sum, scale: 1.0, algorithm }, None);
        builder.finish()
    };
    let logical = Program { ranks: group.iter().map(|_| rank()).collect(), ..Program::default() };
    compile(&logical, &Options { order: None, chunk_bytes: 40_000, codec: None }).unwrap()
}

fn bytes_of(value: impl Fn(usize) -> f32) -> Vec<u8> {
    (0..LEN).flat_map(|at| value(at).to_le_bytes()).collect()
}

/// Executes copies one way, of memory `device` whose twin is `host`, until `ended`.
fn serve(engine: &Engine, way: Way, host: &Region, device: &Mutex<Vec<u8>>, ended: &AtomicBool) {
    while !ended.load(Ordering::Acquire) {
        let Some(staged) = engine.next_staged(way, LOOK) else { continue };
        thread::sleep(Duration::from_micros(300));
        let start = (staged.host.arena_offset() - host.arena_offset()) as usize;
        let range = start..start + staged.host.len();
        let mut device = device.lock().unwrap();
        match way {
            Way::Down => staged.host.as_bytes_mut().copy_from_slice(&device[range]),
            Way::Up => device[range].copy_from_slice(staged.host.as_bytes()),
        }
        drop(device);
        engine.complete_staged(staged.program, staged.op).unwrap();
    }
}

/// An op would run on what the twin had before, or the device would be given what is no sum yet.
#[test]
fn a_device_is_given_the_sums_of_what_it_had() {
    for (hosts, algorithm) in [(["a", "b"], Algorithm::Ring), (["a", "a"], Algorithm::InPlace)] {
        let engines = mesh(&hosts, 2);
        let program = all_reduce(&algorithm).staged(50_000, &[]);
        each(&engines, |rank, engine| {
            let memory = engine.allocate(LEN * 4).unwrap();
            let host = memory.region();
            let set = HashMap::from([(BufferId(1), host.clone())]);
            let number =
                engine.load(&program, &[set], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
            let (device, ended) = (Mutex::new(Vec::new()), AtomicBool::new(false));
            let value = |at: usize, rank: usize, launch: usize| ((at * 7 + rank * 3 + launch) % 64) as f32;
            thread::scope(|scope| {
                for way in [Way::Down, Way::Up] {
                    let (device, ended) = (&device, &ended);
                    scope.spawn(move || serve(engine, way, host, device, ended));
                }
                for (launch, factor) in [1.0, 0.5, 0.25].into_iter().enumerate() {
                    *device.lock().unwrap() = bytes_of(|at| value(at, rank, launch));
                    host.as_bytes_mut().fill(255);
                    engine.launch_on(number, 0, factor, 0).unwrap();
                    assert!(engine.wait(number, TIMEOUT, || false).unwrap());
                    let sum = |at| (value(at, 0, launch) + value(at, 1, launch)) * factor as f32;
                    assert!(*device.lock().unwrap() == bytes_of(sum), "rank {rank} launch {launch}");
                }
                ended.store(true, Ordering::Release);
            });
        });
        each(&engines, |_, engine| engine.close());
    }
}

/// A wait for a device that does not answer would name nobody, or a peer that has done its part.
#[test]
fn a_device_that_is_stuck_is_named() {
    let engines = mesh(&["a", "b"], 1);
    let program = all_reduce(&Algorithm::Ring).staged(50_000, &[]);
    each(&engines, |_, engine| {
        let memory = engine.allocate(LEN * 4).unwrap();
        let set = HashMap::from([(BufferId(1), memory.region().clone())]);
        let number =
            engine.load(&program, &[set], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap();
        engine.launch(number).unwrap();
        let outcome = engine.wait(number, Duration::from_millis(200), || false);
        let Err(Error::Timeout { what, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(what.contains("a copy from the device"), "{what}");
    });
    each(&engines, |_, engine| engine.close());
}

/// A copy that runs on into the next epoch would overwrite what that restores, and be reported to an engine that has no such program.
#[test]
fn an_epoch_ends_when_copies_under_way_have_ended() {
    let engines = mesh_of(&["a", "b"], 1, 1, Some(Lifetime::Engine));
    let program = all_reduce(&Algorithm::Ring).staged(50_000, &[]);
    let members = [Member(0), Member(1)];
    let all = Barrier::new(2);
    each(&engines, |_, engine| {
        let memory = engine.allocate(LEN * 4).unwrap();
        let load = || {
            let set = HashMap::from([(BufferId(1), memory.region().clone())]);
            engine.load(&program, &[set], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap()
        };
        engine.launch(load()).unwrap();
        let copy = engine.next_staged(Way::Down, TIMEOUT).unwrap();
        let refused = engine.quiesce("a loss", LOOK).unwrap_err();
        assert!(matches!(&refused, Error::Timeout { what, .. } if what.contains("still run")), "{refused}");
        assert!(engine.next_staged(Way::Down, LOOK).is_none(), "a copy of an epoch that ends has begun");
        let completed = engine.complete_staged(copy.program, copy.op);
        assert!(matches!(completed, Err(Error::Interrupted { .. })), "{completed:?}");
        engine.quiesce("a loss", TIMEOUT).unwrap();
        all.wait();
        engine.resume(2, &members, &[], TIMEOUT).unwrap();
        engine.launch(load()).unwrap();
        let first = engine.next_staged(Way::Down, TIMEOUT).unwrap();
        engine.complete_staged(first.program, first.op).unwrap();
        assert_ne!(first.program, copy.program);
    });
    each(&engines, |_, engine| engine.close());
}

/// An executor that has no such memory would read whatever lies at its address.
#[test]
fn work_on_a_device_is_refused() {
    let engines = mesh(&["a"], 1);
    let mut builder = RankBuilder::new();
    let device = builder.buffer_in(Space::Device, "device", DType::F32, 8, BufferKind::Bound);
    let host = builder.buffer("host", DType::F32, 8, BufferKind::Bound);
    let (src, dst) = (Slice::new(device, 0, 4), Slice::new(host, 4, 8));
    builder.push(Op::Copy { src, dst }, None);
    let program = Program { ranks: vec![builder.finish()], ..Program::default() };
    each(&engines, |_, engine| {
        let memory = engine.allocate(32).unwrap();
        let set = HashMap::from([(BufferId(1), memory.region().clone())]);
        let outcome = engine.load(&program, &[set], &HashMap::new(), Sending::urgent(0), "bucket", None);
        assert!(
            matches!(&outcome, Err(Error::Program { what, .. }) if what.contains("op 0 of rank 0 works on device")),
            "{outcome:?}"
        );
    });
    each(&engines, |_, engine| engine.close());
}
