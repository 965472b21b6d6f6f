//! The switch in virtual time: hosts send random frames, and every delivery is compared with the network's rules.

use hocket_switch::{Frame, HEADER_BYTES, Nanos, Network, Switch, WayRule};
use proptest::prelude::*;

const RATE: f64 = 125e6;
const QUEUE_S: f64 = 0.01;

fn frame(to: usize, number: u32, bytes: usize) -> Frame {
    let mut whole = vec![0; HEADER_BYTES];
    whole.extend([0x02, 0x68, 0x6b, 0, 0, to as u8]);
    whole.resize(HEADER_BYTES + bytes.max(60), 0);
    whole[HEADER_BYTES + 14..HEADER_BYTES + 18].copy_from_slice(&number.to_be_bytes());
    Frame::new(whole)
}

fn number(frame: &Frame) -> u32 {
    let at = HEADER_BYTES + 14;
    u32::from_be_bytes(frame.bytes()[at..at + 4].try_into().expect("four bytes"))
}

/// Hosts 0 and 1 in one rack, 2 and 3 in another: link `port` leads to a host, 4 is the trunk from the first rack to the second.
fn network(latency_s: impl Fn(usize, usize) -> f64, trunk: f64) -> Network {
    let way = |source: usize, port: usize| WayRule {
        links: if source < 2 && port >= 2 { vec![4, port] } else { vec![port] },
        latency_s: latency_s(source, port),
        ..WayRule::default()
    };
    Network {
        ports: 4,
        links: vec![Some(RATE), Some(RATE), Some(RATE), Some(RATE), Some(trunk)],
        ways: (0..16).map(|at| way(at / 4, at % 4)).collect(),
        queue_s: QUEUE_S,
        reorder: false,
        seed: 0,
        held_bytes_max: 1 << 30,
        summing: None,
    }
}

/// Deliveries: (time, port, frame).
fn play(switch: &mut Switch, sent: &[(Nanos, usize, Frame)]) -> Vec<(Nanos, usize, Frame)> {
    let mut delivered = Vec::new();
    for (now, source, frame) in sent {
        drain(switch, *now, &mut delivered);
        switch.handle_frame(*now, *source, frame.clone());
    }
    drain(switch, Nanos::MAX, &mut delivered);
    delivered
}

fn drain(switch: &mut Switch, until: Nanos, delivered: &mut Vec<(Nanos, usize, Frame)>) {
    while let Some(at) = switch.poll_timeout().filter(|at| *at <= until) {
        if let Some((port, frame)) = switch.poll_frame(at) {
            delivered.push((at, port, frame));
        }
    }
}

