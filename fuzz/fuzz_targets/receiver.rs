//! See `crates/hostile/src/receiver.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("receiver", bytes));
