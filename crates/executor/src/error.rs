//! Errors of running programs, each with the ranks concerned, the place and the remedy.

use crate::failure::{Failure, Location, Who};
use hocket_ids::Rank;
use hocket_wire::limits::explained;
use hocket_wire::mesh::MeshError;
use std::io;

/// An error of the executor.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The mesh did not come up.
    #[error("{what}")]
    Mesh {
        /// The message for people.
        what: String,
        /// Ranks that did not connect in time, ascending.
        missing: Vec<Who>,
        /// A rank that ended in the meantime.
        left: Option<Who>,
    },
    /// The job failed: a peer died, gave up or broke the protocol. All later calls return the same error.
    #[error(transparent)]
    Peer(#[from] Failure),
    /// The epoch of members has ended, and the job has not: a peer was lost, or another member asks for a new epoch. All
    /// calls return this error until the next epoch begins (`Engine::resume`).
    #[error("{what}")]
    Interrupted {
        /// The message for people.
        what: String,
        /// Peers that were lost, in that order.
        lost: Vec<Failure>,
    },
    /// A wait reached its deadline.
    #[error("{what}")]
    Timeout {
        /// The message for people.
        what: String,
        /// The program's launch; `None` for a message of no program.
        location: Option<Location>,
        /// Ranks still awaited, ascending; empty if this rank's own work is missing, or any rank may send.
        missing: Vec<Who>,
    },
    /// A call that makes no sense now: the caller's mistake.
    #[error("{0}")]
    Usage(String),
    /// The program cannot run as it is.
    #[error("program `{name}`: {what}")]
    Program {
        /// The program's name.
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
        let what = error.to_string();
        let (missing, left) = match error {
            MeshError::Missing { ranks, .. } => {
                let each = |(rank, address, _): (Rank, hocket_wire::identity::Address, String)| Who {
                    rank,
                    host: address.host,
                };
                (ranks.into_iter().map(each).collect(), None)
            }
            MeshError::Left { rank, host, .. } => (Vec::new(), Some(Who { rank, host })),
            MeshError::Listen { .. } | MeshError::Io(_) => (Vec::new(), None),
        };
        Self::Mesh { what, missing, left }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::System(explained(error).to_string())
    }
}

impl Error {
    /// The error with the rank it concerns.
    #[must_use]
    pub fn of(self, rank: Rank) -> Self {
        match self {
            Self::Mesh { what, missing, left } => {
                Self::Mesh { what: format!("rank {rank}: {what}"), missing, left }
            }
            Self::System(what) => Self::System(format!("rank {rank}: {what}")),
            other => other,
        }
    }
}
