//! What is known of all members while they report a loss.

use crate::membership::Script;
use hocket_ids::Member;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a look at all members has found, and reports since.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// When that was.
    pub(super) at: Duration,
    /// Members that have not reported and are not evicted.
    pub(super) open: BTreeSet<Member>,
    /// Members that are not evicted and cannot be heard: they are as soon as others complain of them.
    pub(super) unheard: BTreeSet<Member>,
    /// Members that stay, whose scripts have waited in vain.
    pub(super) overdue: BTreeSet<Member>,
    /// Members that stay, for whose scripts those wait.
    pub(super) absent: BTreeSet<Member>,
    /// A script has ended: the others may go on without it.
    pub(super) one_has_ended: bool,
}

impl Found {
    pub(super) fn note_script(&mut self, member: Member, script: Script) {
        self.overdue.remove(&member);
        self.absent.remove(&member);
        match script {
            Script::Computes => {
                self.absent.insert(member);
            }
            Script::Overdue => {
                self.overdue.insert(member);
            }
            Script::Ended => self.one_has_ended = true,
            Script::Waits => {}
        }
    }

    /// Whether members that stay hold it against others that those do not come.
    pub(super) fn disputed(&self) -> bool {
        !self.overdue.is_empty() && !self.absent.is_empty()
    }
}
