//! One rank's part in bringing up a mesh: it calls lower ranks, agrees with all which calls were not answered, calls higher ranks that
//! could not call it, and awaits the others.
//!
//! The higher rank of a pair calls, as a rule. Where the lower one cannot be called (it is behind a firewall, or an address of a
//! private network), it calls instead: a connection serves both directions.

use crate::callers::turn_away;
use crate::connection::Stream;
use crate::endpoint::{Exchange, Join, Own};
use crate::identity::{Address, Identity};
use crate::lanes::{Towards, towards};
use crate::limits::{is_met, is_out_of_descriptors};
use crate::mesh::{Agree, Connections, MeshError, Missed, Unlinked, local_name};
use crate::proof::{HANDSHAKE_TIMEOUT, introduce};
use hocket_ids::Rank;
use hocket_protocol::congestion::streams;
use hocket_protocol::handshake::LaneId;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::unix::net as unix;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between calls to a listener that does not answer yet.
const CALL_AGAIN: Duration = Duration::from_millis(50);
/// How often a rank that awaits callers checks whether one could not be admitted.
const STARVED_POLL: Duration = Duration::from_millis(100);
/// Longest first wait for the host of a rank that may call by itself; most answer within a round trip.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait for such a host: TCP asks three times within it.
const WAIT: Duration = Duration::from_secs(5);

/// A connection that is ready, and what makes a link of it.
struct Opened {
    stream: Stream,
    join: Join,
}

/// What there is of a connection.
enum Place {
    Empty,
    Came(Stream),
    Ready(Opened),
}

/// The ranks that this one connects to, and how far it has come with each.
pub struct Meeting<'a> {
    caller: Caller<'a>,
    shared: Own<'a>,
    /// By rank and lane; as many as there are at least, until one is known to have more.
    places: Vec<Vec<Place>>,
    /// By rank, how many there may be.
    lanes: &'a [RangeInclusive<usize>],
    /// Ranks that this one awaits a call of.
    awaited: HashSet<Rank>,
}

impl<'a> Meeting<'a> {
    /// `lanes`: by rank, how many connections it is to have at least and at most.
    pub fn new(
        identity: &'a Identity,
        peers: &'a [Address],
        lanes: &'a [RangeInclusive<usize>],
        shared: Own<'a>,
        deadline: Instant,
    ) -> Self {
        let places = lanes.iter().map(|lanes| empty(*lanes.start())).collect();
        Self { caller: Caller { identity, peers, deadline }, shared, places, lanes, awaited: HashSet::new() }
    }

    /// Fills every place but those of pairs that it returns, between which there is no way.
    pub fn hold(
        &mut self,
        admitted: &mpsc::Receiver<(LaneId, Stream)>,
        starved: &AtomicBool,
        timeout: Duration,
        agree: Option<Agree<'_>>,
    ) -> Result<Vec<Unlinked>, MeshError> {
        let own = self.caller.identity.rank;
        let wanted: Vec<Rank> = (0..self.caller.peers.len())
            .filter(|&at| !self.places[at].is_empty())
            .map(Rank::from_index)
            .collect();
        let (lower, higher): (Vec<Rank>, Vec<Rank>) = wanted.into_iter().partition(|rank| *rank < own);
        self.awaited.extend(&higher);
        let mut unlinked = Vec::new();
        let mut failures = self.call_all(&lower, agree.is_some())?;
        if let Some(agree) = agree {
            let missed = agree(std::mem::take(&mut failures))?;
            unlinked = self.turn_round(&missed, agree)?;
            for Unlinked { ranks: (one, other), .. } in &unlinked {
                for (at, rank) in [(one, other), (other, one)] {
                    if *at == own {
                        self.places[rank.index()].clear();
                        self.awaited.remove(rank);
                    }
                }
            }
        }
        // The higher rank of a pair tells first, whoever called: all come to their lowest partner first, so no circle waits.
        for rank in lower {
            while self.has_empty(rank) && self.awaited.contains(&rank) && self.next(admitted, starved)? {}
            self.finish(rank, Exchange::SendFirst)?;
        }
        loop {
            for &rank in &higher {
                self.finish(rank, Exchange::ReceiveFirst)?;
            }
            if !higher.iter().any(|&rank| self.has_empty(rank)) || !self.next(admitted, starved)? {
                break;
            }
        }
        self.all_there(&failures, timeout)?;
        Ok(unlinked)
    }

