//! What the headers of all frames have in common: sizes, and why one is refused.

use std::fmt;

/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 32;

/// In place of a program's number: a message of no program.
pub const NO_PROGRAM: u32 = u32::MAX;

/// Largest payload of one frame, the unit at which a more urgent message overtakes. 256 KiB take 2 ms at 1 Gbit/s, and
/// fit the second-level cache of one core while they are reduced.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;

/// Why a header is refused. Each of these ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No frame has this kind.
    UnknownKind(u8),
    /// No abort has this reason.
    UnknownWhy(u32),
    /// No process ends with this exit code.
    UnknownExit(u32),
    /// No rank has this part in a launch.
    UnknownPart(u32),
    /// The announced payload exceeds the limit of its kind.
    PayloadTooLarge {
        /// The announced length.
        payload_bytes: u32,
    },
    /// Reserved bytes are not zero.
    ReservedNotZero,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "unknown frame kind {kind}"),
            Self::UnknownWhy(code) => write!(f, "unknown reason {code} of an abort"),
            Self::UnknownExit(code) => write!(f, "unknown exit code {code}"),
            Self::UnknownPart(code) => write!(f, "unknown part {code} in a launch"),
            Self::PayloadTooLarge { payload_bytes } => {
                write!(f, "a frame announces {payload_bytes} bytes; the limit is {PAYLOAD_BYTES_MAX}")
            }
            Self::ReservedNotZero => f.write_str("reserved header bytes are not zero"),
        }
    }
}

impl std::error::Error for FrameError {}
