//! The path between a rank's host and its device.

use crate::error::NetworkError;
use crate::link::checked;
use serde::Deserialize;

/// Most bytes of one copy: small enough that copies and messages overlap, and large enough that starting one costs little.
pub const PIECE_BYTES: usize = 4 << 20;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the device to the host.
    Down,
    /// From the host to the device.
    Up,
}

/// The bus of each rank's device. Its directions do not slow each other down; copies of one direction follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Rate from the device to the host.
    pub down_bytes_per_s: f64,
    /// Rate from the host to the device.
    pub up_bytes_per_s: f64,
    /// Seconds of each copy beside its bytes.
    pub copy_s: f64,
}

impl Bus {
    /// Seconds of a copy.
    pub fn carry_s(&self, way: Way, bytes: f64) -> f64 {
        self.copy_s + bytes / self.bytes_per_s(way)
    }

    /// Seconds of each byte of many pieces.
    pub fn s_per_byte(&self, way: Way) -> f64 {
        1.0 / self.bytes_per_s(way) + self.copy_s / PIECE_BYTES as f64
    }

    fn bytes_per_s(&self, way: Way) -> f64 {
        match way {
            Way::Down => self.down_bytes_per_s,
            Way::Up => self.up_bytes_per_s,
        }
    }

    /// [`NetworkError::Link`]: a number out of range.
    pub fn check(&self) -> Result<(), NetworkError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let rate = |what, value| (what, value, positive(value), "above 0 and finite");
        let natural = self.copy_s >= 0.0 && self.copy_s.is_finite();
        checked(
            "bus",
            [
                rate("rate down in bytes/s", self.down_bytes_per_s),
                rate("rate up in bytes/s", self.up_bytes_per_s),
                ("time of a copy in s", self.copy_s, natural, "0 or more and finite"),
            ],
        )
    }
}
