//! The members of a group: the properties that determine the choice of an algorithm.

#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    pub hosts: &'a [u32],
    pub racks: &'a [u32],
}

impl Group<'_> {
    pub fn n(&self) -> usize {
        self.hosts.len()
    }

    /// Whether all members share memory.
    pub fn is_one_host(&self) -> bool {
        self.hosts.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// Lengths of the runs of equal names; `None` when a name has several runs.
pub fn runs(names: &[u32]) -> Option<Vec<u32>> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for run in names.chunk_by(|one, next| one == next) {
        if found.iter().any(|(known, _)| *known == run[0]) {
            return None;
        }
        found.push((run[0], run.len() as u32));
    }
    Some(found.into_iter().map(|(_, count)| count).collect())
}
