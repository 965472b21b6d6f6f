//! Rules of the machines that the simulation may break, one at a time, to prove that it would notice.
//!
//! Only the feature `planted` can break any; without it every question is a constant `false`, and the shipped machines have no trace
//! of this. Each bug is one that other systems have had, or that a change of ours could bring.

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A decision is sent before the journal has it.
    DecideWithoutJournal,
    /// The coordinator decides while a member that is not evicted has yet to report.
    DecideWithoutReport,
    /// The step that stands is the least of the reports, not the greatest.
    DecideLeastStep,
    /// A planned epoch that has begun is taken for one that has not.
    ForgetPlannedEpoch,
    /// A journal's torn tail is read as if it were whole.
    ReadTornTail,
    /// A member commits after its report.
    CommitAfterReport,
    /// A member reports before its running ops have ended.
    ReportBeforeQuiesced,
    /// Contributions are restored when a member quiesces, before the decision.
    RestoreBeforeDecision,
    /// A step is reduced again from what the aborted reduction left.
    RedoWithoutRestore,
    /// A member commits when its own buckets are reduced, without the barrier.
    CommitWithoutBarrier,
    /// A step that stands by decision is done again by members that only prepared it.
    RedoWhatStands,
    /// A member obeys a decision that it has obeyed.
    ObeyTwice,
    /// A marker on one lane counts for all lanes.
    MarkerOnOneLane,
    /// Memory that an evicted neighbour may still write to is used again.
    ReuseBeforeGone,
    /// A joiner keeps a block that differs from the manifest.
    KeepUncheckedBlock,
    /// A joiner keeps blocks of a manifest that another has replaced.
    KeepStaleBlocks,
    /// The lost member's samples are not returned to the pool.
    LoseSamples,
    /// A planned epoch begins by the newest vote, not by the oldest.
    NewestVote,
    /// A member that asks to leave goes without waiting for its release.
    LeaveUnreleased,
    /// A leaver's word counts against those who have closed their connections to it because it leaves.
    HeedLeavers,
    /// A time-out counts against all who have not waited as long themselves, wherever their scripts are.
    BlameWhoWaits,
}

impl Bug {
    /// All.
    pub const ALL: [Self; 21] = [
        Self::DecideWithoutJournal,
        Self::DecideWithoutReport,
        Self::DecideLeastStep,
        Self::ForgetPlannedEpoch,
        Self::ReadTornTail,
        Self::CommitAfterReport,
        Self::ReportBeforeQuiesced,
        Self::RestoreBeforeDecision,
        Self::RedoWithoutRestore,
        Self::CommitWithoutBarrier,
        Self::RedoWhatStands,
        Self::ObeyTwice,
        Self::MarkerOnOneLane,
        Self::ReuseBeforeGone,
        Self::KeepUncheckedBlock,
        Self::KeepStaleBlocks,
        Self::LoseSamples,
        Self::NewestVote,
        Self::LeaveUnreleased,
        Self::HeedLeavers,
        Self::BlameWhoWaits,
    ];
}

/// What a machine asks before it follows a rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "planted")]
    broken: Option<Bug>,
}

impl Rules {
    /// All hold but one.
    #[cfg(feature = "planted")]
    pub const fn but(bug: Bug) -> Self {
        Self { broken: Some(bug) }
    }

    /// Whether the rule is broken.
    #[cfg(feature = "planted")]
    pub fn broken(self, bug: Bug) -> bool {
        self.broken == Some(bug)
    }

    /// Whether the rule is broken: never.
    #[cfg(not(feature = "planted"))]
    pub const fn broken(self, _bug: Bug) -> bool {
        false
    }
}
