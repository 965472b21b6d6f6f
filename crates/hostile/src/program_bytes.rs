//! Programs as bytes, as one rank of a host leaves them for the others and a cache keeps them: what is read is written as it was,
//! and the verifier has an answer.

use crate::program_text;
use hocket_ids::Rank;
use hocket_program::text::parse;
use hocket_program::{Program, verify};

/// Larger programs find nothing new and make the verifier slow.
const BYTES_MAX: usize = 2048;

pub fn run(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    let _ = Program::parts_from_bytes(bytes);
    let Ok(program) = Program::from_bytes(bytes) else { return };
    // Compared as bytes: a factor that is no number is not equal to itself.
    let written = program.to_bytes();
    let again = Program::from_bytes(&written).expect("what was written can be read");
    assert_eq!(again.to_bytes(), written);
    verify::verify(&program);
    let parts = Program::parts_to_bytes([&program], &[Rank(0)]).remove(0);
    let read = Program::parts_from_bytes(&parts).expect("parts can be read");
    assert_eq!(read[0].to_bytes(), program.part(Rank(0)).to_bytes());
}

pub fn seeds() -> Vec<Vec<u8>> {
    let parsed = |text: Vec<u8>| parse(&String::from_utf8(text).expect("text")).expect("a program");
    program_text::seeds().into_iter().map(|text| parsed(text).to_bytes()).collect()
}
