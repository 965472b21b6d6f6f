//! See `crates/hostile/src/handshake.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("handshake", bytes));
