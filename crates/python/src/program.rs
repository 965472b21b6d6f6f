//! `Program`: the IR as Python sees it, immutable; passes give new programs.

use crate::exceptions::error;
use hocket_ids::{BufferId, Rank, Tag};
use hocket_program as ir;
use hocket_program::{Algorithm, BufferKind, Contract, DType, Op, RankBuilder, ReduceOp, Slice, passes};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What all ranks do; see `_native.pyi`.
#[pyclass(module = "hocket._native", frozen)]
pub struct Program(ir::Program);

type Range = (u32, usize, usize);

fn range(slice: &Slice) -> Range {
    (slice.buffer.0, slice.start, slice.stop)
}

fn reduction(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "sum",
        ReduceOp::Min => "min",
        ReduceOp::Max => "max",
    }
}

/// An op as a dictionary.
fn fields<'py>(py: Python<'py>, node: &ir::Node) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("after", node.after.iter().map(|op| op.0).collect::<Vec<_>>())?;
    dict.set_item("op", word(&node.op))?;
    match &node.op {
        Op::Copy { src, dst } | Op::Cast { src, dst } => {
            dict.set_item("src", range(src))?;
            dict.set_item("dst", range(dst))?;
        }
        Op::Reduce { op, src, dst } => {
            dict.set_item("reduce", reduction(*op))?;
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
        Op::Send { src, wire, peer, tag } => {
            dict.set_item("src", range(src))?;
            dict.set_item("wire", wire.name())?;
            dict.set_item("peer", peer.0)?;
            dict.set_item("tag", tag.0)?;
        }
        Op::Recv { dst, wire, reduce, peer, tag } => {
            dict.set_item("dst", range(dst))?;
            dict.set_item("wire", wire.name())?;
            dict.set_item("reduce", reduce.map(reduction))?;
            dict.set_item("peer", peer.0)?;
            dict.set_item("tag", tag.0)?;
        }
        Op::Record { src, .. } => dict.set_item("src", range(src))?,
        Op::AllReduce { slice, group, op, scale, .. } => {
            dict.set_item("slice", range(slice))?;
            dict.set_item("group", group.iter().map(|rank| rank.0).collect::<Vec<_>>())?;
            dict.set_item("reduce", reduction(*op))?;
            dict.set_item("scale", scale)?;
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
        Op::AllReduce { .. } => "all_reduce",
    }
}

impl Program {
    fn rank(&self, py: Python<'_>, rank: usize) -> PyResult<&ir::RankProgram> {
        self.0
            .ranks
            .get(rank)
            .ok_or_else(|| refuse(py, &format!("rank {rank} of a world of {}", self.0.world())))
    }

    /// The IR.
    pub fn inner(&self) -> &ir::Program {
        &self.0
    }
}

fn refuse(py: Python<'_>, cause: &dyn std::fmt::Display) -> PyErr {
    error(py, "ProgramError", &cause.to_string())
}

fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::parse(name).ok_or_else(|| refuse(py, &format!("there is no element type `{name}`")))
}

fn ranks(order: Vec<u32>) -> Vec<Rank> {
    order.into_iter().map(Rank).collect()
}

#[pymethods]
impl Program {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn world(&self) -> usize {
        self.0.world()
    }

