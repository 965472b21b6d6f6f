//! Random training against a model: gradients that are made or not, accumulation, held turns, flushes, other schedules and resumptions.
//! Gradients are integers, so that sums are exact.

use super::*;
use hocket_schedule::SavedTurns;
use proptest::prelude::*;
use std::collections::HashMap;

pub(super) const BUCKETS: usize = 2;
/// Of each bucket.
const GRADIENTS: usize = 2;

/// What lies in a slot: which gradients of which iterations, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summed {
    gradients: Vec<(u32, usize)>,
    value: i64,
}

/// A launch takes what is in its slot at once; the slot is free when its result is taken.
#[derive(Default)]
struct World {
    memory: Mutex<HashMap<(u32, u32), Summed>>,
    /// Launched and not looked at by the test: bucket, what was reduced, factor.
    launches: Mutex<Vec<(u32, Summed, f64)>>,
    counts: Mutex<HashMap<u32, u32>>,
    /// Programs that began early: the slot, and gradients that were worked on.
    begun: Mutex<HashMap<u32, (u32, Vec<u32>)>>,
}

impl Launcher for World {
    fn slots(&self, _: u32) -> Result<u32, Error> {
        Ok(2)
    }

    fn launched(&self, program: u32) -> Result<u32, Error> {
        Ok(lock(&self.counts).get(&program).copied().unwrap_or_default())
    }

    fn launch(&self, program: u32, slot: u32, factor: f64, _: u32) -> Result<(), Error> {
        let taken = lock(&self.memory).get(&(program, slot)).cloned().unwrap_or_default();
        lock(&self.launches).push((program, taken, factor));
        *lock(&self.counts).entry(program).or_default() += 1;
        Ok(())
    }

    fn wait(
        &self,
        program: u32,
        launches: u32,
        _: Duration,
        _: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        // As `Flow::has_completed`: every launch here is complete.
        Ok(self.launched(program)?.wrapping_sub(launches) as i32 >= 0)
    }

    fn failure(&self) -> Option<Error> {
        None
    }

    fn early(&self, program: u32) -> Result<Option<usize>, Error> {
        // The second bucket works on each gradient.
        Ok((program == 11).then_some(GRADIENTS))
    }

    fn launch_early(&self, program: u32, slot: u32, _: u32) -> Result<bool, Error> {
        assert!(lock(&self.begun).insert(program, (slot, Vec::new())).is_none());
        *lock(&self.counts).entry(program).or_default() += 1;
        Ok(true)
    }

    fn gradient_is_there(&self, program: u32, gradient: u32) {
        lock(&self.begun).get_mut(&program).unwrap().1.push(gradient);
    }

    fn all_are_there(&self, program: u32) -> Result<(), Error> {
        let (slot, mut worked) = lock(&self.begun).remove(&program).unwrap();
        worked.sort_unstable();
        assert!(worked.into_iter().eq(0..GRADIENTS as u32), "each is worked on once");
        let taken = lock(&self.memory).get(&(program, slot)).cloned().unwrap_or_default();
        lock(&self.launches).push((program, taken, 1.0));
        Ok(())
    }
}

/// A turn that has ended and is not applied.
#[derive(Clone, Debug)]
struct Kept {
    iterations: u32,
    due: u64,
    summed: Summed,
    launched: bool,
    handed_out: bool,
}

/// Of one bucket, written without slots and counters of turns.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Iterations of the open turn, and what they have made.
    open: u32,
    left: Summed,
    /// The oldest first.
    ended: Vec<Kept>,
    applied: u32,
}

impl Model {
    /// The oldest turn that waits is launched.
    fn launch(&mut self, expected: &mut Vec<Kept>) {
        if let Some(next) = self.ended.iter_mut().find(|kept| !kept.launched) {
            next.launched = true;
            expected.push(next.clone());
        }
    }

