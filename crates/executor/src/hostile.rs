//! Millions of frames from a peer that knows the secret and is malicious or broken: each is refused or has no effect.
//!
//! Frames go through a socket, the receiver and the checks against the programs, as in a job. A seed determines all of
//! them.
//!
//! ```console
//! $ cargo test --release -p hocket-executor hostile -- --ignored --nocapture
//! ```

use crate::arrival::{Arrival, add};
use crate::compile::compile;
use crate::core::{Core, Lasting};
use crate::early::Go;
use crate::failure::Who;
use crate::launch::{Begun, Launch};
use crate::loaded::{Loaded, Sending, Set};
use crate::peer::{Peer, Peers};
use crate::peer_table::PeerTable;
use crate::relays::Unlinked;
use hocket_hostile::frames::{Random, frame};
use hocket_ids::{Member, Rank, Tag};
use hocket_program::{BufferKind, DType, Op, Program, RankBuilder, ReduceOp, Slice};
use hocket_wire::bell::Bell;
use hocket_wire::bell::reserved_bytes;
use hocket_wire::connection::{Framed, Receiver, Stream};
use hocket_wire::identity::Address;
use hocket_wire::link::Sink;
use hocket_wire::memory::{Allocation, Arena};
use hocket_wire::poll::Waker;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Tag of the open messages.
const MESSAGE_TAG: u64 = 5;
/// Elements of each program's buffer.
const ELEMENTS: usize = 600;
/// Frames per attacked rank, before a fresh one takes its place.
const FRAMES_OF_A_WORLD: u64 = 20_000;
/// Limit of the process's growth during the attack.
const GROWTH_BYTES_MAX: usize = 256 << 20;
/// Initial contents of a program's memory.
const UNTOUCHED: u8 = 0x5a;

/// Rank 0 of three, attacked by rank 1: program 0 runs, program 1 is loaded, others are not; messages are open.
struct World {
    core: Core,
    /// Memory of program 1, which no frame may touch.
    idle: Allocation,
    _running: Allocation,
    _message: Allocation,
}

impl World {
    fn new() -> Self {
        let arena = Arena::new(reserved_bytes(1)).unwrap();
        let who = |rank| Who { rank: Rank(rank), host: "h".into() };
        let bell = Arc::new(Bell::new(arena.mapping(), Waker::new().unwrap()));
        let lasting = Lasting { workers: 0, bell: Arc::clone(&bell), recorder: None, elastic: false };
        let core = Core::new(who(0), 1, lasting);
        let address = Address { tcp: vec![([127, 0, 0, 1], 1).into()], host: "h".into(), streams: 2 };
        let members = (0..3).map(|member| (Member(member), address.clone())).collect();
        let table = PeerTable::before(Member(0)).next(members).unwrap();
        let link = || Arc::new(Framed::new(2, 1, false, Arc::clone(&bell)));
        let peer = |rank| Some(Peer { who: who(rank), link: link(), life: None, exit_code: OnceLock::new() });
        assert!(
            core.peers
                .set(Peers::new(table, vec![None, peer(1), peer(2)], Unlinked::default()).unwrap())
                .is_ok()
        );
        let mut memory = Vec::new();
        for _ in 0..2 {
            let allocation = arena.allocate(ELEMENTS * 4).unwrap();
            allocation.region().as_bytes_mut().fill(UNTOUCHED);
            let instructions =
                compile(&program(), Rank(0), &[Some(allocation.region().clone())], &[]).unwrap();
            let sets = vec![Set { instructions, bound: Vec::new(), scaled: Vec::new() }];
            add(&core, None, |number| {
                Loaded::new(number, "bucket".into(), Sending::urgent(0), sets, 0, Vec::new())
            })
            .unwrap();
            memory.push(allocation);
        }
        let running = core.programs.get(0).unwrap();
        assert_eq!(
            running.launch(Launch { set: 0, factor: 1.0, due: 0, traced: false, asked_ns: 0 }),
            Begun::Now
        );
        core.start(&running, Go::Whole);
        let region = arena.allocate(400).unwrap();
        for from in [Some(Rank(1)), None, Some(Rank(2))] {
            core.receive_message(from, MESSAGE_TAG, region.region().clone(), false);
        }
        for to in [1, 2] {
            core.send_message(Rank(to), MESSAGE_TAG, region.region().clone(), false);
        }
        let idle = memory.pop().unwrap();
        Self { core, idle, _running: memory.pop().unwrap(), _message: region }
    }
}

