//! What one end of a connection knows of the other's life: bytes that come, and what the other's kernel acknowledges.

use hocket_protocol::liveness::{Action, Liveness, Patience};
use hocket_protocol::path::{self, Look, Path};
use std::time::Duration;

/// Of the simulated networks, which have no queues.
const ROUND_TRIP: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Hearing {
    liveness: Liveness,
    path: Option<Path>,
    acknowledged: Duration,
}

impl Hearing {
    pub fn new(patience: Patience, now: Duration) -> Self {
        let path = patience.by_path.then(Path::default);
        Self { liveness: Liveness::new(patience, now), path, acknowledged: now }
    }

    pub fn handle_arrival(&mut self, now: Duration) {
        self.liveness.handle_arrival(now);
        if let Some(path) = &mut self.path {
            path.rest();
        }
    }

    /// What is due; `cut`: nothing passes to the other end, or nothing comes back.
    pub fn poll(&mut self, now: Duration, cut: bool) -> Action {
        let action = self.liveness.poll(now, || true);
        let Some(path) = &mut self.path else { return action };
        if action == Action::Ask {
            path.expect(now);
        }
        if !cut {
            self.acknowledged = now;
        }
        if !path.is_due(now) {
            return action;
        }
        let look = Look {
            at: now,
            unacknowledged: cut,
            acknowledged_before: now.saturating_sub(self.acknowledged),
            round_trip: ROUND_TRIP,
            deviation: ROUND_TRIP / 4,
        };
        match path.handle_look(&look, path::TIMEOUTS) {
            Some(silence) => Action::GiveUp { silence },
            None => action,
        }
    }
}
