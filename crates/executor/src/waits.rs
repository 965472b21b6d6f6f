//! Who waits for whom: what this rank answers to ranks that ask, and what it asks all others before it blames one of them
//! for a wait that is over (`hocket_protocol::inquiry`).
//!
//! Nothing is sent while all goes well. I/O threads answer, whatever the scripts of their ranks do.

use crate::core::Core;
use crate::lock::lock;
use crate::peer::Peer;
use crate::waiting::Waiting;
use hocket_ids::Rank;
use hocket_protocol::inquiry::Inquiry;
use hocket_protocol::word::{Launched, Part, Word};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for answers. Whoever takes longer is stopped or cut off.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// Longest interval between looks for them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A wait of the script, until this is dropped.
pub struct NotedWait {
    core: Arc<Core>,
    number: u32,
}

impl NotedWait {
    /// Others that ask are told of it from now on.
    pub fn new(core: &Arc<Core>, waiting: Waiting) -> Self {
        Self { core: Arc::clone(core), number: core.waits.begin(waiting) }
    }
}

impl Drop for NotedWait {
    fn drop(&mut self) {
        self.core.waits.end(self.number);
    }
}

impl Core {
    /// Whoever does not come to what `awaited` are waited for, found by asking, unless `still` is false before that.
    pub fn culprits(
        &self,
        launch: Option<Launched>,
        awaited: Vec<Rank>,
        timeout: Duration,
        still: impl Fn() -> bool,
    ) -> Vec<Rank> {
        let Some(inquiry) = self.inquire(launch, awaited.clone(), timeout) else { return awaited };
        while still() && !self.has_stopped() {
            if let Some(found) = self.waits.concluded(inquiry, Instant::now()) {
                return found;
            }
            self.wait_for_change(LOOK_EVERY, || !self.waits.is_answered(inquiry));
        }
        self.waits.forget(inquiry);
        awaited
    }

    /// Asks all ranks whom they wait for, since `awaited` are waited for after `timeout`. The number of the question;
    /// `None`: there is nothing to ask.
    pub fn inquire(&self, launch: Option<Launched>, awaited: Vec<Rank>, timeout: Duration) -> Option<u32> {
        let peers: Vec<&Peer> = self.peers.get()?.all().flatten().collect();
        let patience = timeout.min(ANSWERS_MAX);
        if awaited.is_empty() || peers.len() < 2 || patience.is_zero() || self.has_stopped() {
            return None;
        }
        let mut inquiry = Inquiry::new(self.own.rank, awaited, peers.iter().map(|peer| peer.who.rank));
        for gone in peers.iter().filter(|peer| peer.link.has_left()) {
            inquiry.handle_waits(gone.who.rank, Part::Absent, None).ok()?;
        }
        let number = self.waits.ask(inquiry, Instant::now() + patience);
        let word = Word::Inquiry { inquiry: u64::from(self.epoch as u32) << 32 | u64::from(number), launch };
        for peer in peers.iter().filter(|peer| !peer.link.has_left()) {
            self.say(peer, word);
        }
        Some(number)
    }

    /// A peer asks.
    pub fn handle_inquiry(&self, from: &Peer, inquiry: u64, launch: Option<Launched>) {
        let others = self.peers.get().map_or(0, |peers| peers.all().flatten().count());
        if self.is_of_epoch(inquiry) && self.waits.may_answer(others, Instant::now()) {
            let (part, ranks) = self.part_in(launch);
            for rank in ranks.into_iter().map(Some).chain([None]) {
                self.say(from, Word::Waits { inquiry, part, rank });
            }
        }
    }

    /// A peer answers.
    pub fn handle_waits(
        &self,
        from: Rank,
        inquiry: u64,
        part: Part,
        rank: Option<Rank>,
    ) -> Result<(), String> {
        if self.is_of_epoch(inquiry) {
            self.waits.answer(inquiry as u32, from, part, rank)?;
        }
        self.note_change();
        Ok(())
    }

    /// Ranks of two epochs have other numbers.
    fn is_of_epoch(&self, inquiry: u64) -> bool {
        (inquiry >> 32) as u32 == self.epoch as u32
    }

    /// Our part in a launch, and the ranks that we wait for: in it, or wherever our script waits.
    fn part_in(&self, launch: Option<Launched>) -> (Part, Vec<Rank>) {
        let known = launch.and_then(|(program, instance)| Some((self.programs.get(program)?, instance)));
        match known {
            Some((loaded, instance)) if instance < loaded.asked() => {
                if loaded.has_completed(instance + 1) {
                    return (Part::Done, self.script_waits());
                }
                (Part::Working, loaded.awaited())
            }
            _ => (Part::Absent, self.script_waits()),
        }
    }

    fn script_waits(&self) -> Vec<Rank> {
        let mut ranks = Vec::new();
        for each in self.waits.open() {
            match each {
                Waiting::Rank(rank) => ranks.push(rank),
                Waiting::Message(number) => {
                    ranks.extend(lock(&self.messages).ends(number).and_then(|(rank, _)| rank));
                }
                Waiting::Program(number) => {
                    let loaded = self.programs.get(number).filter(|loaded| !loaded.is_complete());
                    ranks.extend(loaded.into_iter().flat_map(|loaded| loaded.awaited()));
                }
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}
