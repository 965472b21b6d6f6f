//! Bytes that pass through sockets take the time of the wires or of the ranks' engines, whichever is longer.

mod support;

use hocket_network::Network;
use hocket_simulate::{Conditions, Costs, Timed, timed, to_s};
use support::{run, star};

const MESSAGE_BYTES: u64 = 1_000_000;
const SOCKET_S: f64 = 1e-3;
const COSTS: Costs =
    Costs { socket_s_per_byte: SOCKET_S / MESSAGE_BYTES as f64, rendezvous: false, ..Costs::NONE };

/// When messages between these ranks have all been received, all sent at once; a link takes `wire_s` for each.
fn end_s(network: &Network, pairs: &[(u32, u32)], costs: &Costs) -> f64 {
    let message = |&(source, destination)| Timed {
        source,
        destination,
        bytes: MESSAGE_BYTES,
        after: Vec::new(),
        gap_s: 0.0,
    };
    let messages: Vec<Timed> = pairs.iter().map(message).collect();
    let graph = timed(4, &messages, &[], network, costs).expect("sound");
    to_s(run(network, &graph, costs, &Conditions::default()).expect("ends").end)
}

fn hosts(wire_s: f64) -> Network {
    star(vec![0, 1, 2, 3], MESSAGE_BYTES as f64 / wire_s, 0.0)
}

fn close(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
}

/// Broken: plans between slow hosts would be predicted as if ranks wrote to sockets first and waited for the wire then.
#[test]
fn between_slow_links_sockets_cost_nothing() {
    let exchanges: [&[(u32, u32)]; 3] = [
        &[(0, 1), (1, 2), (2, 3), (3, 0)],
        &[(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0)],
        &[(0, 1), (0, 1), (2, 1)],
    ];
    for pairs in exchanges {
        let free = Costs { socket_s_per_byte: 0.0, ..COSTS };
        let network = hosts(20.0 * SOCKET_S);
        close(end_s(&network, pairs, &COSTS), end_s(&network, pairs, &free));
    }
}

/// Broken: at 25 Gbit/s and more, simulated plans would be as fast as wires, which no rank is.
#[test]
fn between_fast_links_engines_are_what_takes_time() {
    let network = hosts(0.01 * SOCKET_S);
    close(end_s(&network, &[(0, 1)], &COSTS), SOCKET_S);
    // Who sends to many, or receives from many, is the slowest; others write and read at the same time.
    close(end_s(&network, &[(0, 1), (0, 2), (0, 3)], &COSTS), 3.0 * SOCKET_S);
    close(end_s(&network, &[(1, 0), (2, 0), (3, 0)], &COSTS), 3.0 * SOCKET_S);
    // A ring's ranks write and read one message each.
    close(end_s(&network, &[(0, 1), (1, 2), (2, 3), (3, 0)], &COSTS), 2.0 * SOCKET_S);
    // Ranks of one host use no sockets.
    let one_host = star(vec![0; 4], 1e12, 0.0);
    close(end_s(&one_host, &[(0, 1)], &COSTS), 1e-6);
}

/// Broken: a rank that is slow at everything else would be as fast as others at this.
#[test]
fn a_slow_rank_is_slow_at_sockets() {
    let network = hosts(0.01 * SOCKET_S);
    let message = Timed { source: 0, destination: 1, bytes: MESSAGE_BYTES, after: Vec::new(), gap_s: 0.0 };
    let graph = timed(4, &[message], &[], &network, &COSTS).expect("sound");
    for rank in [0, 1] {
        let slow = Conditions { slow: vec![(rank, 3.0)], ..Conditions::default() };
        close(to_s(run(&network, &graph, &COSTS, &slow).expect("ends").end), 3.0 * SOCKET_S);
    }
}
