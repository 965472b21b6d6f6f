//! Max-min fair rates of flows over links: numbers only (Bertsekas and Gallager 1992, section 6.5.2).
//!
//! An allocation is max-min fair exactly when each flow has a bottleneck: a full link on which no flow is faster than
//! it. A change is therefore solved for new flows and for those that the changed links limited, with all others fixed.
//! Flows at the border whose bottleneck no longer is one are added, until none is left. A flow that crosses a changed
//! link but is limited elsewhere is not touched: in a network that is congested in its middle, that applies to most
//! flows of a host's link.

use hocket_network::{Link, Network};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Relative difference that counts as none: far above rounding, far below what anyone measures.
const SAME: f64 = 1e-9;

/// Relative difference up to which filling treats two levels as equal: thousands of subtractions leave such an error,
/// and flows that are equal by symmetry must stay equal, or they would end one by one.
const LEVEL: f64 = 1e-7;

/// Number of extensions after which all connected flows are added at once.
const WIDENINGS_MAX: u32 = 6;

const NONE: u32 = u32::MAX;

/// Flows and their rates. Each is identified by its route; one flow per route.
pub struct Shares {
    capacity: Vec<f64>,
    /// By link: the rate that incast leaves.
    incast: Vec<f64>,
    /// By link: active flows.
    members: Vec<Vec<u32>>,
    /// By place in the list of all routes' links: the route's index among the link's members.
    position: Vec<u32>,
    rate: Vec<f64>,
    bottleneck: Vec<u32>,
    /// By link: the rate of its fastest flows, which it limits; infinite where it is not full. From the last solve.
    level: Vec<f64>,
    /// Links whose members changed since the last solve, each once.
    dirty: Vec<u32>,
    /// By link: whether it is among them.
    marked: Vec<bool>,
    solving: Solving,
}

/// Scratch of a solve, kept to reuse its memory.
#[derive(Default)]
struct Solving {
    stamp: u32,
    /// By route: `stamp` when its rate is being solved.
    chosen: Vec<u32>,
    /// By link: `stamp` when a chosen flow crosses it.
    touched: Vec<u32>,
    flows: Vec<u32>,
    before: Vec<f64>,
    links: Vec<u32>,
    residual: Vec<f64>,
    open: Vec<u32>,
    heap: BinaryHeap<Reverse<(Rate, u32)>>,
}

