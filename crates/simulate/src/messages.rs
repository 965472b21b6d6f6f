//! Messages with dependencies and gaps: the traffic of a trace, without the programs that made it.
//!
//! A message leaves `gap` after the last of its predecessors: after their arrival if they come to its source, after
//! their departure if they leave it. A message from a rank to itself is a moment, and moves nothing. Gaps are
//! computation that occupies no engine, so any number of them pass at once.

use crate::conditions::Costs;
use crate::error::Error;
use crate::graph::{Graph, Listed};
use crate::step::{Step, Work};
use crate::time::from_s;
use hocket_network::Network;
use hocket_trace::Kind;

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The sending rank.
    pub source: u32,
    /// The receiving rank.
    pub destination: u32,
    /// Length of its payload.
    pub bytes: u64,
    /// Numbers of messages from or to `source`.
    pub after: Vec<u32>,
    /// Time from the last of those; without any, from the start.
    pub gap_s: f64,
}

/// Numbers of the ops of one message; a moment has neither `send` nor `receive`.
#[derive(Clone, Copy)]
struct Ops {
    wait: u32,
    send: u32,
    receive: u32,
}

/// Builds the graph. Messages cost nothing at `switches`, ranks that work at the rate of their links. By rank, ops are
/// in the order of messages: for its source a wait and then a send, for its destination a receive.
pub fn timed(
    world: u32,
    messages: &[Timed],
    switches: &[u32],
    network: &Network,
    costs: &Costs,
) -> Result<Graph, Error> {
    costs.check()?;
    check(world, messages)?;
    let (first, ops) = numbered(world, messages);
    let total = *first.last().unwrap_or(&0) as usize;
    let nothing = Step { rank: 0, kind: Kind::Wait, bytes: 0, work: Work::Wait { time: 0 } };
    let mut listed = Listed { name: "traffic".into(), first, ..Listed::default() };
    listed.steps = vec![nothing; total];
    listed.waits = vec![0; total];
    let mut edges = Vec::new();
    for (message, &own) in messages.iter().zip(&ops) {
        let (rank, bytes) = (message.source, message.bytes);
        let work = Work::Wait { time: from_s(message.gap_s) };
        listed.steps[own.wait as usize] = Step { rank, kind: Kind::Wait, bytes: 0, work };
        for &before in &message.after {
            let (there, place) = (&messages[before as usize], ops[before as usize]);
            let arrives = there.destination == rank && there.source != rank;
            edges.push((if arrives { place.receive } else { place.wait }, own.wait));
        }
        if message.source == message.destination {
            continue;
        }
        let route = network.route(message.source, message.destination)?;
        let cost = |rank, cost_s| if switches.contains(&rank) { 0 } else { from_s(cost_s) };
        let socket_s = costs.socket_on(route, network) * bytes as f64;
        let work = Work::Send {
            route,
            peer: own.receive,
            cost: cost(message.source, costs.send_s),
            writing: cost(message.source, socket_s),
            reading: cost(message.destination, socket_s),
            forgotten: false,
        };
        listed.steps[own.send as usize] = Step { rank, kind: Kind::Send, bytes, work };
        edges.push((own.wait, own.send));
        let work = Work::Receive {
            route,
            peer: own.send,
            cost: cost(message.destination, costs.receive_s),
            reading: cost(message.destination, socket_s),
        };
        listed.steps[own.receive as usize] =
            Step { rank: message.destination, kind: Kind::Recv, bytes, work };
    }
    edges.sort_unstable();
    edges.dedup();
    listed.first_then = vec![0; total + 1];
    for &(from, to) in &edges {
        listed.first_then[from as usize + 1] += 1;
        listed.waits[to as usize] += 1;
    }
    for at in 0..total {
        listed.first_then[at + 1] += listed.first_then[at];
    }
    listed.then = edges.into_iter().map(|(_, to)| to).collect();
    Ok(Graph::Listed(listed))
}

fn check(world: u32, messages: &[Timed]) -> Result<(), Error> {
    let wrong = |at: usize, what: String| Err(Error::Job { what: format!("message {at} {what}") });
    for (at, message) in messages.iter().enumerate() {
        if message.source >= world || message.destination >= world {
            let (from, to) = (message.source, message.destination);
            return wrong(at, format!("goes from rank {from} to rank {to} of {world}"));
        }
        if !(message.gap_s >= 0.0 && message.gap_s.is_finite()) {
            return wrong(at, format!("has a gap of {} s", message.gap_s));
        }
        for &before in &message.after {
            let Some(there) = messages.get(before as usize) else {
                return wrong(at, format!("comes after message {before}, which does not exist"));
            };
            if ![there.source, there.destination].contains(&message.source) {
                return wrong(
                    at,
                    format!("comes after message {before}, of which rank {} knows nothing", message.source),
                );
            }
        }
    }
    Ok(())
}

/// The start of each rank's ops, and the numbers of all messages' ops.
fn numbered(world: u32, messages: &[Timed]) -> (Vec<u32>, Vec<Ops>) {
    let mut counts = vec![0_u32; world as usize];
    for message in messages {
        counts[message.source as usize] += 1;
        if message.source != message.destination {
            counts[message.source as usize] += 1;
            counts[message.destination as usize] += 1;
        }
    }
    let mut first = vec![0];
    for count in counts {
        first.push(first[first.len() - 1] + count);
    }
    let mut next = first.clone();
    let mut take = |rank: u32, count: u32| {
        let place = next[rank as usize];
        next[rank as usize] += count;
        place
    };
    let ops = messages
        .iter()
        .map(|message| {
            let remote = message.source != message.destination;
            let wait = take(message.source, if remote { 2 } else { 1 });
            let receive = if remote { take(message.destination, 1) } else { wait };
            Ops { wait, send: if remote { wait + 1 } else { wait }, receive }
        })
        .collect();
    (first, ops)
}
