//! The destination of received payloads: checked against the programs before a byte is written.

use crate::core::Core;
use crate::instruction::Action;
use hocket_ids::Rank;
use hocket_wire::clock::now_ns;
use hocket_wire::link::{Land, Landing};

impl Core {
    /// Where a payload for receive `op` lands, after checking that it may.
    pub fn landing(
        &self,
        from: Rank,
        program: u32,
        instance: u32,
        op: u32,
        offset_bytes: u64,
        payload_bytes: u32,
    ) -> Result<Landing, String> {
        let (loaded, instruction) = self.addressed(program, op)?;
        let Action::Receive(receive) = &loaded.instructions()[instruction].action else {
            return Err(format!("data for op {op} of program {program}, which is not a receive"));
        };
        if receive.peer != from {
            return Err(format!(
                "data for op {op} of program {program}, which receives from rank {}",
                receive.peer
            ));
        }
        if !loaded.op(op).is_posted(instance) {
            return Err(format!(
                "data for op {op} of program {program} launch {instance}, which is not posted"
            ));
        }
        let end = offset_bytes.saturating_add(u64::from(payload_bytes));
        let (wire, own) = (receive.wire.bytes(), receive.dtype.bytes());
        let refused = |why: &dyn std::fmt::Display| {
            format!("bytes {offset_bytes}..{end} of a message of {}, {why}", receive.wire_bytes())
        };
        if end > receive.wire_bytes() as u64 || !offset_bytes.is_multiple_of(wire as u64) {
            return Err(refused(&"which do not fit it"));
        }
        loaded.op(op).claim(offset_bytes, end).map_err(|why| refused(&why))?;
        let (at, len) = (offset_bytes as usize / wire * own, payload_bytes as usize / wire * own);
        let landing = match receive.landing.land {
            // A converting receive between equal types is a plain store and costs nothing extra.
            Land::Cast { dtype, wire } if dtype == wire => Land::Store,
            land => land,
        };
        let landing = Landing { region: receive.landing.region.sub(at, len), land: landing };
        if loaded.is_traced() {
            loaded.op(op).note_start(now_ns());
        }
        Ok(landing)
    }
}
