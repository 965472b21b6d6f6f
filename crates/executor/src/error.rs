//! What can go wrong while programs run, each with who, where and what to do.

use hocket_ids::Rank;
use hocket_wire::limits::explained;
use hocket_wire::mesh::MeshError;
use std::io;

/// An error of the executor.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The mesh did not come up.
    #[error("{0}")]
    Mesh(String),
    /// The job failed: a peer died, gave up or broke the protocol. All later calls repeat it.
    #[error("{0}")]
    Peer(String),
    /// A wait ended before the instance did.
    #[error("`{label}` (launch {instance}) is not complete after {timeout_s:.1} s; waits for {waits_for}")]
    Timeout {
        /// Of the program.
        label: String,
        /// Launch count.
        instance: u32,
        /// How long was waited.
        timeout_s: f64,
        /// Ranks and what is expected of them.
        waits_for: String,
    },
    /// A call that makes no sense now: the caller's mistake.
    #[error("{0}")]
    Usage(String),
    /// The program cannot run as it is.
    #[error("program `{name}`: {what}")]
    Program {
        /// Of the program.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The system refused something.
    #[error("{0}")]
    System(String),
}

impl From<MeshError> for Error {
    fn from(error: MeshError) -> Self {
        Self::Mesh(error.to_string())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::System(explained(error).to_string())
    }
}

impl Error {
    /// The same, and whose it is.
    #[must_use]
    pub fn of(self, rank: Rank) -> Self {
        match self {
            Self::Mesh(what) => Self::Mesh(format!("rank {rank}: {what}")),
            Self::System(what) => Self::System(format!("rank {rank}: {what}")),
            other => other,
        }
    }
}
