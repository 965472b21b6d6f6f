//! The readable form of a program: what `print(program)` shows and what tests are written in. Print, then parse, gives the
//! same program.

mod parse;
mod print;
mod token;

pub use parse::{ParseError, parse};
pub use print::{node, op};
