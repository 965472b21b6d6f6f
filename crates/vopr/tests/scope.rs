//! Small worlds exhaustively: a process is killed before each event of a run, each in turn.

use hocket_vopr::{Swarm, kill_everywhere};

fn all(hosts: usize, says_goodbye: bool) {
    let (runs, _) = kill_everywhere(&Swarm::small(3, 2, hosts), says_goodbye)
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(runs > 300, "only {runs} runs");
}

fn all_while_one_joins(hosts: usize, says_goodbye: bool) {
    let (runs, met) = kill_everywhere(&Swarm::small(3, 1, hosts).joined(), says_goodbye)
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(met * 2 > runs && runs > 1000, "members met in {met} of {runs} runs");
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

/// A death between the beginning of an epoch with a newcomer and the first step of the generation that it is in would split the others,
/// or end them: the newcomer's, too.
#[test]
fn a_kill_at_every_event_while_one_joins() {
    all_while_one_joins(3, true);
}

/// The same on one host, where members write into each other's memory.
#[test]
fn a_kill_at_every_event_while_one_joins_on_one_host() {
    all_while_one_joins(1, true);
}

/// The same where nobody says goodbye.
#[test]
fn a_lost_process_at_every_event_while_one_joins() {
    all_while_one_joins(3, false);
}
