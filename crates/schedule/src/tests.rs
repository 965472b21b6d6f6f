//! Launches and slots of a schedule. What the check passes is run by `tests/planning/test_schedule_check.py`.

use crate::{At, Due, Point, Schedule, Sent, Turn, one_after_another};

fn begun(last: usize, iteration: usize, point: Point, place: usize) -> Turn {
    let due = Due { iteration, at: At::End };
    Turn { first: last, last, sent: Sent::Begun { iteration, point, place }, due }
}

/// A schedule that says nothing would be another than the one that says so.
#[test]
fn by_default_every_gradient_is_a_turn_of_its_own() {
    for (schedule, at) in [
        (Schedule::default(), At::End),
        (Schedule { overlap: crate::Overlap::Gates, ..Schedule::default() }, At::Gate),
    ] {
        let said = Schedule::together(2, &[1], 0, at);
        assert_eq!((schedule.check(2), said.check(2)), (Ok(()), Ok(())));
        assert_eq!(schedule.launches(2, 3), said.launches(2, 3));
        assert_eq!((schedule.of(1), schedule.slots(1)), (said.of(1), 1));
        assert!((schedule.merge() - 1.0).abs() < f64::EPSILON && (said.merge() - 1.0).abs() < f64::EPSILON);
    }
}

/// Buckets would not leave, or twice, or in another order than ranks agree on.
#[test]
fn every_turn_is_launched_once() {
    let merged = Turn { first: 0, last: 1, ..begun(1, 2, Point::Begin, 1) };
    let turns = vec![vec![begun(0, 1, Point::BackwardEnd, 0), begun(1, 2, Point::Begin, 0)], vec![merged]];
    let schedule = Schedule::new(2, turns);
    let at = |phase, point| -> Vec<usize> {
        schedule.launched_at(phase, point).iter().map(|&(bucket, _)| bucket).collect()
    };
    assert_eq!([at(0, Point::Begin), at(1, Point::Begin)], [vec![0, 1], vec![]]);
    assert_eq!([at(0, Point::BackwardEnd), at(1, Point::BackwardEnd)], [vec![], vec![0]]);
    let left: Vec<_> =
        schedule.launches(2, 5).iter().map(|each| (each.bucket, each.begun, each.before)).collect();
    assert_eq!(left, [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 2, 1), (0, 2, 2), (0, 2, 3)]);
}

/// A turn would fill memory that the one before still needs.
#[test]
fn slots_are_turns_that_are_open_at_once() {
    for (lengths, delay, slots) in [(vec![1], 0, 1), (vec![3], 0, 1), (vec![1], 1, 2), (vec![2, 1], 5, 2)] {
        let schedule = Schedule::new(lengths.iter().sum(), vec![one_after_another(&lengths, delay, At::End)]);
        assert_eq!(schedule.slots(0), slots, "{lengths:?}, {delay} late");
        assert_eq!(schedule.check(1), Ok(()));
    }
}
