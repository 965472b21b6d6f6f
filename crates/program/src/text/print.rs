//! Program → text.

use crate::{
    Algorithm, BufferKind, Collective, Contract, Kernel, Node, Op, Program, Record, Share, Slice, Space,
};
use hocket_ids::{Rank, Tag};
use std::fmt::{self, Display, Formatter};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {} world {}", quoted(&self.name), self.world())?;
        for source in &self.sources {
            writeln!(f, "source {} {}", quoted(&source.file), source.line)?;
        }
        for kernel in &self.kernels {
            let kind = if kernel.elementwise { "elementwise" } else { "whole" };
            let updates = if kernel.updates { " updates" } else { "" };
            let joins = kernel.joins.map_or(String::new(), |op| format!(" joins {}", op.name()));
            write!(f, "kernel {} {kind}{updates}{joins}", quoted(&kernel.name))?;
            for parameter in &kernel.parameters {
                write!(f, " {}", number(*parameter))?;
            }
            writeln!(f)?;
        }
        for contract in &self.ensures {
            match contract {
                Contract::AllReduce { buffer, group, op, scale } => {
                    let (op, scale) = (op.name(), number(*scale));
                    writeln!(f, "ensures all_reduce {op} scale {scale} %{buffer} over {}", ranks(group))?;
                }
                Contract::AllGather { buffer, group } => {
                    writeln!(f, "ensures all_gather %{buffer} over {}", ranks(group))?;
                }
                Contract::ToOwners { buffer, group, op, scale, shares } => {
                    let (op, scale) = (op.name(), number(*scale));
                    write!(f, "ensures to_owners {op} scale {scale} %{buffer} over {}", ranks(group))?;
                    writeln!(f, "{}", owned(shares))?;
                }
                Contract::FromOwners { buffer, group, shares } => {
                    writeln!(f, "ensures from_owners %{buffer} over {}{}", ranks(group), owned(shares))?;
                }
                Contract::Same { buffer, group } => {
                    writeln!(f, "ensures same %{buffer} over {}", ranks(group))?;
                }
            }
        }
        for (rank, program) in self.ranks.iter().enumerate() {
            writeln!(f, "rank {rank} {{")?;
            for (id, buffer) in program.buffers.iter().enumerate() {
                let kind = match buffer.kind {
                    BufferKind::Bound => "bound",
                    BufferKind::Scratch => "scratch",
                    BufferKind::State => "state",
                    BufferKind::SharedState => "shared_state",
                };
                let space = match buffer.space {
                    Space::Host => String::new(),
                    device @ Space::Device => format!("{} ", device.name()),
                };
                let (dtype, len) = (buffer.dtype.name(), buffer.len);
                writeln!(f, "  %{id} = {kind} {space}{dtype} {len} {}", quoted(&buffer.name))?;
            }
            for (id, each) in program.nodes.iter().enumerate() {
                writeln!(f, "  {id}: {}", node(each))?;
            }
            writeln!(f, "}}")?;
        }
        Ok(())
    }
}

/// One node, without its number.
pub fn node(node: &Node) -> String {
    let mut words = vec![op(&node.op)];
    if !node.after.is_empty() {
        words.push("after".into());
        words.extend(node.after.iter().map(ToString::to_string));
    }
    if let Some(source) = node.source {
        words.push(format!("from source {source}"));
    }
    words.join(" ")
}

/// One op.
pub fn op(op: &Op) -> String {
    match op {
        Op::Copy { src, dst } => format!("copy {} to {}", slice(src), slice(dst)),
        Op::Cast { src, dst } => format!("cast {} to {}", slice(src), slice(dst)),
        Op::Reduce { op, src, dst } => format!("reduce {} {} into {}", op.name(), slice(src), slice(dst)),
        Op::Apply { kernel: Kernel::Scale(factor), dst } => {
            format!("apply scale {} {}", number(*factor), slice(dst))
        }
        Op::Apply { kernel: Kernel::Round(dtype), dst } => {
            format!("apply round {} {}", dtype.name(), slice(dst))
        }
        Op::Send { src, wire, peer, tag, count } => {
            format!("send {} as {} to {}", slice(src), wire.name(), message(*peer, *tag, count.as_ref()))
        }
        Op::Recv { dst, wire, reduce: how, peer, tag, count } => {
            let how = how.map_or("store".into(), |op| format!("reduce {}", op.name()));
            let message = message(*peer, *tag, count.as_ref());
            format!("recv {} as {} {how} from {message}", slice(dst), wire.name())
        }
        Op::Record { what: Record::NonFinite, src } => format!("record non_finite {}", slice(src)),
        Op::Call { kernel, inputs, outputs } => {
            let list = |slices: &[Slice]| slices.iter().map(slice).collect::<Vec<_>>().join(" ");
            format!("call {kernel} {} into {}", list(inputs), list(outputs))
        }
        Op::Collective { what, slice: of, group, op, scale, algorithm } => {
            let mut words = vec![what.name().to_owned()];
            if what.reduces() {
                words.push(format!("{} scale {}", op.name(), number(*scale)));
            }
            words.push(slice(of));
            if let Collective::AllToAll { dst } = what {
                words.push(format!("to {}", slice(dst)));
            }
            if let Some(root) = what.root() {
                words.push(format!("root {root}"));
            }
            words.push(format!("over {} by {}", ranks(group), by(algorithm.as_ref())));
            words.join(" ")
        }
    }
}

fn by(algorithm: Option<&Algorithm>) -> String {
    match algorithm {
        None => "unplanned".into(),
        Some(Algorithm::Library { name }) => format!("library {}", quoted(name)),
        Some(algorithm) => {
            let numbers = algorithm.numbers().iter().map(|number| format!(" {number}"));
            format!("{}{}", algorithm.name(), numbers.collect::<String>())
        }
    }
}

fn message(peer: Rank, tag: Tag, count: Option<&Slice>) -> String {
    let count = count.map_or(String::new(), |count| format!(" count {}", slice(count)));
    format!("{peer} tag {tag}{count}")
}

fn slice(slice: &Slice) -> String {
    format!("%{}[{}:{}]", slice.buffer, slice.start, slice.stop)
}

fn owned(shares: &[Share]) -> String {
    let share = |share: &Share| format!(" owner {} [{}:{}]", share.owner, share.start, share.stop);
    shares.iter().map(share).collect()
}

fn ranks(group: &[Rank]) -> String {
    group.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The shortest decimal that reads back as the same number.
fn number(value: f64) -> String {
    format!("{value:?}")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}