    fn __str__(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_string())
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| ir::text::parse(text)).map(Self).map_err(|cause| refuse(py, &cause))
    }

    /// Sentences about what is wrong; empty for a program that may run.
    fn errors(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| ir::verify::verify(&self.0)).iter().map(ToString::to_string).collect()
    }

    /// Raises `ProgramError` with all errors, if there are any.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        let errors = self.errors(py);
        if errors.is_empty() {
            return Ok(());
        }
        Err(refuse(py, &format!("program `{}` is refused:\n{}", self.0.name, errors.join("\n"))))
    }

    /// By buffer: name, element type, elements, whether it is scratch.
    fn buffers(&self, py: Python<'_>, rank: usize) -> PyResult<Vec<(String, &'static str, usize, bool)>> {
        let buffers = &self.rank(py, rank)?.buffers;
        let each = |b: &ir::Buffer| (b.name.clone(), b.dtype.name(), b.len, b.kind == BufferKind::Scratch);
        Ok(buffers.iter().map(each).collect())
    }

    /// By op: its fields by name, `op` says which it is; slices are (buffer, start, stop).
    fn ops<'py>(&self, py: Python<'py>, rank: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.rank(py, rank)?.nodes.iter().map(|node| fields(py, node)).collect()
    }

    #[staticmethod]
    #[pyo3(signature = (*, name, world, elements, dtype, op, scale, algorithm, sizes, record_non_finite))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn all_reduce(
        py: Python<'_>,
        name: String,
        world: usize,
        elements: usize,
        dtype: &str,
        op: &str,
        scale: f64,
        algorithm: &str,
        sizes: Vec<u32>,
        record_non_finite: bool,
    ) -> PyResult<Self> {
        let dtype = self::dtype(py, dtype)?;
        let op = match op {
            "sum" => ReduceOp::Sum,
            "min" => ReduceOp::Min,
            "max" => ReduceOp::Max,
            _ => return Err(refuse(py, &format!("there is no reduction `{op}`"))),
        };
        let algorithm = match algorithm {
            "ring" => Algorithm::Ring,
            "direct" => Algorithm::Direct,
            "two_level" => Algorithm::TwoLevel { sizes },
            _ => return Err(refuse(py, &format!("there is no algorithm `{algorithm}`"))),
        };
        let group: Vec<Rank> = (0..world).map(Rank::from_index).collect();
        let slice = Slice::new(BufferId(0), 0, elements);
        let rank = || {
            let mut builder = RankBuilder::new();
            builder.buffer("bucket", dtype, elements, BufferKind::Bound);
            if record_non_finite {
                builder.push(Op::Record { what: ir::Record::NonFinite, src: slice }, None);
            }
            let (group, algorithm) = (group.clone(), Some(algorithm.clone()));
            builder.push(Op::AllReduce { slice, group, op, scale, algorithm }, None);
            builder.finish()
        };
        let ensures = vec![Contract::AllReduce { buffer: BufferId(0), group: group.clone(), op, scale }];
        Ok(Self(ir::Program {
            name,
            ranks: (0..world).map(|_| rank()).collect(),
            ensures,
            sources: Vec::new(),
        }))
    }

    /// Rank `root`'s bytes to all ranks, along a binomial tree.
    #[staticmethod]
    #[pyo3(signature = (*, world, size_bytes, root))]
    fn broadcast(world: usize, size_bytes: usize, root: usize) -> Self {
        let mut builders: Vec<RankBuilder> = (0..world).map(|_| RankBuilder::new()).collect();
        let slice = Slice::new(BufferId(0), 0, size_bytes);
        for builder in &mut builders {
            builder.buffer("bytes", DType::U8, size_bytes, BufferKind::Bound);
        }
        let physical = |logical: usize| (logical + root) % world;
        let mut reached = 1;
        while reached < world {
            for from in 0..reached.min(world - reached) {
                let (from, to) = (physical(from), physical(from + reached));
                let (peer, tag, wire) = (Rank::from_index(to), Tag(0), DType::U8);
                builders[from].push(Op::Send { src: slice, wire, peer, tag }, None);
                let peer = Rank::from_index(from);
                builders[to].push(Op::Recv { dst: slice, wire, reduce: None, peer, tag }, None);
            }
            reached *= 2;
        }
        let ranks = builders.into_iter().map(RankBuilder::finish).collect();
        Self(ir::Program { name: "broadcast".into(), ranks, ..ir::Program::default() })
    }

    fn lower(&self, py: Python<'_>) -> PyResult<Self> {
        py.detach(|| passes::lower(&self.0)).map(Self).map_err(|cause| refuse(py, &cause))
    }

    fn relabel(&self, py: Python<'_>, order: Vec<u32>) -> PyResult<Self> {
        passes::relabel(&self.0, &ranks(order)).map(Self).map_err(|cause| refuse(py, &cause))
    }

    fn chunk(&self, py: Python<'_>, chunk_bytes: usize) -> Self {
        Self(py.detach(|| passes::chunk(&self.0, chunk_bytes)))
    }

    fn encode(&self, py: Python<'_>, links: Vec<(u32, u32)>, codec: &str) -> PyResult<Self> {
        let codec = dtype(py, codec)?;
        let links: Vec<(Rank, Rank)> = links.into_iter().map(|(from, to)| (Rank(from), Rank(to))).collect();
        py.detach(|| passes::encode(&self.0, &links, codec)).map(Self).map_err(|cause| refuse(py, &cause))
    }
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Program>()
}
