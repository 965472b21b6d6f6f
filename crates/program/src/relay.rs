//! A program for ranks of which some have no link to one another: their messages go through other ranks.

use crate::{BufferKind, DType, Op, Program, RankBuilder, RankProgram, Slice, Space};
use hocket_ids::{BufferId, OpId, Rank, Tag};
use std::collections::HashMap;

impl Program {
    /// The same, with each message from one rank to another sent by way of the ranks `between` them, in that order; none: a direct
    /// link. Each of these receives a message into memory of its own before it passes it on, and nothing else there waits for it.
    /// A message of a counted number of elements is preceded by its count.
    #[must_use]
    pub fn relayed(&self, between: impl Fn(Rank, Rank) -> Vec<Rank>) -> Self {
        let mut tags = Tags::of(self);
        let mut moved = HashMap::new();
        let mut relays: Vec<Relay> = self.ranks.iter().map(|_| Relay::default()).collect();
        for (op, from, message) in self.messages() {
            let way = between(from, message.peer);
            let (Some(&first), Some(&last)) = (way.first(), way.last()) else { continue };
            let tag = tags.next(from, first, message.counted);
            let (mut hop, mut behind) = (tag, from);
            for (at, &rank) in way.iter().enumerate() {
                let next = way.get(at + 1).copied().unwrap_or(message.peer);
                // The receiver has the count.
                let onward = tags.next(rank, next, message.counted && next != message.peer);
                relays[rank.index()].pass(&message, (behind, hop), (next, onward), next != message.peer);
                (hop, behind) = (onward, rank);
            }
            moved.insert((from, op), (first, tag));
            moved.insert((message.peer, message.receiver), (last, hop));
        }
        let ranks = self.ranks.iter().zip(relays).enumerate().map(|(at, (rank, relay))| {
            rank.with(relay, |op| moved.get(&(Rank::from_index(at), op)).copied())
        });
        self.with_ranks(ranks.collect())
    }

    /// Messages in the order in which their senders come to them: the op that sends, its rank, and what it sends.
    fn messages(&self) -> Vec<(usize, Rank, Message)> {
        let mut receivers = HashMap::new();
        let mut all = Vec::new();
        for (at, ops) in self.ranks.iter().enumerate() {
            let own = Rank::from_index(at);
            for (op, node) in ops.nodes.iter().enumerate() {
                match &node.op {
                    Op::Recv { peer, tag, .. } => {
                        receivers.insert((*peer, own, *tag), op);
                    }
                    Op::Send { src, wire, peer, tag, count } => {
                        let message = (*peer, *tag, src.len(), *wire, count.is_some());
                        all.push((op, own, message));
                    }
                    _ => {}
                }
            }
        }
        all.sort_by_key(|(op, own, _)| (*op, *own));
        let matched = all.into_iter().filter_map(|(op, own, (peer, tag, elements, wire, counted))| {
            let receiver = *receivers.get(&(own, peer, tag))?;
            Some((op, own, Message { peer, receiver, elements, wire, counted }))
        });
        matched.collect()
    }
}

/// What a rank sends.
struct Message {
    peer: Rank,
    /// The peer's op.
    receiver: usize,
    elements: usize,
    wire: DType,
    counted: bool,
}

/// The next free tag between two ranks.
struct Tags(HashMap<(Rank, Rank), u32>);

impl Tags {
    fn of(program: &Program) -> Self {
        let mut free = HashMap::new();
        for (at, ops) in program.ranks.iter().enumerate() {
            for node in &ops.nodes {
                if let Op::Send { peer, tag, .. } = &node.op {
                    let next = free.entry((Rank::from_index(at), *peer)).or_insert(0);
                    *next = (*next).max(tag.0 + 1);
                }
            }
        }
        Self(free)
    }

    /// A tag; the one after it is that of the message's count, if that travels.
    fn next(&mut self, from: Rank, to: Rank, counted: bool) -> Tag {
        let next = self.0.entry((from, to)).or_insert(0);
        let tag = Tag(*next);
        *next += 1 + u32::from(counted);
        tag
    }
}

const fn count_of(tag: Tag) -> Tag {
    Tag(tag.0 + 1)
}

/// What a rank passes on between others.
#[derive(Default)]
struct Relay {
    /// Length of the memory for each element type.
    room: Vec<(DType, usize)>,
    /// Ops whose buffers are numbered as in `room`.
    ops: Vec<Op>,
}

impl Relay {
    fn pass(
        &mut self,
        message: &Message,
        (behind, hop): (Rank, Tag),
        (next, onward): (Rank, Tag),
        tells: bool,
    ) {
        let &Message { wire, elements, counted, .. } = message;
        let mut count = None;
        if counted {
            let held = self.slice(DType::I64, 1);
            self.ops.push(receive(held, DType::I64, (behind, count_of(hop)), None));
            if tells {
                self.ops.push(send(held, DType::I64, (next, count_of(onward)), None));
            }
            count = Some(held);
        }
        let held = self.slice(wire, elements);
        self.ops.push(receive(held, wire, (behind, hop), count));
        self.ops.push(send(held, wire, (next, onward), count));
    }

