//! Failing the job: an op fails, a peer gives up or a wait ends. Decides which rank is at fault, and words the message.

use crate::core::Core;
use crate::failure::Failure;
use crate::loaded::Loaded;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use std::fmt;

impl Core {
    /// An op of this rank failed.
    pub fn fail_op(&self, loaded: &Loaded, op: u32, what: impl fmt::Display) {
        self.fail_here(Some(loaded.location(Some(op))), format_args!("`{}` op {op}: {what}", loaded.label));
    }

    /// This rank gives up, with its script's own message; because of what another rank did, if `cause` names one.
    pub fn give_up(&self, reason: &str, cause: Option<(Rank, Why)>) {
        let peers = self.peers.get().filter(|_| !self.elastic);
        let other = cause.and_then(|(rank, why)| Some((peers?.get(rank)?, why)));
        let (who, why, exit_code) = match other {
            Some((peer, why)) => (peer.who.clone(), why, peer.exit_code.get().copied()),
            None => (self.own.clone(), Why::GaveUp, None),
        };
        self.fail(Failure { who, why, exit_code, location: None, what: reason.to_owned() });
    }

    /// A rank's process ends with that code.
    pub fn handle_exit(&self, rank: Rank, code: u8) -> Result<(), String> {
        if rank == self.own.rank {
            return Ok(());
        }
        let peers = self.peers.get().filter(|peers| peers.who(rank).is_some());
        let peers = peers.ok_or_else(|| format!("the end of rank {rank}, which the job does not have"))?;
        if let Some(peer) = peers.get(rank) {
            // The first one stays.
            let _: Result<(), u8> = peer.exit_code.set(code);
        }
        Ok(())
    }

    /// Rank `from` reports that the job failed because of `rank`. The first cause is passed on, not the messenger.
    pub fn handle_abort(&self, from: &Peer, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        let (who, exit_code) = if self.elastic {
            // It has failed by itself: the loss of another would not end it.
            (from.who.clone(), None)
        } else if rank == self.own.rank {
            (self.own.clone(), None)
        } else {
            let peers = self.peers.get();
            let who = peers.and_then(|peers| peers.who(rank));
            let who = who.ok_or_else(|| format!("blamed rank {rank}, which the job does not have"))?;
            let peer = peers.and_then(|peers| peers.get(rank));
            (who, peer.and_then(|peer| peer.exit_code.get().copied()))
        };
        let what = match why {
            Why::GaveUp if rank == from.who.rank => format!("{who} gave up: {text}"),
            _ => text.to_owned(),
        };
        self.fail(Failure { who, why, exit_code, location: None, what });
        Ok(())
    }
}
