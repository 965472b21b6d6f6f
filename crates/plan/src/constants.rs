//! All calibrated constants of the closed form and of simulations, and how each was measured.

/// Engine seconds per byte sent, and again per byte received, over a socket: half of the CPU time of a bulk transfer between
/// two processes over a veth pair, 2.1 GHz server core.
pub const TCP_S_PER_BYTE: f64 = 0.35e-9;

/// Engine seconds per byte that is added to memory: three streams at 25 GB/s.
pub const REDUCE_S_PER_BYTE: f64 = 0.12e-9;

/// Engine seconds per byte of full-width gradient that is narrowed or widened for the wire, on each side.
pub const CAST_S_PER_BYTE: f64 = 0.10e-9;

/// Engine seconds per byte that is copied, zeroed, scaled or inspected: two streams at 20 GB/s.
pub const COPY_S_PER_BYTE: f64 = 0.10e-9;

/// Engine seconds per chunk on each side: a clear-to-send, two system calls and a wake-up.
pub const MESSAGE_S: f64 = 20e-6;

/// Seconds from the last gradient's hook to the first byte sent.
pub const BUCKET_S: f64 = 100e-6;
