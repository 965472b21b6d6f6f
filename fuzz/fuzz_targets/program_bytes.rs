//! See `crates/hostile/src/program_bytes.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("program_bytes", bytes));
