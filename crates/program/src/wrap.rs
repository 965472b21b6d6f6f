//! A rank's part of a program between other ops, over more buffers.

use crate::resize::slices;
use crate::{Buffer, Op, RankBuilder, RankProgram};
use hocket_ids::{BufferId, OpId};

impl RankProgram {
    /// The same ops after `before` and before `behind`, which number buffers as they are then: those of `front` first, then the
    /// rank's own.
    pub(crate) fn wrapped(&self, front: Vec<Buffer>, before: Vec<Op>, behind: Vec<Op>) -> Self {
        let moved = front.len();
        let mut buffers = front;
        buffers.extend(self.buffers.iter().cloned());
        let mut builder = RankBuilder::with_buffers(&Self { buffers, nodes: Vec::new() });
        for op in before {
            builder.push(op, None);
        }
        let filled = builder.len();
        for node in &self.nodes {
            let mut op = node.op.clone();
            for slice in slices(&mut op) {
                slice.buffer = BufferId::from_index(slice.buffer.index() + moved);
            }
            let after: Vec<OpId> =
                node.after.iter().map(|op| OpId::from_index(op.index() + filled)).collect();
            builder.push_after(op, &after, node.source);
        }
        for op in behind {
            builder.push(op, None);
        }
        builder.finish()
    }
}
