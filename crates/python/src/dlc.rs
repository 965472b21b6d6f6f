//! Lines of DLC traces as columns of bytes.

use hocket_dlc::{Nodes, parse};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Whole lines of a DLC trace as columns: little-endian bytes by field, `id_dep` as bytes with `id_dep_ends` (i32). `problems`:
/// (line, column, rule) of the first malformed lines, `problem_count` of all; `lines` read; the `last_id`.
#[pyfunction]
#[pyo3(signature = (text, *, first_line, last_id, workers, servers) -> "dict[str, typing.Any]")]
pub fn dlc_columns<'py>(
    py: Python<'py>,
    text: &[u8],
    first_line: u64,
    last_id: Option<i64>,
    workers: Option<u32>,
    servers: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let read = py.detach(|| parse(text, first_line, last_id, Nodes { workers, servers }));
    let dict = PyDict::new(py);
    macro_rules! column {
        ($($name:ident),*) => {$(
            let bytes: Vec<u8> = py.detach(|| read.$name.iter().flat_map(|value| value.to_le_bytes()).collect());
            dict.set_item(stringify!($name), PyBytes::new(py, &bytes))?;
        )*};
    }
    column!(id, src, dst, length, num_pp, operation, key, operation_num, peer, dep_type, d_time, time_sec);
    column!(time_usec, id_dep_ends, dep_key, dep_num);
    dict.set_item("id_dep", PyBytes::new(py, &read.id_dep))?;
    let problems: Vec<_> =
        read.problems.into_iter().map(|problem| (problem.line, problem.column, problem.rule)).collect();
    dict.set_item("problems", problems)?;
    dict.set_item("problem_count", read.problem_count)?;
    dict.set_item("lines", read.lines)?;
    dict.set_item("last_id", read.last_id)?;
    Ok(dict)
}
