//! The job's failure: which rank, what it did, where that showed; kept for the callers of this rank and told to the others.
//!
//! Failures are data with a sentence for people. Nobody reads the sentence: ranks that are told take the data from the frame.

use crate::core::{Core, lock};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::frame::{ABORT_BYTES_MAX, Frame};
use hocket_protocol::why::Why;
use std::fmt;
use std::time::Duration;

/// A rank, and the name of its host, which no other host of the job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The rank.
    pub rank: Rank,
    /// Its host.
    pub host: String,
}

impl fmt::Display for Who {
    /// `rank 2 on b0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {}", self.rank, self.host)
    }
}

/// Where in this rank's programs something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Program number, the same on all ranks.
    pub program: u32,
    /// Launch count, from 0.
    pub launch: u32,
    /// This rank's instruction; `None`: the program as a whole.
    pub op: Option<u32>,
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// Whose fault it is.
    pub who: Who,
    /// What that rank did, or what became of it.
    pub why: Why,
    /// Where that shows here; `None` where another rank found out, or no program is concerned.
    pub location: Option<Location>,
    /// The sentence for people, which names the rank; of a rank that gives up, its own words alone.
    pub what: String,
}

impl Loaded {
    /// An instruction of the running launch, or all of it.
    pub fn location(&self, op: Option<u32>) -> Location {
        Location { program: self.number, launch: self.instance(), op }
    }
}

impl Peer {
    /// It is at fault: "rank 2 on b0" `what`.
    pub fn failed(&self, why: Why, location: Option<Location>, what: impl fmt::Display) -> Failure {
        Failure { who: self.who.clone(), why, location, what: format!("{} {what}", self.who) }
    }
}

impl Core {
    /// The job failed, for the first reason that comes; tells all peers.
    pub fn fail(&self, failure: Failure) {
        let (rank, why) = (failure.who.rank, failure.why);
        let text: String = failure.what.chars().take(ABORT_BYTES_MAX / 4).collect();
        if self.failure.set(failure).is_err() {
            return;
        }
        for peer in self.peers.get().into_iter().flatten().flatten() {
            let mut outgoing = lock(&peer.outgoing);
            outgoing.drop_messages();
            let frame = Frame::Abort { rank, why, payload_bytes: text.len() as u32 };
            outgoing.control(frame, text.as_bytes());
        }
        self.note_change();
        // Not `wake`, which would come back here when it fails; the I/O thread looks by itself before long.
        drop(self.waker.wake());
    }

    /// Something of this rank failed: "rank 0 on a0: " `what`.
    pub fn fail_here(&self, location: Option<Location>, what: impl fmt::Display) {
        let what = format!("{}: {what}", self.own);
        self.fail(Failure { who: self.own.clone(), why: Why::Failed, location, what });
    }

    /// An op of this rank failed.
    pub fn fail_op(&self, loaded: &Loaded, op: u32, what: impl fmt::Display) {
        self.fail_here(Some(loaded.location(Some(op))), format_args!("`{}` op {op}: {what}", loaded.label));
    }

    /// This rank gives up, in its script's own words.
    pub fn give_up(&self, reason: &str) {
        let what = reason.to_owned();
        self.fail(Failure { who: self.own.clone(), why: Why::GaveUp, location: None, what });
    }

    /// The job failed for `from`, because of `rank`. The first cause is passed on, not the messenger.
    pub fn handle_abort(&self, from: &Peer, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        let who = if rank == self.own.rank {
            self.own.clone()
        } else {
            let known = self.peers.get().and_then(|peers| peers.get(rank.index())?.as_ref());
            known.ok_or_else(|| format!("blamed rank {rank}, which the job does not have"))?.who.clone()
        };
        let what = match why {
            Why::GaveUp if rank == from.who.rank => format!("{who} gave up: {text}"),
            _ => text.to_owned(),
        };
        self.fail(Failure { who, why, location: None, what });
        Ok(())
    }

    /// The running launch is not complete after `timeout`: whom it waits for.
    pub fn timed_out(&self, loaded: &Loaded, timeout: Duration) -> Error {
        let unfinished = loaded.unfinished();
        let who = |rank: Rank| &self.peer(rank).who;
        let each = |&(rank, receiving): &(Rank, bool)| {
            format!("{} to {}", who(rank), if receiving { "send" } else { "receive" })
        };
        let waits_for = match unfinished.is_empty() {
            false => unfinished.iter().map(each).collect::<Vec<_>>().join(", "),
            true if loaded.waits_for_library() => "a collective by a library".into(),
            true => "work of this rank".into(),
        };
        let location = loaded.location(None);
        let mut missing: Vec<Who> = unfinished.iter().map(|&(rank, _)| who(rank).clone()).collect();
        missing.dedup();
        let what = format!(
            "`{}` (launch {}) is not complete after {:.1} s; waits for {waits_for}",
            loaded.label,
            location.launch,
            timeout.as_secs_f64()
        );
        Error::Timeout { what, location: Some(location), missing }
    }

    /// The failure, if the job failed.
    pub fn failure(&self) -> Option<Error> {
        self.failure.get().cloned().map(Error::Peer)
    }
}
