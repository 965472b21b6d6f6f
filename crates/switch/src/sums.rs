//! Sums that switches make of workers' pieces on their way to a server, in a pool of slots at each rack's switch (Lao et
//! al. 2021, "ATP"; the pool as in Sapio et al. 2021).
//!
//! A worker numbers its pieces alike with all others, and sends piece `i` when its switch has told it that the slot of
//! piece `i - slots` is free: the sum of that has been passed on. Switches of racks pass theirs to the switch of the
//! server's rack, which sends one sum for all. Whoever hears nothing of a piece sends it again: a switch adds no piece
//! twice, and tells again of one that it has passed on.

use crate::piece::Piece;
use std::collections::BTreeMap;

/// What a switch does when a piece has arrived.
#[derive(Debug, PartialEq)]
pub enum Passed {
    /// The sum of a rack's workers goes to the switch of another.
    ToRack { from: usize, rack: usize, piece: Piece },
    /// The sum of all workers goes to its server.
    ToServer(Piece),
    /// A worker may use the slot of this piece again.
    Free { port: usize, piece: Piece },
}

/// The switches of all racks.
#[derive(Debug)]
pub struct Sums {
    slots: usize,
    /// By port.
    racks: Vec<usize>,
    /// By rack: its ports, a bit each.
    members: Vec<u64>,
    pools: Vec<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    open: BTreeMap<(u32, u32), Slot>,
    /// Open ones with a piece of the rack's own workers: these alone are limited, as other racks' sums come when they do.
    own: usize,
    /// The last piece passed on by slot, of which a worker that has the next one has heard.
    passed: BTreeMap<u32, (u32, u32)>,
}

#[derive(Debug)]
struct Slot {
    from: u64,
    own: bool,
    values: Vec<f32>,
}

impl Sums {
    /// `racks`: by port; each switch has so many slots.
    pub fn new(slots: usize, racks: &[usize]) -> Self {
        let count = racks.iter().max().map_or(0, |last| last + 1);
        let mut members = vec![0; count];
        racks.iter().enumerate().for_each(|(port, &rack)| members[rack] |= 1 << port);
        Self { slots, racks: racks.to_vec(), members, pools: (0..count).map(|_| Pool::default()).collect() }
    }

    pub fn rack(&self, port: usize) -> usize {
        self.racks[port]
    }

