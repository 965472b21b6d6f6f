//! One direction of a wire, a card, a trunk, or a host's memory.

use crate::error::NetworkError;

const BITS: f64 = 8.0;

/// A link and its rate, which its flows share.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// A name for people.
    pub name: String,
    /// Bits of payload per second.
    pub bit_per_s: f64,
    /// Rate that each flow on this link also has on another path, for hosts whose further cards have a network of their own.
    pub beside_bit_per_s: f64,
    /// Burst after a rest that is long enough to fill it (a token bucket's); zero for wires.
    pub burst_bytes: f64,
    /// Share of the rate that remains for each doubling of the flows: TCP loses the rest where flows meet. 1: no loss.
    pub incast: f64,
    /// Longest delay of a receiver's announcement behind queued bytes, where the link is their bottleneck; zero: announcements
    /// overtake.
    pub queue_s: f64,
}

impl Link {
    /// An ideal one.
    pub fn new(name: impl Into<String>, bit_per_s: f64) -> Self {
        Self {
            name: name.into(),
            bit_per_s,
            beside_bit_per_s: 0.0,
            burst_bytes: 0.0,
            incast: 1.0,
            queue_s: 0.0,
        }
    }

    /// Bytes of payload per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bit_per_s / BITS
    }

    /// Seconds for this many flows of this many bytes each.
    pub fn busy_s(&self, flows: u32, bytes: f64) -> f64 {
        let flows = f64::from(flows);
        flows * bytes * BITS / (self.bit_per_s + flows * self.beside_bit_per_s)
    }

    pub(crate) fn check(&self) -> Result<(), NetworkError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let natural = |value: f64| value >= 0.0 && value.is_finite();
        let (above, from) = ("above 0 and finite", "0 or more and finite");
        let numbers = [
            ("rate in bit/s", self.bit_per_s, positive(self.bit_per_s), above),
            ("rate beside it in bit/s", self.beside_bit_per_s, natural(self.beside_bit_per_s), from),
            ("burst in bytes", self.burst_bytes, natural(self.burst_bytes), from),
            ("queue in s", self.queue_s, natural(self.queue_s), from),
            (
                "share under incast",
                self.incast,
                self.incast > 0.0 && self.incast <= 1.0,
                "above 0 and at most 1",
            ),
        ];
        checked(&self.name, numbers)
    }
}

/// What is wrong with a link's numbers: the quantity, its value, whether that is sound, and what it must be.
pub fn checked<const COUNT: usize>(
    link: &str,
    numbers: [(&'static str, f64, bool, &'static str); COUNT],
) -> Result<(), NetworkError> {
    match numbers.into_iter().find(|(_, _, sound, _)| !sound) {
        Some((what, value, _, must)) => Err(NetworkError::Link { link: link.to_owned(), what, value, must }),
        None => Ok(()),
    }
}
