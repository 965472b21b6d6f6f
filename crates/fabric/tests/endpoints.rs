//! Endpoints of real providers that need no special card: messages, in any order of posting, and what ends badly.
#![allow(clippy::unwrap_used)]

use hocket_fabric::{
    Carrier, Choice, Completion, Endpoint, FabricError, Memory, Operation, Posting, providers,
};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

const KINDS: [&str; 3] = ["tcp", "shm", "udp"];

fn open(kind: &str) -> Endpoint {
    Endpoint::open(Choice::from_name(kind).unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()
}

fn memory(bytes: &mut [u8]) -> Memory {
    Memory { address: bytes.as_mut_ptr(), len: bytes.len() }
}

/// Posts at `ends[at]` as soon as there is room, such as when a connection has come up; both make progress meanwhile.
fn posted(
    ends: &mut [Endpoint],
    at: usize,
    early: &mut Vec<(usize, Completion)>,
    mut post: impl FnMut(&mut Endpoint) -> Result<Posting, FabricError>,
) -> Operation {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Posting::Posted(operation) = post(&mut ends[at]).unwrap() {
            return operation;
        }
        assert!(Instant::now() < deadline, "there was never room");
        poll(ends, early);
    }
}

fn poll(ends: &mut [Endpoint], all: &mut Vec<(usize, Completion)>) {
    for (at, end) in ends.iter_mut().enumerate() {
        let mut ended = Vec::new();
        end.poll(&mut ended).unwrap();
        all.extend(ended.into_iter().map(|completion| (at, completion)));
    }
}

/// Polls both until `count` operations have ended, those of `all` included.
fn until(ends: &mut [Endpoint], count: usize, all: &mut Vec<(usize, Completion)>) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while all.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} operations have ended", all.len());
        poll(ends, all);
    }
}

/// Payloads would land elsewhere, or not at all.
#[test]
fn messages_reach_the_receive_of_their_tag() {
    for kind in KINDS {
        let mut ends = [open(kind), open(kind)];
        let address = ends[0].address().to_vec();
        let to = ends[1].insert(&address).unwrap();
        let sizes = [1, 4096, 40_000, 262_144];
        let mut sinks: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
        let mut sources: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(at, &size)| (0..size).map(|i| (i * 7 + at) as u8).collect())
            .collect();
        let mut all = Vec::new();
        for (tag, sink) in sinks.iter_mut().enumerate() {
            let memory = memory(sink);
            // SAFETY: the vectors live until all operations have ended.
            posted(&mut ends, 0, &mut all, |end| unsafe { end.receive(memory, tag as u64) });
        }
        for (tag, source) in sources.iter_mut().enumerate().rev() {
            let memory = memory(source);
            // SAFETY: as above.
            posted(&mut ends, 1, &mut all, |end| unsafe { end.send(to, memory, tag as u64) });
        }
        until(&mut ends, 2 * sizes.len(), &mut all);
        assert!(all.iter().all(|(_, completion)| completion.outcome.is_ok()), "{kind:?}: {all:?}");
        let mut lengths: Vec<usize> =
            all.iter().filter(|(at, _)| *at == 0).map(|(_, done)| done.outcome.clone().unwrap()).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, sizes, "{kind:?}");
        assert!(sinks == sources, "{kind:?}: other bytes");
    }
}

/// Memory would be used again while a receive may still write to it.
#[test]
fn a_cancelled_receive_says_so() {
    for kind in KINDS {
        let mut ends = [open(kind)];
        let mut sink = vec![0; 100_000];
        let memory = memory(&mut sink);
        let mut all = Vec::new();
        // SAFETY: the vector lives until the operation has ended.
        let operation = posted(&mut ends, 0, &mut all, |end| unsafe { end.receive(memory, 5) });
        ends[0].cancel(operation);
        until(&mut ends, 1, &mut all);
        assert_eq!(all[0].1, Completion { operation, outcome: Err(FabricError::Cancelled) }, "{kind:?}");
        assert!(ends[0].may_sleep());
    }
}

/// A peer with another address format, or none at all, would be written to at random.
#[test]
fn addresses_of_another_kind_are_refused() {
    for kind in ["tcp", "udp"] {
        let refused = open(kind).insert(&[1, 2, 3]).unwrap_err().to_string();
        assert!(refused.contains("3 bytes"), "{refused}");
    }
}

/// A user would not know what to choose, or why a choice fails.
#[test]
fn providers_are_listed_and_a_missing_one_is_named() {
    let all = providers().unwrap();
    for name in ["tcp;ofi_rxm", "udp;ofi_rxd", "shm"] {
        assert!(all.contains(name), "{name} of {all:?}");
    }
    let refused = Endpoint::open(Choice::from_name("tcp").unwrap(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("tcp;ofi_rxm") || refused.contains("fi_"), "{refused}");
}

/// A rank whose process id was that of a killed one could not open its endpoint: libfabric's own names are ids.
#[test]
fn what_a_killed_process_leaves_is_neither_in_the_way_nor_kept() {
    const CHILD: &str = "HOCKET_TEST_ENDS_WITHOUT_CLOSING";
    if env::var_os(CHILD).is_some() {
        let _end = open("shm");
        process::abort();
    }
    let like_ours = format!("/dev/shm/{}:{}:0", process::id(), fs::metadata("/proc/self").unwrap().uid());
    fs::write(&like_ours, vec![0; 4096]).unwrap();
    let name = "what_a_killed_process_leaves_is_neither_in_the_way_nor_kept";
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", name]).env(CHILD, "1").stderr(Stdio::null()).spawn().unwrap();
    let of_child = format!("-{}-", child.id());
    child.wait_with_output().unwrap();
    let left = || {
        let names = fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains(&of_child)).count()
    };
    assert_eq!(left(), 1);
    let _end = open("shm");
    assert_eq!(left(), 0);
    fs::remove_file(like_ours).unwrap();
}
