//! Options of a rank's executor.

use hocket_fabric::{Choice, FabricError, providers};
use hocket_ids::Rank;
use hocket_trace::Wanted;
use hocket_wire::life::Lifetime;
use hocket_wire::shaper::EmulatedLinks;
use std::net::IpAddr;
use std::time::Duration;

/// Options for creating a rank's executor.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our rank.
    pub rank: Rank,
    /// Name of our host, the same as in its address; no other host of the job has it.
    pub host: String,
    /// Number of ranks.
    pub world: usize,
    /// Distinguishes the job from others on the host.
    pub job: String,
    /// Shared by the job's ranks and nobody else.
    pub secret: Vec<u8>,
    /// Addresses to listen on: one, or one per interface that connections are spread over.
    pub bind: Vec<IpAddr>,
    /// Native threads: one for I/O, the rest for computing.
    pub threads: usize,
    /// File to write the event records to, and of what part of the run.
    pub trace: Option<Wanted>,
    /// Emulated network, where the kernel's own cannot be shaped.
    pub emulated_links: Option<EmulatedLinks>,
    /// Frames between hosts carry checksums; the same on all ranks.
    pub checksum: bool,
    /// Connections between hosts are encrypted; the same on all ranks.
    pub tls: bool,
    /// What carries payloads between hosts in place of TCP; the same on all ranks.
    pub fabric: Option<Fabric>,
    /// Whether the job goes on without peers that are lost; the same on all ranks. Whose end neighbours then wait for
    /// before they use memory again that this rank may write to.
    pub elastic: Option<Lifetime>,
    /// How long a peer may be silent while this rank waits for it.
    pub silence_max: Duration,
}

/// Which fabric carries payloads between hosts; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// That one.
    Chosen(Choice),
    /// EFA, where this machine has it.
    Auto,
}

impl Fabric {
    /// By the name that users give it. `Err`: the names that there are.
    pub fn from_name(name: &str) -> Result<Self, String> {
        if name == "auto" {
            return Ok(Self::Auto);
        }
        let known: Vec<&str> = Choice::ALL.iter().map(|(known, _)| *known).collect();
        let chosen = Choice::from_name(name).map(Self::Chosen);
        chosen.ok_or_else(|| format!("`{name}` is no fabric; there are {}, auto and off", known.join(", ")))
    }

    pub(crate) fn choice(self) -> Result<Option<Choice>, FabricError> {
        match self {
            Self::Chosen(choice) => Ok(Some(choice)),
            Self::Auto => match providers() {
                Ok(all) => Ok(all.iter().any(|provider| provider.name == "efa").then_some(Choice::Efa)),
                Err(FabricError::Library(_)) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }
}
