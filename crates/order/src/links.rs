//! Links shared by several pairs of hosts: cards, trunks between racks. A message crosses all links of its path.

/// Matrices of more hosts would not fit the memory of an ordinary machine: two of 2 GiB.
pub const HOSTS_MAX: usize = 16_384;

/// Why the numbers do not describe a network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
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
    /// Not exactly one path for each ordered pair.
    #[error("the links between {0} hosts are no list for each ordered pair")]
    Paths(usize),
    /// A path names a missing link.
    #[error("a path crosses link {0}, and there are {1}")]
    Link(u32, usize),
    /// A link's rate.
    #[error("link {0} carries {1} bytes per second: it must be above 0 and finite")]
    Rate(usize, f64),
}

/// Links, and the paths between hosts.
#[derive(Clone, Debug)]
pub struct Links {
    /// By link.
    rates: Vec<Rate>,
    /// Row by row, for each ordered pair of hosts and once more: the start of its links.
    starts: Vec<u32>,
    crossed: Vec<u32>,
    hosts: usize,
}

/// A link's rate in bytes per second; `beside`: the rate of each of its flows on another path at the same time, for
/// hosts whose further cards have a network of their own.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Of the link.
    pub bytes_per_s: f64,
    /// The rate of each flow's other path.
    pub beside_bytes_per_s: f64,
}

impl Rate {
    /// Seconds for this many flows of this many bytes each.
    pub fn busy_s(&self, flows: u32, bytes: f64) -> f64 {
        let flows = f64::from(flows);
        flows * bytes / (self.bytes_per_s + flows * self.beside_bytes_per_s)
    }
}

impl Links {
    /// `starts[a · hosts + b]` is the start of the links from `a` to `b` in `crossed`, and the next entry their end.
    pub fn new(
        hosts: usize,
        rates: Vec<Rate>,
        starts: Vec<u32>,
        crossed: Vec<u32>,
    ) -> Result<Self, NetworkError> {
        let rises = starts.windows(2).all(|two| two[0] <= two[1]);
        let ends = starts.last().is_some_and(|&end| end as usize == crossed.len());
        if starts.len() != hosts * hosts + 1 || !rises || !ends {
            return Err(NetworkError::Paths(hosts));
        }
        if let Some(&link) = crossed.iter().find(|&&link| link as usize >= rates.len()) {
            return Err(NetworkError::Link(link, rates.len()));
        }
        let fits = |rate: &Rate| {
            rate.bytes_per_s > 0.0
                && rate.bytes_per_s.is_finite()
                && rate.beside_bytes_per_s >= 0.0
                && rate.beside_bytes_per_s.is_finite()
        };
        match rates.iter().position(|rate| !fits(rate)) {
            Some(link) => Err(NetworkError::Rate(link, rates[link].bytes_per_s)),
            None => Ok(Self { rates, starts, crossed, hosts }),
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.rates.len()
    }

    /// Of one link.
    pub fn rate(&self, link: u32) -> Rate {
        self.rates[link as usize]
    }

    /// The links that a message from `a` to `b` crosses.
    pub fn path(&self, a: u32, b: u32) -> &[u32] {
        let pair = a as usize * self.hosts + b as usize;
        &self.crossed[self.starts[pair] as usize..self.starts[pair + 1] as usize]
    }

    /// Time per byte on all links between two hosts, both directions together: long where a message displaces many
    /// others.
    pub fn taken_s_per_byte(&self, a: u32, b: u32) -> f64 {
        let links = self.path(a, b).iter().chain(self.path(b, a));
        links.map(|&link| self.rate(link).busy_s(1, 1.0)).sum()
    }

    /// Links that divide the hosts: everything from hosts on one side to those on the other crosses them, and nothing
    /// else does.
    pub fn cuts(&self) -> Vec<u32> {
        let mut pairs = vec![0_usize; self.count()];
        let mut sources = vec![vec![false; self.hosts]; self.count()];
        let mut targets = vec![vec![false; self.hosts]; self.count()];
        for a in 0..self.hosts as u32 {
            for b in (0..self.hosts as u32).filter(|&b| b != a) {
                for &link in self.path(a, b) {
                    pairs[link as usize] += 1;
                    sources[link as usize][a as usize] = true;
                    targets[link as usize][b as usize] = true;
                }
            }
        }
        let divides = |&link: &u32| {
            let link = link as usize;
            let many = |sides: &[bool]| sides.iter().filter(|&&side| side).count();
            let from = many(&sources[link]);
            let either = sources[link].iter().zip(&targets[link]).all(|(from, to)| from != to);
            either && from > 0 && pairs[link] == from * (self.hosts - from)
        };
        (0..self.count() as u32).filter(divides).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bytes_per_s: f64) -> Rate {
        Rate { bytes_per_s, beside_bytes_per_s: 0.0 }
    }

    /// Broken: invalid paths would be read beyond their end, or a link without a rate would make an order free.
    #[test]
    fn refuses_what_are_no_links() {
        let refused = |rates: &[Rate], starts: &[u32], crossed: &[u32]| {
            Links::new(2, rates.to_vec(), starts.to_vec(), crossed.to_vec()).unwrap_err()
        };
        let (one, starts) = ([rate(1.0)], [0, 0, 1, 1, 1]);
        assert_eq!(refused(&one, &[0, 1], &[0]), NetworkError::Paths(2));
        assert_eq!(refused(&one, &[0, 1, 0, 1, 1], &[0]), NetworkError::Paths(2));
        assert_eq!(refused(&one, &starts, &[0, 0]), NetworkError::Paths(2));
        assert_eq!(refused(&one, &starts, &[1]), NetworkError::Link(1, 1));
        assert_eq!(refused(&[rate(0.0)], &starts, &[0]), NetworkError::Rate(0, 0.0));
        assert!(matches!(refused(&[rate(f64::NAN)], &starts, &[0]), NetworkError::Rate(0, _)));
    }
}
