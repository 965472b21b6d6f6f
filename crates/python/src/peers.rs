//! Peers of an engine: their addresses, what ranks tell one another of calls that were not answered, and connections in numbers.

use crate::exceptions::error;
use hocket_executor::{Address, Cards};
use hocket_ids::Rank;
use hocket_wire::mesh::Missed;
use pyo3::prelude::*;
use std::io;
use std::str::FromStr;

/// Addresses of these texts; `UsageError`, with what `wrong` says, for one that is none.
pub fn parsed<T: FromStr>(
    py: Python<'_>,
    texts: Vec<String>,
    wrong: impl Fn(&str) -> String,
) -> PyResult<Vec<T>> {
    let parse = |text: String| text.parse().map_err(|_| error(py, "UsageError", &wrong(&text)));
    texts.into_iter().map(parse).collect()
}

/// Peers by rank: listeners and host, and how many connections there are to each; 0: as the path needs.
pub fn addresses(
    py: Python<'_>,
    peers: Vec<(Vec<String>, String)>,
    streams: Option<Vec<usize>>,
) -> PyResult<Vec<Address>> {
    let streams = streams.unwrap_or_else(|| vec![0; peers.len()]);
    if streams.len() != peers.len() {
        let what = format!("{} peers, streams for {}", peers.len(), streams.len());
        return Err(error(py, "UsageError", &what));
    }
    let address = |(rank, ((listeners, host), streams)): (usize, ((Vec<String>, String), usize))| {
        let wrong = |text: &str| format!("rank {rank}: `{text}` is not of the form IP:PORT");
        Ok(Address { tcp: parsed(py, listeners, wrong)?, host, streams })
    };
    peers.into_iter().zip(streams).enumerate().map(address).collect()
}

/// Cards of these numbers, which messages of a program may use; all without. `UsageError`: there is no such card.
pub fn allowed(py: Python<'_>, numbers: Option<Vec<u32>>, label: &str) -> PyResult<Cards> {
    let Some(numbers) = numbers else { return Ok(Cards::ALL) };
    let wrong = || format!("program `{label}`: cards {numbers:?}: some, from 0 to 63");
    Cards::only(&numbers).ok_or_else(|| error(py, "UsageError", &wrong()))
}

/// Tells all ranks, by `agree`, which calls of this rank were not answered, and returns what all have told. What `agree` raises is
/// kept in `raised`.
pub fn telling(
    agree: Py<PyAny>,
    raised: &mut Option<PyErr>,
) -> impl FnMut(Vec<Missed>) -> io::Result<Vec<Vec<Missed>>> + Send {
    move |missed| {
        let missed: Vec<_> = missed.into_iter().map(|(rank, why)| (rank.0, why)).collect();
        let told = Python::attach(|py| agree.call1(py, (missed,))?.extract::<Vec<Vec<(u32, String)>>>(py));
        let ranks = |all: Vec<(u32, String)>| all.into_iter().map(|(rank, why)| (Rank(rank), why)).collect();
        told.map(|told| told.into_iter().map(ranks).collect()).map_err(|error| {
            let what = io::Error::other(error.to_string());
            *raised = Some(error);
            what
        })
    }
}

/// Round trip, the least (µs); delivery (byte/s); acknowledged bytes; busy (µs); segments sent again.
pub type Connection = (u32, u32, u64, u64, u64, u32);