    fn end_turn(&mut self, due: u64) {
        let (iterations, summed) = (std::mem::take(&mut self.open), std::mem::take(&mut self.left));
        self.ended.push(Kept { iterations, due, summed, launched: false, handed_out: false });
    }

    /// Those that are handed out now, as they are seen outside.
    fn hand_out(&mut self, is_due: impl Fn(&Kept) -> bool) -> Vec<u32> {
        let due = self.ended.iter_mut().filter(|kept| !kept.handed_out && is_due(kept));
        due.map(|kept| {
            kept.handed_out = true;
            kept.iterations
        })
        .collect()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Which gradients are made, after how many backwards without communication; whether results are applied before it.
    Backward {
        made: [bool; BUCKETS * GRADIENTS],
        accumulated: u8,
        applies: bool,
    },
    Hold,
    Flush,
    /// Training stops, and another process goes on with what was saved.
    Resume,
    /// Programs are loaded anew: all that has ended is launched again.
    Lose,
    /// Another plan: what is left is flushed and applied.
    Reschedule,
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let backward = (any::<[bool; BUCKETS * GRADIENTS]>(), 0_u8..3, any::<bool>())
        .prop_map(|(made, accumulated, applies)| Event::Backward { made, accumulated, applies });
    prop_oneof![
        12 => backward,
        1 => Just(Event::Hold),
        1 => Just(Event::Flush),
        2 => Just(Event::Resume),
        2 => Just(Event::Lose),
        1 => Just(Event::Reschedule),
    ]
}

pub(super) struct Training {
    world: Arc<World>,
    schedules: [Schedule; 2],
    now: usize,
    readiness: Readiness<World>,
    models: [Model; BUCKETS],
    held: bool,
    iteration: u32,
    /// Iterations of the schedule so far.
    counted: u64,
    next: i64,
}

const PROGRAMS: [(u32, usize); BUCKETS] = [(10, GRADIENTS), (11, GRADIENTS)];

impl Training {
    pub(super) fn begin(schedules: [Schedule; 2]) -> Self {
        let world = Arc::new(World::default());
        let readiness = Readiness::new(Arc::clone(&world), &PROGRAMS, schedules[0].clone()).unwrap();
        let models = Default::default();
        Self { world, schedules, now: 0, readiness, models, held: false, iteration: 0, counted: 0, next: 1 }
    }

    /// All that is left is applied: each gradient was in one launch.
    pub(super) fn end(mut self) {
        self.flush();
        for model in &self.models {
            assert!(model.ended.is_empty());
            assert_eq!(model.left, Summed::default());
            assert_eq!(model.applied, self.iteration);
        }
        assert!(lock(&self.world.memory).is_empty());
    }

    fn schedule(&self) -> &Schedule {
        &self.schedules[self.now]
    }

    /// Iteration of the period.
    fn phase(&self) -> usize {
        self.counted as usize % self.schedule().period
    }

    /// The buckets that the schedule launches at a point of this iteration.
    fn launched_at(&self, point: Point) -> Vec<usize> {
        self.schedule().launched_at(self.phase(), point).into_iter().map(|(bucket, _)| bucket).collect()
    }

    pub(super) fn take(&mut self, event: &Event) {
        match *event {
            Event::Backward { made, accumulated, applies } => self.backward(made, accumulated, applies),
            Event::Hold => {
                self.readiness.hold();
                self.held = true;
            }
            Event::Flush => self.flush(),
            Event::Resume => self.resume(),
            Event::Lose => self.lose(),
            Event::Reschedule => {
                self.flush();
                self.apply_all();
                (self.now, self.counted) = (1 - self.now, 0);
                let next = self.schedule().clone();
                self.readiness = Readiness::new(Arc::clone(&self.world), &PROGRAMS, next).unwrap();
            }
        }
    }

