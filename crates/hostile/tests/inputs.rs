//! Every target over the committed inputs and thousands of mutations of them: a fuzzer's work within seconds.
//!
//! `HOCKET_FUZZ_CASES=100000 cargo test --release -p hocket-hostile` runs longer. Inputs that libFuzzer finds go into
//! `fuzz/corpus/<target>/` and stay there.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_hostile::{TARGETS, Target};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::path::PathBuf;

const CASES: u32 = 3000;

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

/// A stranger's bytes, or a damaged file, would crash a rank, pass a check or write where they must not.
#[test]
fn no_input_does_harm() {
    let cases = std::env::var("HOCKET_FUZZ_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    for target in &TARGETS {
        let mut inputs = corpus(target);
        assert!(!inputs.is_empty(), "`{}` has no inputs", target.name);
        inputs.extend((target.seeds)());
        for bytes in &inputs {
            (target.run)(bytes);
        }
        let edits = prop::collection::vec((any::<prop::sample::Index>(), edit()), 0..6);
        let cut = prop::option::weighted(0.3, any::<prop::sample::Index>());
        let input = prop_oneof![
            9 => (prop::sample::select(inputs), edits, cut).prop_map(|(bytes, edits, cut)| made(bytes, edits, cut)),
            1 => prop::collection::vec(any::<u8>(), 0..200),
        ];
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let found = TestRunner::new(config).run(&input, |bytes| {
            (target.run)(&bytes);
            Ok(())
        });
        assert!(found.is_ok(), "`{}`: {}", target.name, found.unwrap_err());
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Set(u8),
    Insert(u8),
    Remove,
    /// Four bytes at the edge of limits.
    Number(u32),
    /// The same list as at the other place.
    Repeat(prop::sample::Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<u8>().prop_map(Edit::Set),
        any::<u8>().prop_map(Edit::Insert),
        Just(Edit::Remove),
        prop::sample::select(vec![0, 1, 0xffff, 0x0001_0000, 0x7fff_ffff, u32::MAX]).prop_map(Edit::Number),
        any::<prop::sample::Index>().prop_map(Edit::Repeat),
    ]
}

fn made(
    mut bytes: Vec<u8>,
    edits: Vec<(prop::sample::Index, Edit)>,
    cut: Option<prop::sample::Index>,
) -> Vec<u8> {
    for (at, edit) in edits {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match edit {
            Edit::Set(byte) => bytes[at] = byte,
            Edit::Insert(byte) => bytes.insert(at, byte),
            Edit::Remove => drop(bytes.remove(at)),
            Edit::Number(number) => {
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            Edit::Repeat(from) => {
                let from = from.index(bytes.len());
                let piece = bytes[from..(from + 40).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    if let Some(cut) = cut.filter(|_| !bytes.is_empty()) {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

/// Writes the seeds into the corpus: `cargo test -p hocket-hostile -- --ignored`.
#[test]
#[ignore = "writes files of the repository"]
fn write_seeds() {
    for target in &TARGETS {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
        }
    }
}
