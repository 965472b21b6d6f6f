//! Nothing waits in a circle, even with no buffering at all: a send is complete only when its receive is posted, a receive
//! only when its send has begun. Every op has a start and an end; the graph of both over all ranks must have no cycle.

use super::Findings;
use super::collectives::Collectives;
use super::messages::Messages;
use crate::Program;
use std::collections::VecDeque;

/// An event: rank, op, and whether it is the op's end.
pub type Event = (usize, usize, bool);

/// All events in an order in which they may happen; `None` when some never do.
pub fn check(
    program: &Program,
    messages: &Messages,
    collectives: &Collectives,
    found: &mut Findings<'_>,
) -> Option<Vec<Event>> {
    let graph = Graph::of(program, messages, collectives);
    let mut waits = graph.waits.clone();
    let mut ready: VecDeque<usize> = (0..waits.len()).filter(|&event| waits[event] == 0).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(event) = ready.pop_front() {
        order.push(graph.event(event));
        for &next in &graph.then[event] {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push_back(next);
            }
        }
    }
    if order.len() == waits.len() {
        return Some(order);
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
    /// First event of each rank; the start of op `i` is at `2i`, its end at `2i + 1`. The last one is of the calls of
    /// collectives, where all members meet.
    first: Vec<usize>,
    then: Vec<Vec<usize>>,
    waits: Vec<u32>,
}

impl Graph {
    fn of(program: &Program, messages: &Messages, collectives: &Collectives) -> Self {
        let mut first = Vec::with_capacity(program.world());
        let mut events = 0;
        for rank in &program.ranks {
            first.push(events);
            events += 2 * rank.nodes.len();
        }
        first.push(events);
        events += 2 * collectives.calls.len();
        let mut graph = Self { first, then: vec![Vec::new(); events], waits: vec![0; events] };
        for (rank, ops) in program.ranks.iter().enumerate() {
            for (op, node) in ops.nodes.iter().enumerate() {
                graph.edge((rank, op, false), (rank, op, true));
                for before in &node.after {
                    graph.edge((rank, before.index(), true), (rank, op, false));
                }
            }
        }
        for ((from, to, _), message) in messages {
            graph.edge((*from, message.send, false), (*to, message.recv, true));
            graph.edge((*to, message.recv, false), (*from, message.send, true));
        }
        let meeting = program.world();
        for (call, members) in collectives.calls.iter().enumerate() {
            for &(rank, op) in members {
                graph.edge((rank, op, false), (meeting, call, false));
                graph.edge((meeting, call, false), (rank, op, true));
            }
        }
        for sequence in &collectives.sequences {
            for pair in sequence.windows(2) {
                graph.edge((pair[0].0, pair[0].1, true), (pair[1].0, pair[1].1, false));
            }
        }
        graph
    }

    /// Whether an event is of an op, not of a meeting.
    fn is_op(&self, rank: usize) -> bool {
        rank + 1 < self.first.len()
    }

    fn edge(&mut self, before: Event, after: Event) {
        let (before, after) = (self.index(before), self.index(after));
        self.then[before].push(after);
        self.waits[after] += 1;
    }

    fn index(&self, (rank, op, end): Event) -> usize {
        self.first[rank] + 2 * op + usize::from(end)
    }

    fn event(&self, index: usize) -> Event {
        let rank = self.first.partition_point(|&first| first <= index) - 1;
        let within = index - self.first[rank];
        (rank, within / 2, within % 2 == 1)
    }

    /// A cycle among the events that never happened.
    fn circle(&self, waits: &[u32]) -> Vec<usize> {
        let stuck = |event: usize| waits[event] > 0;
        let mut cause = vec![usize::MAX; waits.len()];
        for event in (0..waits.len()).filter(|&event| stuck(event)) {
            for &next in &self.then[event] {
                cause[next] = event;
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
