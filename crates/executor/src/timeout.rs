//! A wait is over: whom it waits for, who is at fault, and the error that says so.

use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::failure::{Failure, Who};
use crate::loaded::Loaded;
use crate::lock::lock;
use crate::waiting::{GivenUp, Waiting};
use crate::waits::NotedWait;
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use hocket_protocol::word::Launched;
use std::time::Duration;

impl Core {
    /// The running launch is not complete after `timeout`, because of the `culprits`.
    pub fn timed_out(&self, loaded: &Loaded, timeout: Duration, culprits: &[Rank]) -> Error {
        let location =
            loaded.location(culprits.first().and_then(|rank| loaded.awaited_of(*rank)).map(|(op, _)| op));
        let what = format!(
            "`{}` (launch {}) is not complete after {:.1} s; waits for {}",
            loaded.label,
            location.launch,
            timeout.as_secs_f64(),
            self.waits_for(loaded, culprits)
        );
        let launch = (location.program, location.launch);
        let missing = self.with_hosts(culprits);
        self.note_given_up(&what, &missing, Some(launch));
        Error::Timeout { what, location: Some(location), missing }
    }

    /// The end of a sentence: ranks that the launch waits for, if they are at fault; otherwise all of them, and who is.
    fn waits_for(&self, loaded: &Loaded, culprits: &[Rank]) -> String {
        let unfinished = loaded.unfinished();
        if unfinished.is_empty() {
            return loaded.waits_for_other().unwrap_or("work of this rank").into();
        }
        let at_fault = |(rank, _): &&(Rank, bool)| culprits.contains(rank);
        let direct = unfinished.iter().any(|each| at_fault(&each));
        let named = unfinished.iter().filter(|each| !direct || at_fault(each));
        let each = |&(rank, receiving): &(Rank, bool)| {
            format!("{} to {}", self.peer(rank).who, if receiving { "send" } else { "receive" })
        };
        let text = named.map(each).collect::<Vec<_>>().join(", ");
        if direct || culprits.is_empty() {
            return text;
        }
        format!("{text}, and ultimately for {}", names(&self.with_hosts(culprits)))
    }

    /// Ranks with their hosts.
    pub fn with_hosts(&self, ranks: &[Rank]) -> Vec<Who> {
        ranks.iter().map(|rank| self.peer(*rank).who.clone()).collect()
    }

    fn note_given_up(&self, what: &str, missing: &[Who], launch: Option<Launched>) {
        if let Some(who) = missing.first() {
            let failure = Failure {
                who: who.clone(),
                why: Why::Timeout,
                exit_code: None,
                location: None,
                what: what.to_owned(),
            };
            *lock(&self.given_up) = Some(GivenUp { failure, launch });
        }
    }

    /// Why this rank would not go on if it ended now: a wait was over, and what was waited for has not come since.
    /// `certain`: only if that is known, which it is of launches.
    pub fn given_up(&self, certain: bool) -> Option<Failure> {
        let GivenUp { failure, launch } = lock(&self.given_up).clone()?;
        let still = match launch {
            None => !certain,
            Some((program, launch)) => self
                .programs
                .get(program)
                .is_some_and(|loaded| !loaded.has_completed(launch.saturating_add(1))),
        };
        still.then_some(failure)
    }
}

impl Engine {
    /// Withdraws a receive that was offered nothing; the error says whom the message has awaited since `timeout`.
    pub fn give_up_message(&self, number: u32, timeout: Duration) -> Error {
        let core = self.core();
        let (who, waits_for) = core.message_waits_for(number);
        let awaited: Vec<Rank> = who.iter().map(|who| who.rank).collect();
        let culprits =
            core.culprits(None, awaited.clone(), timeout, || !lock(&core.messages).is_done(number));
        lock(&core.messages).withdraw(number);
        let missing = core.with_hosts(&culprits);
        let ultimately = if culprits == awaited {
            String::new()
        } else {
            format!(", and ultimately for {}", names(&missing))
        };
        let what = format!(
            "rank {}: a message is not complete after {} s: it waits for {waits_for}{ultimately}",
            core.own.rank,
            timeout.as_secs_f64()
        );
        core.note_given_up(&what, &missing, None);
        Error::Timeout { what, location: None, missing }
    }

    /// Others that ask are told that this rank waits for `rank`, until the result is dropped: in something that the executor
    /// does not know.
    pub fn note_wait(&self, rank: Rank) -> NotedWait {
        NotedWait::new(&self.core(), Waiting::Rank(rank))
    }

    /// `awaited` have not come to something that the executor does not know, after `timeout`: the error, in which `what`
    /// follows from who is at fault.
    pub fn absent(
        &self,
        awaited: Vec<Rank>,
        timeout: Duration,
        what: impl FnOnce(&[Who]) -> String,
    ) -> Error {
        let core = self.core();
        let culprits = core.culprits(None, awaited, timeout, || true);
        let missing = core.with_hosts(&culprits);
        let what = what(&missing);
        core.note_given_up(&what, &missing, None);
        Error::Timeout { what, location: None, missing }
    }

    /// Why the job does not go on, or this rank does not: the job's failure, or a wait that was over and that nothing has
    /// ended since.
    pub fn blamed(&self) -> Option<Failure> {
        let core = self.core();
        match core.failure() {
            Some(Error::Peer(failure)) => Some(failure),
            _ => core.given_up(false),
        }
    }
}

/// `rank 1 on a, rank 2 on b`.
fn names(ranks: &[Who]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
