//! Runs `tests/programs/*.hkp`: each file has cases, each with a program and the verifier's findings.
//!
//! ```text
//! ;; a title begins a case
//! program "x" world 1
//! ; error: of the whole, or of text that is no program
//! rank 0 {
//!   0: copy %0[0:1] to %0[0:1]
//!   ; error: of the op above
//! }
//! ```
//!
//! A case without `error:` may run, and prints as it was parsed. `HOCKET_BLESS=1` writes the actual errors into the
//! files; review the difference.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_program::{text, verify};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// (rank, op) of an error; `None`: the whole.
type Place = Option<(usize, usize)>;

/// A line with an error.
const ERROR: &str = "; error: ";

/// The cases of a file, each with its title, and the text before the first.
fn cases(file: &str) -> (String, Vec<String>) {
    let mut head = String::new();
    let mut cases: Vec<String> = Vec::new();
    for line in file.lines() {
        if line.starts_with(";; ") {
            cases.push(String::new());
        }
        let target = cases.last_mut().unwrap_or(&mut head);
        writeln!(target, "{line}").unwrap();
    }
    (head, cases)
}

/// The case without its errors, and the errors with their places.
fn expected(case: &str) -> (String, Vec<(Place, String)>) {
    let (mut plain, mut errors) = (String::new(), Vec::new());
    let mut places = Places::default();
    for line in case.lines() {
        if let Some(what) = line.trim_start().strip_prefix(ERROR) {
            errors.push((places.at, what.to_owned()));
        } else {
            places.read(line);
            writeln!(plain, "{line}").unwrap();
        }
    }
    (plain, errors)
}

/// Follows the lines of a program.
#[derive(Default)]
struct Places {
    rank: usize,
    at: Place,
}

impl Places {
    fn read(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("rank"), Some(number)) => self.rank = number.parse().unwrap_or(self.rank),
            (Some(first), _) => {
                if let Some(op) = first.strip_suffix(':').and_then(|number| number.parse().ok()) {
                    self.at = Some((self.rank, op));
                }
            }
            _ => {}
        }
    }
}

/// The errors of a case.
fn found(plain: &str) -> Vec<(Place, String)> {
    match text::parse(plain) {
        Err(error) => {
            // The title's line is not part of the text.
            let error = text::ParseError { line: error.line.saturating_sub(1).max(1), ..error };
            vec![(None, error.to_string())]
        }
        Ok(program) => {
            let commented = |line: &&str| !line.trim_start().starts_with(';');
            let lines: String =
                plain.lines().filter(commented).fold(String::new(), |all, line| all + line + "\n");
            assert_eq!(program.to_string(), lines.trim_end().to_owned() + "\n", "prints as it was parsed");
            verify::verify(&program).into_iter().map(|found| (found.op, found.what)).collect()
        }
    }
}

/// The case with its errors, each below its op, those of the whole below the title.
fn blessed(plain: &str, found: &[(Place, String)]) -> String {
    let mut text = String::new();
    let mut places = Places::default();
    for (at, line) in plain.lines().enumerate() {
        places.read(line);
        writeln!(text, "{line}").unwrap();
        let here = if at == 0 { None } else { places.at };
        let indent = if at == 0 { "" } else { "  " };
        let is_op = at == 0 || line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        for (_, what) in found.iter().filter(|(place, _)| is_op && *place == here) {
            writeln!(text, "{indent}{ERROR}{what}").unwrap();
        }
    }
    text
}

/// Programs that lose, double, race or deadlock would run, or be refused without the reason.
#[test]
fn every_case_is_judged_as_its_file_says() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let bless = std::env::var("HOCKET_BLESS").is_ok_and(|value| value == "1");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "hkp"));
    paths.sort_unstable();
    assert!(!paths.is_empty());
    let mut wrong = String::new();
    for path in paths {
        let (head, cases) = cases(&fs::read_to_string(&path).unwrap());
        assert!(!cases.is_empty(), "{} has no case", path.display());
        let mut text = head;
        for case in cases {
            let (plain, mut wanted) = expected(&case);
            let mut found = found(&plain);
            text += &blessed(&plain, &found);
            found.sort_unstable();
            wanted.sort_unstable();
            if found != wanted {
                let title = plain.lines().next().unwrap_or_default();
                let file = path.file_name().unwrap().display();
                writeln!(wrong, "{file}, {title}\n  found {found:#?}\n  for {wanted:#?}").unwrap();
            }
        }
        if bless {
            fs::write(&path, text).unwrap();
        }
    }
    assert!(bless || wrong.is_empty(), "{wrong}\nHOCKET_BLESS=1 writes what is found");
}
