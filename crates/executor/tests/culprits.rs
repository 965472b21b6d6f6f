//! Whom survivors blame: the rank at fault, not the one that waits for it, or that ends because of it.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_executor::{Engine, Error, Failure, Region, Sending, Why};
use hocket_ids::{BufferId, Rank, Tag};
use hocket_program::{BufferKind, DType, Op, Program, RankBuilder, Slice};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

mod mesh;
use mesh::{TIMEOUT, mesh};

const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Of a wait that is to be over.
const SHORT: Duration = Duration::from_millis(400);

/// One buffer goes from rank to rank, in this order.
fn pass(path: &[u32]) -> Program {
    let mut builders: Vec<RankBuilder> = HOSTS.iter().map(|_| RankBuilder::new()).collect();
    let slices: Vec<Slice> = builders
        .iter_mut()
        .map(|b| Slice::new(b.buffer("bucket", DType::F32, 2, BufferKind::Bound), 0, 2))
        .collect();
    for (at, ends) in path.windows(2).enumerate() {
        let (from, to, tag) = (ends[0], ends[1], Tag::from_index(at));
        let (wire, count) = (DType::F32, None);
        let send = Op::Send { src: slices[from as usize], wire, peer: Rank(to), tag, count };
        builders[from as usize].push(send, None);
        let receive = Op::Recv { dst: slices[to as usize], wire, reduce: None, peer: Rank(from), tag, count };
        builders[to as usize].push(receive, None);
    }
    let ranks = builders.into_iter().map(RankBuilder::finish).collect();
    Program { name: "test.pass".into(), ranks, ..Program::default() }
}

/// Loads the same programs everywhere; their numbers.
fn load(engines: &[Arc<Engine>], paths: &[&[u32]]) -> Vec<u32> {
    let load = |engine: &Engine, path: &[u32]| {
        let region: Region = engine.allocate(8).unwrap().region().clone();
        let buffers = HashMap::from([(BufferId(0), region)]);
        engine.load(&pass(path), &[buffers], &HashMap::new(), Sending::urgent(0), "bucket", None).unwrap()
    };
    let numbers = engines.iter().map(|engine| paths.iter().map(|path| load(engine, path)).collect());
    numbers.collect::<Vec<Vec<u32>>>().pop().unwrap()
}

fn missing(error: &Error) -> Vec<u32> {
    let Error::Timeout { missing, .. } = error else { panic!("{error:?}") };
    missing.iter().map(|who| who.rank.0).collect()
}

fn failure(error: Error) -> Failure {
    let Error::Peer(failure) = error else { panic!("{error:?}") };
    failure
}

/// A neighbour in a ring would be blamed for a rank in an endless loop, and its user would look at the wrong host.
#[test]
fn a_wait_is_followed_to_the_rank_that_does_not_come() {
    for hosts in [["a", "b", "c"], ["a", "a", "a"]] {
        let engines = mesh(&hosts, 1);
        let number = load(&engines, &[&[1, 2, 0]])[0];
        engines[0].launch(number).unwrap();
        engines[2].launch(number).unwrap();
        let error = engines[0].wait(number, SHORT, || false).unwrap_err();
        assert_eq!(missing(&error), [1], "{error}");
        let named = format!("rank 2 on {} to send, and ultimately for rank 1 on {}", hosts[2], hosts[1]);
        assert!(error.to_string().ends_with(&named), "{error}");
        let (tell, told) = mpsc::channel();
        engines[0].on_complete(number, SHORT, move |outcome| tell.send(outcome).unwrap()).unwrap();
        assert_eq!(missing(&told.recv_timeout(TIMEOUT).unwrap().unwrap_err()), [1]);
        // Whoever is waited for directly is named alone.
        let error = engines[2].wait(number, SHORT, || false).unwrap_err();
        assert!(
            error.to_string().ends_with("waits for rank 1 on a to send")
                || error.to_string().ends_with("waits for rank 1 on b to send"),
            "{error}"
        );
        // It comes after all.
        engines[1].launch(number).unwrap();
        for engine in &engines {
            assert!(engine.wait(number, TIMEOUT, || false).unwrap());
            assert_eq!(engine.blamed(), None);
        }
    }
}

