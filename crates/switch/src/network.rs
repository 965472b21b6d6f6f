//! The emulated network as plain data: links, and the path of each ordered pair of hosts.

use crate::piece::PORTS_MAX;
use thiserror::Error;

/// The path of one ordered pair of hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WayRule {
    pub links: Vec<usize>,
    /// Latency of every packet, without the time that links need for its bytes.
    pub latency_s: f64,
    /// Mean of the additional, exponentially distributed delay.
    pub jitter_s: f64,
    pub loss: f64,
}

/// What switches sum with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summing {
    /// Sums that each switch holds at a time.
    pub slots: usize,
    /// By port: its rack, and the latency between it and its rack's switch.
    pub ports: Vec<(usize, f64)>,
}

#[derive(Clone, Debug)]
pub struct Network {
    pub ports: usize,
    /// byte/s of each link, one direction; None: unlimited.
    pub links: Vec<Option<f64>>,
    /// `ways[source * ports + destination]`; those from a host to itself are not used.
    pub ways: Vec<WayRule>,
    /// Delay of a full queue in front of a link.
    pub queue_s: f64,
    /// Whether jitter lets a packet overtake others of its pair.
    pub reorder: bool,
    pub seed: u64,
    /// Memory limit of frames in flight; further ones are dropped as by a full queue.
    pub held_bytes_max: usize,
    /// None: nothing is summed.
    pub summing: Option<Summing>,
}

/// Why a network cannot be emulated.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NetworkError {
    /// The number of paths is not the square of the hosts.
    #[error("{ways} ways between {ports} ports: there must be {ports} × {ports}")]
    Ways {
        ways: usize,
        /// The given number of hosts.
        ports: usize,
    },
    /// A path names a missing link.
    #[error("way {way} crosses link {link}, and there are {links}")]
    Link { way: usize, link: usize, links: usize },
    /// A pool without slots, or ports without a rack.
    #[error(
        "switches that sum: {slots} slots each, and racks of {racks} ports, for {ports} ports of at most {most}"
    )]
    Summing {
        slots: usize,
        racks: usize,
        /// The given number of hosts.
        ports: usize,
        most: usize,
    },
    /// Negative, infinite, not a number, or too large.
    #[error("{what}: not a number that can be emulated")]
    Number { what: String },
}

/// An hour: longer values are typing errors, and nanoseconds stay far from overflow.
const TIME_S_MAX: f64 = 3600.0;

impl Network {
    /// Checks the assumptions of [`Switch`](crate::Switch).
    pub fn check(&self) -> Result<(), NetworkError> {
        if self.ways.len() != self.ports * self.ports {
            return Err(NetworkError::Ways { ways: self.ways.len(), ports: self.ports });
        }
        let number =
            |what: String, fine: bool| if fine { Ok(()) } else { Err(NetworkError::Number { what }) };
        let time = |value: f64| (0.0..=TIME_S_MAX).contains(&value);
        number(format!("a queue of {} s", self.queue_s), time(self.queue_s))?;
        for (at, rate) in self.links.iter().enumerate() {
            if let Some(rate) = rate {
                number(format!("link {at} of {rate} byte/s"), (1.0..=1e15).contains(rate))?;
            }
        }
        if let Some(Summing { slots, ports }) = &self.summing {
            let fits = self.ports <= PORTS_MAX && ports.iter().all(|(rack, _)| *rack < self.ports);
            if *slots == 0 || ports.len() != self.ports || !fits {
                return Err(NetworkError::Summing {
                    slots: *slots,
                    racks: ports.len(),
                    ports: self.ports,
                    most: PORTS_MAX,
                });
            }
            for (at, (_, latency_s)) in ports.iter().enumerate() {
                number(format!("port {at} with a latency of {latency_s} s"), time(*latency_s))?;
            }
        }
        for (at, way) in self.ways.iter().enumerate() {
            if let Some(&link) = way.links.iter().find(|&&link| link >= self.links.len()) {
                return Err(NetworkError::Link { way: at, link, links: self.links.len() });
            }
            number(format!("way {at} with a latency of {} s", way.latency_s), time(way.latency_s))?;
            number(format!("way {at} with a jitter of {} s", way.jitter_s), time(way.jitter_s))?;
            number(format!("way {at} with a loss of {}", way.loss), (0.0..=1.0).contains(&way.loss))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let ways = vec![WayRule { links: vec![0], ..WayRule::default() }; 4];
        let links = vec![Some(1e6), None];
        Network {
            ports: 2,
            links,
            ways,
            queue_s: 0.05,
            reorder: false,
            seed: 0,
            held_bytes_max: 1 << 20,
            summing: None,
        }
    }

    /// Nonsense would be emulated as something, or crash the switch.
    #[test]
    fn nonsense_is_refused() {
        assert_eq!(network().check(), Ok(()));
        let spoilt = |spoil: fn(&mut Network)| {
            let mut network = network();
            spoil(&mut network);
            network.check().unwrap_err().to_string()
        };
        assert!(spoilt(|it| it.ports = 3).contains("3 × 3"));
        assert!(spoilt(|it| it.ways[1].links = vec![2]).contains("link 2"));
        assert!(spoilt(|it| it.ways[1].latency_s = f64::NAN).contains("latency"));
        assert!(spoilt(|it| it.ways[1].jitter_s = -1.0).contains("jitter"));
        assert!(spoilt(|it| it.ways[1].loss = 1.5).contains("loss"));
        assert!(spoilt(|it| it.links[0] = Some(0.0)).contains("byte/s"));
        assert!(spoilt(|it| it.queue_s = f64::INFINITY).contains("queue"));
        let summing = |slots, racks: &[usize]| Summing {
            slots,
            ports: racks.iter().map(|&rack| (rack, 0.0)).collect(),
        };
        let with = |summing| Network { summing: Some(summing), ..network() }.check();
        assert_eq!(with(summing(1, &[0, 1])), Ok(()));
        for spoilt in [summing(0, &[0, 0]), summing(1, &[0]), summing(1, &[0, 2])] {
            assert!(matches!(with(spoilt), Err(NetworkError::Summing { .. })));
        }
    }
}
