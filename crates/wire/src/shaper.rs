//! Slows a rank's sends to the rates of an emulated network where the kernel cannot. All ranks of a machine share one
//! table of links; each entry is the time at which the link is free again.
//!
//! A frame reserves its bytes on every link of its route and may leave when the last of them is free (the generic cell
//! rate algorithm with a burst of one frame). The rates apply only to frames that Hocket sends.

use crate::clock::now_ns;
use crate::memory::Mapping;
use rustix::fd::AsFd;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the table per link.
const LINK_BYTES: usize = 16;

/// Links and routes of an emulated network.
#[derive(Clone, Debug)]
pub struct EmulatedLinks {
    /// A file of sixteen zero bytes per link (the time when it is free again, bytes so far), the same for all ranks of
    /// the job. Its owner removes it.
    pub table: PathBuf,
    /// Rate of each link and direction.
    pub links_bit_per_s: Vec<f64>,
    /// By destination rank: the links on the frame's route.
    pub routes: Vec<Vec<usize>>,
}

/// The emulated network on the way to one rank.
#[derive(Clone, Debug)]
pub struct Pace {
    /// All links.
    pub shaper: Arc<Shaper>,
    /// The rank at the other end.
    pub destination: usize,
}

impl Pace {
    /// Reserves so many bytes from now on; when they may leave.
    pub fn reserve(&self, bytes: usize) -> u64 {
        self.shaper.reserve(self.destination, bytes, now_ns())
    }
}

/// A rank's view of the shared links.
#[derive(Debug)]
pub struct Shaper {
    table: Mapping,
    links_ns_per_byte: Vec<f64>,
    routes: Vec<Vec<usize>>,
}

impl Shaper {
    /// Opens the shared table.
    pub fn open(links: EmulatedLinks) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let wanted = links.links_bit_per_s.len() * LINK_BYTES;
        let file = File::options().read(true).write(true).open(&links.table)?;
        if wanted == 0 || file.metadata()?.len() < wanted as u64 {
            return Err(invalid("the table of links has no room for all of them"));
        }
        if links.links_bit_per_s.iter().any(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(invalid("a link's rate is not positive"));
        }
        if links.routes.iter().flatten().any(|&link| link >= links.links_bit_per_s.len()) {
            return Err(invalid("a route crosses a link that is not there"));
        }
        Ok(Self {
            table: Mapping::new(file.as_fd(), wanted)?,
            links_ns_per_byte: links.links_bit_per_s.iter().map(|rate| 8e9 / rate).collect(),
            routes: links.routes,
        })
    }

    /// Reserves `bytes` to `destination`; returns when the frame may leave, on the clock of `now_ns`.
    pub fn reserve(&self, destination: usize, bytes: usize, now_ns: u64) -> u64 {
        let mut leaves_ns = now_ns;
        for &link in self.routes.get(destination).into_iter().flatten() {
            let taken_ns = (bytes as f64 * self.links_ns_per_byte[link]) as u64;
            let free_at = self.table.atomic_u64(link * LINK_BYTES);
            let reserved = free_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free_ns| {
                Some(free_ns.max(now_ns) + taken_ns)
            });
            self.table.atomic_u64(link * LINK_BYTES + 8).fetch_add(bytes as u64, Ordering::Relaxed);
            // The update always succeeds; both arms hold the time before it.
            let (Ok(before_ns) | Err(before_ns)) = reserved;
            leaves_ns = leaves_ns.max(before_ns);
        }
        leaves_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trunk that two hosts share would carry more than its rate, because each host would count its own frames alone.
    #[test]
    fn a_shared_link_serialises_its_senders() {
        let path = std::env::temp_dir().join(format!("hocket-shaper-{}", std::process::id()));
        std::fs::write(&path, [0; 48]).unwrap();
        // Own links 0 and 1 run at 8 Gbit/s and the trunk at a tenth of that: 1000 bytes take 10 µs there.
        let links = |own: usize| EmulatedLinks {
            table: path.clone(),
            links_bit_per_s: vec![8e9, 8e9, 8e8],
            routes: vec![vec![], vec![own, 2]],
        };
        let (a, b) = (Shaper::open(links(0)).unwrap(), Shaper::open(links(1)).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(a.reserve(0, 1000, 50), 50, "nothing on the way to itself");
        assert_eq!(a.reserve(1, 1000, 50), 50);
        assert_eq!(b.reserve(1, 1000, 50), 50 + 10_000);
        assert_eq!(a.reserve(1, 1000, 60), 50 + 20_000);
    }
}
