//! From one epoch of members to the next, in the same process and over the connections that are there.
//!
//! 1. A peer is lost, or [`Engine::interrupt`] is called: waits end with [`Error::Interrupted`], nothing more starts, and
//!    what comes of the epoch is thrown away.
//! 2. [`Engine::quiesce`] waits until what runs here has ended. From then on this rank writes into nobody's memory.
//! 3. When all survivors have come so far, and only then, [`Engine::resume`] begins the next epoch. It has no programs
//!    yet.

use crate::completions::in_callback;
use crate::core::Core;
use crate::engine::{Engine, WAKE};
use crate::error::Error;
use crate::failure::{Failure, Who};
use crate::instruction::Way;
use crate::io_thread::Io;
use crate::lock::lock;
use crate::peer::{Peer, Peers};
use crate::peer_table::{Change, PeerTable};
use crate::threads::Threads;
use hocket_ids::{Member, Rank};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// How long a process that was told to end may take. On a busy machine, one with gigabytes of memory takes seconds, and the job is
/// lost if it is given up.
const END_PATIENCE: Duration = Duration::from_secs(10);

impl Engine {
    /// The members of the epoch in force, by rank; none before the mesh is up.
    pub fn members(&self) -> Vec<Member> {
        self.core().peers.get().map(|peers| peers.table.members()).unwrap_or_default()
    }

    /// Peers that were lost in the epoch in force, in that order: the member, and what happened.
    pub fn lost(&self) -> Vec<(Member, Failure)> {
        let core = self.core();
        let members = core.peers.get().map(|peers| peers.table.members()).unwrap_or_default();
        let of = |failure: Failure| Some((*members.get(failure.who.rank.index())?, failure));
        core.losses().into_iter().filter_map(of).collect()
    }

    /// Those of the lost that share memory with us and whose processes have ended: they write to no memory any more.
    pub fn gone(&self) -> Result<Vec<Member>, Error> {
        let core = self.core();
        let Some(peers) = core.peers.get() else { return Ok(Vec::new()) };
        let members = peers.table.members();
        let mut gone = Vec::new();
        for failure in core.losses() {
            let rank = failure.who.rank;
            let life = peers.get(rank).and_then(|peer| peer.life.as_ref());
            if let (Some(life), Some(member)) = (life, members.get(rank.index()))
                && life.has_ended(Duration::ZERO)?
            {
                gone.push(*member);
            }
        }
        Ok(gone)
    }

    /// Ends the epoch in force: waits end with [`Error::Interrupted`], and nothing more starts. Its first reason stays.
    ///
    /// [`Error::Usage`]: the job is not elastic, or the mesh is not up.
    pub fn interrupt(&self, reason: &str) -> Result<(), Error> {
        if self.elastic.is_none() {
            return Err(Error::Usage("only the epochs of an elastic job are interrupted".into()));
        }
        let core = self.core();
        if core.peers.get().is_none() {
            return Err(Error::Usage("no epoch has begun".into()));
        }
        core.interrupt(reason);
        Ok(())
    }

