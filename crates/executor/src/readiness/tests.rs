//! Schedules against a launcher that records, so that every order of arrivals can be tried.

use super::*;
use hocket_schedule::{At, Due, Turn};
use proptest::prelude::*;
use std::collections::HashMap;
use std::thread;

/// How often each program was launched before its buckets were counted.
const BEFORE: u32 = 5;

const ON_ONE_SLOT: u32 = 1;

/// A program of two gradients that works on each.
const EARLY: u32 = 2;

/// Records launches as (program, slot, factor). A launch runs until it is waited for.
#[derive(Default)]
struct Records {
    launches: Mutex<Vec<(u32, u32, f64)>>,
    /// (program, its launch, slot)
    running: Mutex<Vec<(u32, u32, u32)>>,
    counts: Mutex<HashMap<u32, u32>>,
    broken: AtomicBool,
    /// Of each launch.
    due: Mutex<Vec<u32>>,
    /// Gradients as they are there, and when all are.
    worked: Mutex<Vec<(u32, Option<u32>)>>,
}

impl Launcher for Records {
    fn slots(&self, program: u32) -> Result<u32, Error> {
        Ok(if program == ON_ONE_SLOT { 1 } else { 2 })
    }

    fn launched(&self, program: u32) -> Result<u32, Error> {
        Ok(BEFORE + lock(&self.counts).get(&program).copied().unwrap_or_default())
    }

    fn launch(&self, program: u32, slot: u32, factor: f64, due: u32) -> Result<(), Error> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let number = self.launched(program)?;
        let mut running = lock(&self.running);
        let used = running.iter().any(|&(other, _, its)| (other, its) == (program, slot));
        assert!(!used, "program {program} is launched while slot {slot} is reduced");
        running.push((program, number, slot));
        *lock(&self.counts).entry(program).or_default() += 1;
        lock(&self.launches).push((program, slot, factor));
        lock(&self.due).push(due);
        Ok(())
    }

    fn wait(
        &self,
        program: u32,
        launches: u32,
        _: Duration,
        _: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        lock(&self.running).retain(|&(other, number, _)| other != program || number >= launches);
        Ok(true)
    }

    fn failure(&self) -> Option<Error> {
        self.broken.load(Ordering::Relaxed).then(|| Error::System("broken".into()))
    }

    fn early(&self, program: u32) -> Result<Option<usize>, Error> {
        Ok((program == EARLY).then_some(2))
    }

    fn launch_early(&self, program: u32, slot: u32, due: u32) -> Result<bool, Error> {
        self.launch(program, slot, 1.0, due)?;
        Ok(true)
    }

    fn gradient_is_there(&self, program: u32, gradient: u32) {
        lock(&self.worked).push((program, Some(gradient)));
    }

    fn all_are_there(&self, program: u32) -> Result<(), Error> {
        lock(&self.worked).push((program, None));
        Ok(())
    }
}

impl Records {
    fn take(&self) -> Vec<(u32, u32)> {
        self.take_all().into_iter().map(|(program, slot, _)| (program, slot)).collect()
    }

    fn take_all(&self) -> Vec<(u32, u32, f64)> {
        std::mem::take(&mut *lock(&self.launches))
    }
}

fn readiness(gradients: &[usize], schedule: Schedule) -> Readiness<Records> {
    let buckets: Vec<(u32, usize)> = (10..).zip(gradients.iter().copied()).collect();
    Readiness::new(Arc::default(), &buckets, schedule).unwrap()
}

/// A turn that is sent when it is ready, or when iteration `begun` begins.
fn turn(first: usize, last: usize, begun: Option<usize>, due: usize) -> Turn {
    let begun = begun.map(|iteration| Sent::Begun { iteration, point: Point::Begin, place: 0 });
    Turn { first, last, sent: begun.unwrap_or_default(), due: Due { iteration: due, at: At::End } }
}

fn progress<L: Launcher>(readiness: &Readiness<L>, bucket: usize) -> (u32, u32, u32) {
    let Progress { ready, launched, applied } = readiness.progress(bucket).unwrap();
    (ready, launched, applied)
}

fn apply(readiness: &Readiness<Records>, bucket: usize) {
    assert!(readiness.wait(bucket, Duration::ZERO, &mut || false).unwrap());
    readiness.applied(bucket).unwrap();
}

