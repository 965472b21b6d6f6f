//! A rule that is broken on purpose must be noticed: otherwise the simulation proves nothing.

use hocket_protocol::planted::Bug;
use hocket_vopr::run;

/// Seeds in which each bug must show.
const SEEDS_MAX: u64 = 10_000;

/// The simulation would pass whatever the machines did.
#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..SEEDS_MAX).find_map(|seed| run(seed, Some(bug), None).err());
        let failure = found.unwrap_or_else(|| panic!("{bug:?} is not found within {SEEDS_MAX} seeds"));
        println!("{bug:?}: {failure:.300}");
    }
}