    fn slice(&mut self, dtype: DType, elements: usize) -> Slice {
        let at = self.room.iter().position(|(each, _)| *each == dtype).unwrap_or_else(|| {
            self.room.push((dtype, 0));
            self.room.len() - 1
        });
        let start = self.room[at].1;
        self.room[at].1 += elements;
        Slice::new(BufferId::from_index(at), start, start + elements)
    }
}

fn send(src: Slice, wire: DType, (peer, tag): (Rank, Tag), count: Option<Slice>) -> Op {
    Op::Send { src, wire, peer, tag, count }
}

fn receive(dst: Slice, wire: DType, (peer, tag): (Rank, Tag), count: Option<Slice>) -> Op {
    Op::Recv { dst, wire, reduce: None, peer, tag, count }
}

impl RankProgram {
    /// These ops, with other peers and tags where `moved` has them, behind what the rank passes on: that is announced at once, as
    /// nothing of its own comes before it.
    fn with(&self, relay: Relay, moved: impl Fn(usize) -> Option<(Rank, Tag)>) -> Self {
        let mut builder = RankBuilder::with_buffers(self);
        let buffers: Vec<BufferId> = relay
            .room
            .iter()
            .map(|(dtype, len)| {
                let name = format!("relay.{}", dtype.name());
                builder.buffer_in(Space::Host, name, *dtype, *len, BufferKind::Scratch)
            })
            .collect();
        for mut op in relay.ops {
            for slice in crate::resize::slices(&mut op) {
                slice.buffer = buffers[slice.buffer.index()];
            }
            builder.push(op, None);
        }
        let mut became: Vec<OpId> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let mut op = node.op.clone();
            let after: Vec<OpId> = node.after.iter().map(|before| became[before.index()]).collect();
            if let Some((to, tag2)) = moved(at)
                && let Op::Send { peer, tag, .. } | Op::Recv { peer, tag, .. } = &mut op
            {
                (*peer, *tag) = (to, tag2);
            }
            if let (Op::Send { count: Some(count), peer, tag, .. }, Some(_)) = (&op, moved(at)) {
                builder.push_after(
                    send(*count, DType::I64, (*peer, count_of(*tag)), None),
                    &after,
                    node.source,
                );
            }
            became.push(builder.push_after(op, &after, node.source));
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::passes::{Options, compile};
    use crate::verify::verify;
    use crate::{
        Algorithm, BufferKind, Collective, Contract, DType, Op, Program, RankBuilder, ReduceOp, Rows, Slice,
    };
    use hocket_ids::{BufferId, Rank};

    fn all_reduce(algorithm: &Algorithm, world: usize) -> Program {
        let group: Vec<Rank> = (0..world).map(Rank::from_index).collect();
        let slice = Slice::new(BufferId(0), 0, 1000);
        let rank = || {
            let mut builder = RankBuilder::new();
            builder.buffer("bucket", DType::F32, 1000, BufferKind::Bound);
            let (group, algorithm) = (group.clone(), Some(algorithm.clone()));
            let what = Collective::AllReduce;
            builder
                .push(Op::Collective { what, slice, group, op: ReduceOp::Sum, scale: 0.5, algorithm }, None);
            builder.finish()
        };
        let ensures = vec![Contract::AllReduce {
            buffer: BufferId(0),
            group: group.clone(),
            op: ReduceOp::Sum,
            scale: 0.5,
        }];
        let logical =
            Program { ranks: group.iter().map(|_| rank()).collect(), ensures, ..Program::default() };
        compile(&logical, &Options { order: None, chunk_bytes: 256, codec: None }).unwrap()
    }

    /// A message would be lost, or wait for itself, or a sum lack a rank's part.
    #[test]
    fn a_proved_program_stays_proved_and_uses_no_link_that_there_is_not() {
        let ways: [fn(u32, u32) -> Vec<u32>; 3] = [
            // Ranks 1 and 2 meet at rank 0.
            |one, other| if one.min(other) == 1 && one.max(other) == 2 { vec![0] } else { vec![] },
            // All meet at rank 3.
            |one, other| if one == 3 || other == 3 { vec![] } else { vec![3] },
            // Ranks 0 and 3 are the ends of a chain.
            |one, other| match (one, other) {
                (0, 3) => vec![1, 2],
                (3, 0) => vec![2, 1],
                _ => vec![],
            },
        ];
        let rows = Rows { rows_max: 3, elements: 2, dtype: DType::F32, table: 5 };
        let counted = Program::gathered("rows".into(), 4, &Algorithm::Ring, rows).unwrap();
        let reduced = [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::Direct];
        for program in reduced.iter().map(|each| all_reduce(each, 4)).chain([counted]) {
            assert_eq!(verify(&program), []);
            for way in ways {
                let between =
                    |one: Rank, other: Rank| way(one.0, other.0).into_iter().map(Rank).collect::<Vec<_>>();
                let relayed = program.relayed(between);
                assert_eq!(verify(&relayed), []);
                for (at, rank) in relayed.ranks.iter().enumerate() {
                    let own = Rank::from_index(at);
                    for node in &rank.nodes {
                        if let Op::Send { peer, .. } | Op::Recv { peer, .. } = &node.op {
                            assert_eq!(between(own, *peer), []);
                        }
                    }
                }
            }
            assert_eq!(program.relayed(|_, _| Vec::new()), program);
        }
    }
}
