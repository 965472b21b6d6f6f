//! The text form of a program: the output of `print(program)` and the language of tests. Printing and parsing gives the
//! same program.

mod parse;
mod print;
mod token;

pub use parse::parse;
pub use print::{node, op};
pub use token::ParseError;

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::{
        Algorithm, BufferKind, Collective, DType, Op, Program, RankBuilder, ReduceOp, Slice, passes, verify,
    };
    use hocket_ids::Rank;
    use proptest::prelude::*;

    fn ring(world: usize, len: usize) -> Program {
        let group: Vec<Rank> = (0..world).map(Rank::from_index).collect();
        let rank = |_| {
            let mut builder = RankBuilder::new();
            let buffer = builder.buffer("a \"quoted\" name\n", DType::F32, len, BufferKind::Bound);
            let slice = Slice::new(buffer, 0, len);
            let (group, algorithm) = (group.clone(), Some(Algorithm::Ring));
            let what = Collective::AllReduce;
            let op = ReduceOp::Sum;
            builder.push(Op::Collective { what, slice, group, op, scale: 0.1, algorithm }, None);
            builder.finish()
        };
        let program =
            Program { name: "ring".into(), ranks: (0..world).map(rank).collect(), ..Program::default() };
        let options = passes::Options { order: None, chunk_bytes: 64, codec: None };
        passes::compile(&program, &options).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// A program that was printed and parsed would be another one.
        #[test]
        fn print_then_parse_is_the_same(world in 1usize..6, len in 0usize..200) {
            let program = ring(world, len);
            prop_assert_eq!(parse(&program.to_string()), Ok(program));
        }

        /// A damaged file would crash the process instead of naming line and column; text that still parses would crash
        /// the verifier.
        #[test]
        fn damaged_text_is_refused_or_judged(at in 0usize..3000, cut in 0usize..20, put in "[ %0-9a-z:\\[\\]{}\"=\\\\]{0,6}") {
            let text = ring(3, 40).to_string();
            let at = at % text.len();
            let end = (at + cut).min(text.len());
            if let Ok(program) = parse(&format!("{}{put}{}", &text[..at], &text[end..])) {
                verify::verify(&program);
            }
        }

        /// Any text at all.
        #[test]
        fn no_text_crashes_the_parser(text in "\\PC*") {
            prop_assert!(parse(&text).is_err());
        }
    }
}
