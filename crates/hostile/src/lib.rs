//! One function for each parser of bytes that come from a peer, a stranger or a file. Each takes any bytes and panics when what
//! must hold does not; refusing the bytes is always right. `fuzz/` gives them to libFuzzer, `tests/inputs.rs` to `cargo test`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is how a target reports")]

mod frame;
pub mod frames;
mod handshake;
mod messages;
mod program_text;
mod receiver;
mod tls;

/// A parser and what it is given to.
pub struct Target {
    /// Of the function, of its fuzz target and of the folder of its inputs.
    pub name: &'static str,
    /// Panics when something must not be.
    pub run: fn(&[u8]),
    /// Inputs that get far, for a corpus to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 6] = [
    Target { name: "frame", run: frame::run, seeds: frame::seeds },
    Target { name: "handshake", run: handshake::run, seeds: handshake::seeds },
    Target { name: "messages", run: messages::run, seeds: messages::seeds },
    Target { name: "program_text", run: program_text::run, seeds: program_text::seeds },
    Target { name: "receiver", run: receiver::run, seeds: receiver::seeds },
    Target { name: "tls", run: tls::run, seeds: tls::seeds },
];

/// Runs one by name.
///
/// # Panics
/// When there is none of that name, or it finds something.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    (target.run)(bytes);
}
