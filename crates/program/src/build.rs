//! Builds one rank's ops in sequential order and derives the dataflow from it.
//!
//! The caller writes as if ops ran one after the other; [`RankBuilder::push`] keeps only the order that memory requires
//! (read after write, write after read, write after write on overlapping slices).

mod live;

use crate::Space;
use crate::ops::{After, Buffer, BufferKind, Node, Op, RankProgram};
use hocket_ids::{BufferId, DType, OpId, SourceId};
use live::{Access, Live};

/// A rank's program under construction.
#[derive(Clone, Debug, Default)]
pub struct RankBuilder {
    program: RankProgram,
    /// By buffer.
    live: Vec<Live>,
}

impl RankBuilder {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts from the buffers of `program` with no ops, for passes that rewrite a rank.
    pub fn with_buffers(program: &RankProgram) -> Self {
        Self {
            live: vec![Live::default(); program.buffers.len()],
            program: RankProgram {
                buffers: program.buffers.clone(),
                nodes: Vec::with_capacity(program.nodes.len()),
            },
        }
    }

    /// Declares a buffer of the host and returns its id.
    pub fn buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        len: usize,
        kind: BufferKind,
    ) -> BufferId {
        self.buffer_in(Space::Host, name, dtype, len, kind)
    }

    /// Declares a buffer in a space.
    pub fn buffer_in(
        &mut self,
        space: Space,
        name: impl Into<String>,
        dtype: DType,
        len: usize,
        kind: BufferKind,
    ) -> BufferId {
        let id = BufferId::from_index(self.program.buffers.len());
        self.program.buffers.push(Buffer { name: name.into(), dtype, len, kind, space });
        self.live.push(Live::default());
        id
    }

    /// Ops so far.
    pub fn len(&self) -> usize {
        self.program.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.program.nodes.is_empty()
    }

    /// Whether a buffer is declared.
    pub fn has(&self, buffer: BufferId) -> bool {
        buffer.index() < self.program.buffers.len()
    }

    /// Element type of a declared buffer.
    pub fn dtype(&self, buffer: BufferId) -> DType {
        self.program.buffers[buffer.index()].dtype
    }

    /// Appends an op after all earlier ops whose memory it conflicts with.
    pub fn push(&mut self, op: Op, source: Option<SourceId>) -> OpId {
        self.push_after(op, &[], source)
    }

    /// Like [`Self::push`], and also after `extra`.
    pub fn push_after(&mut self, op: Op, extra: &[OpId], source: Option<SourceId>) -> OpId {
        let id = OpId::from_index(self.program.nodes.len());
        let mut after = After::from_slice(extra);
        let (read, written) = (op.reads(), op.writes());
        for slice in &read {
            self.live[slice.buffer.index()].conflicts(slice, false, &mut after);
        }
        for &slice in &written {
            let live = &mut self.live[slice.buffer.index()];
            live.conflicts(&slice, true, &mut after);
            live.overwrite(Access { slice, op: id, writes: true });
        }
        for &slice in &read {
            if !written.iter().any(|write| write.covers(&slice)) {
                self.live[slice.buffer.index()].add(Access { slice, op: id, writes: false });
            }
        }
        after.sort_unstable();
        after.dedup();
        // Two outputs of one op may share a buffer.
        after.retain(|before| *before != id);
        self.program.nodes.push(Node { op, after, source });
        id
    }

    /// The finished rank.
    pub fn finish(self) -> RankProgram {
        self.program
    }
}
