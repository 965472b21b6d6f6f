//! Links and routes in compressed rows: the links of all routes in one list, and where each route's begin.

use crate::error::NetworkError;
use crate::link::Link;

/// The path of bytes from one rank to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// Indices of links, without duplicates.
    pub links: Vec<u32>,
    /// Latency of a byte, without queues.
    pub latency_s: f64,
}

/// Links, the host of each rank, and a route for each ordered pair of ranks that talk. Where hosts have several cards, each pair may
/// have a route for each card; what says no card has the first one's.
#[derive(Clone, Debug)]
pub struct Network {
    hosts: Vec<u32>,
    links: Vec<Link>,
    /// By route: sender and receiver, ascending on each card.
    pairs: Vec<(u32, u32)>,
    /// By card and rank, and once more: the number of its first route.
    rows: Vec<u32>,
    /// By route, and once more: where its links begin in `crossed`.
    starts: Vec<u32>,
    crossed: Vec<u32>,
    latency_s: Vec<f64>,
}

impl Network {
    /// `hosts[rank]`; routes in any order.
    pub fn new(hosts: Vec<u32>, links: Vec<Link>, routes: Vec<Route>) -> Result<Self, NetworkError> {
        Self::on_cards(hosts, links, vec![routes])
    }

    /// The same with routes by card.
    pub fn on_cards(hosts: Vec<u32>, links: Vec<Link>, cards: Vec<Vec<Route>>) -> Result<Self, NetworkError> {
        if hosts.is_empty() {
            return Err(NetworkError::Empty);
        }
        links.iter().try_for_each(Link::check)?;
        let count = cards.iter().map(Vec::len).sum();
        let mut made = Self {
            pairs: Vec::with_capacity(count),
            rows: Vec::with_capacity(cards.len() * hosts.len() + 1),
            starts: vec![0],
            crossed: Vec::new(),
            latency_s: Vec::with_capacity(count),
            hosts,
            links,
        };
        for routes in cards {
            made.add(routes)?;
        }
        made.rows.push(made.pairs.len() as u32);
        Ok(made)
    }

    /// Adds one card's routes.
    fn add(&mut self, mut routes: Vec<Route>) -> Result<(), NetworkError> {
        let begin = self.pairs.len();
        routes.sort_by_key(|route| (route.from, route.to));
        for Route { from, to, links, latency_s } in routes {
            self.check(&self.pairs[begin..], (from, to), &links, latency_s)
                .map_err(|what| NetworkError::Route { from, to, what })?;
            self.pairs.push((from, to));
            self.latency_s.push(latency_s);
            self.crossed.extend(links);
            self.starts.push(self.crossed.len() as u32);
        }
        let own = &self.pairs[begin..];
        let first = |rank: usize| (begin + own.partition_point(|pair| (pair.0 as usize) < rank)) as u32;
        self.rows.extend((0..self.hosts.len()).map(first));
        Ok(())
    }

    fn check(
        &self,
        before: &[(u32, u32)],
        (from, to): (u32, u32),
        links: &[u32],
        latency_s: f64,
    ) -> Result<(), &'static str> {
        if before.last() == Some(&(from, to)) {
            return Err("is given twice");
        }
        if from.max(to) as usize >= self.hosts.len() {
            return Err("is of a rank that does not exist");
        }
        if !(latency_s >= 0.0 && latency_s.is_finite()) {
            return Err("has a latency that is not 0 or more and finite");
        }
        if links.is_empty() {
            return Err("crosses no link");
        }
        if links.iter().any(|&link| link as usize >= self.links.len()) {
            return Err("crosses a link that does not exist");
        }
        if (1..links.len()).any(|at| links[..at].contains(&links[at])) {
            return Err("crosses a link twice");
        }
        Ok(())
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.hosts.len()
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// One link.
    pub fn link(&self, link: u32) -> &Link {
        &self.links[link as usize]
    }

    /// Rate of a link.
    pub fn bit_per_s(&self, link: u32) -> f64 {
        self.links[link as usize].bit_per_s
    }

    /// Number of a rank's host.
    pub fn host(&self, rank: u32) -> u32 {
        self.hosts[rank as usize]
    }

    /// Whether two ranks are on different hosts.
    pub fn is_remote(&self, from: u32, to: u32) -> bool {
        self.hosts[from as usize] != self.hosts[to as usize]
    }

    /// Links from rank to rank; none without a route.
    pub fn path(&self, from: u32, to: u32) -> &[u32] {
        self.find(0, from, to).map_or(&[], |route| self.crossed(route))
    }

