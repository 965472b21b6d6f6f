//! The text form of programs, as in a file: a parsed program prints to itself, and the verifier has an answer.

use hocket_ids::{Rank, Tag};
use hocket_program::text::parse;
use hocket_program::{BufferKind, DType, Op, Program, RankBuilder, ReduceOp, Slice, verify};

/// Larger texts find nothing new and make the verifier slow.
const TEXT_BYTES_MAX: usize = 4096;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    let Ok(program) = parse(text) else { return };
    assert_eq!(parse(&program.to_string()).unwrap(), program);
    verify::verify(&program);
}

/// Two ranks that sum, and texts of one op each.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut ranks = Vec::new();
    for (own, other) in [(0, 1), (1, 0)] {
        let mut rank = RankBuilder::new();
        let bucket = rank.buffer("bucket", DType::F32, 8, BufferKind::Bound);
        let (mine, theirs) =
            (Slice::new(bucket, own * 4, own * 4 + 4), Slice::new(bucket, other * 4, other * 4 + 4));
        let (peer, wire, count) = (Rank(other as u32), DType::F16, None);
        let tags = [own, other].map(Tag::from_index);
        rank.push(Op::Send { src: theirs, wire, peer, tag: tags[0], count }, None);
        rank.push(Op::Recv { dst: mine, wire, reduce: Some(ReduceOp::Sum), peer, tag: tags[1], count }, None);
        ranks.push(rank.finish());
    }
    let program = Program { name: "seed".into(), ranks, ..Program::default() };
    vec![program.to_string().into_bytes()]
}
