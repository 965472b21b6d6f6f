//! Events in virtual time.

/// An event.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A message arrives whose landing was set when it left.
    Land { route: u32, generation: u32, instance: u32, op: u32 },
    /// A message arrives.
    Arrive { instance: u32, op: u32 },
    /// The last byte of a route's message has left.
    Drain { route: u32, generation: u32 },
    /// A sender learns that its receive is posted.
    Clear { instance: u32, op: u32 },
    /// A rank's engine has finished an op.
    Done { instance: u32, op: u32 },
    /// A rank's engine has written what it had not when a message's last byte left.
    Written { instance: u32, op: u32 },
    /// A copy between a rank's host and its device has ended.
    Copied { instance: u32, op: u32 },
    /// A rank's gap has passed.
    Waited { instance: u32, op: u32 },
    /// A rank goes on with its timeline.
    Resume { rank: u32 },
    /// A link changes.
    Change { index: u32 },
}