#[derive(Clone, Copy, PartialEq)]
struct Rate(f64);
impl Eq for Rate {}
impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Rate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Shares {
    /// No flows.
    pub fn new(network: &Network) -> Self {
        let (links, routes) = (network.links().len(), network.routes());
        Self {
            capacity: network.links().iter().map(Link::bytes_per_s).collect(),
            incast: network.links().iter().map(|link| link.incast).collect(),
            members: vec![Vec::new(); links],
            position: vec![0; (0..routes).map(|route| network.crossed(route as u32).len()).sum()],
            rate: vec![0.0; routes],
            bottleneck: vec![NONE; routes],
            level: vec![f64::INFINITY; links],
            dirty: Vec::new(),
            marked: vec![false; links],
            solving: Solving {
                chosen: vec![0; routes],
                touched: vec![0; links],
                residual: vec![0.0; links],
                open: vec![0; links],
                ..Solving::default()
            },
        }
    }

    /// The flow's rate in bytes per second, from the last solve; zero when it is not active.
    pub fn rate(&self, route: u32) -> f64 {
        self.rate[route as usize]
    }

    /// Flows whose bytes wait in front of a link, from the last solve. If several links limit a flow equally, a real
    /// network decides by chance; here it is the link with the lowest number, so that flows differ as they do there. If
    /// all waited at the first link of their path, ranks in step would never wait for each other: a direct exchange of
    /// 4 hosts would be predicted 29 % too fast.
    pub fn waiting<'a>(&'a self, network: &'a Network, link: u32) -> impl Iterator<Item = u32> + 'a {
        let limits =
            |route: u32, link: u32| self.rate[route as usize] >= self.level[link as usize] * (1.0 - LEVEL);
        self.members[link as usize].iter().copied().filter(move |&route| {
            network.crossed(route).iter().filter(|&&crossed| limits(route, crossed)).min() == Some(&link)
        })
    }

    /// Flows on a link.
    pub fn members(&self, link: u32) -> &[u32] {
        &self.members[link as usize]
    }

    /// Adds a flow. `true`: no other flow is on its links, so its rate is known at once; otherwise `solve` determines
    /// it.
    pub fn add(&mut self, network: &Network, route: u32) -> bool {
        let mut alone = true;
        let mut narrowest = (f64::INFINITY, NONE);
        let first = network.hops(route).start;
        for (hop, &link) in network.crossed(route).iter().enumerate() {
            let members = &mut self.members[link as usize];
            alone &= members.is_empty();
            self.position[first + hop] = members.len() as u32;
            members.push(route);
            let capacity = self.capacity[link as usize];
            if capacity < narrowest.0 {
                narrowest = (capacity, link);
            }
        }
        if alone {
            (self.rate[route as usize], self.bottleneck[route as usize]) = narrowest;
            for &link in network.crossed(route) {
                self.level[link as usize] =
                    if self.capacity[link as usize] <= narrowest.0 { narrowest.0 } else { f64::INFINITY };
            }
        } else {
            self.rate[route as usize] = 0.0;
            self.bottleneck[route as usize] = NONE;
            for &link in network.crossed(route) {
                self.mark(link);
            }
        }
        alone
    }

    /// Removes a flow.
    pub fn remove(&mut self, network: &Network, route: u32) {
        let first = network.hops(route).start;
        for (hop, &link) in network.crossed(route).iter().enumerate() {
            let members = &mut self.members[link as usize];
            let at = self.position[first + hop];
            members.swap_remove(at as usize);
            if let Some(&moved) = members.get(at as usize) {
                let start = network.hops(moved).start;
                let hop = network.crossed(moved).iter().position(|&other| other == link);
                self.position[start + hop.expect("a member of a link crosses it")] = at;
            }
            if !members.is_empty() {
                self.mark(link);
            }
        }
        self.rate[route as usize] = 0.0;
        self.bottleneck[route as usize] = NONE;
    }

    /// Gives a link another capacity; zero stops its flows.
    pub fn set_capacity(&mut self, link: u32, bytes_per_s: f64) {
        self.capacity[link as usize] = bytes_per_s;
        self.mark(link);
    }

    fn mark(&mut self, link: u32) {
        if !std::mem::replace(&mut self.marked[link as usize], true) {
            self.dirty.push(link);
        }
    }

    /// Whether `solve` has something to do.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Makes all rates fair again; `changed` receives the flows whose rate changed, each once. Returns the number of
    /// inspected flows.
    pub fn solve(&mut self, network: &Network, changed: &mut Vec<u32>) -> usize {
        self.begin();
        self.choose_limited();
        let mut widenings = 0;
        loop {
            let solved_flows = self.solving.flows.len();
            self.fill(network);
            self.widen();
            if self.solving.flows.len() == solved_flows {
                break;
            }
            widenings += 1;
            if widenings == WIDENINGS_MAX {
                self.choose_connected(network);
            }
        }
        let Self { solving, rate, .. } = self;
        for (&route, &before) in solving.flows.iter().zip(&solving.before) {
            let rate = &mut rate[route as usize];
            if same(*rate, before) {
                // Flows that are equal by symmetry stay equal to the last bit, whichever of them were inspected.
                *rate = before;
            } else {
                changed.push(route);
            }
        }
        solving.flows.len()
    }

    fn begin(&mut self) {
        let solving = &mut self.solving;
        solving.stamp = solving.stamp.wrapping_add(1);
        if solving.stamp == 0 {
            solving.chosen.fill(0);
            solving.touched.fill(0);
            solving.stamp = 1;
        }
        solving.flows.clear();
        solving.before.clear();
        solving.links.clear();
    }

    fn choose(&mut self, route: u32) {
        let solving = &mut self.solving;
        if std::mem::replace(&mut solving.chosen[route as usize], solving.stamp) != solving.stamp {
            solving.flows.push(route);
            solving.before.push(self.rate[route as usize]);
        }
    }

    /// Flows that the changed links limit, and new ones. All others keep their bottleneck, unless the new rates remove
    /// it.
    fn choose_limited(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        for &link in &dirty {
            self.marked[link as usize] = false;
            self.touch(link);
            for at in 0..self.members[link as usize].len() {
                let member = self.members[link as usize][at];
                let bottleneck = self.bottleneck[member as usize];
                if bottleneck == link || bottleneck == NONE {
                    self.choose(member);
                }
            }
        }
        self.dirty = dirty;
        self.dirty.clear();
    }

    fn choose_members(&mut self, link: u32) {
        for at in 0..self.members[link as usize].len() {
            self.choose(self.members[link as usize][at]);
        }
    }

    /// All flows that share a link with a chosen one, and so on.
    fn choose_connected(&mut self, network: &Network) {
        let mut next = 0;
        while next < self.solving.flows.len() {
            let route = self.solving.flows[next];
            next += 1;
            for &link in network.crossed(route) {
                self.touch(link);
            }
        }
        let mut link = 0;
        while link < self.solving.links.len() {
            self.choose_members(self.solving.links[link]);
            link += 1;
            while next < self.solving.flows.len() {
                let route = self.solving.flows[next];
                next += 1;
                for &link in network.crossed(route) {
                    self.touch(link);
                }
            }
        }
    }

    fn touch(&mut self, link: u32) {
        let solving = &mut self.solving;
        if std::mem::replace(&mut solving.touched[link as usize], solving.stamp) != solving.stamp {
            solving.links.push(link);
        }
    }

    /// Progressive filling of the chosen flows into what the others leave.
    fn fill(&mut self, network: &Network) {
        for at in 0..self.solving.flows.len() {
            for &link in network.crossed(self.solving.flows[at]) {
                self.touch(link);
            }
        }
        let Self { members, capacity, incast, rate, bottleneck, solving, .. } = self;
        let Solving { stamp, chosen, links, residual, open, heap, flows, .. } = solving;
        heap.clear();
        for &link in links.iter() {
            let at = link as usize;
            let (mut left, mut count) = (usable(capacity[at], incast[at], members[at].len()), 0_u32);
            for &member in &members[at] {
                if chosen[member as usize] == *stamp {
                    count += 1;
                } else {
                    left -= rate[member as usize];
                }
            }
            (residual[at], open[at]) = (left.max(0.0), count);
            if count > 0 {
                heap.push(Reverse((Rate(residual[at] / f64::from(count)), link)));
            }
        }
        for &route in flows.iter() {
            bottleneck[route as usize] = NONE;
        }
        // Shares of open links only grow while others are filled, so an old key is too small, never too large.
        let mut level = 0.0_f64;
        while let Some(Reverse((Rate(key), link))) = heap.pop() {
            let at = link as usize;
            if open[at] == 0 {
                continue;
            }
            let share = residual[at] / f64::from(open[at]);
            if share > key && !same(share, key) {
                heap.push(Reverse((Rate(share), link)));
                continue;
            }
            let share = if (share - level).abs() <= LEVEL * level { level } else { share };
            level = share;
            for &member in &members[at] {
                let flow = member as usize;
                if chosen[flow] != *stamp || bottleneck[flow] != NONE {
                    continue;
                }
                (rate[flow], bottleneck[flow]) = (share, link);
                for &crossed in network.crossed(member) {
                    residual[crossed as usize] = (residual[crossed as usize] - share).max(0.0);
                    open[crossed as usize] -= 1;
                }
            }
        }
    }

    /// Adds flows that break fairness at the border of the chosen ones.
    fn widen(&mut self) {
        for at in 0..self.solving.links.len() {
            let link = self.solving.links[at];
            let (mut sum, mut fastest, mut fastest_filled) = (0.0_f64, 0.0_f64, 0.0_f64);
            let mut filled_here = false;
            let mut whole = true;
            for &member in &self.members[link as usize] {
                let rate = self.rate[member as usize];
                sum += rate;
                fastest = fastest.max(rate);
                if self.solving.chosen[member as usize] == self.solving.stamp {
                    if self.bottleneck[member as usize] == link {
                        filled_here = true;
                        fastest_filled = fastest_filled.max(rate);
                    }
                } else {
                    whole = false;
                }
            }
            let place = link as usize;
            let capacity = usable(self.capacity[place], self.incast[place], self.members[place].len());
            self.level[place] = if sum >= capacity * (1.0 - LEVEL) { fastest } else { f64::INFINITY };
            if whole {
                continue;
            }
            let full = sum >= capacity * (1.0 - SAME);
            let too_full = !filled_here && sum > capacity * (1.0 + SAME);
            let unfair = |rate: f64, bound_here: bool| {
                too_full
                    || (filled_here && rate > fastest_filled && !same(rate, fastest_filled))
                    || (bound_here && (!full || (rate < fastest && !same(rate, fastest))))
            };
            for place in 0..self.members[link as usize].len() {
                let member = self.members[link as usize][place];
                if self.solving.chosen[member as usize] != self.solving.stamp
                    && unfair(self.rate[member as usize], self.bottleneck[member as usize] == link)
                {
                    self.choose(member);
                }
            }
        }
    }
}

/// A link's rate with this many flows on it.
fn usable(capacity: f64, incast: f64, flows: usize) -> f64 {
    if incast >= 1.0 || flows < 2 { capacity } else { capacity * incast.powf((flows as f64).log2()) }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME * a.abs().max(b.abs())
}
