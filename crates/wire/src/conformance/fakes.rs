//! Links over a fabric that does what providers may do, and what they must not.

use super::SILENCE_MAX;
use super::bed::Bed;
use super::pairs::over;
use crate::link::Land;
use hocket_fabric::{Carrier, Completion, Destination, FabricError, Memory, Operation, Posting};
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::why::Why;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

const MANY: usize = 1_000_001;

/// What the fabric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Ends operations in any order, and its queues are full most of the time.
    Unordered,
    /// The third send ends with an error.
    SendFails,
    /// The third receive ends with an error.
    ReceiveFails,
    /// The third message is longer than its receive.
    Longer,
    /// The third message is shorter than its receive.
    Shorter,
    /// A bit of the third message changes.
    Damages,
    /// The third operation ends twice.
    EndsTwice,
    /// Nothing moves after the second message.
    Stalls,
    /// The queue cannot be read after the second message.
    QueueBreaks,
    /// Its queues are always full.
    AlwaysFull,
    /// Memory cannot be registered.
    RefusesMemory,
}

struct Net {
    fault: Fault,
    random: u64,
    receives: [HashMap<u64, (Operation, Memory)>; 2],
    sends: [Vec<(u64, Operation, Memory)>; 2],
    ended: [Vec<Completion>; 2],
    next: [u32; 2],
    moved: usize,
}

// SAFETY: the addresses are followed under the lock alone, while their operations are under way.
unsafe impl Send for Net {}

impl Net {
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    fn operation(&mut self, end: usize) -> Operation {
        self.next[end] += 1;
        Operation(self.next[end])
    }

    fn is_full(&mut self) -> bool {
        match self.fault {
            Fault::AlwaysFull => true,
            Fault::Unordered => self.below(3) > 0,
            _ => false,
        }
    }

    /// Moves one message to end `to`, if its receive is there.
    fn advance(&mut self, to: usize) {
        let from = 1 - to;
        if self.fault == Fault::Stalls && self.moved >= 2 {
            return;
        }
        let ready: Vec<usize> = (0..self.sends[from].len())
            .filter(|&at| self.receives[to].contains_key(&self.sends[from][at].0))
            .collect();
        let Some(&first) = ready.first() else { return };
        let at = if self.fault == Fault::Unordered { ready[self.below(ready.len())] } else { first };
        let (tag, send, source) = self.sends[from].swap_remove(at);
        let (receive, sink) = self.receives[to].remove(&tag).unwrap();
        self.moved += 1;
        // SAFETY: both operations are under way, and have so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(source.address, sink.address, source.len.min(sink.len)) };
        let failed = || FabricError::Completion { code: 5, text: "the card is on fire".into() };
        let (mut gone, mut received) = (Ok(0), Ok(source.len));
        if self.moved == 3 {
            match self.fault {
                Fault::SendFails => gone = Err(failed()),
                Fault::ReceiveFails => received = Err(failed()),
                Fault::Longer => received = Err(FabricError::Truncated { excess_bytes: 8 }),
                Fault::Shorter => received = Ok(source.len - 4),
                // SAFETY: as above.
                Fault::Damages => unsafe { *sink.address.add(source.len / 2) ^= 1 },
                Fault::EndsTwice => self.ended[from].push(Completion { operation: send, outcome: Ok(0) }),
                _ => {}
            }
        }
        self.ended[from].push(Completion { operation: send, outcome: gone });
        self.ended[to].push(Completion { operation: receive, outcome: received });
    }
}

struct Fake {
    own: usize,
    net: Arc<Mutex<Net>>,
}

impl Carrier for Fake {
    fn provider(&self) -> &'static str {
        "fake"
    }

    fn address(&self) -> &'static [u8] {
        b"address"
    }

    fn message_bytes_max(&self) -> usize {
        1 << 20
    }

    fn insert(&mut self, _: &[u8]) -> Result<Destination, FabricError> {
        Ok(Destination(1 - self.own as u64))
    }

    fn register(&mut self, _: Memory) -> Result<(), FabricError> {
        if self.net.lock().unwrap().fault == Fault::RefusesMemory {
            return Err(FabricError::Call { call: "fi_mr_reg", code: 12, text: "no memory to pin".into() });
        }
        Ok(())
    }

    fn forget(&mut self, _: Memory) -> Result<(), FabricError> {
        Ok(())
    }

    unsafe fn receive(&mut self, memory: Memory, tag: u64) -> Result<Posting, FabricError> {
        let mut net = self.net.lock().unwrap();
        if net.is_full() {
            return Ok(Posting::Full);
        }
        let operation = net.operation(self.own);
        assert!(net.receives[self.own].insert(tag, (operation, memory)).is_none(), "a tag twice");
        Ok(Posting::Posted(operation))
    }

    unsafe fn send(&mut self, _: Destination, memory: Memory, tag: u64) -> Result<Posting, FabricError> {
        let mut net = self.net.lock().unwrap();
        if net.is_full() {
            return Ok(Posting::Full);
        }
        let operation = net.operation(self.own);
        net.sends[self.own].push((tag, operation, memory));
        Ok(Posting::Posted(operation))
    }

    fn cancel(&mut self, operation: Operation) {
        let mut net = self.net.lock().unwrap();
        let own = self.own;
        let tag = net.receives[own].iter().find(|(_, (posted, _))| *posted == operation).map(|(tag, _)| *tag);
        if let Some(tag) = tag {
            net.receives[own].remove(&tag);
            net.ended[own].push(Completion { operation, outcome: Err(FabricError::Cancelled) });
        }
    }

    fn poll(&mut self, ended: &mut Vec<Completion>) -> Result<(), FabricError> {
        let mut net = self.net.lock().unwrap();
        for _ in 0..4 {
            net.advance(self.own);
        }
        if net.fault == Fault::QueueBreaks && net.moved >= 2 {
            return Err(FabricError::Call { call: "fi_cq_read", code: 22, text: "Invalid argument".into() });
        }
        ended.append(&mut net.ended[self.own]);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn may_sleep(&mut self) -> bool {
        true
    }
}