    /// Ends the epoch in force, and waits until nothing of it runs here: after that, nothing here writes to memory, of
    /// whichever rank. Not in a completion callback.
    pub fn quiesce(&self, reason: &str, timeout: Duration) -> Result<(), Error> {
        if in_callback() {
            return Err(Error::Usage("a completion callback waits for the end of an epoch".into()));
        }
        self.interrupt(reason)?;
        let core = self.core();
        let deadline = Instant::now() + timeout;
        while core.is_busy() {
            if let Some(Error::Peer(failure)) = core.failure() {
                return Err(failure.into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = timeout.as_secs_f64();
                let what = format!("{}: ops of epoch {} still run after {seconds} s", core.own, core.epoch);
                return Err(Error::Timeout { what, location: None, missing: Vec::new() });
            }
            core.wait_for_quiet(left.min(WAKE));
        }
        Ok(())
    }

    /// Begins epoch `epoch` with `members`, by rank, all of which are in the epoch in force; all of them do the same, after
    /// all of them have quiesced. Programs and messages of the epoch before are gone. Connections to members that the
    /// epoch shuts out are closed. Where one of those shares memory with us, its process must end first: it is waited
    /// for, at most `timeout`, and then ended. Those that have `left` in order write nothing any more, and may live on.
    ///
    /// [`Error::Usage`]: the table makes no sense. [`Error::System`]: a process that may write to our memory cannot be
    /// ended; the epoch has not begun then. [`Error::Interrupted`]: a member of the new epoch is lost already, and the
    /// new epoch is interrupted.
    pub fn resume(
        &self,
        epoch: u64,
        members: &[Member],
        left: &[Member],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.quiesce(&format!("epoch {epoch} begins"), timeout)?;
        let mut threads = lock(&self.threads);
        let before = self.core();
        let Some(peers) = before.peers.get() else {
            return Err(Error::Usage("no epoch has begun".into()));
        };
        let table = peers.table.following(epoch, members)?;
        let change = peers.table.change(&table);
        let known = peers.table.members();
        let has_left = |rank: &Rank| known.get(rank.index()).is_some_and(|member| left.contains(member));
        let shut_out: Vec<_> = change.closed.iter().copied().filter(|rank| !has_left(rank)).collect();
        fence(peers, &shut_out, timeout)?;
        let core = Arc::new(successor(&before, peers, table, &change)?);
        let (started, begin) = Threads::start(&core)?;
        before.retire();
        let entered =
            threads.join().ok_or_else(|| "the I/O thread has ended".to_owned()).and_then(|mut io| {
                enter(&mut io, epoch, &change).map_err(|cause| cause.to_string())?;
                Ok(io)
            });
        let io = entered.map_err(|what| {
            core.closing.store(true, Ordering::Release);
            before.fail_here(None, format_args!("cannot begin epoch {epoch}: {what}"));
            Error::System(what)
        })?;
        *threads = started;
        self.replace_core(&core);
        before.externals.close();
        for way in [Way::Down, Way::Up] {
            before.staged(way).close();
        }
        // What a peer of both epochs did in the first would not be noticed again.
        for failure in before.losses() {
            if let Some((_, rank)) = change.kept.iter().find(|(old, _)| *old == failure.who.rank) {
                let who = Who { rank: *rank, ..failure.who };
                core.note_loss(Failure { who, location: None, ..failure });
            }
        }
        begin.send(io).map_err(|_| Error::System("the I/O thread has ended before it began".into()))?;
        core.failure().map_or(Ok(()), Err)
    }
}

/// Waits for the end of neighbours that the epoch shuts out, and ends them after `timeout`.
fn fence(peers: &Peers, closed: &[Rank], timeout: Duration) -> Result<(), Error> {
    let neighbours =
        closed.iter().filter_map(|rank| peers.get(*rank)).filter(|peer| peer.link.memory().is_some());
    let deadline = Instant::now() + timeout;
    for peer in neighbours {
        let cannot = |cause: &str| {
            let who = &peer.who;
            Error::System(format!(
                "{who} may still write to this rank's memory, and its process cannot be ended: {cause}"
            ))
        };
        let life = peer.life.as_ref().ok_or_else(|| cannot("it is not watched"))?;
        let left = deadline.saturating_duration_since(Instant::now());
        if life.has_ended(left)? {
            continue;
        }
        life.end().map_err(|cause| cannot(&cause.to_string()))?;
        if !life.has_ended(END_PATIENCE)? {
            return Err(cannot("it was told to, and still runs"));
        }
    }
    Ok(())
}

/// The core of the epoch of `table`, with links that stay.
fn successor(before: &Core, peers: &Peers, table: PeerTable, change: &Change) -> Result<Core, Error> {
    let who = |rank: Rank| Who { rank, host: table.host_of(rank).to_owned() };
    let core = Core::new(who(table.own()), table.epoch(), before.lasting());
    let mut known: Vec<Option<Peer>> = (0..table.world()).map(|_| None).collect();
    for (old, new) in &change.kept {
        known[new.index()] = peers.get(*old).map(|peer| Peer {
            who: who(*new),
            link: Arc::clone(&peer.link),
            life: peer.life.clone(),
            exit_code: peer.exit_code.clone(),
        });
    }
    let first = core.peers.set(Peers::new(table, known, peers.unlinked.clone())?);
    debug_assert!(first.is_ok(), "a fresh core has no peers");
    Ok(core)
}

/// Closes links that end, and marks the epoch on the others.
fn enter(io: &mut Io, epoch: u64, change: &Change) -> io::Result<()> {
    for place in &mut io.ports {
        let Some((rank, port)) = place else { continue };
        match change.kept.iter().find(|(old, _)| old == rank) {
            Some((_, new)) => {
                *rank = *new;
                port.enter(epoch)?;
            }
            None => *place = None,
        }
    }
    Ok(())
}
