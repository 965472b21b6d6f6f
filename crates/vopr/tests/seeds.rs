//! Twenty thousand worlds. A failure prints its seed; `cargo run --profile bench -p hocket-vopr -- --replay SEED` prints what happened.
//! `-- --seeds 0 1000000` is for a night.

use hocket_vopr::run;

const SEEDS: u64 = 5_000;

fn seeds(part: u64) {
    let mut live = 0;
    for seed in part * SEEDS..(part + 1) * SEEDS {
        let outcome = run(seed, None, None).unwrap_or_else(|failure| panic!("{failure}"));
        live += u64::from(outcome.live);
    }
    // Where all were killed, nobody can go on; elsewhere the job has to.
    assert!(live * 10 > SEEDS * 7, "only {live} of {SEEDS} jobs went on after their faults");
}

/// Somewhere a sum would be wrong, a sample lost, or a job split or stuck.
#[test]
fn first_quarter() {
    seeds(0);
}

#[test]
fn second_quarter() {
    seeds(1);
}

#[test]
fn third_quarter() {
    seeds(2);
}

#[test]
fn last_quarter() {
    seeds(3);
}
