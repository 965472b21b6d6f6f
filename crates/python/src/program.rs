//! `Program`: the IR as Python sees it, immutable; passes give new programs.

use crate::findings::{finding, proven, refuse, refused};
use crate::ops::fields;
use hocket_ids::{BufferId, Rank};
use hocket_program as ir;
use hocket_program::{
    Algorithm, BufferKind, Collective, Contract, DType, Op, RankBuilder, ReduceOp, Slice, passes,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What all ranks do, immutable; passes give new programs. `str(program)` is its text form.
///
/// Every method raises `ProgramError` when the program, or what is asked of it, makes no sense.
#[pyclass(module = "hocket._native", frozen)]
pub struct Program(pub Arc<ir::Program>);

impl From<ir::Program> for Program {
    fn from(program: ir::Program) -> Self {
        Self(Arc::new(program))
    }
}

impl Program {
    fn rank(&self, py: Python<'_>, rank: usize) -> PyResult<&ir::RankProgram> {
        self.0
            .ranks
            .get(rank)
            .ok_or_else(|| refuse(py, &format!("rank {rank} of a world of {}", self.0.world())))
    }

    pub fn inner(&self) -> &ir::Program {
        &self.0
    }
}

/// Name, element type, elements, kind, memory space.
type BufferFacts = (String, &'static str, usize, &'static str, &'static str);

fn kind_name(kind: BufferKind) -> &'static str {
    match kind {
        BufferKind::Bound => "bound",
        BufferKind::Scratch => "scratch",
        BufferKind::State => "state",
        BufferKind::SharedState => "shared_state",
    }
}

pub fn reduce_op(py: Python<'_>, name: &str) -> PyResult<ReduceOp> {
    ReduceOp::parse(name).ok_or_else(|| refuse(py, &format!("there is no reduction `{name}`")))
}

/// The algorithm of that name with its numbers; `library:NAME` is a library.
pub fn algorithm(py: Python<'_>, name: &str, numbers: Vec<u32>) -> PyResult<Algorithm> {
    match name.strip_prefix("library:") {
        Some(name) => Ok(Algorithm::Library { name: name.into() }),
        None => Algorithm::new(name, numbers).map_err(|cause| refuse(py, &cause)),
    }
}

/// Verifies programs one after the other. Those that differ from an earlier one in lengths alone share its proof.
#[pyclass(module = "hocket._native", frozen)]
#[derive(Default)]
pub struct Proofs(Mutex<ir::verify::Proofs>);

#[pymethods]
impl Proofs {
    /// Of none yet.
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn verify(&self, py: Python<'_>, program: &Program) -> PyResult<()> {
        let found = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).verify(&program.0));
        proven(py, &program.0.name, &found)
    }

    /// How many did.
    #[getter]
    fn shared(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).shared
    }
}

pub fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::parse(name).ok_or_else(|| refuse(py, &format!("there is no element type `{name}`")))
}

/// What the passes of `crates/program/src/passes/pipeline.rs` decide by.
#[pyclass(module = "hocket._native", frozen)]
pub struct PassOptions(passes::Options);

#[pymethods]
impl PassOptions {
    /// `chunk_bytes`: ops are split so that none is larger. `order`: physical rank `order[i]` plays logical rank `i`. `codec`: f16
    /// or bf16, as which f32 messages over `codec_links` (source, destination) travel. `ProgramError` for another type.
    #[new]
    #[pyo3(signature = (*, chunk_bytes, order = None, codec = None, codec_links = Vec::new()))]
    fn new(
        py: Python<'_>,
        chunk_bytes: usize,
        order: Option<Vec<u32>>,
        codec: Option<&str>,
        codec_links: Vec<(u32, u32)>,
    ) -> PyResult<Self> {
        let order = order.map(|order| order.into_iter().map(Rank).collect());
        let links = codec_links.into_iter().map(|(from, to)| (Rank(from), Rank(to))).collect();
        let codec = codec.map(|codec| dtype(py, codec)).transpose()?;
        let codec = codec.map(|dtype| passes::Codec { dtype, links });
        Ok(Self(passes::Options { order, chunk_bytes, codec }))
    }
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

