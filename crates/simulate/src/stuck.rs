//! Explains why nothing moves: the first op that never ended, and the chain of waits behind it, to its circle or its
//! end.

use crate::channel::Flows;
use crate::graph::Graph;
use crate::instance::{ENDED, Instance};
use crate::step::Work;
use std::collections::HashMap;

/// Ranks and ops that are named; further ones are counted.
const NAMED_MAX: usize = 16;

/// Sentences about it.
pub fn diagnose(
    graphs: &[&Graph],
    instances: &[Instance],
    flows: &Flows<'_>,
    rendezvous: bool,
    stuck: &[u32],
) -> String {
    let ranks = list(stuck.iter().map(ToString::to_string), stuck.len());
    let head = format!("{} of the ranks have not ended: {ranks}", stuck.len());
    let open = instances.iter().filter(|instance| instance.is_open() && instance.ranks_left > 0);
    let first = open
        .filter_map(|instance| {
            let look = Look::at(graphs[instance.graph], instance, flows, rendezvous);
            look.first().map(|op| (look.graph.place(op), instance.launch, look.tell(op)))
        })
        .min();
    match first {
        Some((_, _, causes)) => format!("{head}\n{causes}"),
        None => head,
    }
}

struct Look<'a> {
    graph: &'a Graph,
    instance: &'a Instance,
    flows: &'a Flows<'a>,
    rendezvous: bool,
    /// By op that has not ended: one of its dependencies that has not ended either.
    before: HashMap<u32, u32>,
}

impl<'a> Look<'a> {
    fn at(graph: &'a Graph, instance: &'a Instance, flows: &'a Flows<'a>, rendezvous: bool) -> Self {
        let mut before = HashMap::new();
        for op in (0..graph.ops()).filter(|&op| instance.waits[op as usize] != ENDED) {
            graph.successors(op, |next| {
                before.entry(next).or_insert(op);
            });
        }
        Self { graph, instance, flows, rendezvous, before }
    }

    fn waits(&self, op: u32) -> u32 {
        self.instance.waits[op as usize]
    }

    /// The first op in program order that did not end although all before it did: where ranks diverge.
    fn first(&self) -> Option<u32> {
        let open = (0..self.graph.ops()).filter(|&op| {
            let forgotten = matches!(self.graph.step(op).work, Work::Send { forgotten: true, .. });
            self.waits(op) != ENDED && !forgotten && !self.before.contains_key(&op)
        });
        open.min_by_key(|&op| (self.graph.place(op), self.graph.step(op).rank))
    }

    /// An op's open dependency that is itself an op.
    fn cause(&self, op: u32) -> Option<u32> {
        if let Some(&before) = self.before.get(&op) {
            return Some(before);
        }
        match self.graph.step(op).work {
            Work::Send { peer, .. } if self.rendezvous && self.waits(op) > 0 => Some(peer),
            Work::Receive { peer, .. } if self.rendezvous == (self.waits(op) == 0) => Some(peer),
            _ => None,
        }
    }

    /// Follows causes until one repeats, or there is none.
    fn tell(&self, first: u32) -> String {
        let mut chain = vec![first];
        let mut seen = HashMap::from([(first, 0)]);
        let mut at = first;
        while let Some(cause) = self.cause(at) {
            // Both ends of a message wait for each other when it is in flight or its launch has yet to start: no circle.
            if let Some(&from) = seen.get(&cause) {
                if chain.len() - from > 2 {
                    let circle = list(chain[from..].iter().map(|&op| self.name(op)), chain.len() - from);
                    return format!(
                        "first op that never ended: {}\nwaits in a circle: {circle} → {}",
                        self.name(first),
                        self.name(cause)
                    );
                }
                break;
            }
            seen.insert(cause, chain.len());
            chain.push(cause);
            at = cause;
        }
        let waits = list(chain.iter().map(|&op| self.name(op)), chain.len());
        format!("first op that never ended: {}\nwaits: {waits}; {}", self.name(first), self.reason(at))
    }

    /// Why an op without open dependencies does not end.
    fn reason(&self, op: u32) -> String {
        let step = self.graph.step(op);
        let (rank, peer) = match step.work {
            Work::Send { route, .. } if self.flows.is_stopped(route) => {
                return format!(
                    "rank {}'s message does not move: a link on its way carries nothing",
                    step.rank
                );
            }
            Work::Send { peer, .. } | Work::Receive { peer, .. } => (step.rank, self.graph.step(peer).rank),
            Work::Compute { .. } | Work::Wait { .. } | Work::Copy { .. } => (step.rank, step.rank),
        };
        let late = if self.waits(op) > 0 { rank } else { peer };
        format!("rank {late} has not started its part")
    }

    fn name(&self, op: u32) -> String {
        let step = self.graph.step(op);
        let what = format!("{:?}", step.kind).to_lowercase();
        let peer = match step.work {
            Work::Compute { .. } | Work::Wait { .. } | Work::Copy { .. } => String::new(),
            Work::Send { peer, .. } => format!(" to rank {}", self.graph.step(peer).rank),
            Work::Receive { peer, .. } => format!(" from rank {}", self.graph.step(peer).rank),
        };
        format!("rank {} op {} of `{}` ({what}{peer})", step.rank, self.graph.place(op), self.graph.name())
    }
}

fn list(names: impl Iterator<Item = String>, count: usize) -> String {
    let mut shown: Vec<String> = names.take(NAMED_MAX).collect();
    if count > NAMED_MAX {
        shown.push(format!("… {} more", count - NAMED_MAX));
    }
    shown.join(", ")
}
