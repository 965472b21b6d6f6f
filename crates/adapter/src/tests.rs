//! Groups over programs that a test ends, in any order: who gets which result of which turn, and that all are told.

use crate::programs::Notify;
use crate::{Given, Group, Loan, Placed, Programs};
use hocket_executor::readiness::Launcher;
use hocket_executor::{Error, Region};
use hocket_trace::Kind;
use hocket_wire::memory::{Allocation, Arena};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program adds 1 to each byte, when the test ends it.
#[derive(Default)]
struct Simulated {
    memory: Mutex<HashMap<u32, Vec<Region>>>,
    running: Mutex<HashMap<u32, Option<Notify>>>,
    failure: Mutex<Option<Error>>,
    spans: Mutex<Vec<(Kind, u32)>>,
}

impl Simulated {
    /// Those whose end someone awaits.
    fn running(&self) -> Vec<u32> {
        let running = lock(&self.running);
        let mut programs: Vec<_> =
            running.iter().filter(|each| each.1.is_some()).map(|each| *each.0).collect();
        programs.sort_unstable();
        programs
    }

    fn end(&self, program: u32) {
        for region in &lock(&self.memory)[&program] {
            region.as_bytes_mut().iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        }
        let notify = lock(&self.running).remove(&program).flatten();
        notify.expect("a launch that someone awaits")(Ok(()));
    }
}

impl Launcher for Simulated {
    fn slots(&self, _: u32) -> Result<u32, Error> {
        Ok(1)
    }

    fn launched(&self, _: u32) -> Result<u32, Error> {
        Ok(0)
    }

    fn launch(&self, program: u32, _: u32, factor: f64, _: u32) -> Result<(), Error> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        assert!((factor - 1.0).abs() < f64::EPSILON);
        let before = lock(&self.running).insert(program, None);
        assert!(before.is_none(), "program {program} is launched while it runs");
        Ok(())
    }

    fn wait(&self, _: u32, _: u32, _: Duration, _: &mut dyn FnMut() -> bool) -> Result<bool, Error> {
        Ok(true)
    }

    fn failure(&self) -> Option<Error> {
        lock(&self.failure).clone()
    }
}

impl Programs for Simulated {
    fn on_complete(&self, program: u32, _: Duration, notify: Notify) -> Result<(), Error> {
        lock(&self.running).insert(program, Some(notify));
        Ok(())
    }

    fn mark(&self, kind: Kind, turn: u32, start_ns: u64, end_ns: u64) {
        assert!(start_ns <= end_ns);
        lock(&self.spans).push((kind, turn));
    }
}

type Ended = (usize, u32, Result<Vec<u8>, String>);

struct Lent {
    bytes: Vec<u8>,
    leaf: usize,
    turn: u32,
    told: Sender<Ended>,
    is_result: bool,
}

impl Loan for Lent {
    fn operand(&self) -> &[u8] {
        &self.bytes
    }

    fn end(self: Box<Self>, outcome: Result<&[u8], &Error>) {
        let outcome = outcome.map(<[u8]>::to_vec).map_err(ToString::to_string);
        if !self.is_result && outcome.is_ok() {
            assert_eq!(outcome, Ok(self.turn.to_ne_bytes().to_vec()), "given later");
        }
        drop(self.told.send((self.leaf, self.turn, outcome)));
    }
}

struct Job {
    programs: Arc<Simulated>,
    group: Group<Simulated>,
    told: Sender<Ended>,
    ended: Receiver<Ended>,
    memory: Vec<Allocation>,
    arena: Arc<Arena>,
}

/// Leaves of 4 bytes each; `buckets`: the leaves of each. A leaf of several lies in each with an equal part.
fn job(buckets: &[&[usize]], timeout: Duration) -> Job {
    let count = buckets.iter().flat_map(|own| own.iter()).max().unwrap() + 1;
    let programs = Arc::new(Simulated::default());
    let leaves = (0..count).map(|leaf| (format!("leaf{leaf}"), 4)).collect();
    let group = Group::new(Arc::clone(&programs), leaves, timeout).unwrap();
    let (told, ended) = channel();
    let mut job = Job { programs, group, told, ended, memory: Vec::new(), arena: Arena::new(0).unwrap() };
    job.load(buckets, count, 0);
    job
}

