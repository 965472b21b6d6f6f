//! A side of a TLS session without I/O, for the rendezvous store.

use crate::exceptions::error;
use hocket_wire::connection::tls::{Credentials, Session};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::IoSlice;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Plain bytes read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// One side of a TLS 1.3 session without certificates and without I/O; any key of the other side is accepted, so that what makes it
/// a peer is a proof that covers `binding`.
#[pyclass(name = "Tls", module = "hocket._native", frozen)]
pub struct Tls(Mutex<Session>);

#[pymethods]
impl Tls {
    /// The side that connects begins: `send` gives its first message.
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

    /// 32 bytes that only the two ends of this session know; None while they shake hands.
    #[getter]
    fn binding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let binding = self.session().binding().map_err(|cause| broken(py, &cause))?;
        Ok(binding.map(|binding| PyBytes::new(py, &binding)))
    }

    /// Whether the other side said that nothing more comes.
    #[getter]
    fn ended(&self) -> bool {
        self.session().has_ended()
    }

    /// The plain bytes in what came; then see what there is to `send`. `RendezvousError`: it is not TLS, or was changed.
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

    /// What goes to the other side: `plain` sealed, once hands are shaken, and what the session itself has to say.
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
