//! Virtual time in whole picoseconds, so that simultaneous events have equal times and a run is the same everywhere.

/// Picoseconds since the start; 64 bits are 213 days.
pub type Picos = u64;

const PER_S: f64 = 1e12;

/// Seconds to picoseconds, rounded up: nothing ends before it is done.
pub fn from_s(seconds: f64) -> Picos {
    (seconds * PER_S).ceil() as Picos
}

/// Picoseconds to seconds.
pub fn to_s(time: Picos) -> f64 {
    time as f64 / PER_S
}