impl Job {
    /// Programs are numbered from `first` on.
    fn load(&mut self, buckets: &[&[usize]], count: usize, first: u32) {
        let allocation = self.arena.allocate(4 * count).unwrap();
        let mut parts = vec![Vec::new(); count];
        for (bucket, own) in buckets.iter().enumerate() {
            for (index, &leaf) in own.iter().enumerate() {
                parts[leaf].push((bucket, index));
            }
        }
        let mut memory = vec![Vec::new(); buckets.len()];
        let mut placed = Vec::new();
        for (leaf, parts) in parts.into_iter().enumerate() {
            let region = allocation.region().sub(4 * leaf, 4);
            let bytes = 4 / parts.len();
            for (at, &(bucket, _)) in parts.iter().enumerate() {
                memory[bucket].push(region.sub(at * bytes, bytes));
            }
            placed.push(Placed { region, parts });
        }
        for (bucket, regions) in memory.into_iter().enumerate() {
            lock(&self.programs.memory).insert(first + bucket as u32, regions);
        }
        let described: Vec<_> =
            buckets.iter().enumerate().map(|(at, own)| (first + at as u32, own.len())).collect();
        self.group.load(&described, placed).unwrap();
        self.memory.push(allocation);
    }

    fn lent(&self, leaf: usize, turn: u32) -> Lent {
        Lent { bytes: bytes(leaf, turn), leaf, turn, told: self.told.clone(), is_result: false }
    }

    /// The leaf is made; Err: why it is refused.
    fn offer(&self, leaf: usize, turn: u32) -> Result<Given, String> {
        let given = self.group.give(leaf, turn, &bytes(leaf, turn), || Box::new(self.lent(leaf, turn)));
        given.map_err(|cause| cause.to_string())
    }

    fn give(&self, leaf: usize, turn: u32) {
        assert_eq!(self.offer(leaf, turn), Ok(Given::Now));
    }

    fn take_back(&self, leaf: usize, turn: u32) {
        self.group.take_back(leaf, turn, Box::new(Lent { is_result: true, ..self.lent(leaf, turn) }));
    }

    fn next(&self) -> Ended {
        self.ended.recv_timeout(LONG).expect("a leaf ends")
    }

    fn assert_none_ended(&self) {
        assert!(self.ended.try_recv().is_err());
    }

    /// The next leaf ends with its own mean.
    fn next_is_right(&self) -> (usize, u32) {
        let (leaf, turn, outcome) = self.next();
        let expected: Vec<_> = bytes(leaf, turn).iter().map(|byte| byte.wrapping_add(1)).collect();
        assert_eq!(outcome.unwrap(), expected, "leaf {leaf} of turn {turn}");
        (leaf, turn)
    }
}

fn bytes(leaf: usize, turn: u32) -> Vec<u8> {
    vec![leaf as u8, turn as u8, (turn >> 8) as u8, 7]
}

/// A bucket would leave before its gradients are there, or results would go to other leaves.
#[test]
fn the_last_leaf_of_a_bucket_launches_it() {
    let job = job(&[&[0, 2], &[1]], LONG);
    job.group.begin(0);
    job.give(2, 0);
    assert_eq!(job.programs.running(), []);
    job.give(1, 0);
    assert_eq!(job.programs.running(), [1]);
    job.give(0, 0);
    assert_eq!(job.programs.running(), [0, 1]);
    (0..3).for_each(|leaf| job.take_back(leaf, 0));
    job.assert_none_ended();
    job.programs.end(0);
    let mut both = [job.next_is_right(), job.next_is_right()];
    both.sort_unstable();
    assert_eq!(both, [(0, 0), (2, 0)]);
    job.assert_none_ended();
    job.programs.end(1);
    assert_eq!(job.next_is_right(), (1, 0));
    assert!(job.group.wait(1, LONG, || false).unwrap());
    assert_eq!(job.group.order(), [2, 1, 0]);
    job.group.begin(1);
    assert_eq!(*lock(&job.programs.spans), [(Kind::Backward, 0), (Kind::Wait, 0), (Kind::Step, 0)]);
}

/// A runtime that calls and awaits one function after the other would wait for ever.
#[test]
fn giving_waits_for_no_other_leaf_and_results_may_be_taken_one_by_one() {
    let job = job(&[&[0, 1], &[2]], LONG);
    for turn in 0..3 {
        (0..3).for_each(|leaf| job.give(leaf, turn));
        (0..2).for_each(|program| job.programs.end(program));
        for leaf in [1, 2, 0] {
            job.take_back(leaf, turn);
            assert_eq!(job.next_is_right(), (leaf, turn));
        }
        assert!(job.group.wait(turn + 1, LONG, || false).unwrap());
    }
}