    /// A piece arrives at a rack's switch: of the host at `port`, or the sum of another rack. `None`: it is dropped, as no
    /// slot is free, or its size is not that of the others'.
    pub fn take(&mut self, rack: usize, port: Option<usize>, piece: &Piece) -> Option<Vec<Passed>> {
        let home = self.racks[piece.server];
        let members = self.members[rack];
        let whole = if rack == home { piece.workers } else { piece.workers & members };
        let pool = &mut self.pools[rack];
        let (key, slot_number) = ((piece.run, piece.number), piece.number % self.slots as u32);
        if pool.passed.get(&slot_number).is_some_and(|last| key <= *last) {
            return Some(
                port.map(|port| Passed::Free { port, piece: piece.without_values() }).into_iter().collect(),
            );
        }
        if !pool.open.contains_key(&key) {
            if port.is_some() && pool.own == self.slots {
                return None;
            }
            pool.open.insert(key, Slot { from: 0, own: false, values: vec![0.0; piece.values.len()] });
        }
        let slot = pool.open.get_mut(&key)?;
        if slot.values.len() != piece.values.len() {
            return None;
        }
        if slot.from & piece.from != 0 {
            return Some(Vec::new());
        }
        slot.from |= piece.from;
        slot.values.iter_mut().zip(&piece.values).for_each(|(sum, value)| *sum += value);
        if port.is_some() && !slot.own {
            slot.own = true;
            pool.own += 1;
        }
        if slot.from != whole {
            return Some(Vec::new());
        }
        let slot = pool.open.remove(&key)?;
        pool.own -= usize::from(slot.own);
        pool.passed.insert(slot_number, key);
        let news = piece.without_values();
        let sum = Piece { from: whole, values: slot.values, ..*piece };
        let mut found = vec![if rack == home {
            Passed::ToServer(sum)
        } else {
            Passed::ToRack { from: rack, rack: home, piece: sum }
        }];
        let own = news.workers & members;
        let ports = (0..self.racks.len()).filter(|&port| own >> port & 1 == 1);
        found.extend(ports.map(|port| Passed::Free { port, piece: news.clone() }));
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn piece(port: usize, number: u32, workers: u64) -> Piece {
        Piece { run: 0, number, server: 4, workers, from: 1 << port, values: vec![port as f32 + 1.0; 3] }
    }

    /// A sum would lack a worker, have one twice, or never be passed on.
    #[test]
    fn a_rack_sums_its_own_and_the_server_s_all() {
        let mut sums = Sums::new(2, &[0, 0, 1, 1, 1]);
        let whole = 0b1111;
        assert_eq!(sums.take(0, Some(0), &piece(0, 0, whole)), Some(vec![]));
        assert_eq!(sums.take(0, Some(0), &piece(0, 0, whole)), Some(vec![]), "it was added twice");
        let passed = sums.take(0, Some(1), &piece(1, 0, whole)).unwrap();
        let [
            Passed::ToRack { from: 0, rack: 1, piece: sum },
            Passed::Free { port: 0, .. },
            Passed::Free { port: 1, .. },
        ] = &passed[..]
        else {
            panic!("{passed:?}")
        };
        assert_eq!((sum.values.as_slice(), sum.from), ([3.0; 3].as_slice(), 0b11));
        let again = sums.take(0, Some(0), &piece(0, 0, whole)).unwrap();
        assert!(matches!(again[..], [Passed::Free { port: 0, .. }]), "{again:?}");
        assert_eq!(sums.take(1, None, sum), Some(vec![]));
        assert_eq!(sums.take(1, Some(3), &piece(3, 0, whole)), Some(vec![]));
        let passed = sums.take(1, Some(2), &piece(2, 0, whole)).unwrap();
        let [Passed::ToServer(sum), Passed::Free { port: 2, .. }, Passed::Free { port: 3, .. }] = &passed[..]
        else {
            panic!("{passed:?}")
        };
        assert_eq!(sum.values, [10.0; 3]);
    }

    /// A worker that does not wait would take more memory than a switch has.
    #[test]
    fn pieces_without_a_slot_are_dropped() {
        let mut sums = Sums::new(2, &[0, 0, 0, 0, 0]);
        assert!(sums.take(0, Some(0), &piece(0, 0, 3)).is_some());
        assert!(sums.take(0, Some(0), &piece(0, 1, 3)).is_some());
        assert!(sums.take(0, Some(0), &piece(0, 2, 3)).is_none());
        assert!(sums.take(0, Some(1), &piece(1, 0, 3)).is_some());
        assert!(sums.take(0, Some(0), &piece(0, 2, 3)).is_some());
        let other = Piece { values: vec![0.0; 4], ..piece(1, 1, 3) };
        assert!(sums.take(0, Some(1), &other).is_none());
    }

    proptest! {
        /// Pieces that are lost, or sent again, would change a sum or stop the job.
        #[test]
        fn each_sum_is_made_once(
            racks in proptest::collection::vec(0..3_usize, 5),
            slots in 1..5_usize,
            lost in proptest::collection::vec(0..4_usize, 400),
            pieces in 1..60_u32,
        ) {
            let mut sums = Sums::new(slots, &racks);
            let workers = 0b1111;
            let mut lost = lost.into_iter().map(|draw| draw == 0);
            let (mut free, mut arrived) = (vec![BTreeSet::new(); 4], BTreeSet::new());
            for _ in 0..10_000 {
                if arrived.len() == pieces as usize && free.iter().all(|own| own.len() == pieces as usize) {
                    break;
                }
                for port in 0..4 {
                    let waits = (0..pieces).filter(|number| !free[port].contains(number));
                    let may: Vec<u32> = waits
                        .filter(|&number| number < slots as u32 || free[port].contains(&(number - slots as u32)))
                        .collect();
                    for number in may {
                        if lost.next().unwrap_or(false) {
                            continue;
                        }
                        let mut passed = sums.take(racks[port], Some(port), &piece(port, number, workers)).unwrap();
                        while let Some(each) = passed.pop() {
                            match each {
                                Passed::ToRack { rack, piece, .. } => passed.extend(sums.take(rack, None, &piece).unwrap()),
                                Passed::ToServer(sum) => {
                                    prop_assert_eq!(&sum.values, &vec![10.0; 3]);
                                    prop_assert!(arrived.insert(sum.number), "twice");
                                }
                                Passed::Free { port, piece } if !lost.next().unwrap_or(false) => {
                                    free[port].insert(piece.number);
                                }
                                Passed::Free { .. } => {}
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(arrived.len(), pieces as usize);
        }
    }
}
