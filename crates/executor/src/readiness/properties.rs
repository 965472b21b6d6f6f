//! What must hold under every schedule: in random training (`training.rs`), and of turns alone.
//!
//! `HOCKET_FUZZ_CASES=100000 cargo test --release -p hocket-executor --lib properties` tries so many.

use super::tests::schedules;
use super::training::{BUCKETS, Training, event, saved};
use super::*;
use hocket_schedule::{SavedTurns, Turn};
use proptest::prelude::*;

fn cases() -> u32 {
    std::env::var("HOCKET_FUZZ_CASES").map_or(2000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_local_rejects: u32::MAX, ..ProptestConfig::default() })]

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
        training.end();
    }

    /// Ranks would wait for what has not left, or apply gradients later than promised.
    #[test]
    fn turns_are_due_when_the_schedule_says(schedule in schedules()) {
        const ITERATIONS: u64 = 12;
        let mut turns = Turns::new(schedule.clone(), &[0, 1]).unwrap();
        let mut found = [const { Vec::new() }; BUCKETS];
        for iteration in 0..ITERATIONS {
            for turn in turns.finish() {
                turns.apply(turn.arena);
                found[turn.arena].push((iteration, turn.last.unwrap(), turn.at, turn.iterations as usize));
            }
        }
        for (bucket, found) in found.iter().enumerate() {
            let in_period = |begun: u64| {
                let whole = move |turn: &Turn| {
                    let (due, last) = (turn.due.iteration as u64 + begun, turn.last as u64 + begun);
                    (due, last, turn.due.at, turn.last - turn.first + 1)
                };
                schedule.of(bucket).iter().map(whole)
            };
            let all = (0..ITERATIONS).step_by(schedule.period).flat_map(in_period);
            prop_assert_eq!(found, &all.filter(|each| each.0 < ITERATIONS).collect::<Vec<_>>());
        }
    }

    /// A checkpoint of another plan would be taken for this one's, and gradients of other iterations applied.
    #[test]
    fn saved_turns_that_cannot_be_are_refused(schedule in schedules(), iterations in 0..10) {
        let begun = || Turns::new(schedule.clone(), &[0, 1]).unwrap();
        let mut turns = begun();
        for _ in 0..iterations {
            turns.finish().iter().for_each(|turn| turns.apply(turn.arena));
        }
        let saved = saved(&turns);
        prop_assert!(begun().restored(saved.clone()).is_ok());
        let wrongs: [fn(&mut SavedTurns); 7] = [
            |saved| saved.made += 1,
            |saved| saved.turns.truncate(1),
            |saved| saved.applied.push(0),
            |saved| saved.turns[0].clear(),
            |saved| saved.turns[1][0].slot = 2,
            |saved| saved.turns[0].last_mut().unwrap().due = Some(saved.made),
            |saved| {
                // It was due before: it would never be applied.
                let (due, last) = (Some(0), Some(0));
                let gone = LiveTurn { due, last, ..saved.turns[1][0].clone() };
                saved.turns[1].insert(0, gone);
            },
        ];
        for wrong in wrongs {
            let mut other = saved.clone();
            wrong(&mut other);
            prop_assert!(begun().restored(other).unwrap_err().to_string().starts_with("saved turns of "));
        }
    }
}
