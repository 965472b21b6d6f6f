//! Failing the job: an op fails, a peer gives up or a wait ends. Decides which rank is at fault, and words the message.

use crate::core::Core;
use crate::error::Error;
use crate::failure::{Failure, Who};
use crate::loaded::Loaded;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use std::fmt;
use std::time::Duration;

impl Core {
    /// An op of this rank failed.
    pub fn fail_op(&self, loaded: &Loaded, op: u32, what: impl fmt::Display) {
        self.fail_here(Some(loaded.location(Some(op))), format_args!("`{}` op {op}: {what}", loaded.label));
    }

    /// This rank gives up, with its script's own message.
    pub fn give_up(&self, reason: &str) {
        let what = reason.to_owned();
        self.fail(Failure { who: self.own.clone(), why: Why::GaveUp, location: None, what });
    }

    /// Rank `from` reports that the job failed because of `rank`. The first cause is passed on, not the messenger.
    pub fn handle_abort(&self, from: &Peer, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        let who = if self.elastic {
            // It has failed by itself: the loss of another would not end it.
            from.who.clone()
        } else if rank == self.own.rank {
            self.own.clone()
        } else {
            let known = self.peers.get().and_then(|peers| peers.get(rank));
            known.ok_or_else(|| format!("blamed rank {rank}, which the job does not have"))?.who.clone()
        };
        let what = match why {
            Why::GaveUp if rank == from.who.rank => format!("{who} gave up: {text}"),
            _ => text.to_owned(),
        };
        self.fail(Failure { who, why, location: None, what });
        Ok(())
    }

    /// The running launch is not complete after `timeout`: names the ranks that it waits for.
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
}
