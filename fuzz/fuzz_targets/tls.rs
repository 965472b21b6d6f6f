//! See `crates/hostile/src/tls.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("tls", bytes));
