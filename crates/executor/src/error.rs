//! What can go wrong while programs run, each with who, where and what to do.

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
        /// For people.
        what: String,
        /// Ranks that did not connect in time, ascending.
        missing: Vec<Who>,
        /// A rank that ended meanwhile.
        left: Option<Who>,
    },
    /// The job failed: a peer died, gave up or broke the protocol. All later calls repeat it.
    #[error(transparent)]
    Peer(#[from] Failure),
    /// A wait ended before what was waited for was complete.
    #[error("{what}")]
    Timeout {
        /// For people.
        what: String,
        /// The program's launch; `None`: a message of no program.
        location: Option<Location>,
        /// Ranks that are waited for, ascending; none where this rank's own work is, or any rank may send.
        missing: Vec<Who>,
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
    /// The same, and whose it is.
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
