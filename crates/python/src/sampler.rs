//! Which samples each member of a job draws.

use crate::exceptions::error;
use hocket_ids::Member;
use hocket_protocol::planted::Rules;
use hocket_protocol::sampler as drawn;
use pyo3::prelude::*;

/// See `_native.pyi`.
#[pyclass(frozen, module = "hocket._native")]
pub struct Draw(drawn::Draw);

/// See `_native.pyi`.
#[pyclass(module = "hocket._native")]
pub struct Sampler(drawn::Sampler);

fn members(numbers: Vec<u64>) -> Vec<Member> {
    numbers.into_iter().map(Member).collect()
}

#[pymethods]
impl Draw {
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

    #[getter]
    fn data_epoch(&self) -> u64 {
        self.0.data_epoch()
    }

    #[getter]
    fn at(&self) -> u64 {
        self.0.next()
    }

    #[getter]
    fn returned(&self) -> Vec<u64> {
        self.0.returned().collect()
    }

    #[getter]
    fn left(&self) -> u64 {
        self.0.left()
    }

    fn copy(&self) -> Self {
        Self(self.0.clone())
    }

    fn begin(&mut self, data_epoch: u64) {
        self.0.begin(data_epoch);
    }

    #[pyo3(signature = (members, batch, *, whole))]
    fn draw(&self, members: Vec<u64>, batch: u64, whole: bool) -> Draw {
        let members = self::members(members);
        Draw(if whole { self.0.draw_whole(&members, batch) } else { self.0.draw(&[members], batch) })
    }

    fn commit(&mut self, draw: &Draw, members: Vec<u64>) {
        self.0.commit(&draw.0, &self::members(members), Rules::default());
    }

    #[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
    fn samples(&self, positions: Vec<u64>) -> Vec<u64> {
        positions.iter().map(|&position| self.0.sample(position)).collect()
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Draw>()?;
    module.add_class::<Sampler>()
}
