//! The state of the coordinator's host: its machine and connections, and what its disk has.

use crate::event::OfCoordinator;
use crate::gathering::{Gathering, Head, Waiting};
use crate::hearing::Hearing;
use crate::net::ConnectionId;
use hocket_ids::Member;
use hocket_protocol::membership::coordinator::Coordinator;
use hocket_protocol::membership::shortage::Shortage;
use hocket_protocol::membership::{Decision, Ending, Limits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long the disk takes to synchronise a record, at most.
pub const SYNC_US: u64 = 20_000;

pub struct Host {
    pub machine: Option<Coordinator>,
    pub gathering: Gathering,
    pub waiting: Waiting,
    /// Too few members are left to meet.
    pub shortage: Shortage,
    /// Members that go on; while they meet, those that are to come.
    pub roster: Vec<Member>,
    /// Members that were lost, and may not know it.
    pub shut_out: BTreeSet<Member>,
    /// Those that were silent for too long, and have not come back.
    pub silent: BTreeSet<Member>,
    /// Until when members of a journal may come back.
    pub back_until: Option<Duration>,
    pub limits: Limits,
    /// Events of a life before this one are not heard.
    pub life: u32,
    pub stopped: bool,
    pub backlog: Vec<OfCoordinator>,
    pub links: BTreeMap<usize, (ConnectionId, Hearing)>,
    pub head: Head,
    /// A head that the disk does not have yet.
    pub new_head: Option<Head>,
    pub durable: Vec<u8>,
    pub unsynced: VecDeque<Decision>,
    pub ended: Option<Ending>,
    /// Its clock is ahead by so much.
    pub skew: Duration,
    /// It ends about when the next record is on the disk, for so long.
    pub doomed: Option<u64>,
}

impl Host {
    pub fn new(founders: usize, limits: Limits) -> Self {
        let members: Vec<_> = (0..founders as u64).map(Member).collect();
        Self {
            machine: None,
            gathering: Gathering::default(),
            waiting: Waiting::default(),
            shortage: Shortage::default(),
            roster: Vec::new(),
            shut_out: BTreeSet::new(),
            silent: BTreeSet::new(),
            back_until: None,
            limits,
            life: 0,
            stopped: false,
            backlog: Vec::new(),
            links: BTreeMap::new(),
            head: Head { generation: 1, holders: members.clone(), members },
            new_head: None,
            durable: Vec::new(),
            unsynced: VecDeque::new(),
            ended: None,
            skew: Duration::ZERO,
            doomed: None,
        }
    }
}