    /// Seconds from rank to rank; 0 without a route.
    pub fn latency_s(&self, from: u32, to: u32) -> f64 {
        self.find(0, from, to).map_or(0.0, |route| self.route_latency_s(route))
    }

    /// Number of routes.
    pub fn routes(&self) -> usize {
        self.pairs.len()
    }

    /// Number of the route from rank to rank.
    pub fn route(&self, from: u32, to: u32) -> Result<u32, NetworkError> {
        self.route_on(0, from, to)
    }

    /// The same on a card.
    pub fn route_on(&self, card: u32, from: u32, to: u32) -> Result<u32, NetworkError> {
        self.find(card, from, to).ok_or(NetworkError::Missing { from, to })
    }

    /// Links of the route back on the same card; none without one.
    pub fn back(&self, route: u32) -> &[u32] {
        let (from, to) = self.ends(route);
        // Ranks without a route have empty rows, so the last row that begins there is the route's own.
        let row = self.rows.partition_point(|&first| first <= route) - 1;
        let card = (row / self.world()) as u32;
        self.find(card, to, from).map_or(&[], |back| self.crossed(back))
    }

    /// Sender and receiver of a route.
    pub fn ends(&self, route: u32) -> (u32, u32) {
        self.pairs[route as usize]
    }

    /// Links that a route crosses.
    pub fn crossed(&self, route: u32) -> &[u32] {
        &self.crossed[self.hops(route)]
    }

    /// Places of a route's links in the list of all routes' links.
    pub fn hops(&self, route: u32) -> std::ops::Range<usize> {
        self.starts[route as usize] as usize..self.starts[route as usize + 1] as usize
    }

    /// Latency of a route.
    pub fn route_latency_s(&self, route: u32) -> f64 {
        self.latency_s[route as usize]
    }

    /// The network of the links alone that several pairs of ranks share; other links are missing from its paths.
    #[must_use]
    pub fn shared(&self) -> Self {
        let mut pairs = vec![0_u32; self.links.len()];
        self.crossed.iter().for_each(|&link| pairs[link as usize] += 1);
        let is_shared = |link: u32| pairs[link as usize] > 1;
        let mut places = vec![0; self.links.len()];
        let mut links = Vec::new();
        for (at, link) in self.links.iter().enumerate().filter(|(at, _)| is_shared(*at as u32)) {
            places[at] = links.len() as u32;
            links.push(link.clone());
        }
        let (mut starts, mut crossed) = (vec![0], Vec::new());
        for route in 0..self.routes() as u32 {
            let own = self.crossed(route).iter().filter(|&&link| is_shared(link));
            crossed.extend(own.map(|&link| places[link as usize]));
            starts.push(crossed.len() as u32);
        }
        Self { links, starts, crossed, ..self.clone() }
    }

