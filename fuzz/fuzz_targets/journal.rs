//! See `crates/hostile/src/journal.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("journal", bytes));
