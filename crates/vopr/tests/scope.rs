//! Small worlds exhaustively: a founder is killed before each event of a run, each founder in turn.

use hocket_vopr::{Swarm, kill_everywhere};

fn all(hosts: usize, says_goodbye: bool) {
    let runs = kill_everywhere(&Swarm::small(3, 2, hosts), says_goodbye)
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(runs > 300, "only {runs} runs");
}

/// A death at one particular moment of a step would split the survivors, or end them: between hosts.
#[test]
fn a_kill_at_every_event_between_hosts() {
    all(3, true);
}

/// The same on one host, where members write into each other's memory.
#[test]
fn a_kill_at_every_event_on_one_host() {
    all(1, true);
}

/// The same where nobody says goodbye, and silence is all there is.
#[test]
fn a_lost_host_at_every_event() {
    all(3, false);
}
