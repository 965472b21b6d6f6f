//! Programs as bytes, as one rank of a host leaves them for the others and a cache keeps them: what is read is written as it was,
//! and the verifier has an answer.

use crate::program_text;
use hocket_program::text::parse;
use hocket_program::{Program, verify};

/// Larger programs find nothing new and make the verifier slow.
const BYTES_MAX: usize = 2048;

pub fn run(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    let Ok(program) = Program::from_bytes(bytes) else { return };
    // Compared as bytes: a factor that is no number is not equal to itself.
    let written = program.to_bytes();
    let again = Program::from_bytes(&written).expect("what was written can be read");
    assert_eq!(again.to_bytes(), written);
    verify::verify(&program);
    let part = Program::from_bytes(&program.part_to_bytes(hocket_ids::Rank(0))).expect("a part can be read");
    assert_eq!(part.world(), program.world());
}

pub fn seeds() -> Vec<Vec<u8>> {
    let parsed = |text: Vec<u8>| parse(&String::from_utf8(text).expect("text")).expect("a program");
    program_text::seeds().into_iter().map(|text| parsed(text).to_bytes()).collect()
}
