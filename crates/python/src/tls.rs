//! A side of a TLS session without I/O, for the rendezvous store.

use crate::exceptions::error;
use hocket_wire::tcp::tls::{Credentials, Session};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::IoSlice;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Plain bytes read at a time.
const PIECE_BYTES: usize = 16 * 1024;

#[pyclass(name = "Tls", module = "hocket._native", frozen)]
struct Tls(Mutex<Session>);

#[pymethods]
impl Tls {
    #[new]
    #[pyo3(signature = (*, connects))]
    fn new(py: Python<'_>, connects: bool) -> PyResult<Self> {
        let failed = |cause: &dyn std::fmt::Display| {
            error(py, "RendezvousError", &format!("cannot set up TLS: {cause}"))
        };
        let credentials = credentials().as_ref().map_err(|cause| failed(cause))?;
        let session = if connects { Session::connector(credentials) } else { Session::acceptor(credentials) };
        Ok(Self(Mutex::new(session.map_err(|cause| failed(&cause))?)))
    }

    #[getter]
    fn binding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let binding = self.session().binding().map_err(|cause| broken(py, &cause))?;
        Ok(binding.map(|binding| PyBytes::new(py, &binding)))
    }

    #[getter]
    fn ended(&self) -> bool {
        self.session().has_ended()
    }

    fn receive<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let plain = py.detach(|| {
            let mut session = self.session();
            let (mut left, mut plain) = (data, Vec::new());
            while !left.is_empty() && !session.has_ended() {
                session.handle(&mut left)?;
                let mut piece = [0; PIECE_BYTES];
                while let bytes @ 1.. = session.read(&mut piece) {
                    plain.extend_from_slice(&piece[..bytes]);
                }
            }
            Ok::<_, std::io::Error>(plain)
        });
        Ok(PyBytes::new(py, &plain.map_err(|cause| broken(py, &cause))?))
    }

    #[pyo3(signature = (plain = &[][..]))]
    fn send<'py>(&self, py: Python<'py>, plain: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        if !plain.is_empty() && self.session().binding().is_ok_and(|binding| binding.is_none()) {
            return Err(error(py, "UsageError", "TLS: nothing is sealed before hands are shaken"));
        }
        let sealed = py.detach(|| {
            let mut session = self.session();
            let (mut left, mut sealed) = (plain, Vec::new());
            loop {
                left = &left[session.write(&[IoSlice::new(left)])?..];
                while session.wants_write() {
                    session.write_to(&mut sealed)?;
                }
                if left.is_empty() {
                    return Ok::<_, std::io::Error>(sealed);
                }
            }
        });
        Ok(PyBytes::new(py, &sealed.map_err(|cause| broken(py, &cause))?))
    }
}

impl Tls {
    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn credentials() -> &'static Result<Credentials, String> {
    static OURS: OnceLock<Result<Credentials, String>> = OnceLock::new();
    OURS.get_or_init(|| Credentials::new().map_err(|cause| cause.to_string()))
}

fn broken(py: Python<'_>, cause: &std::io::Error) -> PyErr {
    error(py, "RendezvousError", &cause.to_string())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Tls>()
}
