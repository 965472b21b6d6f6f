//! Random training against a model: schedules, gradients that are made or not, accumulation, held turns, flushes, other schedules and
//! resumptions. Gradients are integers, so that sums are exact.
//!
//! `HOCKET_FUZZ_CASES=100000 cargo test --release -p hocket-executor --lib properties` tries so many.

use super::tests::schedules;
use super::*;
use crate::lock::lock;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Mutex;

const BUCKETS: usize = 2;
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
}

/// Of one bucket, written without slots and counters of turns.
#[derive(Clone, Debug, Default)]
struct Model {
    open: u32,
    waiting: Vec<u32>,
    /// Iterations of each turn that was launched and not applied.
    reduced: Vec<u32>,
    /// Gradients and their sum in all turns that are not launched.
    left: Summed,
    applied: u32,
}

impl Model {
    /// The oldest turn that waits is launched.
    fn launch(&mut self, expected: &mut Vec<u32>) {
        if !self.waiting.is_empty() {
            let iterations = self.waiting.remove(0);
            self.reduced.push(iterations);
            expected.push(iterations);
        }
    }

    fn end_turn(&mut self) {
        self.waiting.push(self.open);
        self.open = 0;
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// Which gradients are made, after how many backwards without communication; whether results are applied before it.
    Backward {
        made: [bool; BUCKETS * GRADIENTS],
        accumulated: u8,
        applies: bool,
    },
    Hold,
    Flush,
    /// Training stops, and another process goes on.
    Resume,
    /// Another plan: what is left is flushed and applied.
    Reschedule,
}

fn event() -> impl Strategy<Value = Event> {
    let backward = (any::<[bool; BUCKETS * GRADIENTS]>(), 0_u8..3, any::<bool>())
        .prop_map(|(made, accumulated, applies)| Event::Backward { made, accumulated, applies });
    prop_oneof![
        12 => backward,
        1 => Just(Event::Hold),
        1 => Just(Event::Flush),
        3 => Just(Event::Resume),
        1 => Just(Event::Reschedule),
    ]
}

struct Training {
    world: Arc<World>,
    schedules: [Schedule; 2],
    now: usize,
    readiness: Readiness<World>,
    models: [Model; BUCKETS],
    held: bool,
    iteration: u32,
    /// Iterations of the schedule so far.
    counted: u32,
    next: i64,
}

const PROGRAMS: [(u32, usize); BUCKETS] = [(10, GRADIENTS), (11, GRADIENTS)];

impl Training {
    fn begin(schedules: [Schedule; 2]) -> Self {
        let world = Arc::new(World::default());
        let readiness = Readiness::new(Arc::clone(&world), &PROGRAMS, schedules[0].clone()).unwrap();
        let models = Default::default();
        Self { world, schedules, now: 0, readiness, models, held: false, iteration: 0, counted: 0, next: 1 }
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

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Backward { made, accumulated, applies } => self.backward(made, accumulated, applies),
            Event::Hold => {
                self.readiness.hold();
                self.held = true;
            }
            Event::Flush => self.flush(),
            Event::Resume => self.resume(),
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
            model.reduced.len() + model.waiting.len() >= self.schedule().slots(bucket)
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
        self.readiness.finish().unwrap();
        let mut expected = [const { Vec::new() }; BUCKETS];
        for (bucket, model) in self.models.iter_mut().enumerate() {
            model.open += 1;
            let turn = self.schedules[self.now].ending(bucket, phase).filter(|_| !self.held);
            if turn.is_some() {
                model.end_turn();
            }
            if turn.is_some_and(|turn| turn.sent == Sent::Ready) {
                model.launch(&mut expected[bucket]);
            }
        }
        for bucket in at_end {
            self.models[bucket].launch(&mut expected[bucket]);
        }
        self.check(&expected);
        self.iteration += 1;
        self.counted += 1;
    }

