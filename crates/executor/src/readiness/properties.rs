//! Random training against a model: schedules, gradients that are made or not, accumulation, held turns, flushes, other schedules and
//! resumptions. Gradients are integers, so that sums are exact.
//!
//! `HOCKET_FUZZ_CASES=100000 cargo test --release -p hocket-executor --lib properties` tries so many.

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
    slots: u32,
}

impl Launcher for World {
    fn slots(&self, _: u32) -> Result<u32, Error> {
        Ok(self.slots)
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

/// Turns that tile a period, of each bucket its own; of those that wait, where they are launched.
fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let turn = prop_oneof![Just(Turn::Continues), Just(Turn::Leaves), Just(Turn::Waits)];
    let some = || proptest::sample::subsequence(vec![0_usize, 1], 0..=BUCKETS);
    let phase = (proptest::collection::vec(turn, BUCKETS), some(), some());
    proptest::collection::vec(
        phase.prop_map(|(turns, begin, end)| Phase { turns, begin, end, ..Phase::default() }),
        1..4,
    )
}

struct Training {
    world: Arc<World>,
    schedules: [Vec<Phase>; 2],
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
    /// None: no such schedule can be kept.
    fn begin(slots: u32, schedules: [Vec<Phase>; 2]) -> Option<Self> {
        let tables: Option<Vec<_>> = schedules.iter().map(|phases| table(slots, phases)).collect();
        let world = Arc::new(World { slots, ..World::default() });
        let first = tables?.swap_remove(0);
        let readiness = Readiness::new(Arc::clone(&world), &PROGRAMS, first).unwrap();
        let models = Default::default();
        Some(Self {
            world,
            schedules,
            now: 0,
            readiness,
            models,
            held: false,
            iteration: 0,
            counted: 0,
            next: 1,
        })
    }

    fn phase(&self) -> &Phase {
        let phases = &self.schedules[self.now];
        &phases[self.counted as usize % phases.len()]
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
                let next = table(self.world.slots, &self.schedules[self.now]).unwrap();
                self.readiness = Readiness::new(Arc::clone(&self.world), &PROGRAMS, next).unwrap();
            }
        }
    }

    fn backward(&mut self, made: [bool; BUCKETS * GRADIENTS], accumulated: u8, applies: bool) {
        let mut expected = [const { Vec::new() }; BUCKETS];
        for &bucket in &self.phase().begin.clone() {
            self.models[bucket].launch(&mut expected[bucket]);
        }
        self.readiness.begin(Point::Begin).unwrap();
        self.check(&expected);
        if applies {
            self.apply_all();
        }
        assert!(self.readiness.open());
        let full = self.models.iter().any(|model| {
            // A slot for each turn that is not applied, and one to fill.
            (model.reduced.len() + model.waiting.len()) as u32 >= self.world.slots
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
        let phase = self.phase().clone();
        self.readiness.finish().unwrap();
        let mut expected = [const { Vec::new() }; BUCKETS];
        for (bucket, model) in self.models.iter_mut().enumerate() {
            model.open += 1;
            let turn = if self.held { Turn::Continues } else { phase.turns[bucket] };
            if turn != Turn::Continues {
                model.end_turn();
            }
            if turn == Turn::Leaves {
                model.launch(&mut expected[bucket]);
            }
        }
        for &bucket in &phase.end {
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
                lock(&self.world.memory).remove(&(PROGRAMS[bucket].0, turn % self.world.slots));
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
        let slots = self.world.slots;
        self.world = Arc::new(World { memory, slots, ..World::default() });
        let phases = &self.schedules[self.now];
        self.readiness = Readiness::resumed(
            Arc::clone(&self.world),
            &PROGRAMS,
            table(slots, phases).unwrap(),
            self.counted as usize % phases.len(),
            &places,
        )
        .unwrap();
        if self.held {
            self.readiness.hold();
        }
    }
}

fn table(slots: u32, phases: &[Phase]) -> Option<Schedule> {
    Schedule::new(vec![slots; BUCKETS], phases.to_vec()).ok()
}

fn cases() -> u32 {
    std::env::var("HOCKET_FUZZ_CASES").map_or(2000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_global_rejects: u32::MAX, ..ProptestConfig::default() })]

    /// A gradient would be lost, be sent twice, or be divided by another number than it was summed of, under some schedule.
    #[test]
    fn every_gradient_is_in_one_launch(
        slots in 1_u32..3,
        schedules in [phases(), phases()],
        events in proptest::collection::vec(event(), 1..24),
    ) {
        let training = Training::begin(slots, schedules);
        prop_assume!(training.is_some());
        let mut training = training.unwrap();
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
