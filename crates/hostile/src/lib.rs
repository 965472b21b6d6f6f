//! One function for each parser of bytes from a peer, a stranger or a file. Each takes any bytes and panics when an
//! invariant is broken; refusing the bytes is always right. `fuzz/` runs them under libFuzzer, `tests/inputs.rs` under
//! `cargo test`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is how a target reports")]

mod frame;
pub mod frames;
mod handshake;
mod journal;
mod membership;
mod messages;
mod program_bytes;
mod program_text;
mod receiver;
mod tls;

pub struct Target {
    /// Name of the function, of its fuzz target and of the folder of its inputs.
    pub name: &'static str,
    /// Panics when an invariant is broken.
    pub run: fn(&[u8]),
    /// Inputs that get far, to start a corpus with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: [Target; 9] = [
    Target { name: "frame", run: frame::run, seeds: frame::seeds },
    Target { name: "handshake", run: handshake::run, seeds: handshake::seeds },
    Target { name: "journal", run: journal::run, seeds: journal::seeds },
    Target { name: "membership", run: membership::run, seeds: membership::seeds },
    Target { name: "messages", run: messages::run, seeds: messages::seeds },
    Target { name: "program_bytes", run: program_bytes::run, seeds: program_bytes::seeds },
    Target { name: "program_text", run: program_text::run, seeds: program_text::seeds },
    Target { name: "receiver", run: receiver::run, seeds: receiver::seeds },
    Target { name: "tls", run: tls::run, seeds: tls::seeds },
];

/// Runs one by name.
///
/// # Panics
/// When the name is unknown, or an invariant is broken.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    (target.run)(bytes);
}