    fn write(&mut self, bucket: usize, gradient: usize) {
        let slot = self.readiness.slot(bucket).unwrap();
        let value = self.next;
        self.next = self.next * 5 % 1009;
        let mut memory = lock(&self.world.memory);
        for summed in [memory.entry((PROGRAMS[bucket].0, slot)).or_default(), &mut self.models[bucket].left] {
            summed.gradients.push((self.iteration, gradient));
            summed.value += value;
        }
    }

    /// What was launched since the last look, against what a model expects by bucket.
    fn check(&mut self, expected: &[Vec<u32>; BUCKETS]) {
        let launches = std::mem::take(&mut *lock(&self.world.launches));
        let mut found = [const { Vec::new() }; BUCKETS];
        for (program, summed, factor) in launches {
            let bucket = program as usize - 10;
            let iterations = factor.recip().round() as u32;
            found[bucket].push(iterations);
            let model = &mut self.models[bucket];
            // All that is left of these iterations, no more and no less.
            let begins = model.applied + model.reduced.iter().sum::<u32>();
            let begins = begins - expected[bucket][found[bucket].len() - 1..].iter().sum::<u32>();
            let whole = begins..begins + iterations;
            let own = model.left.gradients.iter().take_while(|(at, _)| whole.contains(at)).count();
            let gradients: Vec<_> = model.left.gradients.drain(..own).collect();
            assert_eq!(summed.gradients, gradients, "bucket {bucket}, iterations {whole:?}");
            model.left.value -= summed.value;
        }
        assert_eq!(&found, expected);
    }

    fn apply_all(&mut self) {
        for (bucket, model) in self.models.iter_mut().enumerate() {
            let oldest = self.readiness.progress(bucket).unwrap();
            assert_eq!((oldest.launched - oldest.applied) as usize, model.reduced.len());
            for iterations in model.reduced.drain(..) {
                let turn = self.readiness.progress(bucket).unwrap().applied;
                assert!(self.readiness.wait(bucket, Duration::ZERO, &mut || false).unwrap());
                self.readiness.applied(bucket).unwrap();
                model.applied += iterations;
                let slots = self.readiness.slots(bucket);
                lock(&self.world.memory).remove(&(PROGRAMS[bucket].0, turn % slots));
            }
        }
    }

    fn flush(&mut self) {
        let mut expected = [const { Vec::new() }; BUCKETS];
        for (bucket, model) in self.models.iter_mut().enumerate() {
            if model.open > 0 {
                model.end_turn();
            }
            while !model.waiting.is_empty() {
                model.launch(&mut expected[bucket]);
            }
        }
        self.readiness.flush().unwrap();
        self.held = false;
        self.check(&expected);
        self.apply_all();
    }

    /// Another process, whose programs were never launched, with the same memory.
    fn resume(&mut self) {
        let place = |(bucket, model): (usize, &Model)| Place {
            slot: self.readiness.slot(bucket).unwrap(),
            summed: model.open,
            reduced: model.reduced.len() as u32,
            waiting: model.waiting.clone(),
        };
        let places: Vec<_> = self.models.iter().enumerate().map(place).collect();
        let memory = Mutex::new(std::mem::take(&mut *lock(&self.world.memory)));
        self.world = Arc::new(World { memory, ..World::default() });
        let (world, schedule) = (Arc::clone(&self.world), self.schedule().clone());
        self.readiness = Readiness::resumed(world, &PROGRAMS, schedule, self.phase(), &places).unwrap();
        if self.held {
            self.readiness.hold();
        }
    }
}

fn cases() -> u32 {
    std::env::var("HOCKET_FUZZ_CASES").map_or(2000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// A gradient would be lost, be sent twice, or be divided by another number than it was summed of, under some schedule.
    #[test]
    fn every_gradient_is_in_one_launch(
        schedules in [schedules(), schedules()],
        events in proptest::collection::vec(event(), 1..24),
    ) {
        let mut training = Training::begin(schedules);
        for event in &events {
            training.take(event);
        }
        training.flush();
        for model in &training.models {
            prop_assert_eq!(&model.left, &Summed::default());
            prop_assert_eq!(model.applied, training.iteration);
        }
        prop_assert!(lock(&training.world.memory).is_empty());
    }
}
