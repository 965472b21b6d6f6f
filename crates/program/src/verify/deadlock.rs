//! Proves that nothing waits in a cycle, even without any buffering: a send completes only when its receive is posted,
//! a receive only when its send has begun. Every op has a start and an end; the graph of both over all ranks must have
//! no cycle.

use super::Findings;
use super::collectives::Collectives;
use super::messages::Message;
use crate::Program;

/// An event: rank, op, and whether it is the op's end.
pub type Event = (usize, usize, bool);

/// All events in a possible order; `None` when some never happen.
pub fn check(
    program: &Program,
    messages: &[Message],
    collectives: &Collectives,
    found: &mut Findings<'_>,
) -> Option<Vec<Event>> {
    let graph = Graph::of(program, messages, collectives);
    let mut waits = graph.waits.clone();
    let mut order: Vec<u32> = (0..waits.len() as u32).filter(|&event| waits[event as usize] == 0).collect();
    order.reserve(waits.len() - order.len());
    let mut next = 0;
    while let Some(&event) = order.get(next) {
        next += 1;
        for &then in graph.then(event as usize) {
            waits[then as usize] -= 1;
            if waits[then as usize] == 0 {
                order.push(then);
            }
        }
    }
    if order.len() == waits.len() {
        return Some(order.into_iter().map(|event| graph.event(event as usize)).collect());
    }
    let circle = graph.circle(&waits);
    let on_op = circle.iter().map(|&event| graph.event(event)).find(|&(rank, ..)| graph.is_op(rank));
    let (rank, op, _) = on_op.unwrap_or_default();
    let mut places: Vec<(usize, usize)> = circle
        .iter()
        .map(|&event| graph.event(event))
        .filter(|&(rank, ..)| graph.is_op(rank))
        .map(|(rank, op, _)| (rank, op))
        .collect();
    places.dedup();
    let named: Vec<String> = places.iter().map(|(rank, op)| format!("rank {rank} op {op}")).collect();
    found.between(rank, op, &places, format!("waits for itself: {} → …", named.join(" → ")));
    None
}

struct Graph {
    /// First event of each rank; the start of op `i` is at `2i`, its end at `2i + 1`. The last events are those of
    /// collectives' calls, where all members meet.
    first: Vec<usize>,
    /// By op of all ranks in turn: its rank.
    ranks: Vec<u32>,
    /// By event, and one more: the first of `successors`.
    begins: Vec<u32>,
    successors: Vec<u32>,
    waits: Vec<u32>,
}

impl Graph {
    fn of(program: &Program, messages: &[Message], collectives: &Collectives) -> Self {
        let mut first = Vec::with_capacity(program.world() + 1);
        let mut ranks = Vec::new();
        for (rank, ops) in program.ranks.iter().enumerate() {
            first.push(2 * ranks.len());
            ranks.resize(ranks.len() + ops.nodes.len(), rank as u32);
        }
        let meeting = program.world();
        first.push(2 * ranks.len());
        ranks.resize(ranks.len() + collectives.calls.len(), meeting as u32);

        let mut edges: Vec<(u32, u32)> = Vec::with_capacity(3 * ranks.len() + 2 * messages.len());
        let index = |(rank, op, end): Event| (first[rank] + 2 * op + usize::from(end)) as u32;
        let mut edge = |before: Event, after: Event| edges.push((index(before), index(after)));
        for (rank, ops) in program.ranks.iter().enumerate() {
            for (op, node) in ops.nodes.iter().enumerate() {
                edge((rank, op, false), (rank, op, true));
                for before in &node.after {
                    edge((rank, before.index(), true), (rank, op, false));
                }
            }
        }
        for message in messages {
            edge((message.from, message.send, false), (message.to, message.recv, true));
            edge((message.to, message.recv, false), (message.from, message.send, true));
        }
        for (call, members) in collectives.calls.iter().enumerate() {
            for &(rank, op) in members {
                edge((rank, op, false), (meeting, call, false));
                edge((meeting, call, false), (rank, op, true));
            }
        }
        for sequence in &collectives.sequences {
            for pair in sequence.windows(2) {
                edge((pair[0].0, pair[0].1, true), (pair[1].0, pair[1].1, false));
            }
        }

        let events = 2 * ranks.len();
        let (mut begins, mut waits) = (vec![0u32; events + 1], vec![0u32; events]);
        for &(before, after) in &edges {
            begins[before as usize + 1] += 1;
            waits[after as usize] += 1;
        }
        for event in 0..events {
            begins[event + 1] += begins[event];
        }
        let mut free = begins.clone();
        let mut successors = vec![0; edges.len()];
        for (before, after) in edges {
            successors[free[before as usize] as usize] = after;
            free[before as usize] += 1;
        }
        Self { first, ranks, begins, successors, waits }
    }

    /// Events that depend on one.
    fn then(&self, event: usize) -> &[u32] {
        &self.successors[self.begins[event] as usize..self.begins[event + 1] as usize]
    }

    /// Whether an event is of an op, not of a meeting.
    fn is_op(&self, rank: usize) -> bool {
        rank + 1 < self.first.len()
    }

    fn event(&self, index: usize) -> Event {
        let rank = self.ranks[index / 2] as usize;
        (rank, (index - self.first[rank]) / 2, index % 2 == 1)
    }

    /// A cycle among the events that never happened.
    fn circle(&self, waits: &[u32]) -> Vec<usize> {
        let stuck = |event: usize| waits[event] > 0;
        let mut cause = vec![usize::MAX; waits.len()];
        for event in (0..waits.len()).filter(|&event| stuck(event)) {
            for &next in self.then(event) {
                cause[next as usize] = event;
            }
        }
        // Every stuck event has a stuck cause: going back from any of them ends in a cycle.
        let mut at = (0..waits.len()).find(|&event| stuck(event)).expect("some event is stuck");
        let mut seen = vec![false; waits.len()];
        while !std::mem::replace(&mut seen[at], true) {
            at = cause[at];
        }
        let mut circle = vec![at];
        let mut back = cause[at];
        while back != at {
            circle.push(back);
            back = cause[back];
        }
        circle.reverse();
        circle
    }
}