    fn find(&self, card: u32, from: u32, to: u32) -> Option<u32> {
        let row = card as usize * self.world() + from as usize;
        if from as usize >= self.world() {
            return None;
        }
        let (first, end) = (*self.rows.get(row)?, *self.rows.get(row + 1)?);
        // In a row of all other ranks.
        let likely = first + to - u32::from(to > from);
        if likely < end && self.pairs[likely as usize].1 == to {
            return Some(likely);
        }
        let row = &self.pairs[first as usize..end as usize];
        row.binary_search_by_key(&to, |pair| pair.1).ok().map(|at| first + at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(from: u32, to: u32, links: &[u32]) -> Route {
        Route { from, to, links: links.to_vec(), latency_s: 1e-4 * f64::from(from + to) }
    }

    fn links(count: usize) -> Vec<Link> {
        (0..count).map(|at| Link::new(format!("{at}"), 1e9)).collect()
    }

    /// Broken: invalid paths would be read beyond their end, or a link without a rate would make a plan or an order free.
    #[test]
    fn refuses_what_is_no_network() {
        let of = |links: Vec<Link>, routes: &[Route]| Network::new(vec![0, 1], links, routes.to_vec());
        let refused = |links, routes: &[Route]| of(links, routes).unwrap_err().to_string();
        assert_eq!(Network::new(Vec::new(), links(1), Vec::new()).unwrap_err(), NetworkError::Empty);
        for (routes, what) in [
            (vec![route(0, 1, &[0]), route(0, 1, &[1])], "is given twice"),
            (vec![route(0, 2, &[0])], "is of a rank that does not exist"),
            (vec![route(0, 1, &[])], "crosses no link"),
            (vec![route(0, 1, &[0, 2])], "crosses a link that does not exist"),
            (vec![route(0, 1, &[0, 1, 0])], "crosses a link twice"),
            (
                vec![Route { latency_s: f64::NAN, ..route(0, 1, &[0]) }],
                "has a latency that is not 0 or more and finite",
            ),
        ] {
            assert!(refused(links(2), &routes).ends_with(what), "{what}");
        }
        for (link, what) in [
            (Link::new("a", 0.0), "link `a` has a rate in bit/s of 0: it must be above 0 and finite"),
            (
                Link { incast: 1.5, ..Link::new("a", 1.0) },
                "link `a` has a share under incast of 1.5: it must be above 0 and at most 1",
            ),
        ] {
            assert_eq!(refused(vec![link], &[]), what);
        }
        for spoilt in [
            Link { bit_per_s: f64::NAN, ..Link::new("a", 1.0) },
            Link { beside_bit_per_s: f64::INFINITY, ..Link::new("a", 1.0) },
            Link { burst_bytes: -1.0, ..Link::new("a", 1.0) },
            Link { queue_s: -1.0, ..Link::new("a", 1.0) },
        ] {
            assert!(of(vec![spoilt], &[]).is_err());
        }
    }

    /// Broken: bytes would be counted on the links of other ranks, or a pair without a route would get one.
    #[test]
    fn routes_are_found_whichever_there_are_and_however_they_are_given() {
        let routes = [route(2, 0, &[1]), route(0, 1, &[0]), route(0, 3, &[0, 2]), route(2, 3, &[2])];
        let network = Network::new(vec![0, 0, 1, 1], links(3), routes.to_vec()).expect("a network");
        assert_eq!(network.routes(), 4);
        for (from, to) in (0..5).flat_map(|from| (0..5).map(move |to| (from, to))) {
            let given = routes.iter().find(|route| (route.from, route.to) == (from, to));
            assert_eq!(network.path(from, to), given.map_or(&[][..], |route| &route.links));
            let latency_s = given.map_or(0.0, |route| route.latency_s);
            assert_eq!(network.latency_s(from, to).to_bits(), latency_s.to_bits());
            match network.route(from, to) {
                Ok(route) => assert_eq!(network.ends(route), (from, to)),
                Err(missing) => assert_eq!(missing, NetworkError::Missing { from, to }),
            }
        }
        assert!(network.is_remote(0, 2) && !network.is_remote(0, 1));
    }

    /// Broken: bytes would be counted on another card than theirs, or announcements wait on it.
    #[test]
    fn each_card_has_routes_of_its_own() {
        let first = vec![route(2, 0, &[1]), route(0, 1, &[0]), route(1, 0, &[1])];
        let second = vec![route(1, 0, &[3]), route(0, 1, &[2])];
        let network = Network::on_cards(vec![0, 1, 2], links(4), vec![first, second]).expect("a network");
        let crossed = |card, from, to| network.route_on(card, from, to).map(|route| network.crossed(route));
        assert_eq!(crossed(0, 0, 1), Ok(&[0][..]));
        assert_eq!(crossed(1, 0, 1), Ok(&[2][..]));
        assert_eq!(crossed(1, 1, 0), Ok(&[3][..]));
        for (card, from, to) in [(1, 2, 0), (2, 0, 1), (0, 3, 0), (1, 0, 2)] {
            assert_eq!(crossed(card, from, to), Err(NetworkError::Missing { from, to }));
        }
        let back = |card, from, to| network.back(network.route_on(card, from, to).unwrap());
        assert_eq!((back(0, 0, 1), back(0, 1, 0), back(0, 2, 0)), (&[1][..], &[0][..], &[][..]));
        assert_eq!((back(1, 0, 1), back(1, 1, 0)), (&[3][..], &[2][..]));
        assert_eq!(network.path(0, 1), &[0]);
    }

    /// Broken: a pair's own link would slow down an order as if others used it, or a trunk would not.
    #[test]
    fn shared_links_are_those_of_several_pairs() {
        let routes = vec![route(0, 1, &[3, 0, 1]), route(0, 2, &[1, 2, 3])];
        let shared = Network::new(vec![0, 1, 2], links(4), routes).expect("a network").shared();
        let names: Vec<&str> = shared.links().iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["1", "3"]);
        assert_eq!((shared.path(0, 1), shared.path(0, 2)), (&[1, 0][..], &[0, 1][..]));
    }

    /// Broken: a second card's own network would be ignored, or counted as the trunk's.
    #[test]
    fn what_flows_have_beside_a_trunk_shortens_them() {
        let link = Link { beside_bit_per_s: 4e6, ..Link::new("trunk", 8e6) };
        assert!((link.busy_s(1, 3e6) - 2.0).abs() < 1e-9);
        assert!((link.busy_s(4, 3e6) - 4.0).abs() < 1e-9);
    }
}
