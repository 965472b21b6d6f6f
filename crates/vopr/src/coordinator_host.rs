//! The state of the coordinator's host: its machine and connections, and what its disk has.

use crate::event::OfCoordinator;
use crate::hearing::Hearing;
use crate::net::ConnectionId;
use hocket_protocol::membership::coordinator::Coordinator;
use hocket_protocol::membership::{Decision, Ending, Limits};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub struct Host {
    pub machine: Option<Coordinator>,
    pub founders: usize,
    pub limits: Limits,
    /// Events of a life before this one are not heard.
    pub life: u32,
    pub stopped: bool,
    pub backlog: Vec<OfCoordinator>,
    pub links: BTreeMap<usize, (ConnectionId, Hearing)>,
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
        Self {
            machine: None,
            founders,
            limits,
            life: 0,
            stopped: false,
            backlog: Vec::new(),
            links: BTreeMap::new(),
            durable: Vec::new(),
            unsynced: VecDeque::new(),
            ended: None,
            skew: Duration::ZERO,
            doomed: None,
        }
    }
}
