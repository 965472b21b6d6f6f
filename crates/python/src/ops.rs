//! An op as Python reads it: a dict of its fields.

use hocket_program as ir;
use hocket_program::{Algorithm, Collective, Op, ReduceOp, Slice};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Buffer, start, stop.
pub type Range = (u32, usize, usize);

fn range(slice: &Slice) -> Range {
    (slice.buffer.0, slice.start, slice.stop)
}

/// The fields of an op by name.
pub fn fields<'py>(py: Python<'py>, program: &ir::Program, node: &ir::Node) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let source = node.source.and_then(|source| program.sources.get(source.index()));
    dict.set_item("source", source.map(|source| (&source.file, source.line)))?;
    dict.set_item("after", node.after.iter().map(|op| op.0).collect::<Vec<_>>())?;
    dict.set_item("op", word(&node.op))?;
    match &node.op {
        Op::Copy { src, dst } | Op::Cast { src, dst } => {
            dict.set_item("src", range(src))?;
            dict.set_item("dst", range(dst))?;
        }
        Op::Reduce { op, src, dst } => {
            dict.set_item("reduce", op.name())?;
            dict.set_item("src", range(src))?;
            dict.set_item("dst", range(dst))?;
        }
        Op::Apply { kernel, dst } => {
            match kernel {
                ir::Kernel::Scale(factor) => dict.set_item("scale", factor)?,
                ir::Kernel::Round(to) => dict.set_item("round", to.name())?,
            }
            dict.set_item("dst", range(dst))?;
        }
        Op::Send { src, wire, peer, tag, count } => {
            dict.set_item("count", count.as_ref().map(range))?;
            dict.set_item("src", range(src))?;
            dict.set_item("wire", wire.name())?;
            dict.set_item("peer", peer.0)?;
            dict.set_item("tag", tag.0)?;
        }
        Op::Recv { dst, wire, reduce, peer, tag, count } => {
            dict.set_item("count", count.as_ref().map(range))?;
            dict.set_item("dst", range(dst))?;
            dict.set_item("wire", wire.name())?;
            dict.set_item("reduce", reduce.map(ReduceOp::name))?;
            dict.set_item("peer", peer.0)?;
            dict.set_item("tag", tag.0)?;
        }
        Op::Record { src, .. } => dict.set_item("src", range(src))?,
        Op::Call { kernel, inputs, outputs } => {
            let spec = &program.kernels[kernel.index()];
            dict.set_item("kernel", &spec.name)?;
            dict.set_item("constants", &spec.parameters)?;
            dict.set_item("inputs", inputs.iter().map(range).collect::<Vec<_>>())?;
            dict.set_item("outputs", outputs.iter().map(range).collect::<Vec<_>>())?;
        }
        Op::Collective { what, slice, group, op, scale, algorithm } => {
            dict.set_item("slice", range(slice))?;
            dict.set_item("group", group.iter().map(|rank| rank.0).collect::<Vec<_>>())?;
            dict.set_item("reduce", op.name())?;
            dict.set_item("scale", scale)?;
            dict.set_item("root", what.root().map(|root| root.0))?;
            if let Collective::AllToAll { dst } = what {
                dict.set_item("dst", range(dst))?;
            }
            match algorithm {
                Some(Algorithm::Library { name }) => {
                    dict.set_item("together", "library")?;
                    dict.set_item("library", name)?;
                }
                Some(Algorithm::InPlace) => dict.set_item("together", "in_place")?,
                _ => {}
            }
        }
    }
    Ok(dict)
}

fn word(op: &Op) -> &'static str {
    match op {
        Op::Copy { .. } => "copy",
        Op::Cast { .. } => "cast",
        Op::Reduce { .. } => "reduce",
        Op::Apply { .. } => "apply",
        Op::Send { .. } => "send",
        Op::Recv { .. } => "recv",
        Op::Record { .. } => "record",
        Op::Call { .. } => "call",
        Op::Collective { what, .. } => what.name(),
    }
}
