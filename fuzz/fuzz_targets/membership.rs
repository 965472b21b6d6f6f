//! See `crates/hostile/src/membership.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("membership", bytes));