    /// Turns the calls that were not answered round, and returns the pairs of which neither end answers.
    fn turn_round(&mut self, missed: &[Vec<Missed>], agree: Agree<'_>) -> Result<Vec<Unlinked>, MeshError> {
        if missed.iter().all(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let own = self.caller.identity.rank;
        let mut callees = Vec::new();
        for (at, missed) in missed.iter().enumerate() {
            let from = Rank::from_index(at);
            for (rank, _) in missed {
                if *rank == own {
                    self.awaited.remove(&from);
                    callees.push(from);
                } else if from == own {
                    self.awaited.insert(*rank);
                }
            }
        }
        let again = self.call_all(&callees, true)?;
        let again = agree(again)?;
        let mut unlinked = Vec::new();
        for (at, again) in again.into_iter().enumerate() {
            let lower = Rank::from_index(at);
            for (higher, back) in again {
                let there = missed.get(higher.index()).into_iter().flatten().find(|(rank, _)| *rank == lower);
                let there = there.map_or("", |(_, why)| why);
                let why =
                    format!("rank {higher} called rank {lower}: {there}; rank {lower} called back: {back}");
                unlinked.push(Unlinked { ranks: (lower, higher), why });
            }
        }
        Ok(unlinked)
    }

    /// Calls the ranks, and returns those that were not reached. If a call `turns` round when it is not answered, it is given up sooner.
    fn call_all(&mut self, ranks: &[Rank], turns: bool) -> Result<Vec<Missed>, MeshError> {
        let mut missed = Vec::new();
        let mut slow = Vec::new();
        for &rank in ranks {
            match self.caller.call(rank, &self.lanes[rank.index()], turns.then_some(FIRST_WAIT)) {
                Ok(streams) => self.came(rank, streams),
                Err(Unanswered { why, .. }) if is_out_of_descriptors(&why) => return Err(why.into()),
                Err(Unanswered { why, reached: false, .. })
                    if turns && self.caller.is_far(rank) && why.kind() == io::ErrorKind::TimedOut =>
                {
                    slow.push(rank);
                }
                Err(unanswered) => missed.push(self.missed(rank, &unanswered, turns)?),
            }
            if !turns && !missed.is_empty() && Instant::now() >= self.caller.deadline {
                // No time is left to call others: that is not their fault.
                break;
            }
        }
        let (caller, lanes) = (self.caller, self.lanes);
        let answers = thread::scope(|scope| {
            let call = |&rank: &Rank| {
                let lanes = &lanes[rank.index()];
                let thread = thread::Builder::new().name("hocket-call".into());
                thread.spawn_scoped(scope, move || caller.call(rank, lanes, Some(WAIT)))
            };
            let calls = slow.iter().map(call).collect::<io::Result<Vec<_>>>()?;
            io::Result::Ok(calls.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>())
        })?;
        for (rank, answer) in slow.into_iter().zip(answers) {
            match answer {
                Ok(Ok(streams)) => self.came(rank, streams),
                Ok(Err(Unanswered { why, .. })) if is_out_of_descriptors(&why) => return Err(why.into()),
                Ok(Err(unanswered)) => missed.push(self.missed(rank, &unanswered, turns)?),
                Err(_) => return Err(io::Error::other("a thread that called a rank has panicked").into()),
            }
        }
        Ok(missed)
    }

    /// A call that may be turned round; else the end of the mesh.
    fn missed(&self, rank: Rank, unanswered: &Unanswered, turns: bool) -> Result<Missed, MeshError> {
        let Unanswered { towards, reached, why } = unanswered;
        let to = towards.map_or_else(String::new, |towards| format!("{towards}: "));
        let missed = (rank, format!("{to}{why}"));
        if turns && (*reached || !self.caller.is_far(rank)) {
            return Err(self.missing(vec![missed], None));
        }
        Ok(missed)
    }

    fn missing(&self, missed: Vec<Missed>, timeout: Option<Duration>) -> MeshError {
        let each = |(rank, why): Missed| (rank, self.caller.peers[rank.index()].clone(), why);
        MeshError::Missing { ranks: missed.into_iter().map(each).collect(), timeout }
    }

    fn came(&mut self, rank: Rank, streams: Vec<Stream>) {
        self.places[rank.index()] = streams.into_iter().map(Place::Came).collect();
    }

    fn has_empty(&self, rank: Rank) -> bool {
        self.places[rank.index()].iter().any(|place| matches!(place, Place::Empty))
    }

    /// Awaits a caller for a while; false at the deadline.
    fn next(
        &mut self,
        admitted: &mpsc::Receiver<(LaneId, Stream)>,
        starved: &AtomicBool,
    ) -> Result<bool, MeshError> {
        let own = self.caller.identity.rank;
        let left = self.caller.deadline.saturating_duration_since(Instant::now());
        let (id, stream) = match admitted.recv_timeout(left.min(STARVED_POLL)) {
            Ok(caller) => caller,
            Err(_) if starved.load(Ordering::Relaxed) => {
                return Err(io::Error::from(rustix::io::Errno::MFILE).into());
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the listener's thread has ended").into());
            }
            Err(_) => return Ok(!left.is_zero()),
        };
        let LaneId { from, lane, lanes, .. } = id;
        let wanted = self.lanes.get(from.index()).is_some_and(|known| known.contains(&(lanes as usize)));
        if wanted && self.awaited.contains(&from) {
            let places = &mut self.places[from.index()];
            // The first one that comes says how many there are.
            if places.iter().all(|place| matches!(place, Place::Empty)) {
                *places = empty(lanes as usize);
            }
            if let Some(place @ Place::Empty) = places.get_mut(lane as usize) {
                *place = Place::Came(stream);
                return Ok(true);
            }
        }
        turn_away(self.caller.identity, LaneId { to: own, ..id }, stream);
        Ok(true)
    }

    /// Makes what came of a rank ready.
    fn finish(&mut self, rank: Rank, exchange: Exchange) -> Result<(), MeshError> {
        let (here, peer) =
            (&self.caller.peers[self.caller.identity.rank.index()], &self.caller.peers[rank.index()]);
        for place in &mut self.places[rank.index()] {
            *place = match std::mem::replace(place, Place::Empty) {
                Place::Came(stream) => {
                    let opened = opened(stream, (here, peer), self.shared, exchange).map_err(|source| {
                        let host = peer.host.clone();
                        if is_met(&source) { source.into() } else { MeshError::Left { rank, host, source } }
                    });
                    Place::Ready(opened?)
                }
                other => other,
            };
        }
        Ok(())
    }

    /// Names each rank that a connection is missing to.
    fn all_there(&self, failures: &[Missed], timeout: Duration) -> Result<(), MeshError> {
        let mut missed = failures.to_vec();
        for (at, places) in self.places.iter().enumerate() {
            let rank = Rank::from_index(at);
            let missing = places.iter().filter(|place| matches!(place, Place::Empty)).count();
            if missing > 0 && self.awaited.contains(&rank) {
                let why = match places.len() {
                    1 => "it did not call".into(),
                    all => format!("of its {all} connections {missing} did not come"),
                };
                missed.push((rank, why));
            }
        }
        if missed.is_empty() { Ok(()) } else { Err(self.missing(missed, Some(timeout))) }
    }

    /// All connections, as the mesh does not come up.
    pub fn streams(self) -> impl Iterator<Item = Stream> {
        self.places.into_iter().flatten().filter_map(|place| match place {
            Place::Empty => None,
            Place::Came(stream) | Place::Ready(Opened { stream, .. }) => Some(stream),
        })
    }

    /// The connections to a rank, if there is a way.
    pub fn connections(&mut self, rank: Rank) -> Option<Connections> {
        let ready =
            std::mem::take(&mut self.places[rank.index()]).into_iter().filter_map(|place| match place {
                Place::Ready(opened) => Some((opened.stream, opened.join)),
                Place::Empty | Place::Came(_) => None,
            });
        let (streams, mut joins): (Vec<_>, Vec<_>) = ready.unzip();
        joins.pop().map(|join| Connections { streams, join })
    }
}

/// What a rank needs for its calls.
#[derive(Clone, Copy)]
struct Caller<'a> {
    identity: &'a Identity,
    peers: &'a [Address],
    deadline: Instant,
}