    /// The program of a text; `ProgramError` names line and column.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| ir::text::parse(text)).map(Self::from).map_err(|cause| refuse(py, &cause))
    }

    /// What the verifier finds wrong; empty for a program that may run.
    #[pyo3(signature = () -> "builtins.list[hocket.errors.Finding]")]
    fn findings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let found = py.detach(|| ir::verify::verify(&self.0));
        found.iter().map(|diagnostic| finding(py, diagnostic)).collect()
    }

    /// Raise `ProgramError` with all findings, if there are any.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        proven(py, &self.0.name, &py.detach(|| ir::verify::verify(&self.0)))
    }

    /// By buffer of a rank: name, element type, elements, kind (`bound`, `scratch`, `state`, `shared_state`) and memory space
    /// (`host`, `device`).
    fn buffers(&self, py: Python<'_>, rank: usize) -> PyResult<Vec<BufferFacts>> {
        let buffers = &self.rank(py, rank)?.buffers;
        let each =
            |b: &ir::Buffer| (b.name.clone(), b.dtype.name(), b.len, kind_name(b.kind), b.space.name());
        Ok(buffers.iter().map(each).collect())
    }

    /// Ordered pairs of ranks of which one sends to the other, ascending.
    fn pairs(&self, py: Python<'_>) -> Vec<(u32, u32)> {
        py.detach(|| {
            let mut pairs = std::collections::BTreeSet::new();
            for (rank, ops) in self.0.ranks.iter().enumerate() {
                for node in &ops.nodes {
                    if let Op::Send { peer, .. } = &node.op {
                        pairs.insert((rank as u32, peer.0));
                    }
                }
            }
            pairs.into_iter().collect()
        })
    }

    /// Write an SVG of the dataflow graph to `path` (default: `NAME.svg` here); returns where it is.
    #[pyo3(signature = (path = None))]
    fn show<'py>(slf: &Bound<'py, Self>, path: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("hocket.tools.formats.svg")?.call_method1("show", (slf, path))
    }

    /// By op of a rank: its fields by name; `op` says which it is, slices are (buffer, start, stop).
    #[pyo3(signature = (rank) -> "builtins.list[dict[str, typing.Any]]")]
    fn ops<'py>(&self, py: Python<'py>, rank: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.rank(py, rank)?.nodes.iter().map(|node| fields(py, &self.0, node)).collect()
    }

    /// One bound buffer per rank and the all-reduce of it, not lowered.
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
        let all = vec![((0..world).collect(), scale, algorithm.to_owned(), sizes)];
        Self::all_reduces(py, name, world, elements, dtype, op, all, record_non_finite)
    }

    /// One bound buffer per rank and the all-reduces of it within `groups`, not lowered: the ranks of each, its scale, its algorithm
    /// and the numbers that this takes. A rank is in one group at most; one in none keeps what it has.
    #[staticmethod]
    #[pyo3(signature = (*, name, world, elements, dtype, op, groups, record_non_finite))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn all_reduces(
        py: Python<'_>,
        name: String,
        world: usize,
        elements: usize,
        dtype: &str,
        op: &str,
        groups: Vec<(Vec<usize>, f64, String, Vec<u32>)>,
        record_non_finite: bool,
    ) -> PyResult<Self> {
        let dtype = self::dtype(py, dtype)?;
        let op = self::reduce_op(py, op)?;
        let (buffer, slice) = (BufferId(0), Slice::new(BufferId(0), 0, elements));
        let mut builders: Vec<_> = (0..world)
            .map(|_| {
                let mut builder = RankBuilder::new();
                builder.buffer("bucket", dtype, elements, BufferKind::Bound);
                if record_non_finite {
                    builder.push(Op::Record { what: ir::Record::NonFinite, src: slice }, None);
                }
                builder
            })
            .collect();
        let mut ensures = Vec::new();
        for (ranks, scale, algorithm, sizes) in groups {
            let algorithm = Some(self::algorithm(py, &algorithm, sizes)?);
            let group: Vec<Rank> = ranks.iter().copied().map(Rank::from_index).collect();
            for &rank in &ranks {
                let (what, group, algorithm) = (Collective::AllReduce, group.clone(), algorithm.clone());
                let builder = builders.get_mut(rank).ok_or_else(|| {
                    refuse(py, &format!("{name}: rank {rank} of a group in a world of {world} ranks"))
                })?;
                builder.push(Op::Collective { what, slice, group, op, scale, algorithm }, None);
            }
            ensures.push(Contract::AllReduce { buffer, group, op, scale });
        }
        let ranks = builders.into_iter().map(RankBuilder::finish).collect();
        Ok(Self::from(ir::Program { name, ranks, ensures, ..ir::Program::default() }))
    }

    /// The sources' bound buffers of bytes, which are the same, to the targets: a part from each source. Not lowered.
    #[staticmethod]
    #[pyo3(signature = (*, world, size_bytes, sources, targets, algorithm))]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn broadcast(
        py: Python<'_>,
        world: usize,
        size_bytes: usize,
        sources: Vec<usize>,
        targets: Vec<usize>,
        algorithm: &str,
    ) -> PyResult<Self> {
        let algorithm = self::algorithm(py, algorithm, Vec::new())?;
        let ends: Vec<usize> = (0..=sources.len()).map(|at| size_bytes * at / sources.len()).collect();
        let rank = |own: usize| {
            let mut builder = RankBuilder::new();
            builder.buffer("bytes", DType::U8, size_bytes, BufferKind::Bound);
            for (source, part) in sources.iter().zip(ends.windows(2)) {
                let takes_part = |rank: &usize| rank == source || targets.contains(rank);
                if part[0] < part[1] && takes_part(&own) {
                    let what = Collective::Broadcast { root: Rank::from_index(*source) };
                    let slice = Slice::new(BufferId(0), part[0], part[1]);
                    let group = (0..world).filter(takes_part).map(Rank::from_index).collect();
                    let algorithm = Some(algorithm.clone());
                    builder.push(
                        Op::Collective { what, slice, group, op: ReduceOp::Sum, scale: 1.0, algorithm },
                        None,
                    );
                }
            }
            builder.finish()
        };
        let ranks = (0..world).map(rank).collect();
        Ok(Self::from(ir::Program { name: "broadcast".into(), ranks, ..ir::Program::default() }))
    }

    /// Rows of sparse gradients, of all ranks to all, by an algorithm of all-gathers; not relabelled, not verified.
    ///
    /// Each rank binds four buffers and fills its own block of the first three, that of its place in the order: `rows` (`rows_max ·
    /// elements` of `dtype` a block), `numbers` (`rows_max` i64: which row of the table each is), `counts` (two i64: rows, and
    /// elements of these). `table`, of `table` rows, ends as the sum of all ranks' rows, the same bits on all; with 0 rows there is
    /// none.
    #[staticmethod]
    #[pyo3(signature = (*, name, world, algorithm, rows_max, elements, dtype, table))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn gathered(
        py: Python<'_>,
        name: String,
        world: usize,
        algorithm: &str,
        rows_max: usize,
        elements: usize,
        dtype: &str,
        table: usize,
    ) -> PyResult<Self> {
        let algorithm = self::algorithm(py, algorithm, Vec::new())?;
        let rows = ir::Rows { rows_max, elements, dtype: self::dtype(py, dtype)?, table };
        let made = py.detach(|| ir::Program::gathered(name, world, &algorithm, rows));
        made.map(Self::from).map_err(|cause| refuse(py, &cause))
    }

    /// After all passes; not verified.
    fn compiled(&self, py: Python<'_>, options: &PassOptions) -> PyResult<Self> {
        let compiled = py.detach(|| passes::compile(&self.0, &options.0));
        compiled.map(Self::from).map_err(|cause| refused(py, &cause))
    }

    /// For `from_bytes` of the same build.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.to_bytes()))
    }

    /// What `to_bytes` gave, not verified; `ProgramError` for bytes that are no program.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        ir::Program::from_bytes(data).map(Self::from).map_err(|cause| refuse(py, &cause))
    }

    /// Only what one rank needs to run.
    fn part(&self, py: Python<'_>, rank: u32) -> Self {
        py.detach(|| self.0.part(Rank(rank))).into()
    }

    /// For each of `ranks`, its parts of the programs, for `parts_from_bytes` of the same build.
    #[staticmethod]
    fn parts_to_bytes<'py>(
        py: Python<'py>,
        programs: Vec<PyRef<'py, Self>>,
        ranks: Vec<u32>,
    ) -> Vec<Bound<'py, PyBytes>> {
        let programs: Vec<Arc<ir::Program>> = programs.into_iter().map(|each| Arc::clone(&each.0)).collect();
        let ranks: Vec<Rank> = ranks.into_iter().map(Rank).collect();
        let written = py.detach(|| ir::Program::parts_to_bytes(programs.iter().map(AsRef::as_ref), &ranks));
        written.iter().map(|bytes| PyBytes::new(py, bytes)).collect()
    }

    /// A rank's parts that `parts_to_bytes` gave, not verified; `ProgramError` for bytes that are none.
    #[staticmethod]
    fn parts_from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Vec<Self>> {
        let read = ir::Program::parts_from_bytes(data).map_err(|cause| refuse(py, &cause))?;
        Ok(read.into_iter().map(Self::from).collect())
    }

    /// The same for ranks whose buffer of that number has `elements` elements; None where ops touch parts of it.
    fn resized(&self, py: Python<'_>, name: String, buffer: u32, elements: usize) -> Option<Self> {
        let resized = py.detach(|| self.0.resized(BufferId(buffer), elements));
        resized.map(|program| ir::Program { name, ..program }.into())
    }

    /// The same, where the elements of the bound buffer 0 lie in bound buffers 0, 1, … of these lengths, one after the other: they
    /// are copied together first, and apart at the end. None where the lengths are not those of the buffer.
    fn packed(&self, py: Python<'_>, lengths: Vec<usize>) -> Option<Self> {
        py.detach(move || self.0.packed(&lengths)).map(Self::from)
    }

    /// The same, which leaves what it is given as it is: for each bound buffer there is one more, before all others, from which it
    /// is filled first. Nothing is promised of it.
    fn retained(&self, py: Python<'_>) -> Self {
        Self::from(py.detach(|| self.0.retained()))
    }

    /// With each message from one rank to another sent by way of others: `ways` are those of `Engine.relays`, each between two ranks,
    /// the lower one first, and the ranks between them.
    fn relayed(&self, py: Python<'_>, ways: Vec<(u32, u32, Vec<u32>)>) -> Self {
        let ways: HashMap<_, _> = ways.into_iter().map(|(one, other, way)| ((one, other), way)).collect();
        let between = |from: Rank, to: Rank| {
            let way =
                ways.get(&(from.0.min(to.0), from.0.max(to.0))).into_iter().flatten().map(|&rank| Rank(rank));
            if from < to { way.collect() } else { way.rev().collect() }
        };
        Self::from(py.detach(|| self.0.relayed(between)))
    }

    /// The same for memory of each rank's device, of which what it binds is the host's twin: for each bound buffer there is one of
    /// the device, before all others. Pieces of at most `piece_bytes` come down before they are read, and go up when they are
    /// written. Collectives of `libraries` on what is bound work on the device. Nothing is promised of it.
    fn staged(&self, py: Python<'_>, piece_bytes: usize, libraries: Vec<String>) -> Self {
        Self::from(py.detach(move || {
            let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
            self.0.staged(piece_bytes, &libraries)
        }))
    }

    /// After each pass, by its name, in order; not verified.
    #[pyo3(signature = (options) -> "dict[str, Program]")]
    fn stages<'py>(&self, py: Python<'py>, options: &PassOptions) -> PyResult<Bound<'py, PyDict>> {
        let stages =
            py.detach(|| passes::stages(&self.0, &options.0)).map_err(|cause| refused(py, &cause))?;
        let by_title = PyDict::new(py);
        for (title, program) in stages {
            by_title.set_item(title, Self::from(program))?;
        }
        Ok(by_title)
    }
}
