//! Executors of one job in one process, connected over loopback and shared memory.

use hocket_executor::{Address, Engine, Lifetime, Options, WireOptions};
use hocket_ids::Rank;
use hocket_protocol::liveness::Patience;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Deadline of everything that waits.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Engines of one job in this process; ranks with equal `hosts` share memory.
pub fn mesh(hosts: &[&str], threads: usize) -> Vec<Arc<Engine>> {
    mesh_of(hosts, threads, 1, None)
}

/// The same, with this many connections between ranks of different hosts; with `elastic`, they go on without lost ones.
pub fn mesh_of(
    hosts: &[&str],
    threads: usize,
    streams: usize,
    elastic: Option<Lifetime>,
) -> Vec<Arc<Engine>> {
    mesh_on(hosts, threads, streams, &[1], elastic)
}

/// The same, with cards whose addresses end with these numbers.
pub fn mesh_on(
    hosts: &[&str],
    threads: usize,
    streams: usize,
    cards: &[u8],
    elastic: Option<Lifetime>,
) -> Vec<Arc<Engine>> {
    let job = format!("test-{}-{:?}", std::process::id(), thread::current().id());
    let engines: Vec<Arc<Engine>> = (0..hosts.len())
        .map(|rank| {
            let options = Options {
                rank: Rank::from_index(rank),
                world: hosts.len(),
                job: job.clone(),
                secret: b"secret".to_vec(),
                threads,
                trace: None,
                wire: WireOptions {
                    wire: "tcp".into(),
                    host: hosts[rank].into(),
                    bind: cards.iter().map(|&card| [127, 0, 0, card].into()).collect(),
                    ports: 0..=0,
                    tls: false,
                    elastic,
                    emulated_links: None,
                },
                checksum: false,
                patience: Patience::of(TIMEOUT),
            };
            Arc::new(Engine::new(options).unwrap())
        })
        .collect();
    let addresses: Vec<Address> = engines
        .iter()
        .zip(hosts)
        .map(|(engine, host)| Address { tcp: engine.addresses().to_vec(), host: (*host).into(), streams })
        .collect();
    each(&engines, |_, engine| engine.connect(&addresses, TIMEOUT, None).unwrap());
    engines
}

/// Runs `f` on all ranks at once.
pub fn each(engines: &[Arc<Engine>], f: impl Fn(usize, &Engine) + Sync) {
    thread::scope(|scope| {
        for (rank, engine) in engines.iter().enumerate() {
            let f = &f;
            scope.spawn(move || f(rank, engine));
        }
    });
}
