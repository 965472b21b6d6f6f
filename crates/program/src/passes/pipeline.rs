//! The passes that every program goes through before it runs, in order, whoever made it: a plan, a policy or Hocket
//! itself.
//!
//! The spec of each pass is checked after that pass and after each later one, so that a pass that breaks an earlier
//! one's result is named at once.

use super::pass::{Options, Pass, Site};
use super::{PassError, chunk, encode, fuse, lower, relabel};
use crate::Program;
use crate::verify::{Diagnostic, Findings};
use hocket_ids::Rank;
use std::borrow::Cow;

/// In order. Each pass's file states what it requires of earlier passes.
pub const PIPELINE: [Pass; 5] = [lower::PASS, relabel::PASS, fuse::PASS, chunk::PASS, encode::PASS];

/// `program` after all passes; not verified.
pub fn compile(program: &Program, options: &Options) -> Result<Program, PassError> {
    run(&PIPELINE, program, options, |_, _| ())
}

/// `program` after each pass, by the pass's title; not verified.
pub fn stages(program: &Program, options: &Options) -> Result<Vec<(&'static str, Program)>, PassError> {
    let mut stages = Vec::with_capacity(PIPELINE.len());
    run(&PIPELINE, program, options, |title, made| stages.push((title, made.clone())))?;
    Ok(stages)
}

fn run(
    passes: &[Pass],
    program: &Program,
    options: &Options,
    mut made: impl FnMut(&'static str, &Program),
) -> Result<Program, PassError> {
    let mut current = Cow::Borrowed(program);
    for (at, pass) in passes.iter().enumerate() {
        // The earlier result stands if this pass changes nothing.
        let mut checked = at..=at;
        if let Some(next) = (pass.run)(&current, options)? {
            current = Cow::Owned(next);
            checked = 0..=at;
        }
        let findings = violations(&passes[checked], &current, options);
        if !findings.is_empty() {
            return Err(PassError::Spec { pass: pass.title, findings });
        }
        made(pass.title, &current);
    }
    Ok(current.into_owned())
}

/// The ops that the specs of `passes`, the last of which has just run, do not allow.
fn violations(passes: &[Pass], program: &Program, options: &Options) -> Vec<Diagnostic> {
    let Some(last) = passes.last() else { return Vec::new() };
    let mut found = Findings::after(last.title, program);
    for (rank, ops) in program.ranks.iter().enumerate() {
        for (at, node) in ops.nodes.iter().enumerate() {
            let site = Site { program, rank: Rank::from_index(rank), ops, op: &node.op };
            if let Some(what) = passes.iter().find_map(|pass| (pass.spec)(&site, options)) {
                found.at(rank, at, what);
            }
        }
    }
    found.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::Codec;
    use crate::{Algorithm, BufferKind, Collective, DType, Op, RankBuilder, ReduceOp, Slice};

    const OPTIONS: Options = Options { order: None, chunk_bytes: 16, codec: None };

    fn all_reduce(world: usize, elements: usize) -> Program {
        let rank = || {
            let mut builder = RankBuilder::new();
            let buffer = builder.buffer("bucket", DType::F32, elements, BufferKind::Bound);
            let op = Op::Collective {
                what: Collective::AllReduce,
                slice: Slice::new(buffer, 0, elements),
                group: (0..world).map(Rank::from_index).collect(),
                op: ReduceOp::Sum,
                scale: 1.0,
                algorithm: Some(Algorithm::Ring),
            };
            builder.push(op, None);
            builder.finish()
        };
        Program { name: "test".into(), ranks: (0..world).map(|_| rank()).collect(), ..Program::default() }
    }

    fn coded() -> Options {
        let links = [(Rank(0), Rank(1))].into();
        Options { codec: Some(Codec { dtype: DType::F16, links }), ..OPTIONS }
    }

    /// The pipeline with a pass that does nothing in place of the pass with that title.
    fn without(title: &str) -> Vec<Pass> {
        let idle =
            |pass: Pass| if pass.title == title { Pass { run: |_, _| Ok(None), ..pass } } else { pass };
        PIPELINE.into_iter().map(idle).collect()
    }

    /// The executor of a running job would find what a pass left undone, or a later one brought back.
    #[test]
    fn a_pass_that_does_nothing_is_named_with_rank_and_op() {
        for (title, says) in [
            ("lower", "all_reduce by ring: it should be messages by now"),
            ("chunk", "is of 2 chunks of 16 bytes"),
            ("encode", "sends f32 over a link with codec f16"),
        ] {
            let error = run(&without(title), &all_reduce(2, 12), &coded(), |_, _| ()).unwrap_err();
            let PassError::Spec { pass, findings } = &error else { panic!("{error}") };
            assert_eq!(*pass, title);
            assert_eq!((findings[0].op, findings[0].after_pass), (Some((0, 0)), Some(title)), "{error}");
            assert!(findings[0].what.contains(says), "{error}");
            assert!(error.to_string().contains(&format!("rank 0 op 0 after `{title}`")), "{error}");
        }
    }

    /// The earlier pass would be blamed for a later one that undoes it.
    #[test]
    fn specs_hold_to_the_end() {
        let undone = all_reduce(2, 12);
        let mut passes = without("none");
        passes.push(Pass {
            title: "undo",
            run: |program, _| Ok(Some(Program { ranks: all_reduce(2, 12).ranks, ..program.clone() })),
            spec: |_, _| None,
        });
        let error = run(&passes, &undone, &OPTIONS, |_, _| ()).unwrap_err();
        assert!(matches!(error, PassError::Spec { pass: "undo", .. }), "{error}");
    }

    /// `hocket verify --after` would show another program than the one that runs.
    #[test]
    fn the_last_stage_is_what_is_compiled() {
        let options = Options { order: Some(vec![Rank(1), Rank(0)]), ..coded() };
        let program = all_reduce(2, 12);
        let stages = stages(&program, &options).unwrap();
        assert_eq!(
            stages.iter().map(|(title, _)| *title).collect::<Vec<_>>(),
            PIPELINE.map(|pass| pass.title)
        );
        assert_eq!(stages.last().map(|(_, made)| made), compile(&program, &options).ok().as_ref());
    }
}