    fn backward(&mut self, made: [bool; BUCKETS * GRADIENTS], accumulated: u8, applies: bool) {
        let mut expected = [const { Vec::new() }; BUCKETS];
        for bucket in self.launched_at(Point::Begin) {
            self.models[bucket].launch(&mut expected[bucket]);
        }
        self.readiness.begin(Point::Begin).unwrap();
        self.check(&expected);
        if applies {
            self.apply_all();
        }
        assert!(self.readiness.open());
        let full = self.models.iter().enumerate().any(|(bucket, model)| {
            // A slot for each turn that is not applied, and one to fill.
            model.ended.len() >= self.schedule().slots(bucket)
        });
        assert_eq!(self.readiness.check().is_err(), full);
        if full {
            self.apply_all();
            self.readiness.check().unwrap();
        }
        for (at, _) in made.iter().enumerate().filter(|(_, made)| **made) {
            let (bucket, gradient) = (at / GRADIENTS, at % GRADIENTS);
            for _ in 0..=accumulated {
                self.write(bucket, gradient);
            }
            assert_eq!(self.readiness.arrive(bucket, gradient).unwrap(), Arrival::Counted);
        }
        let (phase, at_end) = (self.phase(), self.launched_at(Point::BackwardEnd));
        let before = ended(&self.readiness);
        let (due, outcome) = self.readiness.finish();
        outcome.unwrap();
        // After a loss, ranks an iteration apart launch the same again, in the same order.
        for (before, after) in before.iter().zip(ended(&self.readiness)) {
            assert!(after.starts_with(before));
        }
        let mut expected = [const { Vec::new() }; BUCKETS];
        let mut handed_out = Vec::new();
        for (bucket, model) in self.models.iter_mut().enumerate() {
            model.open += 1;
            let turn = self.schedules[self.now].ending(bucket, phase).filter(|_| !self.held);
            if let Some(turn) = turn {
                model.end_turn(self.counted + turn.delay() as u64);
            }
            if turn.is_some_and(|turn| turn.sent == Sent::Ready) {
                model.launch(&mut expected[bucket]);
            }
            let own = model.hand_out(|kept| kept.due == self.counted);
            assert!(own.len() <= 1, "one update of a parameter per step");
            handed_out.extend(own.into_iter().map(|iterations| (bucket, iterations)));
        }
        for bucket in at_end {
            self.models[bucket].launch(&mut expected[bucket]);
        }
        self.check(&expected);
        assert_eq!(described(&due), handed_out);
        self.iteration += 1;
        self.counted += 1;
        let turns = self.readiness.turns();
        let left = |model: &Model| -> u32 {
            model.ended.iter().filter(|kept| !kept.handed_out).map(|kept| kept.iterations).sum()
        };
        let left = self.models.iter().map(|model| model.open + left(model)).max();
        assert_eq!((turns.made, turns.handed_out()), (self.counted, self.counted - u64::from(left.unwrap())));
    }

    fn write(&mut self, bucket: usize, gradient: usize) {
        let slot = self.readiness.open_turn(bucket).unwrap().slot;
        let value = self.next;
        self.next = self.next * 5 % 1009;
        let mut memory = lock(&self.world.memory);
        for summed in [memory.entry((PROGRAMS[bucket].0, slot)).or_default(), &mut self.models[bucket].left] {
            summed.gradients.push((self.iteration, gradient));
            summed.value += value;
        }
    }

    /// What was launched since the last look, against what a model expects by bucket.
    fn check(&mut self, expected: &[Vec<Kept>; BUCKETS]) {
        let launches = std::mem::take(&mut *lock(&self.world.launches));
        let mut found = [const { Vec::new() }; BUCKETS];
        for (program, summed, factor) in launches {
            found[program as usize - 10].push((factor.recip().round() as u32, summed));
        }
        let seen = |own: &Vec<Kept>| {
            own.iter().map(|kept| (kept.iterations, kept.summed.clone())).collect::<Vec<_>>()
        };
        assert_eq!(found, expected.each_ref().map(seen));
    }

