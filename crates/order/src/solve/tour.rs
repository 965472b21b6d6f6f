//! A tour as an array whose paths can be reversed, with a journal for undo.

/// Nodes in a circle.
pub struct Tour {
    order: Vec<u32>,
    places: Vec<u32>,
    /// Whether the circle is read backwards: reversing a path and reversing all the rest differ only in that.
    backwards: bool,
    journal: Vec<(u32, u32)>,
}

impl Tour {
    pub fn new(order: &[u32]) -> Self {
        let mut places = vec![0; order.len()];
        for (place, &node) in order.iter().enumerate() {
            places[node as usize] = place as u32;
        }
        Self { order: order.to_vec(), places, backwards: false, journal: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn order(&self) -> &[u32] {
        &self.order
    }

    pub fn next(&self, node: u32) -> u32 {
        self.beside(node, !self.backwards)
    }

    pub fn previous(&self, node: u32) -> u32 {
        self.beside(node, self.backwards)
    }

    /// The node `steps` after another.
    pub fn after(&self, node: u32, steps: usize) -> u32 {
        let (n, place) = (self.order.len(), self.places[node as usize] as usize);
        let steps = steps % n;
        self.order[(if self.backwards { place + n - steps } else { place + steps }) % n]
    }

    /// Steps from one node forwards to another.
    pub fn distance(&self, from: u32, to: u32) -> usize {
        let n = self.order.len();
        let (from, to) = (self.places[from as usize] as usize, self.places[to as usize] as usize);
        (if self.backwards { from + n - to } else { to + n - from }) % n
    }

    /// Reverses the path from `a` forwards to `b`: what was before `a` is then followed by `b`.
    pub fn reverse(&mut self, a: u32, b: u32) {
        self.journal.push((a, b));
        self.flip(a, b);
    }

    /// Length of the journal.
    pub fn mark(&self) -> usize {
        self.journal.len()
    }

    /// Reversals since a mark.
    pub fn since(&self, mark: usize) -> &[(u32, u32)] {
        &self.journal[mark..]
    }

    /// Undoes reversals.
    pub fn undo(&mut self, mark: usize) {
        while self.journal.len() > mark {
            if let Some((a, b)) = self.journal.pop() {
                self.flip(b, a);
            }
        }
    }

    /// Clears the journal: reversals can no longer be undone.
    pub fn forget(&mut self) {
        self.journal.clear();
    }

    fn beside(&self, node: u32, up: bool) -> u32 {
        let (place, last) = (self.places[node as usize] as usize, self.order.len() - 1);
        let beside = match (up, place) {
            (true, place) if place == last => 0,
            (true, place) => place + 1,
            (false, 0) => last,
            (false, place) => place - 1,
        };
        self.order[beside]
    }

    fn flip(&mut self, a: u32, b: u32) {
        let n = self.order.len();
        let (a, b) = if self.backwards { (b, a) } else { (a, b) };
        let (start, end) = (self.places[a as usize] as usize, self.places[b as usize] as usize);
        let inside = (end + n - start) % n + 1;
        if 2 * inside <= n {
            self.swap_ends(start, end, inside);
        } else {
            self.swap_ends((end + 1) % n, (start + n - 1) % n, n - inside);
            self.backwards = !self.backwards;
        }
    }

    fn swap_ends(&mut self, start: usize, end: usize, count: usize) {
        let n = self.order.len();
        let (mut start, mut end) = (start, end);
        for _ in 0..count / 2 {
            self.order.swap(start, end);
            self.places[self.order[start] as usize] = start as u32;
            self.places[self.order[end] as usize] = end as u32;
            start = if start + 1 == n { 0 } else { start + 1 };
            end = if end == 0 { n - 1 } else { end - 1 };
        }
    }
}
