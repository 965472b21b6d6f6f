//! What can happen in the simulated world, and what travels in it.

use crate::memory::{Region, Sum};
use crate::net::ConnectionId;
use hocket_ids::Member;
use hocket_protocol::membership::member::Event as Told;
use hocket_protocol::membership::{Note, Order};

/// A generation, and the number of an epoch in it.
pub type Epoch = (u64, u64);

/// One thing that travels on a lane.
#[derive(Clone, Debug)]
pub enum Packet {
    /// Of the sender's machine, which is of that generation; of none (0) before it has met anybody.
    Note {
        generation: u64,
        note: Note,
    },
    /// The sender has the state that it takes beside training.
    Ready,
    /// The sender has applied its last step, and waits for the newcomers of an epoch of its generation.
    AtEdge {
        generation: u64,
        epoch: u64,
    },
    /// Of the machine of that generation.
    Order {
        generation: u64,
        order: Order,
    },
    /// The others have met without the addressee.
    Refused,
    /// The sender begins an epoch; nothing of another one follows on this lane.
    Marker(u64),
    /// The sender has launched a collective of a step and takes data for the blocks that it reduces.
    Clear {
        collective: usize,
        step: u64,
    },
    /// A neighbour has launched: its sums lie there.
    Publish {
        collective: usize,
        step: u64,
        region: Region,
    },
    /// A contribution to the addressee's block, or a result of the sender's.
    Data {
        collective: usize,
        step: u64,
        block: usize,
        sum: Sum,
        is_result: bool,
    },
    /// A neighbour has written a result into the addressee's sums.
    Landed {
        collective: usize,
        step: u64,
        block: usize,
    },
    Ask,
    Alive,
}

/// What happens inside one process.
#[derive(Clone, Debug)]
pub enum Local {
    Arrives {
        connection: ConnectionId,
        lane: usize,
        packet: Packet,
    },
    Closed {
        connection: ConnectionId,
    },
    /// A neighbour's process has ended, as its file descriptor says.
    Gone(usize),
    /// Backward has made all gradients of a bucket.
    Backward {
        bucket: usize,
        step: u64,
    },
    /// A block is reduced: all contributions are read.
    Reduce {
        epoch: Epoch,
        step: u64,
        collective: usize,
        block: usize,
    },
    Write {
        epoch: Epoch,
        step: u64,
        collective: usize,
        block: usize,
        sum: Sum,
        targets: Vec<(usize, Region)>,
    },
    /// A newcomer has taken the state beside training.
    Taken,
    /// Neighbours that an epoch shuts out have had their time to end.
    Fenced(Epoch),
    /// The connection to a member of an epoch ended before that epoch.
    Unreachable {
        epoch: Epoch,
        peer: Member,
    },
    LeaveAsked,
    /// The script comes to this in an epoch, unless another one has begun.
    Script {
        epoch: Epoch,
        event: Told,
    },
    Tick,
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A process ends at any instruction.
    Kill,
    /// A host with all its processes: nobody says goodbye.
    KillHost,
    Stop {
        for_us: u64,
    },
    /// A script does not go on; all else of its process does.
    Hang {
        for_us: u64,
    },
    Cut {
        for_us: u64,
        both: bool,
    },
    CutCoordinator {
        for_us: u64,
    },
    Reset,
    Join,
    Leave,
    /// The next member that begins an epoch with joiners is heard by nobody, and then ends.
    LoneBeginner {
        for_us: u64,
    },
    KillCoordinator {
        for_us: u64,
    },
    /// The next time that the journal is written, the coordinator ends about when the disk has it.
    TearJournal {
        for_us: u64,
    },
    StopCoordinator {
        for_us: u64,
    },
}

#[derive(Clone, Debug)]
pub enum Event {
    In(usize, Local),
    Resume(usize),
    /// A script that hung goes on.
    Unhang(usize),
    /// The leash ends an evicted process.
    Leash(usize),
    Coordinator(OfCoordinator),
}

#[derive(Clone, Debug)]
pub enum OfCoordinator {
    Arrives {
        connection: ConnectionId,
        packet: Packet,
    },
    Closed {
        connection: ConnectionId,
    },
    Written {
        life: u32,
    },
    /// The head of the journal is on the disk, later than it should be.
    Head {
        life: u32,
    },
    Tick,
    Crash {
        for_us: u64,
    },
    Resume,
    Start,
}
