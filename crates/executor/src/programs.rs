//! The loaded programs by number, and peers' announcements for programs that are not loaded yet.
//!
//! Ranks that load the same programs in the same order get the same numbers from [`Programs::add`]. Ranks of a group,
//! whose loads the others do not share, choose numbers from [`CHOSEN`] up, by a rule that gives each group its own.

use crate::announcement::Announcement;
use crate::loaded::{Loaded, Sending};
use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Numbers below are given in the order of loading; those from here on are the caller's choice.
pub const CHOSEN: u32 = 1 << 31;

/// How far apart the first numbers of two epochs of members are, so that a trace tells their programs apart.
const EPOCH_APART: u32 = 1 << 16;

/// Limit of announcements kept for programs that are not loaded yet: far more than one launch of each needs.
const EARLY_MAX: usize = 1 << 20;

/// The number of the first program that is loaded in `epoch`, which counts from 1; it recurs after 32,768 epochs.
pub fn first_program(epoch: u64) -> u32 {
    (epoch.saturating_sub(1) % u64::from(CHOSEN / EPOCH_APART)) as u32 * EPOCH_APART
}

/// The programs of one rank.
#[derive(Debug, Default)]
pub struct Programs {
    table: RwLock<Table>,
    early: Mutex<Vec<Announcement>>,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the first of `ordered`.
    first: u32,
    /// Programs numbered in order of loading.
    ordered: Vec<Arc<Loaded>>,
    chosen: BTreeMap<u32, Arc<Loaded>>,
}

impl Table {
    fn get(&self, number: u32) -> Option<&Arc<Loaded>> {
        if number >= CHOSEN {
            return self.chosen.get(&number);
        }
        self.ordered.get(number.checked_sub(self.first)? as usize)
    }
}

impl Programs {
    /// None yet; `first` is the first number that is given in the order of loading.
    pub fn numbered_from(first: u32) -> Self {
        let table = RwLock::new(Table { first, ..Table::default() });
        Self { table, early: Mutex::default() }
    }

    /// Adds a program under the next number, or under `chosen`; returns the number, and peers' earlier announcements
    /// for it. `Err`: that number may not be chosen, or a loaded program has it.
    pub fn add(
        &self,
        chosen: Option<u32>,
        make: impl FnOnce(u32) -> Loaded,
    ) -> Result<(u32, Vec<Announcement>), String> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let number = chosen.unwrap_or(table.first + table.ordered.len() as u32);
        if let Some(chosen) = chosen {
            if chosen < CHOSEN {
                return Err(format!(
                    "program number {chosen}: numbers below {CHOSEN} are given in the order of loading"
                ));
            }
            if let Some(there) = table.chosen.get(&chosen) {
                return Err(format!("program number {chosen} is taken by `{}`", there.label));
            }
            table.chosen.insert(number, Arc::new(make(number)));
        } else {
            table.ordered.push(Arc::new(make(number)));
        }
        // Under the table's lock, as in `keep_early`: nothing comes between.
        let early = lock(&self.early).extract_if(.., |announced| announced.program == number).collect();
        Ok((number, early))
    }

    /// Frees a program's resources: peers that are done with it announce nothing more of it. A number given in order
    /// stays taken.
    pub fn remove(&self, number: u32) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if number >= CHOSEN {
            table.chosen.remove(&number);
            return;
        }
        let at = number.checked_sub(table.first).map(|at| at as usize);
        if let Some(place) = at.and_then(|at| table.ordered.get_mut(at)) {
            *place = Arc::new(Loaded::new(
                number,
                place.label.clone(),
                Sending::urgent(0),
                Vec::new(),
                0,
                Vec::new(),
            ));
        }
    }

    /// The program of that number.
    pub fn get(&self, number: u32) -> Option<Arc<Loaded>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(number).cloned()
    }

    /// The first program for which `act` returns something.
    pub fn find_map<T>(&self, mut act: impl FnMut(&Arc<Loaded>) -> Option<T>) -> Option<T> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.ordered.iter().chain(table.chosen.values()).find_map(&mut act)
    }

    /// Keeps an announcement of a program that is not loaded yet; `Ok(false)` when it is loaded.
    pub fn keep_early(&self, announced: Announcement) -> Result<bool, String> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        if table.get(announced.program).is_some() {
            return Ok(false);
        }
        let mut early = lock(&self.early);
        if early.len() >= EARLY_MAX {
            return Err(format!("announced {EARLY_MAX} messages of programs that are not loaded here"));
        }
        early.push(announced);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(label: &str) -> impl FnOnce(u32) -> Loaded {
        let label = label.to_owned();
        move |number| Loaded::new(number, label, Sending::urgent(0), vec![], 0, vec![])
    }

    /// Programs of two epochs could not be told apart in a trace.
    #[test]
    fn each_epoch_has_numbers_of_its_own() {
        assert_eq!([1, 2, 32_769].map(first_program), [0, EPOCH_APART, 0]);
        let programs = Programs::numbered_from(first_program(3));
        let number = programs.add(None, named("first")).unwrap().0;
        assert_eq!(number, 2 * EPOCH_APART);
        assert_eq!(programs.get(number).unwrap().label, "first");
        assert!(programs.get(0).is_none() && programs.get(number + 1).is_none());
        programs.remove(number);
        assert_eq!(programs.add(None, named("second")).unwrap().0, number + 1);
    }

    /// Ranks of a group would load under numbers that the ranks outside rely on.
    #[test]
    fn chosen_numbers_leave_the_order_alone() {
        let programs = Programs::default();
        assert_eq!(programs.add(None, named("first")).unwrap().0, 0);
        assert_eq!(programs.add(Some(CHOSEN + 7), named("group's")).unwrap().0, CHOSEN + 7);
        assert_eq!(programs.add(None, named("second")).unwrap().0, 1);
        assert_eq!(programs.get(CHOSEN + 7).unwrap().label, "group's");
        assert!(programs.get(CHOSEN).is_none());
        assert!(programs.add(Some(3), named("below")).unwrap_err().contains("order of loading"));
    }
}