/// A gradient whose parts travel apart would come back with one part alone.
#[test]
fn a_leaf_ends_with_the_last_of_its_buckets() {
    let job = job(&[&[0, 1], &[1, 2]], LONG);
    (0..3).for_each(|leaf| job.give(leaf, 0));
    (0..3).for_each(|leaf| job.take_back(leaf, 0));
    job.programs.end(0);
    assert_eq!(job.next_is_right(), (0, 0));
    job.programs.end(1);
    let mut both = [job.next_is_right(), job.next_is_right()];
    both.sort_unstable();
    assert_eq!(both, [(1, 0), (2, 0)]);
}

/// One execution of a function, as a runtime goes through it: it makes leaves in any order, and takes results back when it has made
/// all.
struct Execution {
    turn: u32,
    to_give: Vec<usize>,
    /// Leaves that wait for their turn.
    later: usize,
    to_take: Vec<usize>,
}

/// Sums would mix steps, or a rank would wait for ever, when two executions are in flight.
#[test]
fn turns_never_mix_whatever_the_order() {
    const TURNS: u32 = 1000;
    const LEAVES: usize = 6;
    let job = job(&[&[0, 3], &[1], &[2, 4, 5]], LONG);
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut executions: Vec<Execution> = Vec::new();
    let (mut began, mut over) = (0, 0);
    while over < LEAVES as u32 * TURNS {
        if began < TURNS && over >= LEAVES as u32 * began.saturating_sub(1) && random.bool() {
            let to_take = (0..LEAVES).collect();
            executions.push(Execution { turn: began, to_give: (0..LEAVES).collect(), later: 0, to_take });
            began += 1;
        }
        if let Some(own) = random.choice(&mut executions) {
            if !own.to_give.is_empty() {
                let leaf = own.to_give.swap_remove(random.usize(..own.to_give.len()));
                own.later += usize::from(job.offer(leaf, own.turn) == Ok(Given::Later));
            } else if own.later == 0 && !own.to_take.is_empty() {
                let leaf = own.to_take.swap_remove(random.usize(..own.to_take.len()));
                job.take_back(leaf, own.turn);
            }
        }
        executions.retain(|own| !own.to_take.is_empty());
        if let Some(&program) = random.choice(&job.programs.running()) {
            job.programs.end(program);
        }
        while let Ok((leaf, turn, outcome)) = job.ended.try_recv() {
            if outcome == Ok(turn.to_ne_bytes().to_vec()) {
                executions.iter_mut().filter(|own| own.turn == turn).for_each(|own| own.later -= 1);
                continue;
            }
            let expected: Vec<_> = bytes(leaf, turn).iter().map(|byte| byte.wrapping_add(1)).collect();
            assert_eq!(outcome.unwrap(), expected, "leaf {leaf} of turn {turn}");
            over += 1;
        }
    }
    assert!(job.group.wait(TURNS, LONG, || false).unwrap());
}

/// Leaves come on many threads of a runtime.
#[test]
fn leaves_come_on_any_thread() {
    let job = job(&[&[0, 1, 2, 3], &[4, 5, 6, 7]], LONG);
    for turn in 0..200 {
        std::thread::scope(|scope| {
            for leaf in 0..8 {
                let (group, lent) = (&job.group, job.lent(leaf, turn));
                scope.spawn(move || {
                    let given = group.give(leaf, turn, &bytes(leaf, turn), || Box::new(lent)).unwrap();
                    assert_eq!(given, Given::Now);
                });
            }
        });
        assert_eq!(job.programs.running(), [0, 1]);
        (0..2).for_each(|program| job.programs.end(program));
        (0..8).for_each(|leaf| job.take_back(leaf, turn));
        for _ in 0..8 {
            assert_eq!(job.next_is_right().1, turn);
        }
        assert!(job.group.wait(turn + 1, LONG, || false).unwrap());
    }
}

/// The framework's threads would wait for ever, or use memory that is gone.
#[test]
fn a_failure_ends_whatever_is_lent_and_comes_later() {
    let said = "rank 1 on b is lost";
    let job = job(&[&[0, 1], &[2]], LONG);
    job.give(2, 0);
    job.take_back(2, 0);
    job.give(0, 0);
    assert_eq!(job.offer(0, 1), Ok(Given::Later));
    *lock(&job.programs.failure) = Some(Error::System(said.into()));
    assert_eq!(job.offer(1, 0), Err(said.into()));
    for _ in 0..2 {
        assert_eq!(job.next().2, Err(said.into()));
    }
    assert_eq!(job.offer(1, 1), Err(said.into()));
    job.take_back(0, 0);
    assert_eq!(job.next().2, Err(said.into()));
    assert_eq!(job.group.wait(1, LONG, || false).unwrap_err().to_string(), said);
}

