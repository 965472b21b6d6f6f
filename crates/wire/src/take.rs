//! Copies a message straight out of a neighbour's memory: the counterpart of landing a payload from a socket.

use crate::link::{Land, Landing};
use crate::memory::Region;
use hocket_kernels::{DType, cast};

/// Source bytes converted at a time; a block and its conversion stay in the second-level cache.
const BLOCK_BYTES: usize = 64 * 1024;

/// Lands `source`, with elements of type `dtype`, as if it had crossed a wire in `landing`'s wire type. It is part of
/// `together_bytes` moved in one go.
pub fn take(landing: &Landing, dtype: DType, source: &Region, together_bytes: usize) {
    let Landing { region, land } = landing;
    let (Land::Cast { wire, .. } | Land::Reduce { wire, .. }) = *land else {
        return region.copy_from(source, together_bytes);
    };
    if wire == dtype {
        return land.apply(region, source.as_bytes());
    }
    // Rounded to the wire's type first, so that a codec gives the same bits within a host as between hosts.
    let (Land::Cast { dtype: own, .. } | Land::Reduce { dtype: own, .. }) = *land else { return };
    let elements_max = BLOCK_BYTES / dtype.bytes();
    let mut block = Vec::new();
    for (at, part) in source.as_bytes().chunks(elements_max * dtype.bytes()).enumerate() {
        let elements = part.len() / dtype.bytes();
        block.resize(elements * wire.bytes(), 0);
        cast(wire, &mut block, dtype, part);
        land.apply(&region.sub(at * elements_max * own.bytes(), elements * own.bytes()), &block);
    }
}
