//! Rules of the machines that the simulation may break, one at a time, to prove that it would notice.
//!
//! Only the feature `planted` can break any; without it every question is a constant `false`, and the shipped machines have no trace
//! of this. Each bug is one that other systems have had, or that a change of ours could bring. The last ones break rules that no
//! machine keeps, but those around them: of the data plane, of meetings and of the journal's head.

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
    /// A member commits when its own buckets are reduced, without the barrier.
    CommitWithoutBarrier,
    /// A step that stands by decision is done again by members that only prepared it.
    RedoWhatStands,
    /// A member obeys a decision that it has obeyed.
    ObeyTwice,
    /// A marker on one lane counts for all lanes.
    MarkerOnOneLane,
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
    /// A step is reduced again into sums that hold contributions of the aborted reduction.
    RedoIntoUsedSums,
    /// An epoch begins before a neighbour that it shuts out has ended.
    BeginBeforeGone,
    /// Members are called to a meeting when the first of them is at the edge of its step.
    MeetBeforeEdge,
    /// Who is lost while members meet is waited for.
    MeetTheLost,
    /// A newcomer begins with the state that it took beside training, not with that of the step at whose edge all meet.
    KeepStateTaken,
    /// Members are called to a meeting before the head of the journal names it.
    AnnounceBeforeHead,
    /// The journal keeps the records of the generation before.
    KeepOldRecords,
}

impl Bug {
    /// All.
    pub const ALL: [Self; 23] = [
        Self::DecideWithoutJournal,
        Self::DecideWithoutReport,
        Self::DecideLeastStep,
        Self::ForgetPlannedEpoch,
        Self::ReadTornTail,
        Self::CommitAfterReport,
        Self::ReportBeforeQuiesced,
        Self::CommitWithoutBarrier,
        Self::RedoWhatStands,
        Self::ObeyTwice,
        Self::MarkerOnOneLane,
        Self::LoseSamples,
        Self::NewestVote,
        Self::LeaveUnreleased,
        Self::HeedLeavers,
        Self::BlameWhoWaits,
        Self::RedoIntoUsedSums,
        Self::BeginBeforeGone,
        Self::MeetBeforeEdge,
        Self::MeetTheLost,
        Self::KeepStateTaken,
        Self::AnnounceBeforeHead,
        Self::KeepOldRecords,
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
