//! Parses lines of `SketchDLC`'s trace format into columns and broken rules. No I/O, no clock.
//!
//! This is the inner loop of `hocket.tools.formats.dlc`, which handles files, headers and Arrow. Budget: each byte is read
//! twice (for the end of its line, and for its field); only the growth of columns allocates.
#![forbid(unsafe_code)]

mod field;
mod line;
mod operation;

pub use operation::{OPERATIONS, SETUP_FIRST};

/// Limit of described problems per block; all are counted.
const PROBLEMS_MAX: usize = 64;

/// The number of nodes in a trace's header, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Ranks `0..workers`.
    pub workers: Option<u32>,
    /// Ranks `workers..workers + servers`.
    pub servers: Option<u32>,
}

/// A rule that a line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1 in the whole file.
    pub line: u64,
    /// The first byte of the field at fault, counted from 1.
    pub column: usize,
    /// The field's name, and what must hold of it.
    pub rule: String,
}

/// The well-formed records of some lines, a vector per field, and the problems of the others.
///
/// Set-up records end after `operation`: their other fields hold zeros, and `operation` is at least [`SETUP_FIRST`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    pub id: Vec<i64>,
    pub src: Vec<i32>,
    pub dst: Vec<i32>,
    pub length: Vec<i64>,
    pub num_pp: Vec<i64>,
    /// Position in [`OPERATIONS`].
    pub operation: Vec<u8>,
    pub key: Vec<i32>,
    pub operation_num: Vec<i32>,
    /// Index among the peers of its role: `s0` and `w0` are 0. `operation` determines the role.
    pub peer: Vec<i32>,
    pub dep_type: Vec<i8>,
    pub d_time: Vec<i64>,
    pub time_sec: Vec<i64>,
    pub time_usec: Vec<i32>,
    /// The end of each `id_dep` in `id_dep`; begins with 0, so it has one entry more than there are records.
    pub id_dep_ends: Vec<i32>,
    pub id_dep: Vec<u8>,
    /// Key that `id_dep` names; -1: none, or a list.
    pub dep_key: Vec<i32>,
    /// Operation number that `id_dep` names, of its first where it is a list.
    pub dep_num: Vec<i32>,
    /// The first [`PROBLEMS_MAX`] problems.
    pub problems: Vec<Problem>,
    pub problem_count: u64,
    pub lines: u64,
    /// Of the last line that has one, well-formed or not.
    pub last_id: Option<i64>,
}

/// Parses whole lines: `text` is empty or ends with a newline. `first_line` is the number of its first line; `last_id`
/// is the id before it.
pub fn parse(text: &[u8], first_line: u64, last_id: Option<i64>, nodes: Nodes) -> Columns {
    let mut columns = Columns { id_dep_ends: vec![0], last_id, ..Columns::default() };
    for text in text.split_inclusive(|&byte| byte == b'\n') {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if let Err(broken) = line::read(text, nodes, &mut columns) {
            columns.problem_count += 1;
            if columns.problems.len() < PROBLEMS_MAX {
                let (line, column) = (first_line + columns.lines, broken.at + 1);
                columns.problems.push(Problem { line, column, rule: broken.rule });
            }
        }
        columns.lines += 1;
    }
    columns
}

#[cfg(test)]
mod tests;
