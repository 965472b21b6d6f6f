//! Detects whether a peer still lives while this rank waits for it. After a silence, the rank sends a probe; the peer's
//! I/O thread replies at once, whatever else its process does.
//!
//! Only time during which this rank was awake counts as silence: a suspended rank, or a machine that slept, finds a
//! clock that jumped and must not blame others for it. Connections keep their order and lose nothing, so one unanswered
//! probe is enough; a suspended peer answers it when it resumes. No I/O and no clock here: the caller passes the time.

use std::time::Duration;

/// Silence before a probe, unless the limit is short.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// The same where a probe also tells whether the peer's host can be reached.
const ASK_PATH_AFTER: Duration = Duration::from_millis(200);
/// The shortest limit holds this many such silences.
const PAUSES: u32 = 4;

/// How long a peer may be silent while this rank waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The limit.
    pub silence_max: Duration,
    /// Whether a peer whose host acknowledges nothing is given up before that ([`crate::path`]).
    pub by_path: bool,
}

impl Patience {
    /// That limit, whatever hosts acknowledge.
    pub fn of(silence_max: Duration) -> Self {
        Self { silence_max, by_path: false }
    }
}

/// State of one peer.
#[derive(Clone, Debug)]
pub struct Liveness {
    ask_after: Duration,
    silence_max: Duration,
    polled: Duration,
    silence: Duration,
    asked: bool,
}

/// What the caller must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Wait,
    /// Send a probe.
    Ask,
    /// The peer has been silent for too long.
    GiveUp {
        /// The length of the silence.
        silence: Duration,
    },
}

impl Liveness {
    /// Starts at `now`; after `silence_max` without a byte the peer is given up.
    pub fn new(patience: Patience, now: Duration) -> Self {
        let Patience { silence_max, by_path } = patience;
        let ask_after = if by_path { ASK_PATH_AFTER } else { ASK_AFTER };
        let ask_after = ask_after.min(silence_max / PAUSES);
        Self { ask_after, silence_max, polled: now, silence: Duration::ZERO, asked: false }
    }

    /// Bytes came from the peer by `now`.
    pub fn handle_arrival(&mut self, now: Duration) {
        self.polled = now;
        self.silence = Duration::ZERO;
        self.asked = false;
    }

    /// Advances to `now`, on any clock that does not go back; call it at least twice in [`Self::ask_after`]. `awaited`:
    /// whether anything is expected of the peer; it is only evaluated in silence, about once in that time.
    pub fn poll(&mut self, now: Duration, awaited: impl FnOnce() -> bool) -> Action {
        let since = now.saturating_sub(self.polled);
        // The time between two polls may be sleep of our own: it counts as one pause at most.
        self.silence += since.min(self.ask_after);
        self.polled = now;
        let due = if self.asked { self.silence_max } else { self.ask_after };
        if self.silence < due {
            return Action::Wait;
        }
        if !awaited() {
            self.handle_arrival(now);
            return Action::Wait;
        }
        if self.asked {
            return Action::GiveUp { silence: self.silence };
        }
        self.asked = true;
        Action::Ask
    }

    /// The silence after which the peer gets a probe.
    pub fn ask_after(&self) -> Duration {
        self.ask_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const TICK: Duration = Duration::from_millis(500);

    /// Polls every tick until `until`; returns the first action other than to wait, and its time.
    fn run(
        peer: &mut Liveness,
        from: Duration,
        until: Duration,
        awaited: bool,
    ) -> Option<(Duration, Action)> {
        let mut now = from;
        while now < until {
            now += TICK;
            let action = peer.poll(now, || awaited);
            if action != Action::Wait {
                return Some((now, action));
            }
        }
        None
    }

    /// A rank whose peer hangs would wait for the whole step's time-out, or for ever.
    #[test]
    fn a_silent_peer_is_asked_once_and_then_given_up() {
        let mut peer = Liveness::new(Patience::of(LIMIT), Duration::ZERO);
        let asked = run(&mut peer, Duration::ZERO, LIMIT * 2, true);
        assert_eq!(asked, Some((ASK_AFTER, Action::Ask)));
        let ended = run(&mut peer, ASK_AFTER, LIMIT * 2, true);
        assert_eq!(ended, Some((LIMIT, Action::GiveUp { silence: LIMIT })));
    }

    /// Ranks would be given up while nobody needs them, for example during evaluation on rank 0.
    #[test]
    fn a_peer_that_nothing_is_expected_of_may_be_silent() {
        let mut peer = Liveness::new(Patience::of(LIMIT), Duration::ZERO);
        assert_eq!(run(&mut peer, Duration::ZERO, LIMIT * 20, false), None);
        // Silence from before it was needed does not count against it.
        let asked = run(&mut peer, LIMIT * 20, LIMIT * 40, true);
        assert!(matches!(asked, Some((_, Action::Ask))), "{asked:?}");
    }

    /// A peer that was suspended for a while and resumes would be given up all the same.
    #[test]
    fn an_answer_before_the_limit_is_in_time() {
        let mut peer = Liveness::new(Patience::of(LIMIT), Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..10 {
            let (asked, action) = run(&mut peer, now, now + LIMIT, true).unwrap();
            assert_eq!(action, Action::Ask);
            now = asked + (LIMIT / 10) * 8;
            assert_eq!(run(&mut peer, asked, now, true), None);
            peer.handle_arrival(now);
        }
    }

    /// A suspended rank would blame the first peer that it polls after resuming.
    #[test]
    fn our_own_sleep_is_not_the_peers_silence() {
        let mut peer = Liveness::new(Patience::of(LIMIT), Duration::ZERO);
        assert_eq!(peer.poll(LIMIT * 100, || true), Action::Ask);
        assert_eq!(peer.poll(LIMIT * 200, || true), Action::Wait);
        peer.handle_arrival(LIMIT * 200);
        assert_eq!(peer.poll(LIMIT * 200 + TICK, || true), Action::Wait);
    }

    proptest! {
        /// However calls fall, no peer is given up without a probe and silence for the whole limit.
        #[test]
        fn nobody_is_given_up_early(limit_ms in 1u64..60_000, steps in prop::collection::vec((0u64..3_000, any::<bool>(), 0u8..10), 1..300)) {
            let limit = Duration::from_millis(limit_ms);
            let mut peer = Liveness::new(Patience::of(limit), Duration::ZERO);
            let (mut now, mut heard, mut asked) = (Duration::ZERO, Duration::ZERO, false);
            for (pass_ms, awaited, speaks) in steps {
                now += Duration::from_millis(pass_ms);
                if speaks == 0 {
                    peer.handle_arrival(now);
                    (heard, asked) = (now, false);
                }
                match peer.poll(now, || awaited) {
                    Action::Wait => {}
                    Action::Ask => {
                        prop_assert!(awaited && !asked);
                        asked = true;
                    }
                    Action::GiveUp { silence } => {
                        prop_assert!(awaited && asked && silence >= limit && now >= heard + limit);
                        break;
                    }
                }
                if !awaited {
                    // It may have started again; another probe is allowed.
                    asked &= peer.asked;
                }
            }
        }
    }
}
