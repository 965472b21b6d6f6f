//! Callbacks on the end of launches: called once, with the launch's outcome, however the job ends.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_executor::{Engine, Error, Region, Sending, Why};
use hocket_ids::{BufferId, Rank, Tag};
use hocket_program::{BufferKind, DType, Op, Program, RankBuilder, RankProgram, ReduceOp, Slice};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

mod mesh;
use mesh::{TIMEOUT, each, mesh};

type Outcome = Result<(), Error>;

/// Rank 1 adds 2 f32 of rank 0 to its own.
fn add() -> Program {
    let rank = |rank: usize| -> RankProgram {
        let mut b = RankBuilder::new();
        let buffer = b.buffer("bucket", DType::F32, 2, BufferKind::Bound);
        let (slice, wire, tag, count) = (Slice::new(buffer, 0, 2), DType::F32, Tag::from_index(0), None);
        let op = match rank {
            0 => Op::Send { src: slice, wire, peer: Rank(1), tag, count },
            _ => Op::Recv { dst: slice, wire, reduce: Some(ReduceOp::Sum), peer: Rank(0), tag, count },
        };
        b.push(op, None);
        b.finish()
    };
    Program { name: "test.add".into(), ranks: (0..2).map(rank).collect(), ..Program::default() }
}

fn load(engine: &Engine) -> (u32, Region) {
    let region = engine.allocate(8).unwrap().region().clone();
    let buffers = HashMap::from([(BufferId(0), region.clone())]);
    (engine.load(&add(), &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap(), region)
}

/// Two ranks on two hosts; rank 1's program is launched, rank 0's is not.
fn waiting() -> (Vec<Arc<Engine>>, u32, mpsc::Receiver<Outcome>) {
    let engines = mesh(&["a", "b"], 1);
    let (number, _) = load(&engines[0]);
    load(&engines[1]);
    engines[1].launch(number).unwrap();
    let (tell, told) = mpsc::channel();
    engines[1].on_complete(number, TIMEOUT, move |outcome| tell.send(outcome).unwrap()).unwrap();
    (engines, number, told)
}

/// A callback would come too early, or could not read the result.
#[test]
fn called_when_complete_by_a_thread_of_the_engine() {
    for threads in [1, 3] {
        let engines = mesh(&["a", "a"], threads);
        let (number, memory) = load(&engines[0]);
        let (_, landed) = load(&engines[1]);
        memory.as_bytes_mut().copy_from_slice(&[0, 0, 128, 63, 0, 0, 0, 64]);
        engines[1].launch(number).unwrap();
        let (tell, told) = mpsc::channel();
        let notify = move |outcome: Outcome| {
            let thread = thread::current().name().unwrap_or_default().to_owned();
            tell.send((outcome, thread, landed.as_bytes().to_vec())).unwrap();
        };
        engines[1].on_complete(number, TIMEOUT, notify).unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        engines[0].launch(number).unwrap();
        let (outcome, thread, bytes) = told.recv_timeout(TIMEOUT).unwrap();
        outcome.unwrap();
        assert!(thread.starts_with("hocket-"), "{thread}");
        assert_eq!(bytes, [0, 0, 128, 63, 0, 0, 0, 64]);
    }
}

/// A launch that ends while a callback is registered would never call it, or call it twice.
#[test]
fn called_once_however_soon_the_launch_ends() {
    let engines = mesh(&["a", "a"], 1);
    let called = Arc::new(AtomicU32::new(0));
    each(&engines, |_, engine| {
        let (number, _) = load(engine);
        for _ in 0..2000 {
            engine.launch(number).unwrap();
            let (tell, told) = mpsc::channel();
            let count = Arc::clone(&called);
            let notify = move |outcome: Outcome| {
                count.fetch_add(1, Ordering::Relaxed);
                tell.send(outcome).unwrap();
            };
            engine.on_complete(number, TIMEOUT, notify).unwrap();
            told.recv_timeout(TIMEOUT).unwrap().unwrap();
        }
    });
    each(&engines, |_, engine| engine.close());
    assert_eq!(called.load(Ordering::Relaxed), 4000);
}

/// Chains of launches could not run without a thread that waits; a wait would stop the I/O thread for good.
#[test]
fn a_callback_launches_and_does_not_wait() {
    fn go_on(engine: &Arc<Engine>, number: u32, left: u32, done: mpsc::Sender<Result<bool, Error>>) {
        engine.launch(number).unwrap();
        let next = Arc::clone(engine);
        let notify = move |outcome: Outcome| {
            outcome.unwrap();
            match left {
                0 => done.send(next.wait(number, TIMEOUT, || false)).unwrap(),
                _ => go_on(&next, number, left - 1, done),
            }
        };
        engine.on_complete(number, TIMEOUT, notify).unwrap();
    }
    let engines = mesh(&["a", "b"], 1);
    let told: Vec<_> = engines
        .iter()
        .map(|engine| {
            let (number, _) = load(engine);
            let (done, told) = mpsc::channel();
            go_on(engine, number, 50, done);
            told
        })
        .collect();
    for told in told {
        let waited = told.recv_timeout(TIMEOUT).unwrap();
        let Err(Error::Usage(what)) = waited else { panic!("{waited:?}") };
        assert!(what.contains("completion callback waits for `bucket`"), "{what}");
    }
}

/// A caller that relies on the callback would wait forever for a dead rank.
#[test]
fn a_failure_names_the_rank() {
    let (engines, _, told) = waiting();
    engines[0].abort("out of memory");
    let outcome = told.recv_timeout(TIMEOUT).unwrap();
    let Err(Error::Peer(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.who.rank, &*failure.who.host, failure.why), (Rank(0), "a", Why::GaveUp));
    // The rest of the job's end is no second call; later callbacks are called at once.
    assert!(told.recv().is_err());
    let (tell, told) = mpsc::channel();
    engines[1].on_complete(0, TIMEOUT, move |outcome| tell.send(outcome).unwrap()).unwrap();
    assert!(matches!(told.try_recv().unwrap(), Err(Error::Peer(_))));
}

/// A live rank that never sends must be named, too.
#[test]
fn a_time_out_names_the_rank() {
    let engines = mesh(&["a", "b"], 1);
    let (number, _) = load(&engines[1]);
    engines[1].launch(number).unwrap();
    let (tell, told) = mpsc::channel();
    let soon = Duration::from_millis(100);
    engines[1].on_complete(number, soon, move |outcome| tell.send(outcome).unwrap()).unwrap();
    let outcome = told.recv_timeout(TIMEOUT).unwrap();
    let Err(Error::Timeout { missing, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(missing.iter().map(|who| who.rank).collect::<Vec<_>>(), [Rank(0)]);
}

/// An engine that closes would leave a caller without an answer.
#[test]
fn closing_answers_what_is_open() {
    let (engines, number, told) = waiting();
    engines[1].close();
    let outcome = told.try_recv().unwrap();
    let Err(Error::Usage(what)) = outcome else { panic!("{outcome:?}") };
    assert!(what.contains("closed while `bucket` runs"), "{what}");
    let (tell, told) = mpsc::channel();
    engines[1].on_complete(number, TIMEOUT, move |outcome| tell.send(outcome).unwrap()).unwrap();
    assert!(matches!(told.try_recv().unwrap(), Err(Error::Usage(_))));
}

/// The I/O thread would die of the panic, and the job would hang.
#[test]
fn a_panic_ends_the_job_with_its_reason() {
    let engines = mesh(&["a", "b"], 1);
    for engine in &engines {
        let (number, _) = load(engine);
        if engine.rank() == Rank(1) {
            engine.launch(number).unwrap();
            engine.on_complete(number, TIMEOUT, |_| panic!("planted")).unwrap();
        }
    }
    engines[0].launch(0).unwrap();
    // A second program that rank 1 never launches: its peer gets the reason.
    let (number, _) = load(&engines[0]);
    engines[0].launch(number).unwrap();
    let outcome = engines[0].wait(number, TIMEOUT, || false);
    let Err(Error::Peer(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.who.rank, Rank(1));
    assert!(failure.what.contains("callback panicked"), "{failure}");
}

/// A callback that holds the last reference to the engine would wait for its own thread.
#[test]
fn the_last_reference_may_go_in_a_callback() {
    let mut engines = mesh(&["a", "b"], 1);
    let numbers: Vec<u32> = engines.iter().map(|engine| load(engine).0).collect();
    let last = engines.pop().unwrap();
    last.launch(numbers[1]).unwrap();
    let (tell, told) = mpsc::channel();
    let (let_go, gone) = mpsc::channel::<()>();
    let held = Arc::clone(&last);
    last.on_complete(numbers[1], TIMEOUT, move |_| {
        gone.recv_timeout(TIMEOUT).unwrap();
        assert!(Arc::into_inner(held).is_some());
        tell.send(()).unwrap();
    })
    .unwrap();
    engines[0].launch(numbers[0]).unwrap();
    drop(last);
    let_go.send(()).unwrap();
    told.recv_timeout(TIMEOUT).unwrap();
}
