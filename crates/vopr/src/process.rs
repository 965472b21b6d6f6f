//! One simulated process: the real machines of a member, its replica of the model, and its engine's bookkeeping.

use crate::event::{Local, Packet};
use crate::hearing::Hearing;
use crate::memory::Sum;
use crate::net::ConnectionId;
use hocket_ids::Member;
use hocket_protocol::drain::Drain;
use hocket_protocol::fence::{Fence, Region};
use hocket_protocol::membership::member::{Exit, Participant};
use hocket_protocol::sampler::mixed;
use hocket_protocol::sampler::{Draw, Layout, Sampler};
use hocket_protocol::transfer::Fetch;
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
    /// Who has drawn the next step's samples.
    pub layout: Layout,
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
    pub region: Region,
    /// The contribution, from its launch until its step is committed.
    pub kept: Option<Vec<Sum>>,
    /// Backward has made its gradients.
    pub filled: bool,
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
    pub exit: Option<Exit>,
    /// Its clock is ahead by so much.
    pub skew: Duration,
    pub participant: Participant,
    pub link: Option<(ConnectionId, Hearing)>,
    pub peers: BTreeMap<usize, Peer>,
    pub epoch: u64,
    pub members: Vec<usize>,
    pub entered_us: u64,
    /// All members of the epoch are connected.
    pub meshed: bool,
    pub gone: BTreeSet<Member>,
    pub fence: Fence,
    /// Memory that came out of quarantine.
    pub free: Vec<Region>,
    pub state: Option<State>,
    pub draw: Draw,
    pub fetch: Fetch,
    pub fetched: [u64; STATE_BLOCKS],
    pub offer: Option<(u64, Sampler, Layout)>,
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
        !self.hangs && (self.state.is_none() || self.buckets.iter().all(|bucket| bucket.filled))
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
