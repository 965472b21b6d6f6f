//! The transports. Each is a folder of this crate and a line here; nobody else names one.

use crate::endpoint::Transport;
use crate::{fabric, shm, tcp};

/// All, the preferred one first.
pub const ALL: &[Transport] = &[shm::TRANSPORT, fabric::TRANSPORT, tcp::TRANSPORT];
