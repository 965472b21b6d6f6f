//! What a seed makes of its world: how large it is, and which faults happen when. Each seed leaves some kinds of faults out
//! altogether, so that rare combinations are not drowned by frequent ones (Groce et al., "Swarm testing", 2012).

use crate::event::Fault;
use fastrand::Rng;
use hocket_protocol::liveness::Patience;
use hocket_protocol::membership::Limits;
use hocket_protocol::planted::{Bug, Rules};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Swarm {
    pub founders: usize,
    pub hosts: usize,
    pub buckets: usize,
    pub blocks: usize,
    pub batch: u64,
    pub samples: u64,
    /// How long backward takes, at most.
    pub compute_us: u64,
    pub latency_us: u64,
    /// Of a block's write into a neighbour's sums, at most.
    pub write_us: u64,
    /// How long a newcomer takes the state beside training, at most.
    pub taking_us: u64,
    /// The leash ends evicted processes.
    pub leash: bool,
    /// By the number of events before them.
    pub faults: Vec<(u64, Fault)>,
    pub freeze_us: u64,
    /// Who begins a planned epoch closes its connections to leavers at once, and does not wait until they close theirs.
    pub parts_early: bool,
    /// Whether a cut shows in what is acknowledged.
    pub by_path: bool,
    pub limits: Limits,
}

const SECOND_US: u64 = 1_000_000;
/// Events before a process joins a small world: it is there when the first steps have been made.
const JOINS_AT: u64 = 60;

fn limits(members_min: usize, rules: Rules) -> Limits {
    Limits {
        members_min,
        members_max: 6,
        heartbeat: Duration::from_secs(2),
        load_patience: Duration::from_secs(4),
        fence_patience: Duration::from_millis(400),
        rejoin_patience: Duration::from_secs(30),
        coordinator_patience: Duration::from_secs(8),
        rules,
    }
}

impl Swarm {
    /// Of a seed; with one rule of the machines broken, if given.
    pub fn of(rng: &mut Rng, bug: Option<Bug>) -> Self {
        let rules = bug.map_or_else(Rules::default, Rules::but);
        let founders = [1, 2, 2, 3, 3, 3, 4, 4, 5][rng.usize(..9)];
        let hosts = rng.usize(1..=founders.max(2));
        let batch = rng.u64(1..4);
        let members_min = if rng.u8(..4) == 0 { rng.usize(1..=founders) } else { 1 };
        Self {
            founders,
            hosts,
            buckets: rng.usize(1..4),
            blocks: rng.usize(1..3),
            batch,
            samples: batch * rng.u64(4..40),
            compute_us: rng.u64(20_000..400_000),
            latency_us: rng.u64(100..20_000),
            write_us: rng.u64(100..20_000),
            taking_us: rng.u64(0..2 * SECOND_US),
            leash: rng.bool(),
            faults: faults(rng),
            freeze_us: rng.u64(4..12) * SECOND_US,
            parts_early: rng.bool(),
            by_path: rng.bool(),
            limits: limits(members_min, rules),
        }
    }

    /// A small world without chance: its only fault is a kill.
    pub fn small(founders: usize, buckets: usize, hosts: usize) -> Self {
        Self {
            founders,
            hosts,
            buckets,
            blocks: 1,
            batch: 1,
            samples: 7,
            compute_us: 50_000,
            latency_us: 500,
            write_us: 500,
            taking_us: 50_000,
            leash: true,
            faults: Vec::new(),
            freeze_us: SECOND_US / 2,
            parts_early: false,
            by_path: false,
            limits: limits(1, Rules::default()),
        }
    }

    /// The same with a process that joins; and it is not peaceful, though that is the only fault which it has of itself.
    #[must_use]
    pub fn joined(self) -> Self {
        let faults = vec![(JOINS_AT, Fault::Join), (u64::MAX, Fault::Kill)];
        Self { faults, freeze_us: SECOND_US, ..self }
    }

    /// Processes that join, at least.
    pub fn newcomers(&self) -> usize {
        self.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Join)).count()
    }

    /// How long both ends of a connection bear silence.
    pub fn patience(&self) -> Patience {
        Patience { silence_max: self.limits.heartbeat, by_path: self.by_path }
    }

    /// Whether members leave and join, and nothing else happens.
    pub fn is_peaceful(&self) -> bool {
        let in_order = |(_, fault): &(u64, Fault)| matches!(fault, Fault::Leave | Fault::Join);
        !self.faults.is_empty() && self.faults.iter().all(in_order)
    }

    /// Whether scripts hang, and nothing else happens.
    pub fn only_hangs(&self) -> bool {
        !self.faults.is_empty() && self.faults.iter().all(|(_, fault)| matches!(fault, Fault::Hang { .. }))
    }
}

fn faults(rng: &mut Rng) -> Vec<(u64, Fault)> {
    let hangs_only = rng.u8(..8) == 0;
    let kinds: Vec<u8> = if hangs_only { vec![12] } else { (0..13).filter(|_| rng.bool()).collect() };
    let mut faults = Vec::new();
    if kinds.is_empty() {
        return faults;
    }
    let count = rng.usize(..7);
    let mut at = 0;
    for _ in 0..count {
        // Half of them come close after another: during what that one has begun.
        at += if rng.bool() { rng.u64(1..40) } else { rng.u64(1..500) };
        let kind = kinds[rng.usize(..kinds.len())];
        faults.push((at, fault(rng, kind)));
    }
    faults
}

/// Shorter than the time after which silence is a loss, or longer.
fn pause_us(rng: &mut Rng) -> u64 {
    if rng.bool() { rng.u64(1_000..SECOND_US) } else { rng.u64(2 * SECOND_US..6 * SECOND_US) }
}

fn fault(rng: &mut Rng, kind: u8) -> Fault {
    match kind {
        0 => Fault::Kill,
        1 => Fault::KillHost,
        2 => Fault::Stop { for_us: pause_us(rng) },
        3 => Fault::Cut { for_us: pause_us(rng), both: rng.bool() },
        4 => Fault::CutCoordinator { for_us: pause_us(rng) },
        5 => Fault::Reset,
        6 => Fault::Join,
        7 => Fault::Leave,
        8 => Fault::LoneBeginner { for_us: rng.u64(0..SECOND_US) },
        10 => Fault::TearJournal { for_us: pause_us(rng) },
        12 => Fault::Hang { for_us: pause_us(rng) },
        9 => Fault::KillCoordinator { for_us: pause_us(rng) },
        _ => Fault::StopCoordinator { for_us: pause_us(rng) },
    }
}