/// A rank that waits elsewhere, and so does not launch what others wait for, would be blamed.
#[test]
fn a_wait_is_followed_through_other_programs_and_messages() {
    let engines = mesh(&HOSTS, 1);
    let [first, second] = load(&engines, &[&[1, 0], &[2, 1]])[..] else { panic!() };
    engines[0].launch(first).unwrap();
    engines[1].launch(second).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| engines[1].wait(second, TIMEOUT, || over.load(Ordering::Relaxed)).unwrap());
        let error = engines[0].wait(first, SHORT, || false).unwrap_err();
        let memory = engines[0].allocate(8).unwrap();
        let message = engines[0].receive(Some(Rank(1)), 7, memory.region().clone(), false).unwrap();
        let late = engines[0].wait_message(message, SHORT, || false).unwrap_err();
        over.store(true, Ordering::Relaxed);
        assert_eq!(missing(&error), [2], "{error}");
        assert_eq!(missing(&late), [2], "{late}");
        assert!(
            late.to_string().ends_with("for rank 1 on b to send, and ultimately for rank 2 on c"),
            "{late}"
        );
    });
}

/// All survivors of a rank whose script was ended by a time-out would blame that one.
#[test]
fn who_gives_up_because_of_another_rank_passes_that_on() {
    let engines = mesh(&HOSTS, 1);
    let number = load(&engines, &[&[0, 1]])[0];
    engines[1].launch(number).unwrap();
    engines[0].abort_because("PeerError: waits for rank 2 on c", (Rank(2), Why::Timeout));
    let told = failure(engines[1].wait(number, TIMEOUT, || false).unwrap_err());
    assert_eq!((told.who.rank, &*told.who.host, told.why), (Rank(2), "c", Why::Timeout));
    assert_eq!(told.what, "PeerError: waits for rank 2 on c");
}

/// A script that catches the error of a time-out and ends in order would be blamed for that.
#[test]
fn who_leaves_after_a_wait_that_was_over_says_because_of_whom() {
    let engines = mesh(&HOSTS, 1);
    let number = load(&engines, &[&[2, 0, 1]])[0];
    engines[0].launch(number).unwrap();
    engines[1].launch(number).unwrap();
    let error = engines[0].wait(number, SHORT, || false).unwrap_err();
    assert_eq!(missing(&error), [2], "{error}");
    assert_eq!(engines[0].blamed().unwrap().who.rank, Rank(2));
    engines[0].close();
    let told = failure(engines[1].wait(number, TIMEOUT, || false).unwrap_err());
    assert_eq!((told.who.rank, told.why), (Rank(2), Why::Timeout), "{told}");
}

/// "Left" would be all that the others know of a rank that called `sys.exit(3)`.
#[test]
fn an_exit_code_reaches_all_that_still_wait() {
    let engines = mesh(&HOSTS, 1);
    let number = load(&engines, &[&[1, 0, 2]])[0];
    engines[0].launch(number).unwrap();
    engines[2].launch(number).unwrap();
    engines[1].close_until_exit();
    let waited = engines[0].wait(number, SHORT, || false).unwrap_err();
    assert_eq!(missing(&waited), [1], "{waited}");
    engines[1].exit(3);
    for at in [0, 2] {
        let told = failure(engines[at].wait(number, TIMEOUT, || false).unwrap_err());
        assert_eq!((told.who.rank, told.why, told.exit_code), (Rank(1), Why::Left, Some(3)), "{told}");
        assert_eq!(told.what, "rank 1 on b exited with code 3 while `bucket` still needs it");
    }
    // Idempotent.
    engines[1].exit(4);
    engines[1].close();
}

/// Ranks that end early and need nobody would be taken for failed ones.
#[test]
fn an_exit_that_nobody_waits_for_is_no_failure() {
    let engines = mesh(&HOSTS, 1);
    let number = load(&engines, &[&[1, 0]])[0];
    engines[2].close_until_exit();
    engines[2].exit(0);
    engines[0].launch(number).unwrap();
    engines[1].launch(number).unwrap();
    assert!(engines[0].wait(number, TIMEOUT, || false).unwrap());
    for engine in &engines {
        engine.close();
        assert!(engine.failure().is_none());
    }
}
