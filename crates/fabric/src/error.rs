//! What can be wrong with a fabric.

use std::fmt;

/// Why an operation of libfabric failed, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricError {
    /// The library is not on this machine, or lacks a function.
    Library(String),
    /// No provider fits.
    NoProvider(String),
    /// A call failed.
    Call {
        /// The function.
        call: &'static str,
        /// Its error, positive.
        code: i32,
        /// The library's text for it.
        text: String,
    },
    /// An operation ended with an error.
    Completion {
        /// Its error, positive.
        code: i32,
        /// The provider's text for it.
        text: String,
    },
    /// A message is longer than the receive that it matches.
    Truncated {
        /// Bytes that did not fit.
        excess_bytes: usize,
    },
    /// The operation was cancelled.
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
