//! What can be wrong with a fabric.

use std::fmt;

/// Why an operation of libfabric failed, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricError {
    /// The library is not on this machine, or lacks a function.
    Library(String),
    NoProvider(String),
    Call {
        call: &'static str,
        code: i32,
        text: String,
    },
    Completion {
        code: i32,
        text: String,
    },
    /// A message is longer than the receive that it matches.
    Truncated {
        /// Bytes that did not fit.
        excess_bytes: usize,
    },
    Cancelled,
    /// The provider returned something that its interface excludes.
    Broken(String),
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(what) | Self::NoProvider(what) => f.write_str(what),
            Self::Call { call, code, text } => write!(f, "{call} failed: {text} (error {code})"),
            Self::Completion { code, text } => write!(f, "a transfer failed: {text} (error {code})"),
            Self::Truncated { excess_bytes } => {
                write!(f, "a message is {excess_bytes} bytes longer than its receive")
            }
            Self::Cancelled => f.write_str("the transfer was cancelled"),
            Self::Broken(what) => write!(f, "the provider broke its interface: {what}"),
        }
    }
}

impl std::error::Error for FabricError {}