proptest! {
    /// Frames would be lost, doubled, early, out of order, or go to somebody else.
    #[test]
    fn every_frame_comes_once_in_order_and_not_early(
        traffic in proptest::collection::vec((0..50_000_u64, 0..4_usize, 1..4_usize, 60..9000_usize), 1..300),
    ) {
        let latency_s = |source: usize, port: usize| (1 + source * 4 + port) as f64 * 1e-5;
        let mut switch = Switch::new(&network(latency_s, RATE)).unwrap();
        let mut now = 0;
        let sent: Vec<_> = traffic.iter().enumerate().map(|(at, (gap, source, further, bytes))| {
            now += gap;
            (now, *source, frame((source + further) % 4, at as u32, *bytes))
        }).collect();
        let delivered = play(&mut switch, &sent);
        let counters = switch.counters();
        prop_assert_eq!(counters.delivered + counters.overflowed, sent.len() as u64);
        prop_assert_eq!(delivered.len() as u64, counters.delivered);
        let mut last = [None; 16];
        for (at, port, got) in &delivered {
            let (sent_at, source, original) = &sent[number(got) as usize];
            prop_assert_eq!(got, original);
            let wire_s = (got.bytes().len() - HEADER_BYTES) as f64 / RATE;
            let least = ((latency_s(*source, *port) + wire_s) * 1e9) as Nanos;
            prop_assert!(at + 2 >= sent_at + least, "{} ns early", sent_at + least - at);
            let pair = &mut last[source * 4 + port];
            prop_assert!(*pair < Some(number(got)), "out of order or twice");
            *pair = Some(number(got));
        }
    }

    /// A trunk would carry more than its rate, or one host's traffic alone.
    #[test]
    fn a_trunk_is_shared_at_its_rate(seed: u64) {
        let trunk = RATE / 4.0;
        let mut switch = Switch::new(&network(|_, _| 1e-4, trunk)).unwrap();
        let mut draws = fastrand::Rng::with_seed(seed);
        // Each of two hosts offers the whole trunk's rate.
        let gap_ns = 1500.0 / trunk * 1e9;
        let mut sent: Vec<_> = (0..4000_u32).map(|at| {
            let source = at as usize % 2;
            let now = (f64::from(at / 2) + draws.f64()) * gap_ns;
            (now as Nanos, source, frame(source + 2, at, 1500))
        }).collect();
        sent.sort_by_key(|(now, ..)| *now);
        let mut sent_at = vec![0; sent.len()];
        for (now, _, frame) in &sent {
            sent_at[number(frame) as usize] = *now;
        }
        let delivered = play(&mut switch, &sent);
        let by_host = [2, 3].map(|host| delivered.iter().filter(|(_, port, _)| *port == host).count());
        let passed_s = delivered.last().unwrap().0 as f64 * 1e-9;
        let rate = delivered.len() as f64 * 1500.0 / passed_s;
        prop_assert!(rate <= trunk * 1.001 && rate > trunk * 0.95, "{} of the rate", rate / trunk);
        let share = by_host[0] as f64 / delivered.len() as f64;
        prop_assert!((0.35..0.65).contains(&share), "one has {share}");
        let longest = delivered.iter().map(|(at, _, got)| at - sent_at[number(got) as usize]).max().unwrap();
        prop_assert!(longest as f64 * 1e-9 < QUEUE_S + 1e-3, "queued for {longest} ns");
        prop_assert_eq!(switch.carried_bytes().last(), Some(delivered.len() as u64 * 1500));
    }
}

/// ARP would find nobody: hosts could not reach each other.
#[test]
fn a_broadcast_reaches_all_others_at_their_own_latency() {
    let mut switch = Switch::new(&network(|_, port| port as f64 * 1e-3, RATE)).unwrap();
    let mut whole = vec![0; HEADER_BYTES];
    whole.extend([0xff; 6]);
    whole.resize(HEADER_BYTES + 60, 0);
    let delivered = play(&mut switch, &[(0, 1, Frame::new(whole))]);
    let ports: Vec<_> = delivered.iter().map(|(_, port, _)| *port).collect();
    assert_eq!(ports, [0, 2, 3]);
    assert!(delivered[2].0 >= 3_000_000);
}

/// Frames for unknown addresses would be flooded, or crash it.
#[test]
fn unknown_addresses_are_counted() {
    let mut switch = Switch::new(&network(|_, _| 0.0, RATE)).unwrap();
    assert_eq!(play(&mut switch, &[(0, 0, frame(9, 0, 60)), (0, 0, Frame::new(vec![1; 3]))]), []);
    assert_eq!(switch.counters().unknown, 2);
}

/// A long latency on a fast link would take all memory of the machine.
#[test]
fn what_is_under_way_is_bounded() {
    let mut tight = network(|_, _| 1.0, RATE);
    tight.held_bytes_max = 100_000;
    let mut switch = Switch::new(&tight).unwrap();
    let sent: Vec<_> = (0..100).map(|at| (u64::from(at) * 1000, 0, frame(1, at, 9000))).collect();
    assert_eq!(play(&mut switch, &sent).len(), 11);
    assert_eq!(switch.counters().overflowed, 89);
    assert_eq!(
        play(&mut switch, &[(2_000_000_000, 0, frame(1, 0, 9000))]).len(),
        1,
        "room is not given back"
    );
}
