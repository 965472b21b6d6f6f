//! What can happen in the simulated world, and what travels in it.

use crate::memory::Sum;
use crate::net::ConnectionId;
use hocket_protocol::fence::Region;
use hocket_protocol::membership::member::Event as Told;
use hocket_protocol::membership::{Note, Order};
use hocket_protocol::sampler::{Layout, Sampler};
use hocket_protocol::transfer::Manifest;

/// One thing that travels on a lane.
#[derive(Clone, Debug)]
pub enum Packet {
    Note(Note),
    Order(Order),
    /// The sender begins an epoch; nothing of another one follows on this lane.
    Marker(u64),
    /// The sender has launched a collective of a step and takes data for the blocks that it reduces.
    Clear {
        collective: usize,
        step: u64,
    },
    /// A neighbour has launched: its bucket lies there.
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
    /// A neighbour has written a result into the addressee's bucket.
    Landed {
        collective: usize,
        step: u64,
        block: usize,
    },
    /// A source's state, and what a joiner has to know beside its blocks.
    Have {
        manifest: Manifest,
        sampler: Sampler,
        layout: Layout,
    },
    AskBlock(usize),
    Block {
        block: usize,
        value: u64,
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
        epoch: u64,
        step: u64,
        collective: usize,
        block: usize,
    },
    Write {
        epoch: u64,
        step: u64,
        collective: usize,
        block: usize,
        sum: Sum,
        targets: Vec<(usize, Region)>,
    },
    /// A block of the state is ready for a joiner.
    Serve {
        to: usize,
        epoch: u64,
        block: usize,
    },
    /// Is the proposed epoch connected and loaded?
    Load(u64),
    LeaveAsked,
    /// The script comes to this in an epoch, unless another one has begun.
    Script {
        epoch: u64,
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
    /// The next member that begins an epoch with joiners is heard by them alone, and then ends.
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
    Arrives { connection: ConnectionId, packet: Packet },
    Closed { connection: ConnectionId },
    Written { life: u32 },
    Tick,
    Crash { for_us: u64 },
    Resume,
    Start,
}
