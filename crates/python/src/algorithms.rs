//! The list of algorithms, the fitting ones for a group, and their traffic.

use crate::exceptions::error;
use hocket_algorithms as list;
use hocket_algorithms::{Algorithm, Counts, Group, Kind, Takes};
use pyo3::prelude::*;

/// What is known of an algorithm. `title`: in a sentence; `takes`: its numbers; `measured_as`: names in tunings; `does`:
/// collectives that Hocket runs by it; `ordered`: its cost depends on the order of the ranks; `proposed`: plans propose it where
/// nothing was measured.
#[pyclass(frozen, get_all, module = "hocket._native")]
pub struct AlgorithmEntry {
    name: &'static str,
    title: &'static str,
    takes: &'static str,
    measured_as: Vec<&'static str>,
    does: Vec<&'static str>,
    ordered: bool,
    proposed: bool,
}

/// The name of a collective in policies.
const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Reduce => "reduce",
        other => other.name(),
    }
}

fn kind(py: Python<'_>, name: &str) -> PyResult<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| word(*kind) == name);
    found.ok_or_else(|| error(py, "UsageError", &format!("there is no collective `{name}`")))
}

/// All but libraries, simplest first.
#[pyfunction]
pub fn algorithms() -> Vec<AlgorithmEntry> {
    let entry = |entry: &list::Entry| AlgorithmEntry {
        name: entry.name,
        title: entry.title,
        takes: match entry.takes {
            Takes::Nothing => "nothing",
            Takes::Sizes => "sizes",
            Takes::Base => "base",
            Takes::Servers => "servers",
            Takes::Shares => "shares",
            Takes::Trees => "trees",
        },
        measured_as: entry.measured_as.to_vec(),
        does: entry.does.iter().map(|kind| word(*kind)).collect(),
        ordered: entry.ordered,
        proposed: entry.proposed,
    };
    list::LIST.iter().map(entry).collect()
}

/// The name under which it is measured, its own, and its numbers.
type Fit = (&'static str, &'static str, Vec<u32>);

/// What can do a collective of a group, simplest first: the name that it is measured under, its own, its numbers.
///
/// `hosts`, `racks`: numbers, by member. `UsageError` when they are not equally many, or for an unknown collective.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
pub fn fitting_algorithms(
    py: Python<'_>,
    collective: &str,
    hosts: Vec<u32>,
    racks: Vec<u32>,
) -> PyResult<Vec<Fit>> {
    if hosts.len() != racks.len() {
        return Err(error(py, "UsageError", "a group has as many hosts as racks: one for each member"));
    }
    let found = list::fitting(kind(py, collective)?, &Group { hosts: &hosts, racks: &racks });
    let fit = |fit: list::Fit| (fit.measured_as, fit.algorithm.name(), fit.algorithm.numbers().to_vec());
    Ok(found.into_iter().map(fit).collect())
}

/// Elements, how many messages follow one another, and by flow: sender, receiver, elements, reduced ones, messages.
type Counted = (usize, usize, Vec<(usize, usize, usize, usize, usize)>);

/// An all-reduce's messages that wait for one member, in parts that all have whole numbers of elements: these elements, how many
/// messages follow one another, and by sender and receiver the elements, how many of these are reduced, and the messages.
///
/// `UsageError` when the algorithm does not fit, or there is no such member.
#[pyfunction]
pub fn count_last(
    py: Python<'_>,
    name: &str,
    numbers: Vec<u32>,
    members: usize,
    last: usize,
) -> PyResult<Counted> {
    if last >= members {
        return Err(error(py, "UsageError", &format!("there is no member {last} of {members}")));
    }
    let counted = py.detach(|| Counts::of_last(&Algorithm::new(name, numbers)?, members, last));
    let counts = counted.map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
    let flow = |flow: &list::Flow| (flow.from, flow.to, flow.elements, flow.reduced, flow.messages);
    Ok((counts.elements, counts.depth, counts.flows.iter().map(flow).collect()))
}

/// By flow: sender, receiver, elements, messages.
type Flow = (usize, usize, usize, usize);

/// What is sent: sender, receiver, elements, messages; a pair may come several times. Members by position.
///
/// `elements` None: as many as all parts divide evenly. `UsageError` when the algorithm does not fit.
#[pyfunction]
#[pyo3(signature = (name, numbers, collective, *, members, elements, root))]
pub fn count_messages(
    py: Python<'_>,
    name: &str,
    numbers: Vec<u32>,
    collective: &str,
    members: usize,
    elements: Option<usize>,
    root: usize,
) -> PyResult<Vec<Flow>> {
    let kind = kind(py, collective)?;
    let counted = py.detach(|| {
        let algorithm = Algorithm::new(name, numbers)?;
        let elements = elements.unwrap_or_else(|| algorithm.even_elements(members));
        Counts::of(&algorithm, kind, root, members, elements)
    });
    let counts = counted.map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
    Ok(counts.flows.iter().map(|flow| (flow.from, flow.to, flow.elements, flow.messages)).collect())
}
