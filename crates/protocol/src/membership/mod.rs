//! Who takes part in the job, as pure machines: one coordinator with a journal, one participant per member.
//!
//! An *epoch* is a decision in the journal: a number, and members by rank. It follows another, its *base*. A *planned* epoch (members
//! join or leave) is prepared beside training and begins by the votes that travel with the gradients (`epoch`). After a *loss*
//! every survivor stops, reports and promises to commit nothing more; then the coordinator decides which step stands. A new
//! membership exists only once the journal has it, so that two halves of a partition can never both go on.
//!
//! What makes the decision exact is the barrier that each step ends with: whoever has committed a step knows that every
//! member of its epoch has all of the step's sums. So a step that one survivor committed stands for all, and any other is
//! reduced again from contributions that were kept. No I/O and no clock here: the caller passes events and time.

pub mod codec;
pub mod coordinator;
pub mod eviction;
pub mod journal;
pub mod member;
pub mod shortage;
#[cfg(test)]
mod tests;

use crate::planted::Rules;
use hocket_ids::Member;
use std::time::Duration;

/// Members of a job, at most: what a journal's record may hold.
pub const MEMBERS_MAX: usize = 4096;

/// Between two ticks of a machine, no more than this counts: the rest was our own sleep.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How an epoch came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The job's first.
    Founded,
    /// Members joined or left; it begins by votes.
    Planned,
    /// Members were lost; it begins at once.
    Loss {
        /// Steps that stand: whoever has one less commits what it has prepared.
        steps: u64,
    },
}

/// An epoch: exists once it is in the journal. Every member obeys it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Never used twice.
    pub epoch: u64,
    /// The epoch that it follows.
    pub base: u64,
    /// How it came about.
    pub kind: Kind,
    /// By rank.
    pub members: Vec<Member>,
    /// Members without the model's state, which get it from the others.
    pub fresh: Vec<Member>,
    /// Members of the epochs before that this one shuts out. They may not know it, and may still write.
    pub evicted: Vec<Member>,
}

impl Decision {
    /// Whether a member is in it.
    pub fn has(&self, member: Member) -> bool {
        self.members.contains(&member)
    }
}

/// Where a member's script is, while the member has stopped. Its machine reports at any time; its script may hang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Script {
    /// Somewhere of its own.
    #[default]
    Computes,
    /// It has come to where it follows what is decided.
    Waits,
    /// It has waited for other members as long as it may.
    Overdue,
    /// It has ended, and makes no more steps.
    Ended,
}

/// What a member knows once it has stopped. It commits nothing in `epoch` from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The epoch that it is in; none before a joiner's first.
    pub epoch: Option<u64>,
    /// Steps in its state; none while it has no state.
    pub steps: Option<u64>,
    /// Whether it has all sums of the next step.
    pub prepared: bool,
    /// Where its script is.
    pub script: Script,
    /// Whom it cannot hear.
    pub suspects: Vec<Member>,
}

/// From a member to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The first on every connection.
    Hello {
        /// The epoch that it is in; a joiner is in none.
        epoch: Option<u64>,
        /// Members of one host share memory.
        host: u32,
        /// It has the state that the job begins with; a joiner has none.
        founds: bool,
    },
    /// It has stopped.
    Report(Report),
    /// It begins an epoch, or is in one.
    Entered {
        /// Which.
        epoch: u64,
    },
    /// A neighbour's process has ended and writes no more.
    Gone {
        /// Whose.
        member: Member,
    },
    /// It wants to leave at a step's end.
    Leave,
}

/// From the coordinator to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Prepare this epoch beside training.
    Propose(Decision),
    /// Stop and report: an epoch of this number will be decided.
    Recall {
        /// Members that are already in it, or past it, ignore this.
        next: u64,
    },
    /// Begin this epoch.
    Decide(Decision),
    /// The job goes on without the addressee.
    Evicted {
        /// Since which epoch.
        epoch: u64,
        /// For people.
        why: String,
    },
    /// The leaver's last step stands; it may go.
    Released,
    /// The job ends.
    End(Ending),
}

/// Why a job ends before its script does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// Nobody came.
    #[error("{left} of at least {needed} members are left{}; lost: members {}", nobody_came_in(.waited), listed(.lost))]
    BelowMinimum {
        /// Members that could go on.
        left: usize,
        /// Without which the job waits.
        needed: usize,
        /// How long it waited.
        waited: Duration,
        /// Who is missing.
        lost: Vec<Member>,
    },
    /// All that had it were lost together.
    #[error("nobody who holds the model's state is left; lost: members {}", listed(.lost))]
    StateLost {
        /// Who is missing.
        lost: Vec<Member>,
    },
    /// Another coordinator has decided since.
    #[error("member {member} is in epoch {epoch}, the journal ends with epoch {newest}: it is an old copy")]
    OldJournal {
        /// Who knows more than the journal.
        member: Member,
        /// The member's epoch.
        epoch: u64,
        /// The journal's last.
        newest: u64,
    },
    /// Ranks do not do the same.
    #[error(
        "all {members} members are there, and wait for each other after {steps} steps: their scripts do not do the same"
    )]
    Stuck {
        /// How many wait.
        members: usize,
        /// That they have made.
        steps: u64,
    },
    /// What a fault of ours, or a forged report, would show as.
    #[error("{steps} steps are committed, but member {member} reports {report:?}")]
    Contradiction {
        /// The most that anybody has.
        steps: u64,
        /// Who differs.
        member: Member,
        /// What it says.
        report: Report,
    },
}

fn listed(members: &[Member]) -> String {
    members.iter().map(Member::to_string).collect::<Vec<_>>().join(", ")
}

fn nobody_came_in(waited: &Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(", and nobody came in {waited:?}") }
}

/// How long machines wait, and how many members there may be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Members without which the job waits.
    pub members_min: usize,
    /// Members beyond which joiners wait.
    pub members_max: usize,
    /// Half of it separates rounds of eviction; a member that does not report for so long is evicted.
    pub heartbeat: Duration,
    /// How long a planned epoch may be in preparation.
    pub load_patience: Duration,
    /// How long a decision waits for the end of an evicted neighbour's process.
    pub fence_patience: Duration,
    /// How long the job waits below `members_min`.
    pub rejoin_patience: Duration,
    /// How long a member that cannot go on waits for the coordinator.
    pub coordinator_patience: Duration,
    /// For tests.
    pub rules: Rules,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            members_min: 1,
            members_max: MEMBERS_MAX,
            heartbeat: Duration::from_secs(5),
            load_patience: Duration::from_secs(60),
            fence_patience: Duration::from_millis(500),
            rejoin_patience: Duration::from_secs(600),
            coordinator_patience: Duration::from_secs(60),
            rules: Rules::default(),
        }
    }
}