fn usage<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Usage(what)) => what,
        other => panic!("{other:?}"),
    }
}

/// A profile would take gradients for ready at another time than they are, or cost a look at the clock for ever.
#[test]
fn times_of_arrivals_are_kept_while_they_are_wanted() {
    let readiness = readiness(&[2, 1], Schedule::default());
    readiness.set_timed(true);
    for (bucket, index) in [(1, 0), (0, 1)] {
        readiness.arrive(bucket, index).unwrap();
    }
    let times = readiness.times();
    assert_eq!(times.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [(1, 0), (0, 1)]);
    assert!(0 < times[0].1 && times[0].1 <= times[1].1 && times[1].1 <= now_ns());
    readiness.set_timed(false);
    readiness.arrive(0, 0).unwrap();
    assert_eq!(readiness.times()[2], ((0, 0), 0));
}

/// A bucket would leave without its last gradient, or only at the end of backward.
#[test]
fn a_bucket_leaves_with_its_last_gradient() {
    let readiness = readiness(&[2, 1], Schedule::default());
    assert!(readiness.open());
    readiness.check().unwrap();
    assert_eq!(readiness.arrive(0, 1).unwrap(), Arrival::Counted);
    assert_eq!((progress(&readiness, 0), readiness.launcher().take()), ((0, 0, 0), vec![]));
    assert!(!readiness.open());
    assert_eq!(readiness.arrive(0, 0).unwrap(), Arrival::Counted);
    assert_eq!((progress(&readiness, 0), readiness.launcher().take()), ((1, 1, 0), vec![(10, 0)]));
    assert_eq!(readiness.missing(), [(1, 0)]);
    assert_eq!(readiness.order(), [(0, 1), (0, 0)]);
    readiness.finish().1.unwrap();
    assert_eq!((progress(&readiness, 1), readiness.launcher().take()), ((1, 1, 0), vec![(11, 0)]));
    apply(&readiness, 0);
    assert_eq!(progress(&readiness, 0), (1, 1, 1));
    assert!(usage(readiness.applied(0)).contains("nothing of arena 0"));
}

/// Gradients would be added to a bucket that is being reduced, or to a mean that the optimizer has not used.
#[test]
fn memory_fills_again_only_after_it_was_applied() {
    let readiness = readiness(&[1], Schedule::default());
    assert!(readiness.open());
    readiness.arrive(0, 0).unwrap();
    readiness.finish().1.unwrap();
    assert!(readiness.open());
    assert!(usage(readiness.check()).contains("before what bucket 0 reduced was applied"));
    apply(&readiness, 0);
    readiness.check().unwrap();
}

/// More of a gradient after its bucket left would be lost in silence.
#[test]
fn what_comes_after_the_launch_is_late() {
    let readiness = readiness(&[2], Schedule::default());
    assert!(readiness.open());
    readiness.arrive(0, 0).unwrap();
    assert_eq!(readiness.arrive(0, 0).unwrap(), Arrival::Again);
    readiness.arrive(0, 1).unwrap();
    assert_eq!(readiness.arrive(0, 0).unwrap(), Arrival::Late);
    assert_eq!(readiness.launcher().take(), [(10, 0)]);
}

/// Values that travel beside the gradients (votes) would never leave.
#[test]
fn a_bucket_without_gradients_leaves_at_the_end() {
    let readiness = readiness(&[0, 1], Schedule::default());
    assert!(readiness.open());
    readiness.arrive(1, 0).unwrap();
    assert_eq!(readiness.launcher().take(), [(11, 0)]);
    assert_eq!(progress(&readiness, 0), (0, 0, 0));
    readiness.finish().1.unwrap();
    assert_eq!((readiness.launcher().take(), progress(&readiness, 0)), (vec![(10, 0)], (1, 1, 0)));
}

