//! `Builder`: builds a program op by op while a policy is traced.

use crate::findings::refuse;
use crate::ops::Range;
use crate::program::{Program, algorithm, dtype, reduce_op};
use hocket_ids::{BufferId, KernelId, OpId, Rank, SourceId, Tag};
use hocket_program as ir;
use hocket_program::{BufferKind, Collective, Contract, KernelSpec, Op, RankBuilder, Slice, Space};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Parts {
    program: ir::Program,
    builders: Vec<RankBuilder>,
    sources: HashMap<(String, u32), SourceId>,
    fences: Vec<Fence>,
}

/// Explicit order, apart from memory.
#[derive(Clone, Default)]
struct Fence {
    /// All later ops come after this one.
    last: Option<OpId>,
    /// The next op becomes the fence, and comes after all so far.
    armed: bool,
}

/// Makes a program op by op, each rank's in its own sequential order; dependencies follow from memory.
#[pyclass(module = "hocket._native", frozen)]
pub struct Builder(Mutex<Parts>);

impl Builder {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, py: Python<'_>, rank: usize, source: Option<(String, u32)>, op: Op) -> PyResult<u32> {
        let mut parts = self.parts();
        let Parts { program, builders, sources, fences } = &mut *parts;
        let source = source.map(|(file, line)| {
            *sources.entry((file, line)).or_insert_with_key(|(file, line)| {
                program.sources.push(ir::Source { file: file.clone(), line: *line });
                SourceId::from_index(program.sources.len() - 1)
            })
        });
        let builder =
            builders.get_mut(rank).ok_or_else(|| refuse(py, &format!("there is no rank {rank} to build")))?;
        let known = op.reads().into_iter().chain(op.writes()).all(|slice| builder.has(slice.buffer));
        if !known {
            return Err(refuse(py, &format!("rank {rank}: an op of buffers that do not exist")));
        }
        let fence = &mut fences[rank];
        let first = fence.last.map_or(0, OpId::index);
        let after: Vec<OpId> = match fence {
            Fence { armed: true, .. } => (first..builder.len()).map(OpId::from_index).collect(),
            Fence { last, .. } => last.iter().copied().collect(),
        };
        let pushed = builder.push_after(op, &after, source);
        if std::mem::take(&mut fence.armed) {
            fence.last = Some(pushed);
        }
        Ok(pushed.0)
    }
}

fn slice((buffer, start, stop): Range) -> Slice {
    Slice::new(BufferId(buffer), start, stop.max(start))
}

fn group(ranks: Vec<u32>) -> Vec<Rank> {
    ranks.into_iter().map(Rank).collect()
}

type From = Option<(String, u32)>;

#[pymethods]
impl Builder {
    #[new]
    fn new(name: String, world: usize) -> Self {
        let builders = (0..world).map(|_| RankBuilder::new()).collect();
        let program = ir::Program { name, ..ir::Program::default() };
        let fences = vec![Fence::default(); world];
        Self(Mutex::new(Parts { program, builders, sources: HashMap::new(), fences }))
    }

    #[pyo3(signature = (rank, name, dtype, elements, kind, space = "host"))]
    #[expect(clippy::too_many_arguments, reason = "Python's")]
    fn buffer(
        &self,
        py: Python<'_>,
        rank: usize,
        name: String,
        dtype: &str,
        elements: usize,
        kind: &str,
        space: &str,
    ) -> PyResult<u32> {
        let dtype = self::dtype(py, dtype)?;
        let space =
            Space::parse(space).ok_or_else(|| refuse(py, &format!("there is no memory space `{space}`")))?;
        let kind = match kind {
            "bound" => BufferKind::Bound,
            "scratch" => BufferKind::Scratch,
            "state" => BufferKind::State,
            "shared_state" => BufferKind::SharedState,
            _ => return Err(refuse(py, &format!("there is no kind of buffer `{kind}`"))),
        };
        let mut parts = self.parts();
        let builder = parts.builders.get_mut(rank);
        let builder = builder.ok_or_else(|| refuse(py, &format!("there is no rank {rank} to build")))?;
        Ok(builder.buffer_in(space, name, dtype, elements, kind).0)
    }

    #[pyo3(signature = (name, *, elementwise, updates, joins, constants))]
    fn kernel(
        &self,
        py: Python<'_>,
        name: String,
        elementwise: bool,
        updates: bool,
        joins: Option<&str>,
        constants: Vec<f64>,
    ) -> PyResult<u32> {
        let joins = joins.map(|op| reduce_op(py, op)).transpose()?;
        let spec = KernelSpec { name, elementwise, updates, joins, parameters: constants };
        let kernels = &mut self.parts().program.kernels;
        let at = kernels.iter().position(|known| *known == spec).unwrap_or_else(|| {
            kernels.push(spec);
            kernels.len() - 1
        });
        Ok(KernelId::from_index(at).0)
    }

    /// `copy`, `cast`: the same op, by the types of the two.
    #[pyo3(signature = (rank, src, dst, *, casts, source))]
    fn copy(
        &self,
        py: Python<'_>,
        rank: usize,
        src: Range,
        dst: Range,
        casts: bool,
        source: From,
    ) -> PyResult<u32> {
        let (src, dst) = (slice(src), slice(dst));
        let op = if casts { Op::Cast { src, dst } } else { Op::Copy { src, dst } };
        self.push(py, rank, source, op)
    }

    #[pyo3(signature = (rank, op, src, dst, *, source))]
    fn reduce(
        &self,
        py: Python<'_>,
        rank: usize,
        op: &str,
        src: Range,
        dst: Range,
        source: From,
    ) -> PyResult<u32> {
        let op = Op::Reduce { op: reduce_op(py, op)?, src: slice(src), dst: slice(dst) };
        self.push(py, rank, source, op)
    }

