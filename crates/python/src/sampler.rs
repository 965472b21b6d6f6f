//! Which samples each member of a job draws.

use crate::exceptions::error;
use hocket_ids::Member;
use hocket_protocol::planted::Rules;
use hocket_protocol::sampler as drawn;
use pyo3::prelude::*;

/// Which positions of a data set's order each member draws in a step.
#[pyclass(frozen, module = "hocket._native")]
pub struct Draw(drawn::Draw);

/// Who draws which samples, so that each counts once in a pass over the data, whoever is lost. What `draw` gives depends on what
/// was committed alone. It is at the beginning of the next pass as soon as all of one are committed.
///
/// `UsageError` where `at` and `returned` are of no such sampler.
#[pyclass(module = "hocket._native")]
pub struct Sampler(drawn::Sampler);

fn members(numbers: Vec<u64>) -> Vec<Member> {
    numbers.into_iter().map(Member).collect()
}

#[pymethods]
impl Draw {
    /// Member and positions, by rank; empty for some where fewer are left than there are members.
    #[getter]
    fn slices(&self) -> Vec<(u64, Vec<u64>)> {
        self.0.slices.iter().map(|(member, slice)| (member.0, slice.clone())).collect()
    }
}

#[pymethods]
impl Sampler {
    #[new]
    #[pyo3(signature = (seed, samples, *, data_epoch = 0, at = 0, returned = vec![]))]
    fn new(
        py: Python<'_>,
        seed: u64,
        samples: u64,
        data_epoch: u64,
        at: u64,
        returned: Vec<u64>,
    ) -> PyResult<Self> {
        let found = drawn::Sampler::resumed(seed, samples, data_epoch, at, returned);
        found.map(Self).ok_or_else(|| {
            let place = format!("position {at} of {samples} samples is not where a sampler can be");
            error(py, "UsageError", &place)
        })
    }

    /// Which pass, from zero.
    #[getter]
    fn data_epoch(&self) -> u64 {
        self.0.data_epoch()
    }

    /// Positions before it were drawn.
    #[getter]
    fn at(&self) -> u64 {
        self.0.next()
    }

    /// Positions that were drawn by members that were lost.
    #[getter]
    fn returned(&self) -> Vec<u64> {
        self.0.returned().collect()
    }

    /// How many positions of this pass are not committed.
    #[getter]
    fn left(&self) -> u64 {
        self.0.left()
    }

    /// Another one at the same place.
    fn copy(&self) -> Self {
        Self(self.0.clone())
    }

    /// Another pass begins, whatever is left of the one before.
    fn begin(&mut self, data_epoch: u64) {
        self.0.begin(data_epoch);
    }

    /// The next step's: as many positions for each member, by rank, as `batches` says. Where fewer are left, nobody draws any
    /// (`whole`), or they are shared in proportion, as in the last two steps where less than one for each would remain.
    #[pyo3(signature = (members, batches, *, whole))]
    #[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
    fn draw(&self, py: Python<'_>, members: Vec<u64>, batches: Vec<u64>, whole: bool) -> PyResult<Draw> {
        if members.len() != batches.len() {
            return Err(error(py, "UsageError", "batches are not one for each member"));
        }
        let batch = |member: Member| {
            members.iter().zip(&batches).find(|(each, _)| **each == member.0).map_or(0, |(_, &batch)| batch)
        };
        let members = self::members(members.clone());
        Ok(Draw(if whole { self.0.draw_whole(&members, &batch) } else { self.0.draw_by(&members, &batch) }))
    }

    /// The step counts, as the mean of these members: what others have drawn is drawn again at the end of the pass.
    fn commit(&mut self, draw: &Draw, members: Vec<u64>) {
        self.0.commit(&draw.0, &self::members(members), Rules::default());
    }

    /// The samples at these positions of this pass.
    #[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
    fn samples(&self, positions: Vec<u64>) -> Vec<u64> {
        positions.iter().map(|&position| self.0.sample(position)).collect()
    }
}
