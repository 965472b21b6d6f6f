//! Copies between hosts and their devices: one after the other in each direction, beside everything else.

mod support;

use hocket_ids::{BufferId, Rank, Tag};
use hocket_network::{Bus, Network};
use hocket_program::{BufferKind, DType, Op, Program, RankBuilder, Slice};
use hocket_simulate::{Conditions, Costs, Error, compile, to_s};
use support::{run, star};

/// One element of four bytes takes 4 s down, 2 s up, and 1 s on the wire.
const BUS: Bus = Bus { down_bytes_per_s: 1.0, up_bytes_per_s: 2.0, copy_s: 0.0 };
const WIRE_BYTES_PER_S: f64 = 4.0;

/// Rank 0 sends so many elements to rank 1, in messages of one; both have them on their devices, and copy in pieces of one.
fn sent(elements: usize) -> Program {
    let slice = |at| Slice::new(BufferId(0), at, at + 1);
    let rank = |op: &dyn Fn(usize) -> Op| {
        let mut builder = RankBuilder::new();
        builder.buffer("bucket", DType::F32, elements, BufferKind::Bound);
        for at in 0..elements {
            builder.push(op(at), None);
        }
        builder.finish()
    };
    let tag = |at| Tag(at as u32);
    let send = |at| Op::Send { src: slice(at), wire: DType::F32, count: None, peer: Rank(1), tag: tag(at) };
    let recv = |at| Op::Recv {
        dst: slice(at),
        wire: DType::F32,
        count: None,
        reduce: None,
        peer: Rank(0),
        tag: tag(at),
    };
    Program { ranks: vec![rank(&send), rank(&recv)], ..Program::default() }.staged(4, &[])
}

fn end_s(network: &Network, program: &Program, bus: Bus) -> f64 {
    let costs = Costs { bus: Some(bus), ..Costs::NONE };
    let graph = compile(program, network, &costs).expect("compiles");
    to_s(run(network, &graph, &costs, &Conditions::default()).expect("ends").end)
}

fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
}

/// Broken: gradients on a device would be predicted to travel only when all are down, or pieces to pass the bus side by side.
#[test]
fn pieces_come_down_travel_and_go_up_at_once() {
    let network = star(vec![0, 1], WIRE_BYTES_PER_S, 0.0);
    close(end_s(&network, &sent(1), BUS), 4.0 + 1.0 + 2.0);
    // The slowest of the three takes the time of all pieces, the others that of one.
    close(end_s(&network, &sent(5), BUS), 5.0 * 4.0 + 1.0 + 2.0);
    let up = Bus { down_bytes_per_s: 8.0, up_bytes_per_s: 1.0, ..BUS };
    close(end_s(&network, &sent(5), up), 0.5 + 1.0 + 5.0 * 4.0);
    let fast = Bus { down_bytes_per_s: 8.0, up_bytes_per_s: 8.0, ..BUS };
    close(end_s(&network, &sent(5), fast), 0.5 + 5.0 * 1.0 + 0.5);
    // What starting each copy costs.
    close(end_s(&network, &sent(5), Bus { copy_s: 1.0, ..BUS }), 5.0 * 5.0 + 1.0 + 3.0);
}

/// Broken: a program for devices would be predicted as if its copies were free, or as if the processor made them.
#[test]
fn copies_without_a_bus_are_refused() {
    let network = star(vec![0, 1], WIRE_BYTES_PER_S, 0.0);
    let refused = compile(&sent(1), &network, &Costs::NONE).expect_err("no bus");
    assert!(matches!(&refused, Error::Program { what, .. } if what.contains("no bus is given")), "{refused}");
    let none = Costs { bus: Some(Bus { up_bytes_per_s: 0.0, ..BUS }), ..Costs::NONE };
    let refused = compile(&sent(1), &network, &none).expect_err("no rate");
    assert!(refused.to_string().contains("link `bus` has a rate up in bytes/s of 0"), "{refused}");
}