    #[pyo3(signature = (rank, factor, dst, *, source))]
    fn scale(&self, py: Python<'_>, rank: usize, factor: f64, dst: Range, source: From) -> PyResult<u32> {
        let op = Op::Apply { kernel: ir::Kernel::Scale(factor), dst: slice(dst) };
        self.push(py, rank, source, op)
    }

    #[pyo3(signature = (rank, to, dst, *, source))]
    fn round(&self, py: Python<'_>, rank: usize, to: &str, dst: Range, source: From) -> PyResult<u32> {
        let op = Op::Apply { kernel: ir::Kernel::Round(dtype(py, to)?), dst: slice(dst) };
        self.push(py, rank, source, op)
    }

    #[pyo3(signature = (rank, src, *, source))]
    fn record_non_finite(&self, py: Python<'_>, rank: usize, src: Range, source: From) -> PyResult<u32> {
        self.push(py, rank, source, Op::Record { what: ir::Record::NonFinite, src: slice(src) })
    }

    #[pyo3(signature = (rank, kernel, inputs, outputs, *, source))]
    fn call(
        &self,
        py: Python<'_>,
        rank: usize,
        kernel: u32,
        inputs: Vec<Range>,
        outputs: Vec<Range>,
        source: From,
    ) -> PyResult<u32> {
        let (inputs, outputs) =
            (inputs.into_iter().map(slice).collect(), outputs.into_iter().map(slice).collect());
        self.push(py, rank, source, Op::Call { kernel: KernelId(kernel), inputs, outputs })
    }

    #[pyo3(signature = (rank, src, peer, tag, *, wire, count, source))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn send(
        &self,
        py: Python<'_>,
        rank: usize,
        src: Range,
        peer: u32,
        tag: u32,
        wire: &str,
        count: Option<Range>,
        source: From,
    ) -> PyResult<u32> {
        let (wire, count) = (dtype(py, wire)?, count.map(slice));
        let op = Op::Send { src: slice(src), wire, peer: Rank(peer), tag: Tag(tag), count };
        self.push(py, rank, source, op)
    }

    #[pyo3(signature = (rank, dst, peer, tag, *, wire, reduce, count, source))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn recv(
        &self,
        py: Python<'_>,
        rank: usize,
        dst: Range,
        peer: u32,
        tag: u32,
        wire: &str,
        reduce: Option<&str>,
        count: Option<Range>,
        source: From,
    ) -> PyResult<u32> {
        let reduce = reduce.map(|op| reduce_op(py, op)).transpose()?;
        let (wire, count) = (dtype(py, wire)?, count.map(slice));
        let op = Op::Recv { dst: slice(dst), wire, reduce, peer: Rank(peer), tag: Tag(tag), count };
        self.push(py, rank, source, op)
    }

    #[pyo3(signature = (rank, what, of, *, members, op, scale, algorithm, numbers, root, dst, source))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn collective(
        &self,
        py: Python<'_>,
        rank: usize,
        what: &str,
        of: Range,
        members: Vec<u32>,
        op: &str,
        scale: f64,
        algorithm: &str,
        numbers: Vec<u32>,
        root: Option<u32>,
        dst: Option<Range>,
        source: From,
    ) -> PyResult<u32> {
        let rooted = || root.map(Rank).ok_or_else(|| refuse(py, &format!("{what} needs a root")));
        let what = match what {
            "all_reduce" => Collective::AllReduce,
            "reduce_scatter" => Collective::ReduceScatter,
            "all_gather" => Collective::AllGather,
            "broadcast" => Collective::Broadcast { root: rooted()? },
            "reduce" => Collective::Reduce { root: rooted()? },
            "gather" => Collective::Gather { root: rooted()? },
            "scatter" => Collective::Scatter { root: rooted()? },
            "all_to_all" => {
                let dst = dst.ok_or_else(|| refuse(py, &"all_to_all needs a destination"))?;
                Collective::AllToAll { dst: slice(dst) }
            }
            _ => return Err(refuse(py, &format!("there is no collective `{what}`"))),
        };
        let algorithm = Some(self::algorithm(py, algorithm, numbers)?);
        let (slice, op) = (slice(of), reduce_op(py, op)?);
        let op = Op::Collective { what, slice, group: group(members), op, scale, algorithm };
        self.push(py, rank, source, op)
    }

    /// The next op comes after all so far, and all later ones after it.
    fn fence(&self, rank: usize) {
        if let Some(fence) = self.parts().fences.get_mut(rank) {
            fence.armed = true;
        }
    }

    /// The buffer ends as `scale · op` over the members, the same bits on all.
    fn ensure_all_reduce(
        &self,
        py: Python<'_>,
        buffer: u32,
        members: Vec<u32>,
        op: &str,
        scale: f64,
    ) -> PyResult<()> {
        let (buffer, op) = (BufferId(buffer), reduce_op(py, op)?);
        let contract = Contract::AllReduce { buffer, group: group(members), op, scale };
        self.parts().program.ensures.push(contract);
        Ok(())
    }

    /// The buffer ends as the same bits on all members, which depend on what each held.
    fn ensure_same(&self, buffer: u32, members: Vec<u32>) {
        let contract = Contract::Same { buffer: BufferId(buffer), group: group(members) };
        self.parts().program.ensures.push(contract);
    }

    fn finish(&self) -> Program {
        let parts = self.parts();
        let ranks = parts.builders.iter().cloned().map(RankBuilder::finish).collect();
        Program::from(ir::Program { ranks, ..parts.program.clone() })
    }
}
