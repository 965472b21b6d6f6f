//! See `crates/hostile/src/messages.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hocket_hostile::run("messages", bytes));