/// Rank 0 receives from rank 1 (stored, converted, reduced, empty) and from rank 2, sends to both, and waits between.
fn program() -> Program {
    let mut ranks = Vec::new();
    for own in 0..3u32 {
        let mut b = RankBuilder::new();
        let buffer = b.buffer("bucket", DType::F32, ELEMENTS, BufferKind::Bound);
        let mut tag = 0;
        for other in [1, 2] {
            for (wire, reduce, len) in [
                (DType::F32, None, 100),
                (DType::F16, None, 50),
                (DType::F16, Some(ReduceOp::Sum), 50),
                (DType::F32, None, 0),
                (DType::F32, Some(ReduceOp::Sum), 100),
            ] {
                tag += 2;
                let start = if other == 1 { 0 } else { 300 };
                let (slice, count) = (Slice::new(buffer, start, start + len), None);
                let (there, back) = (Tag::from_index(tag), Tag::from_index(tag + 1));
                let peer = if own == 0 { Rank(other) } else { Rank(0) };
                if own == 0 {
                    b.push(Op::Recv { dst: slice, wire, reduce, peer, tag: there, count }, None);
                    b.push(Op::Send { src: slice, wire, peer, tag: back, count }, None);
                } else if own == other {
                    b.push(Op::Send { src: slice, wire, peer, tag: there, count }, None);
                    b.push(Op::Recv { dst: slice, wire, reduce: None, peer, tag: back, count }, None);
                }
            }
        }
        ranks.push(b.finish());
    }
    Program { name: "hostile".into(), ranks, ..Program::default() }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Sends this many frames; returns how many were refused.
fn attack(frames: u64, seed: u64, progress: impl Fn(u64)) -> u64 {
    let mut random = Random::new(seed);
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut stream = Stream::Unix(ours.try_clone().unwrap());
    let mut rest = ours;
    let (mut refused, mut bytes, mut drained) = (0, Vec::new(), vec![0; 1 << 16]);
    let mut world = World::new();
    let mut grown_from = None;
    let checksums = |at: u64| at.is_multiple_of(3);
    let mut receiver = Receiver::new(false, 1);
    for at in 0..frames {
        frame(&mut random, MESSAGE_TAG, &mut bytes);
        theirs.write_all(&bytes).unwrap();
        let peer = world.core.peer(Rank(1));
        let mut arrival = Arrival::new(&world.core, peer);
        let outcome = receiver.receive(&mut stream, &mut arrival, 1 << 20);
        if receiver.has_left() {
            arrival.left();
        }
        if let Ok(more) = outcome {
            assert!(!more, "frame {at} of seed {seed} is never done");
        } else {
            refused += 1;
            while rest.read(&mut drained).is_ok_and(|have| have > 0) {}
            receiver = Receiver::new(checksums(at), 1);
        }
        if (at + 1).is_multiple_of(FRAMES_OF_A_WORLD) {
            let idle = world.idle.region().as_bytes();
            assert!(
                idle.iter().all(|&byte| byte == UNTOUCHED),
                "before frame {at} of seed {seed}: landed unasked"
            );
            receiver = Receiver::new(checksums(at), 1);
            while rest.read(&mut drained).is_ok_and(|have| have > 0) {}
            world = World::new();
            let grown = resident_bytes();
            let before = *grown_from.get_or_insert(grown);
            assert!(
                grown < before + GROWTH_BYTES_MAX,
                "{before} to {grown} bytes after frame {at} of seed {seed}"
            );
            progress(at + 1);
        }
    }
    refused
}

/// A broken or hostile rank could crash the others, write where no receive was posted, or fill their memory.
#[test]
fn hostile_frames_do_no_harm() {
    let refused = attack(60_000, 0x9e37_79b9_7f4a_7c15, |_| ());
    assert!(refused > 20_000, "only {refused} were refused: most frames were harmless");
}

/// The same, ten million times.
#[test]
#[ignore = "a minute in release mode"]
fn ten_million_hostile_frames_do_no_harm() {
    let (started, frames) = (Instant::now(), 10_000_000);
    let refused = attack(frames, 0x2545_f491_4f6c_dd1d, |done| {
        if done.is_multiple_of(1_000_000) {
            println!("{done} of {frames} frames, {:.0?}", started.elapsed().max(Duration::from_secs(1)));
        }
    });
    println!("{refused} of {frames} were refused, the others changed nothing that they must not");
    assert!(refused > frames / 3);
}