impl Caller<'_> {
    fn is_far(self, rank: Rank) -> bool {
        self.peers[rank.index()].host != self.peers[self.identity.rank.index()].host
    }

    /// Calls the listener of a rank for each lane, until it answers or the deadline passes; with `wait`, its host answers in
    /// that time or not at all. Of the number of lanes, the first one's path decides.
    fn call(
        self,
        rank: Rank,
        lanes: &RangeInclusive<usize>,
        wait: Option<Duration>,
    ) -> Result<Vec<Stream>, Unanswered> {
        let own = self.identity.rank;
        let (here, peer) = (&self.peers[own.index()], &self.peers[rank.index()]);
        let far = self.is_far(rank);
        let mut streams = Vec::new();
        let mut chosen = None;
        while chosen.is_none_or(|all| streams.len() < all) {
            let lane = streams.len();
            let id = LaneId { from: own, to: rank, lane: lane as u32, lanes: chosen.unwrap_or(0) as u32 };
            let towards = far.then(|| towards(here, peer, lane));
            let stream = loop {
                match self.attempt(id, lanes, towards, wait.filter(|_| far)) {
                    Ok((stream, all)) => {
                        chosen = Some(all);
                        break stream;
                    }
                    Err((reached, why)) => {
                        let gives_up = matches!(why.kind(), io::ErrorKind::PermissionDenied)
                            || is_out_of_descriptors(&why)
                            || (wait.is_some() && far && !reached)
                            || Instant::now() + CALL_AGAIN >= self.deadline;
                        if gives_up {
                            return Err(Unanswered { towards, reached, why });
                        }
                        thread::sleep(CALL_AGAIN);
                    }
                }
            };
            streams.push(stream);
        }
        Ok(streams)
    }

    /// One call, and how many lanes there are to be; the error says whether the host answered.
    fn attempt(
        self,
        id: LaneId,
        lanes: &RangeInclusive<usize>,
        towards: Option<Towards>,
        wait: Option<Duration>,
    ) -> Result<(Stream, usize), (bool, io::Error)> {
        let left = self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let deadline = self.deadline.min(Instant::now() + HANDSHAKE_TIMEOUT);
        let unreached = |why| (false, why);
        let stream = if let Some(towards) = towards {
            Stream::Tcp(towards.open(wait.map_or(left, |wait| wait.min(left))).map_err(unreached)?)
        } else {
            let port = self.peers[id.to.index()].tcp.first().map_or(0, SocketAddr::port);
            let name = local_name(&self.identity.job, id.to, port).map_err(unreached)?;
            Stream::Unix(unix::UnixStream::connect_addr(&name).map_err(unreached)?)
        };
        let all = if id.lanes > 0 { id.lanes as usize } else { lanes_for(&stream, lanes) };
        let id = LaneId { lanes: all as u32, ..id };
        introduce(self.identity, stream, id, deadline).map(|stream| (stream, all)).map_err(|why| (true, why))
    }
}

/// How many lanes the path of the first one needs, within bounds. Its congestion control is chosen later.
fn lanes_for(first: &Stream, lanes: &RangeInclusive<usize>) -> usize {
    let (least, most) = (*lanes.start(), *lanes.end());
    if least == most {
        return least;
    }
    let round_trip = first.info().map_or(Duration::ZERO, |info| info.shortest());
    (least * streams(round_trip, first.bear_losses())).min(most)
}

fn empty(lanes: usize) -> Vec<Place> {
    (0..lanes).map(|_| Place::Empty).collect()
}

/// A call that was not answered.
struct Unanswered {
    towards: Option<Towards>,
    /// Its host accepted the connection.
    reached: bool,
    why: io::Error,
}

fn opened(
    mut stream: Stream,
    (here, peer): (&Address, &Address),
    own: Own<'_>,
    exchange: Exchange,
) -> io::Result<Opened> {
    stream.set_deadline(HANDSHAKE_TIMEOUT)?;
    let join = own.endpoints.between(here, peer)?.meet(&mut stream, own, exchange)?;
    stream.set_nonblocking()?;
    Ok(Opened { stream, join })
}
