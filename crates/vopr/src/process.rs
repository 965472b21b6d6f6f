//! One simulated process: the real machines of a member, its replica of the model, and its engine's bookkeeping.

use crate::event::{Epoch, Local, Packet};
use crate::hearing::Hearing;
use crate::memory::{Region, Sum};
use crate::net::ConnectionId;
use hocket_ids::Member;
use hocket_protocol::drain::Drain;
use hocket_protocol::membership::Decision;
use hocket_protocol::membership::member::Participant;
use hocket_protocol::sampler::mixed;
use hocket_protocol::sampler::{Draw, Sampler};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Blocks of the model's state.
pub const STATE_BLOCKS: usize = 3;

/// The model, after so many steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub steps: u64,
    pub blocks: [u64; STATE_BLOCKS],
    pub sampler: Sampler,
    /// Who draws the next step's samples.
    pub drawers: Vec<Member>,
}

impl State {
    pub fn digest(&self) -> u64 {
        let sampler = mixed(self.steps ^ self.sampler.data_epoch() << 32);
        self.blocks.iter().fold(sampler, |hash, block| mixed(hash ^ block))
    }
}

#[derive(Debug)]
pub struct Peer {
    pub connection: ConnectionId,
    pub drain: Drain,
    pub hearing: Hearing,
    /// What it says of an epoch that has not begun here.
    pub held: Vec<(usize, Packet)>,
}

#[derive(Clone, Debug, Default)]
pub struct Collective {
    pub launched: bool,
    /// By block, a bit for each member whose contribution is here.
    pub contributed: Vec<u32>,
    /// By block: what came over the network.
    pub scratch: Vec<Option<Sum>>,
    pub started: Vec<bool>,
    pub results: Vec<Option<Sum>>,
}

impl Collective {
    pub fn new(blocks: usize) -> Self {
        Self {
            launched: false,
            contributed: vec![0; blocks],
            scratch: vec![None; blocks],
            started: vec![false; blocks],
            results: vec![None; blocks],
        }
    }

    pub fn complete(&self) -> bool {
        self.launched && self.results.iter().all(Option::is_some)
    }
}

#[derive(Debug)]
pub struct Bucket {
    /// Of its sums, which neighbours read and write.
    pub region: Region,
    /// What backward has made of a step, apart from the sums: a step can be reduced again at any time.
    pub gradients: Option<Sum>,
    /// A reduction of the step has begun.
    pub used: bool,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is of its own")]
pub struct Process {
    pub host: usize,
    pub alive: bool,
    pub stopped: bool,
    pub backlog: VecDeque<Local>,
    /// Its script does not go on; what it comes to when it does is in `script_backlog`.
    pub hangs: bool,
    pub script_backlog: VecDeque<Local>,
    /// Since when its script waits for others to end the step.
    pub waits_since_us: Option<u64>,
    /// Its clock is ahead by so much.
    pub skew: Duration,
    /// Anew in each generation.
    pub participant: Participant,
    pub link: Option<(ConnectionId, Hearing)>,
    /// A newcomer's state as it took it beside training.
    pub taken: Option<State>,
    /// It wants to leave.
    pub leaves: bool,
    /// The last one that it has met; none (0) before it has met anybody.
    pub generation: u64,
    /// Members of its generation, which alone are connected.
    pub ranks: Vec<usize>,
    /// Steps of the job before its generation: its machine counts those since.
    pub steps_before: u64,
    /// Members of the epoch in which its machine is: some of these, and newcomers.
    pub current: Vec<Member>,
    /// Members that have left its generation in order.
    pub left: BTreeSet<Member>,
    /// An epoch that its machine is in, and its engine has yet to begin.
    pub pending: Option<Decision>,
    /// An epoch that waits for the end of neighbours.
    pub fencing: Option<Epoch>,
    /// It stands between two steps.
    pub at_edge: bool,
    /// In which epoch it has said that it waits there for newcomers.
    pub said_edge: Option<u64>,
    pub peers: BTreeMap<usize, Peer>,
    /// The engine's epoch, none (0) before the first of its generation; and the members there.
    pub epoch: u64,
    pub members: Vec<usize>,
    pub state: Option<State>,
    pub draw: Draw,
    pub buckets: Vec<Bucket>,
    /// Buckets, then votes, then the barrier.
    pub collectives: Vec<Collective>,
    pub clears: BTreeSet<(u64, usize, usize)>,
    pub published: BTreeMap<(u64, usize, usize), Region>,
    pub quiescing: bool,
    pub running: usize,
}

impl Process {
    /// Whether its script has done all that a step needs of it, or has none to make: it follows what is decided.
    pub fn script_waits(&self) -> bool {
        let done = self.at_edge || self.buckets.iter().all(|bucket| bucket.gradients.is_some());
        !self.hangs && (self.state.is_none() || done)
    }

    /// Whether it is to meet newcomers before it makes another step.
    pub fn has_newcomers(&self) -> bool {
        self.current.iter().any(|each| !self.ranks.contains(&(each.0 as usize)))
    }

    /// The epoch that its engine is in.
    pub fn at(&self) -> Epoch {
        (self.generation, self.epoch)
    }

    /// Which of its collectives are the votes and the barrier.
    pub fn votes(&self) -> usize {
        self.buckets.len()
    }

    pub fn barrier(&self) -> usize {
        self.buckets.len() + 1
    }

    pub fn reducer(&self, collective: usize, block: usize) -> usize {
        self.members[(collective + block) % self.members.len()]
    }

    pub fn blocks(&self, collective: usize) -> usize {
        self.collectives[collective].results.len()
    }

    /// Bits of all members of the epoch.
    pub fn everybody(&self) -> u32 {
        self.members.iter().fold(0, |bits, member| bits | 1 << member)
    }

    /// Everything of the epoch and of the step before is forgotten.
    pub fn begin_collectives(&mut self) {
        for collective in &mut self.collectives {
            *collective = Collective::new(collective.results.len());
        }
    }
}