fn bed(fault: Fault, seed: u64, checksums: bool, in_place: bool) -> Bed {
    let net = Arc::new(Mutex::new(Net {
        fault,
        random: seed | 1,
        receives: [HashMap::new(), HashMap::new()],
        sends: [Vec::new(), Vec::new()],
        ended: [Vec::new(), Vec::new()],
        next: [0; 2],
        moved: 0,
    }));
    let carrier = |own| -> Box<dyn Carrier> { Box::new(Fake { own, net: Arc::clone(&net) }) };
    Bed::new(over([carrier(0), carrier(1)], checksums, in_place))
}

/// A provider without order, such as EFA's, would put gradients in other places or add one twice.
#[test]
fn no_order_is_needed_and_no_room() {
    let sum = Land::Reduce { op: ReduceOp::Sum, dtype: DType::F32, wire: DType::F32 };
    for seed in 0..20 {
        let mut bed = bed(Fault::Unordered, (seed + 1) << 20, seed % 2 == 0, seed % 3 == 0);
        for op in 0..8 {
            let land = if op % 2 == 0 { sum } else { Land::Store };
            bed.message(op as usize % 2, op, MANY / (op as usize + 1), DType::F32, land, u64::from(op) % 3);
        }
        bed.until("all messages", |bed| bed.is_complete(0..8));
        (0..8).for_each(|op| bed.check(op));
        let [one, other] = bed.part();
        assert_eq!((one.left, other.left, one.ended, other.ended), (1, 1, vec![], vec![]));
    }
}

/// A job would hang or go on with wrong gradients where the fabric fails while the connection beside it lives.
#[test]
fn whatever_the_fabric_does_wrong_is_named() {
    for (fault, at, why, said) in [
        (Fault::SendFails, 0, Why::Lost, "over the fabric fake: a transfer failed: the card is on fire"),
        (Fault::ReceiveFails, 1, Why::Lost, "the card is on fire"),
        (Fault::Longer, 1, Why::Violation, "8 bytes longer than its receive"),
        (Fault::Shorter, 1, Why::Violation, "a piece of 262140 bytes, where 262144 fit"),
        (Fault::Damages, 1, Why::Damaged, "arrived damaged"),
        (Fault::EndsTwice, 0, Why::Lost, "ended an operation twice"),
        (Fault::QueueBreaks, 0, Why::Lost, "fi_cq_read failed: Invalid argument (error 22)"),
        (Fault::RefusesMemory, 1, Why::Lost, "fi_mr_reg failed: no memory to pin (error 12)"),
    ] {
        for in_place in [false, true] {
            println!("{fault:?}");
            let mut bed = bed(fault, 1, fault == Fault::Damages, in_place);
            bed.message(0, 0, MANY, DType::F32, Land::Store, 0);
            bed.until("the end", |bed| !bed.ends[at].taker.ended.is_empty());
            let (found, text) = bed.ends[at].taker.ended[0].clone();
            assert_eq!(found, why, "{fault:?}: {text}");
            assert!(text.contains(said), "{fault:?}: {text}");
            assert!(!bed.is_complete(0..1));
            // The connection lives: it carries the reason to an end that has not noticed by itself.
            bed.ends[at].link.abort(hocket_ids::Rank(7), Why::GaveUp, "the fabric failed");
            let other = 1 - at;
            bed.until("the abort", |bed| {
                let taker = &bed.ends[other].taker;
                taker.aborted.is_some() || !taker.ended.is_empty()
            });
        }
    }
}

/// A fabric that hangs while the peer answers on the connection would be waited for without end.
#[test]
fn a_fabric_that_stalls_is_given_up() {
    let mut bed = bed(Fault::Stalls, 1, false, false);
    bed.message(0, 0, MANY, DType::F32, Land::Store, 0);
    bed.rest();
    assert_eq!(bed.ends[0].taker.ended, []);
    for _ in 0..10 {
        bed.clock += SILENCE_MAX / 4;
        bed.rest();
    }
    let (why, said) = bed.ends[0].taker.ended[0].clone();
    assert_eq!(why, Why::Lost);
    assert!(said.contains("fake: nothing of a message has left for"), "{said}");
}

/// A rank that waits for room would use a core, and not notice the end of the other.
#[test]
fn a_full_queue_is_waited_for_asleep() {
    let mut bed = bed(Fault::AlwaysFull, 1, false, false);
    bed.message(0, 0, MANY, DType::F32, Land::Store, 0);
    bed.rest();
    assert!(bed.ends[1].port.is_idle() && bed.ends[1].taker.ended.is_empty());
    let mut survivor = bed.kill(0);
    survivor.until("the end", |end| !end.taker.ended.is_empty());
    assert_eq!(survivor.taker.ended[0].0, Why::Lost);
}
