//! The network between hosts: latency and time per byte of every pair, equal in both directions, and links that pairs
//! share.

use crate::links::{HOSTS_MAX, Links, NetworkError};

/// Pairs of hosts. A message of `m` bytes from `i` to `j` takes `latency_s + m · s_per_byte` when it is alone.
#[derive(Clone, Debug)]
pub struct Network {
    hosts: usize,
    latency_s: Vec<f64>,
    s_per_byte: Vec<f64>,
    links: Option<Links>,
}

impl Network {
    /// From matrices, row by row; an empty `s_per_byte` means that bytes cost nothing. The diagonal is ignored.
    pub fn new(hosts: usize, latency_s: Vec<f64>, s_per_byte: Vec<f64>) -> Result<Self, NetworkError> {
        if hosts == 0 {
            return Err(NetworkError::Empty);
        }
        if hosts > HOSTS_MAX {
            return Err(NetworkError::TooMany(hosts));
        }
        for (matrix, may_be_empty) in [(&latency_s, false), (&s_per_byte, true)] {
            if !(may_be_empty && matrix.is_empty()) {
                check(matrix, hosts)?;
            }
        }
        Ok(Self { hosts, latency_s, s_per_byte, links: None })
    }

    /// With links that its pairs share, of the same number of hosts.
    #[must_use]
    pub fn with_links(self, links: Links) -> Self {
        Self { links: Some(links), ..self }
    }

    /// The links; `None` when they are unknown.
    pub fn links(&self) -> Option<&Links> {
        self.links.as_ref()
    }

    /// How many.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Of one pair.
    pub fn latency_s(&self, a: u32, b: u32) -> f64 {
        self.latency_s[self.at(a, b)]
    }

    /// Of one pair; 0 when bandwidth is not known.
    pub fn s_per_byte(&self, a: u32, b: u32) -> f64 {
        if self.s_per_byte.is_empty() { 0.0 } else { self.s_per_byte[self.at(a, b)] }
    }

    /// Time of a message.
    pub fn message_s(&self, a: u32, b: u32, bytes: f64) -> f64 {
        self.latency_s(a, b) + bytes * self.s_per_byte(a, b)
    }

    /// Times of messages of equal size between all pairs, row by row; the diagonal is 0.
    pub fn messages_s(&self, bytes: f64) -> Vec<f64> {
        let n = self.hosts as u32;
        let all = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
        all.map(|(a, b)| if a == b { 0.0 } else { self.message_s(a, b, bytes) }).collect()
    }

    /// The same, plus `weight` times the cost to others on shared links: short tours of it seldom leave racks.
    pub fn crowded_messages_s(&self, bytes: f64, weight: f64) -> Vec<f64> {
        let mut lengths = self.messages_s(bytes);
        if let Some(links) = &self.links {
            for (at, length) in lengths.iter_mut().enumerate() {
                let (a, b) = ((at / self.hosts) as u32, (at % self.hosts) as u32);
                if a != b {
                    *length += weight * bytes * links.taken_s_per_byte(a, b);
                }
            }
        }
        lengths
    }

    fn at(&self, a: u32, b: u32) -> usize {
        a as usize * self.hosts + b as usize
    }
}

fn check(matrix: &[f64], hosts: usize) -> Result<(), NetworkError> {
    if matrix.len() != hosts * hosts {
        return Err(NetworkError::Shape(matrix.len(), hosts));
    }
    for row in 0..hosts {
        for column in (0..hosts).filter(|&column| column != row) {
            let entry = matrix[row * hosts + column];
            if !(entry.is_finite() && entry >= 0.0) {
                return Err(NetworkError::Entry(row, column, entry));
            }
            #[expect(clippy::float_cmp, reason = "symmetric means the same number")]
            if entry != matrix[column * hosts + row] {
                return Err(NetworkError::Asymmetric(row, column));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken: a wrong matrix would silently give an order.
    #[test]
    fn refuses_what_is_no_network() {
        let refused = |hosts, numbers: &[f64]| Network::new(hosts, numbers.to_vec(), Vec::new()).unwrap_err();
        assert_eq!(refused(0, &[]), NetworkError::Empty);
        assert_eq!(refused(2, &[0.0; 3]), NetworkError::Shape(3, 2));
        assert_eq!(refused(2, &[0.0, 1.0, 2.0, 0.0]), NetworkError::Asymmetric(0, 1));
        assert_eq!(refused(2, &[0.0, -1.0, -1.0, 0.0]), NetworkError::Entry(0, 1, -1.0));
        assert!(matches!(refused(2, &[0.0, f64::NAN, 1.0, 0.0]), NetworkError::Entry(0, 1, _)));
    }
}
