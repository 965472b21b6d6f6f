//! See `crates/hostile/src/frame.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("frame", bytes));
