//! Program → text.

use crate::{Algorithm, BufferKind, Contract, Kernel, Node, Op, Program, Record, ReduceOp, Slice};
use hocket_ids::Rank;
use std::fmt::{self, Display, Formatter};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {} world {}", quoted(&self.name), self.world())?;
        for source in &self.sources {
            writeln!(f, "source {} {}", quoted(&source.file), source.line)?;
        }
        for Contract::AllReduce { buffer, group, op, scale } in &self.ensures {
            let (op, scale) = (reduce(*op), number(*scale));
            writeln!(f, "ensures all_reduce {op} scale {scale} %{buffer} over {}", ranks(group))?;
        }
        for (rank, program) in self.ranks.iter().enumerate() {
            writeln!(f, "rank {rank} {{")?;
            for (id, buffer) in program.buffers.iter().enumerate() {
                let kind = match buffer.kind {
                    BufferKind::Bound => "bound",
                    BufferKind::Scratch => "scratch",
                };
                let (dtype, len) = (buffer.dtype.name(), buffer.len);
                writeln!(f, "  %{id} = {kind} {dtype} {len} {}", quoted(&buffer.name))?;
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
        Op::Reduce { op, src, dst } => format!("reduce {} {} into {}", reduce(*op), slice(src), slice(dst)),
        Op::Apply { kernel: Kernel::Scale(factor), dst } => {
            format!("apply scale {} {}", number(*factor), slice(dst))
        }
        Op::Apply { kernel: Kernel::Round(dtype), dst } => {
            format!("apply round {} {}", dtype.name(), slice(dst))
        }
        Op::Send { src, wire, peer, tag } => {
            format!("send {} as {} to {peer} tag {tag}", slice(src), wire.name())
        }
        Op::Recv { dst, wire, reduce: how, peer, tag } => {
            let how = how.map_or("store".into(), |op| format!("reduce {}", reduce(op)));
            format!("recv {} as {} {how} from {peer} tag {tag}", slice(dst), wire.name())
        }
        Op::Record { what: Record::NonFinite, src } => format!("record non_finite {}", slice(src)),
        Op::AllReduce { slice: of, group, op, scale, algorithm } => {
            let how = match algorithm {
                None => "unplanned".into(),
                Some(Algorithm::Ring) => "ring".into(),
                Some(Algorithm::Direct) => "direct".into(),
                Some(Algorithm::TwoLevel { sizes }) => {
                    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                    format!("two_level {}", sizes.join(" "))
                }
            };
            let (op, scale) = (reduce(*op), number(*scale));
            format!("all_reduce {op} scale {scale} {} over {} by {how}", slice(of), ranks(group))
        }
    }
}

fn slice(slice: &Slice) -> String {
    format!("%{}[{}:{}]", slice.buffer, slice.start, slice.stop)
}

fn ranks(group: &[Rank]) -> String {
    group.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn reduce(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "sum",
        ReduceOp::Min => "min",
        ReduceOp::Max => "max",
    }
}

/// The shortest decimal that reads back as the same number.
fn number(value: f64) -> String {
    format!("{value:?}")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}
