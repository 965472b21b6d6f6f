//! Pairs of hosts: latency and time per byte of each, equal in both directions, and the links that they share.

use hocket_network::Network;

/// Matrices of more hosts would not fit the memory of an ordinary machine: two of 2 GiB.
pub const HOSTS_MAX: usize = 16_384;

/// Why the numbers do not describe pairs of hosts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PairsError {
    /// No host.
    #[error("there are no hosts")]
    Empty,
    /// More than can be indexed and held in memory.
    #[error("{0} hosts: at most {HOSTS_MAX}")]
    TooMany(usize),
    /// The matrix is not square.
    #[error("{0} numbers are no square matrix of {1} hosts")]
    Shape(usize, usize),
    /// An entry that is no valid time.
    #[error("entry of row {0}, column {1} is {2}: it must be 0 or more and finite")]
    Entry(usize, usize, f64),
    /// The two directions differ.
    #[error("entries of row {0}, column {1} and the other way round differ")]
    Asymmetric(usize, usize),
    /// The network has other hosts.
    #[error("the network is of {0} hosts, and the matrices of {1}")]
    Network(usize, usize),
}

/// Pairs of hosts. A message of `m` bytes from `i` to `j` takes `latency_s + m · s_per_byte` when it is alone.
#[derive(Clone, Debug)]
pub struct Pairs {
    hosts: usize,
    latency_s: Vec<f64>,
    s_per_byte: Vec<f64>,
    shared: Option<Network>,
}

impl Pairs {
    /// From matrices, row by row; an empty `s_per_byte` means that bytes cost nothing. The diagonal is ignored.
    pub fn new(hosts: usize, latency_s: Vec<f64>, s_per_byte: Vec<f64>) -> Result<Self, PairsError> {
        if hosts == 0 {
            return Err(PairsError::Empty);
        }
        if hosts > HOSTS_MAX {
            return Err(PairsError::TooMany(hosts));
        }
        for (matrix, may_be_empty) in [(&latency_s, false), (&s_per_byte, true)] {
            if !(may_be_empty && matrix.is_empty()) {
                check(matrix, hosts)?;
            }
        }
        Ok(Self { hosts, latency_s, s_per_byte, shared: None })
    }

    /// With the links that several pairs of a network share; its ranks are the hosts.
    pub fn sharing(self, network: &Network) -> Result<Self, PairsError> {
        if network.world() != self.hosts {
            return Err(PairsError::Network(network.world(), self.hosts));
        }
        Ok(Self { shared: Some(network.shared()), ..self })
    }

    /// The shared links; `None` when they are unknown.
    pub fn shared(&self) -> Option<&Network> {
        self.shared.as_ref()
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
        if let Some(shared) = &self.shared {
            for (at, length) in lengths.iter_mut().enumerate() {
                let (a, b) = ((at / self.hosts) as u32, (at % self.hosts) as u32);
                if a != b {
                    *length += weight * bytes * taken_s_per_byte(shared, a, b);
                }
            }
        }
        lengths
    }

    fn at(&self, a: u32, b: u32) -> usize {
        a as usize * self.hosts + b as usize
    }
}

/// Time per byte on all links between two hosts, both directions together: long where a message displaces many others.
fn taken_s_per_byte(shared: &Network, a: u32, b: u32) -> f64 {
    let links = shared.path(a, b).iter().chain(shared.path(b, a));
    links.map(|&link| shared.link(link).busy_s(1, 1.0)).sum()
}

fn check(matrix: &[f64], hosts: usize) -> Result<(), PairsError> {
    if matrix.len() != hosts * hosts {
        return Err(PairsError::Shape(matrix.len(), hosts));
    }
    for row in 0..hosts {
        for column in (0..hosts).filter(|&column| column != row) {
            let entry = matrix[row * hosts + column];
            if !(entry.is_finite() && entry >= 0.0) {
                return Err(PairsError::Entry(row, column, entry));
            }
            #[expect(clippy::float_cmp, reason = "symmetric means the same number")]
            if entry != matrix[column * hosts + row] {
                return Err(PairsError::Asymmetric(row, column));
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
    fn refuses_what_are_no_pairs() {
        let refused = |hosts, numbers: &[f64]| Pairs::new(hosts, numbers.to_vec(), Vec::new()).unwrap_err();
        assert_eq!(refused(0, &[]), PairsError::Empty);
        assert_eq!(refused(2, &[0.0; 3]), PairsError::Shape(3, 2));
        assert_eq!(refused(2, &[0.0, 1.0, 2.0, 0.0]), PairsError::Asymmetric(0, 1));
        assert_eq!(refused(2, &[0.0, -1.0, -1.0, 0.0]), PairsError::Entry(0, 1, -1.0));
        assert!(matches!(refused(2, &[0.0, f64::NAN, 1.0, 0.0]), PairsError::Entry(0, 1, _)));
    }
}
