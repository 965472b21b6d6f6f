//! Which generation of members meets, or has met, and who waits to join: what the launcher's coordination keeps beside the machine
//! (`python/hocket/members/gathering.py`, `waiting.py`).

use hocket_ids::Member;
use hocket_protocol::membership::{Decision, Kind, Note};
use std::collections::{BTreeMap, BTreeSet};

/// Of the journal: who meets, or has met. It is replaced as a whole, with the records.
#[derive(Clone, Debug)]
pub struct Head {
    pub generation: u64,
    pub members: Vec<Member>,
    /// Who had the job's state before.
    pub holders: Vec<Member>,
}

#[derive(Debug, Default)]
pub struct Gathering {
    /// Of the generation; the founders' is 1.
    pub number: u64,
    pub members: Vec<Member>,
    /// Its machine has not decided yet that all are there.
    pub under_way: bool,
    /// Who has the job's state.
    pub holders: Vec<Member>,
    /// Epochs since the last loss: members, and whether some of them replace lost ones.
    epochs: BTreeMap<u64, (Vec<Member>, bool)>,
    /// Members that wait at the edge of a step, and in which epoch.
    pub at_edge: BTreeMap<Member, u64>,
}

impl Gathering {
    pub fn of(head: &Head, under_way: bool) -> Self {
        Self {
            number: head.generation,
            members: head.members.clone(),
            under_way,
            holders: if under_way { head.holders.clone() } else { head.members.clone() },
            ..Self::default()
        }
    }

    /// The next generation is about to meet.
    pub fn begin(&mut self, members: &[Member]) {
        let holders = std::mem::take(&mut self.holders);
        let (number, members) = (self.number + 1, members.to_vec());
        *self = Self { number, members, under_way: true, holders, ..Self::default() };
    }

    pub fn decide(&mut self, decision: &Decision) {
        let planned = decision.kind == Kind::Planned;
        if !planned {
            self.epochs.clear();
        }
        let filled = !planned && decision.members.iter().any(|each| !self.members.contains(each));
        self.epochs.insert(decision.epoch, (decision.members.clone(), filled));
    }

    /// Members of the next generation, if all of this one that are heard wait for its newcomers.
    pub fn due(
        &self,
        is_here: impl Fn(Member) -> bool,
        silent: &BTreeSet<Member>,
        any: bool,
    ) -> Option<Vec<Member>> {
        let is_due = |&(epoch, (members, filled)): &(&u64, &(Vec<Member>, bool))| {
            let ours = |each: &&Member| self.members.contains(each);
            let heard: Vec<_> = members.iter().filter(ours).filter(|each| !silent.contains(each)).collect();
            let mut newcomers = members.iter().filter(|each| !ours(each)).peekable();
            let joins = newcomers.peek().is_some();
            let come = newcomers.any(|each| !silent.contains(each))
                && members.iter().all(|&each| is_here(each) || silent.contains(&each));
            let waits = |each: &&Member| self.at_edge.get(each) == Some(epoch);
            let all = if any { heard.iter().any(waits) } else { heard.iter().all(waits) };
            joins && !heard.is_empty() && (come || *filled) && all
        };
        let due = self.epochs.iter().find(is_due).filter(|_| !self.under_way);
        due.map(|(_, (members, _))| members.clone())
    }
}

/// Processes that wait to become members.
#[derive(Debug, Default)]
pub struct Waiting {
    /// What the machine hears of each.
    pub notes: BTreeMap<Member, Note>,
    pub ready: BTreeSet<Member>,
    pub heard: BTreeSet<Member>,
    /// The machine waits for members, without which the job cannot go on.
    pub short: bool,
}

impl Waiting {
    pub fn drop(&mut self, member: Member) {
        self.notes.remove(&member);
        self.ready.remove(&member);
        self.heard.remove(&member);
    }

    /// Keeps a process's first note; gives whether the machine may hear of it.
    pub fn note(&mut self, member: Member, note: &Note) -> bool {
        self.notes.entry(member).or_insert_with(|| note.clone());
        if self.short {
            self.heard.insert(member);
        }
        self.heard.contains(&member)
    }

    /// The machine may hear of these, too.
    pub fn let_in(&mut self, all: bool) -> Vec<(Member, Note)> {
        let due = |member: &Member| (all || self.ready.contains(member)) && !self.heard.contains(member);
        let new: Vec<_> = self
            .notes
            .iter()
            .filter(|(member, _)| due(member))
            .map(|(&member, note)| (member, note.clone()))
            .collect();
        self.heard.extend(new.iter().map(|(member, _)| *member));
        new
    }
}