/// A launch that fails would leave its leaves waiting.
#[test]
fn a_launch_that_fails_fails_the_group() {
    let job = job(&[&[0], &[1]], LONG);
    job.give(0, 0);
    job.take_back(0, 0);
    let notify = lock(&job.programs.running).remove(&0).flatten().unwrap();
    notify(Err(Error::System("late".into())));
    assert_eq!(job.next(), (0, 0, Err("late".into())));
}

/// A function that leaves a gradient out, or a mean, would hang.
#[test]
fn leaves_that_never_come_are_named() {
    let soon = Duration::from_millis(50);
    let job_of = || job(&[&[0, 1, 2]], soon);
    let job = job_of();
    job.give(1, 0);
    assert_eq!(job.offer(1, 1), Ok(Given::Later));
    let said = job.next().2.unwrap_err();
    let expected = "turn 0: after 0.05 s, this rank has not made the gradients of `leaf0`, `leaf2`\nhint: ";
    assert!(said.starts_with(expected), "{said}");
    let job = job_of();
    (0..3).for_each(|leaf| job.give(leaf, 0));
    job.take_back(0, 0);
    let said = job.next().2.unwrap_err();
    let expected = "turn 0: after 0.05 s, this rank has not used the means of `leaf1`, `leaf2`\nhint: ";
    assert!(said.starts_with(expected), "{said}");
}

/// A mean in a loop would be sent as another one.
#[test]
fn what_does_not_fit_is_refused_alone() {
    let twice = Err("the gradient of `leaf0`: it comes twice in one turn".to_owned());
    let job = job(&[&[0, 1]], LONG);
    job.give(0, 0);
    assert_eq!(job.offer(0, 0), twice);
    assert_eq!(job.offer(0, 1), Ok(Given::Later));
    assert_eq!(job.offer(0, 1), twice);
    let over = "the gradient of `leaf1`: turn 4294967295 is over: turn 0 is open";
    assert_eq!(job.offer(1, u32::MAX), Err(over.into()));
    assert_eq!(job.offer(9, 0), Err("leaf 9 of 2".into()));
    let long = job.group.give(1, 0, &[0; 3], || Box::new(job.lent(1, 0))).unwrap_err().to_string();
    assert_eq!(long, "the gradient of `leaf1` has 3 bytes, and 4 at the start");
    for (leaf, turn) in [(1, 0), (0, 1)] {
        job.take_back(leaf, turn);
        let said = format!(
            "the gradient of `leaf{leaf}`: its mean is wanted of turn {turn}, in which it was not given"
        );
        assert_eq!(job.next().2, Err(said));
    }
    job.give(1, 0);
    job.take_back(0, 0);
    job.take_back(0, 0);
    assert_eq!(job.next().2, Err("the gradient of `leaf0`: its mean is wanted twice in one turn".into()));
    job.programs.end(0);
    assert_eq!(job.next_is_right(), (0, 0));
    job.take_back(1, 0);
    assert_eq!(job.next_is_right(), (1, 0));
}

/// Plans change between turns; a change within one would lose gradients.
#[test]
fn other_buckets_may_be_loaded_between_turns() {
    let mut job = job(&[&[0], &[1]], LONG);
    job.give(0, 0);
    let region = job.memory[0].region();
    let again = |leaf| Placed { region: region.sub(4 * leaf, 4), parts: vec![(leaf, 0)] };
    let refused = job.group.load(&[(0, 1), (1, 1)], vec![again(0), again(1)]).unwrap_err();
    assert_eq!(refused.to_string(), "turn 0 is not over");
    job.give(1, 0);
    (0..2).for_each(|program| job.programs.end(program));
    (0..2).for_each(|leaf| job.take_back(leaf, 0));
    for _ in 0..2 {
        assert_eq!(job.next_is_right().1, 0);
    }
    assert!(job.group.wait(1, LONG, || false).unwrap());
    job.load(&[&[1, 0]], 2, 5);
    (0..2).for_each(|leaf| job.give(leaf, 1));
    assert_eq!(job.programs.running(), [5]);
    job.programs.end(5);
    (0..2).for_each(|leaf| job.take_back(leaf, 1));
    let mut both = [job.next_is_right(), job.next_is_right()];
    both.sort_unstable();
    assert_eq!(both, [(0, 1), (1, 1)]);
}

/// A process that ends in the middle of a step would leave the framework's threads waiting.
#[test]
fn closing_ends_whatever_is_lent() {
    let said = "the session is closed while a turn is under way";
    let job = job(&[&[0], &[1]], LONG);
    job.give(0, 0);
    job.take_back(0, 0);
    job.group.close();
    assert_eq!(job.next().2, Err(said.into()));
    assert_eq!(job.offer(1, 0), Err(said.into()));
}