    /// Whatever was handed out and launched.
    fn apply_all(&mut self) {
        for (bucket, model) in self.models.iter_mut().enumerate() {
            while model.ended.first().is_some_and(|kept| kept.handed_out && kept.launched) {
                let slot = self.readiness.turns().unapplied()[bucket][0].slot;
                assert!(self.readiness.wait(bucket, Duration::ZERO, &mut || false).unwrap());
                self.readiness.applied(bucket).unwrap();
                model.applied += model.ended.remove(0).iterations;
                lock(&self.world.memory).remove(&(PROGRAMS[bucket].0, slot));
            }
        }
    }

    fn flush(&mut self) {
        self.apply_all();
        let mut expected = [const { Vec::new() }; BUCKETS];
        let mut handed_out = Vec::new();
        for (bucket, model) in self.models.iter_mut().enumerate() {
            if model.open > 0 {
                model.end_turn(0);
            }
            while model.ended.iter().any(|kept| !kept.launched) {
                model.launch(&mut expected[bucket]);
            }
            let own = model.hand_out(|_| true).into_iter().enumerate();
            handed_out.extend(own.map(|(round, iterations)| (round, bucket, iterations)));
        }
        handed_out.sort_unstable();
        let (rounds, outcome) = self.readiness.flush();
        outcome.unwrap();
        let rounds = rounds.iter().enumerate();
        let found: Vec<_> = rounds
            .flat_map(|(round, due)| {
                described(due).into_iter().map(move |(arena, iterations)| (round, arena, iterations))
            })
            .collect();
        assert_eq!(found, handed_out);
        assert_eq!(self.readiness.turns().handed_out(), self.counted);
        self.held = false;
        self.check(&expected);
        self.apply_all();
    }

    /// Another process, whose programs were never launched, with the same memory.
    fn resume(&mut self) {
        if self.models.iter().any(|model| model.ended.iter().any(|kept| kept.handed_out && !kept.launched)) {
            return;
        }
        self.apply_all();
        let turns = Turns::new(self.schedule().clone(), &[0, 1]).unwrap();
        let turns = turns.restored(saved(&self.readiness.turns())).unwrap();
        let reduced = self
            .models
            .each_ref()
            .map(|model| model.ended.iter().filter(|kept| kept.launched).count() as u32);
        self.go_on(turns, &reduced);
    }

    /// Gradients stay where they are, so that they are reduced again.
    fn lose(&mut self) {
        let turns = self.readiness.turns().clone();
        self.go_on(turns, &[]);
        self.readiness.launch_all().unwrap();
        let mut expected = [const { Vec::new() }; BUCKETS];
        for (model, expected) in self.models.iter_mut().zip(&mut expected) {
            model.ended.iter_mut().for_each(|kept| kept.launched = true);
            expected.extend_from_slice(&model.ended);
        }
        self.check(&expected);
    }

    fn go_on(&mut self, turns: Turns, reduced: &[u32]) {
        let memory = Mutex::new(std::mem::take(&mut *lock(&self.world.memory)));
        self.world = Arc::new(World { memory, ..World::default() });
        let buckets = [0, 1].map(|arena| (PROGRAMS[arena].0, PROGRAMS[arena].1, arena));
        self.readiness = Readiness::over(Arc::clone(&self.world), &buckets, turns, reduced).unwrap();
    }
}

/// By arena, turns that have ended and are not applied.
fn ended(readiness: &Readiness<World>) -> Vec<Vec<LiveTurn>> {
    let turns = readiness.turns().unapplied();
    turns.into_iter().map(|own| own[..own.len() - 1].to_vec()).collect()
}

fn described(due: &[LiveTurn]) -> Vec<(usize, u32)> {
    due.iter().map(|turn| (turn.arena, turn.iterations)).collect()
}

pub(super) fn saved(turns: &Turns) -> SavedTurns {
    let (made, left) = (turns.made, turns.unapplied());
    let applied =
        left.iter().map(|own| made - own.iter().map(|turn| u64::from(turn.iterations)).sum::<u64>());
    SavedTurns { made, applied: applied.collect(), held: turns.held, turns: left }
}