/// Merged and delayed buckets would leave in the wrong iteration, or be summed into memory that is under way.
#[test]
fn turns_merge_and_wait_as_the_schedule_says() {
    // Bucket 0 leaves every time, in turns of the two slots; bucket 1 sums two iterations and leaves when the next begins.
    let turns = vec![vec![turn(0, 0, None, 1), turn(1, 1, None, 2)], vec![turn(0, 1, Some(2), 2)]];
    let readiness = readiness(&[1, 1], Schedule::new(2, turns));
    let mut seen = Vec::new();
    for iteration in 0..5 {
        readiness.begin(Point::Begin).unwrap();
        seen.extend(readiness.launcher().take().into_iter().map(|launch| (iteration, "begin", launch)));
        assert!(readiness.open());
        readiness.check().unwrap();
        for bucket in [1, 0] {
            readiness.arrive(bucket, 0).unwrap();
        }
        readiness.finish().1.unwrap();
        seen.extend(readiness.launcher().take().into_iter().map(|launch| (iteration, "backward", launch)));
        apply(&readiness, 0);
        if iteration > 0 && iteration % 2 == 0 {
            apply(&readiness, 1);
        }
    }
    let expected = [
        (0, "backward", (10, 0)),
        (1, "backward", (10, 1)),
        (2, "begin", (11, 0)),
        (2, "backward", (10, 0)),
        (3, "backward", (10, 1)),
        (4, "begin", (11, 1)),
        (4, "backward", (10, 0)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(progress(&readiness, 1), (2, 2, 2));
}

/// Gradients of the next iteration would go before those for which this one waits: links would idle while all compute.
#[test]
fn launches_are_told_when_they_are_due() {
    // The second bucket's turn is launched in the next iteration, at whose end it is due.
    let turns = vec![vec![turn(0, 0, None, 0)], vec![turn(0, 0, Some(1), 1)]];
    let readiness = readiness(&[1, 1], Schedule::new(1, turns));
    for iteration in 0..4_u32 {
        readiness.begin(Point::Begin).unwrap();
        assert!(readiness.open());
        readiness.arrive(0, 0).unwrap();
        readiness.arrive(1, 0).unwrap();
        readiness.finish().1.unwrap();
        apply(&readiness, 0);
        if iteration > 0 {
            apply(&readiness, 1);
        }
    }
    let records = readiness.launcher();
    let due: Vec<_> =
        lock(&records.launches).iter().map(|launch| launch.0).zip(lock(&records.due).clone()).collect();
    assert_eq!(due, [(10, 1), (11, 2), (10, 2), (11, 3), (10, 3), (11, 4), (10, 4)]);
}

/// A schedule in which gradients never leave, leave twice or have no place would train wrongly instead of being refused.
#[test]
fn impossible_schedules_are_refused() {
    let new = |program, buckets, turns| {
        let given = vec![(program, 1); buckets];
        usage(Readiness::new(Arc::<Records>::default(), &given, Schedule::new(1, turns)).map(drop))
    };
    assert!(new(0, 1, vec![vec![turn(0, 0, Some(0), 0)]]).contains("before it is ready"));
    assert!(new(0, 0, vec![vec![turn(0, 0, None, 0)]]).contains("1 buckets: there are 0"));
    let late = vec![vec![turn(0, 0, None, 1)]];
    assert!(new(ON_ONE_SLOT, 1, late).contains("2 slots for bucket 0; its program has 1"));
    let turns = Turns::new(Schedule::default(), &[0]).unwrap();
    let resumed = Readiness::over(Arc::<Records>::default(), &[(0, 1, 0)], turns, &[1]);
    assert!(usage(resumed.map(drop)).contains("bucket 0: 1 turns were launched, of 0"));
}

/// After a failure, the reason must come back from every call, not a complaint about the order of calls.
#[test]
fn the_failure_of_the_job_comes_back() {
    let readiness = readiness(&[1, 1], Schedule::default());
    assert!(readiness.open());
    readiness.launcher().broken.store(true, Ordering::Relaxed);
    assert!(matches!(readiness.arrive(0, 0), Err(Error::System(_))));
    assert!(matches!(readiness.finish().1, Err(Error::System(_))));
    assert!(readiness.open());
    assert!(matches!(readiness.check(), Err(Error::System(_))));
}

/// Autograd brings gradients from several threads: a bucket would leave early, twice or never.
#[test]
fn gradients_of_several_threads_launch_each_bucket_once() {
    let readiness = readiness(&[3, 4, 1], Schedule::default());
    let all: Vec<(usize, usize)> = readiness.missing();
    for _ in 0..200 {
        let began = AtomicU32::new(0);
        thread::scope(|scope| {
            for part in 0..3 {
                let (readiness, all, began) = (&readiness, &all, &began);
                scope.spawn(move || {
                    for &(bucket, index) in all.iter().skip(part).step_by(3) {
                        began.fetch_add(u32::from(readiness.open()), Ordering::Relaxed);
                        assert_eq!(readiness.arrive(bucket, index).unwrap(), Arrival::Counted);
                    }
                });
            }
        });
        assert_eq!(began.into_inner(), 1);
        let mut launched = readiness.launcher().take();
        launched.sort_unstable();
        assert_eq!(launched, [(10, 0), (11, 0), (12, 0)]);
        let mut order = readiness.order();
        order.sort_unstable();
        assert_eq!(order, all);
        readiness.finish().1.unwrap();
        (0..3).for_each(|bucket| apply(&readiness, bucket));
    }
}

/// Sound turns of a bucket that tile a period.
fn turns(period: usize) -> impl Strategy<Value = Vec<Turn>> {
    let begun = proptest::option::of((0_usize..3, prop_oneof![Just(Point::Begin), Just(Point::BackwardEnd)]));
    let due = (0_usize..3, prop_oneof![Just(At::End), Just(At::Gate)]);
    let drawn = proptest::collection::vec((any::<bool>(), begun, due), period);
    drawn.prop_filter_map("no session can keep it", move |drawn| {
        let (mut first, mut turns) = (0, Vec::new());
        for (last, &(ends, begun, (late, at))) in drawn.iter().enumerate() {
            if ends || last + 1 == period {
                let begun =
                    begun.map(|(later, point)| Sent::Begun { iteration: last + later, point, place: 0 });
                let due = Due { iteration: last + late, at };
                turns.push(Turn { first, last, sent: begun.unwrap_or_default(), due });
                first = last + 1;
            }
        }
        Schedule::new(period, vec![turns.clone()]).check(1).is_ok().then_some(turns)
    })
}

/// Sound schedules of two buckets, with turns of each bucket's own.
pub(super) fn schedules() -> impl Strategy<Value = Schedule> {
    let of =
        |period| [turns(period), turns(period)].prop_map(move |turns| Schedule::new(period, turns.into()));
    (1_usize..5).prop_flat_map(of)
}

/// A gradient would be worked on twice, before it is there, or not at all; a message would leave without it.
#[test]
fn single_gradients_are_worked_on_as_they_come() {
    let launcher = Arc::<Records>::default();
    let readiness = Readiness::new(Arc::clone(&launcher), &[(EARLY, 2)], Schedule::default()).unwrap();
    let worked = || std::mem::take(&mut *lock(&launcher.worked));
    let progress = || readiness.progress(0).map(|own| (own.ready, own.launched, own.applied)).unwrap();
    assert_eq!(readiness.arrive(0, 1).unwrap(), Arrival::Counted);
    assert_eq!((launcher.take(), worked()), (vec![(EARLY, 0)], vec![(EARLY, Some(1))]));
    assert_eq!(progress(), (0, 0, 0));
    assert_eq!(readiness.arrive(0, 1).unwrap(), Arrival::Late, "it may have been worked on");
    assert_eq!(worked(), []);
    readiness.arrive(0, 0).unwrap();
    assert_eq!(worked(), [(EARLY, Some(0)), (EARLY, None)]);
    assert_eq!(progress(), (1, 1, 0));
    readiness.finish().1.unwrap();
    assert_eq!((launcher.take(), worked()), (vec![], vec![]));
    readiness.wait(0, Duration::ZERO, &mut || false).unwrap();
    readiness.applied(0).unwrap();

    // One does not come, then none.
    readiness.arrive(0, 0).unwrap();
    readiness.finish().1.unwrap();
    assert_eq!(launcher.take(), [(EARLY, 0)]);
    assert_eq!(worked(), [(EARLY, Some(0)), (EARLY, Some(1)), (EARLY, None)]);
    readiness.wait(0, Duration::ZERO, &mut || false).unwrap();
    readiness.applied(0).unwrap();
    readiness.finish().1.unwrap();
    assert_eq!((launcher.take(), worked()), (vec![(EARLY, 0)], vec![]));
}
