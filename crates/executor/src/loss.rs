//! The error for a peer whose connection ended or that is silent: the peer, the reason, and what this rank was waiting
//! for.

use crate::core::Core;
use crate::failure::{Failure, Location};
use crate::lock::lock;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::checksum::Damage;
use hocket_protocol::frame::{Data, Frame, NO_PROGRAM};
use hocket_protocol::why::Why;
use hocket_wire::link::LinkError;

impl Core {
    /// Fails the job: the connection to `peer`, between `ends`, ended with `error`.
    pub fn lose(&self, peer: &Peer, ends: Option<&str>, error: &LinkError) {
        self.fail(match error {
            LinkError::Damaged { frame, damage } => self.damaged(peer, ends, *frame, *damage),
            LinkError::Silent { silence } => {
                let Some((location, what)) = self.awaited_of(peer.who.rank) else { return };
                let what = format_args!(
                    "has been silent for {:.1} s while {what}: its process is stopped, its host hangs or the network to it \
                     is down (HOCKET_HEARTBEAT_TIMEOUT_S says how long to bear that)",
                    silence.as_secs_f64(),
                );
                peer.failed(Why::Silent, location, what)
            }
            LinkError::Unreachable { silence } => {
                let Some((location, what)) = self.awaited_of(peer.who.rank) else { return };
                let what = format_args!(
                    "cannot be reached: its host has acknowledged nothing for {:.1} s while {what}, so the host or the \
                     network to it is down (HOCKET_HEARTBEAT_TIMEOUT_S says how long to bear that)",
                    silence.as_secs_f64(),
                );
                peer.failed(Why::Silent, location, what)
            }
            error => peer.failed(error.why(), None, error),
        });
    }

    /// What a user needs to find the faulty part: both ends, and which bytes of which message.
    fn damaged(&self, peer: &Peer, ends: Option<&str>, frame: Option<Frame>, damage: Damage) -> Failure {
        let location = match frame {
            Some(
                Frame::Data(Data { program, instance, op, .. })
                | Frame::ClearToSend { program, instance, op, .. },
            ) => Some(Location { program, launch: instance, op: Some(op) }),
            _ => None,
        };
        let what = frame.map_or_else(|| "the header of a frame".into(), |frame| self.named(&frame));
        let Damage { wanted, found } = damage;
        let ends = ends.map_or_else(String::new, |ends| format!(", {ends}"));
        let what = format!(
            "{} → {}{ends}: {what} arrived damaged: CRC32C {found:08x}, sent as {wanted:08x}; \
             check memory, network cards and cables of both hosts",
            peer.who, self.own,
        );
        Failure { who: peer.who.clone(), why: Why::Damaged, exit_code: None, location, what }
    }

    /// A frame, for people.
    fn named(&self, frame: &Frame) -> String {
        match *frame {
            Frame::Data(Data { program: NO_PROGRAM, instance, offset_bytes, payload_bytes, .. }) => {
                let end = offset_bytes + u64::from(payload_bytes);
                format!("bytes {offset_bytes}..{end} of message {instance}")
            }
            Frame::Data(Data { program, instance, op, offset_bytes, payload_bytes }) => {
                let label =
                    self.programs.get(program).map_or_else(String::new, |loaded| loaded.label.clone());
                let end = offset_bytes + u64::from(payload_bytes);
                format!(
                    "bytes {offset_bytes}..{end} of `{label}` op {op} (program {program}, launch {instance})"
                )
            }
            Frame::ClearToSend { program, instance, op, .. } => {
                format!("the announcement for op {op} of program {program}, launch {instance},")
            }
            Frame::Offer { send, .. } | Frame::Accept { send, .. } => format!("the offer of message {send}"),
            Frame::Word(_) => "a word on waits or ends".into(),
            Frame::Abort { .. } | Frame::Bye | Frame::Pushed { .. } => "the peer's last words".into(),
            Frame::Ask | Frame::Alive => "a sign of life".into(),
            Frame::Sum { .. } => "the sum of a piece".into(),
            Frame::Epoch { epoch } => format!("the beginning of epoch {epoch}"),
        }
    }

    /// What this rank is waiting for from `rank`: the place, if it is in a program, and a text.
    pub fn awaited_of(&self, rank: Rank) -> Option<(Option<Location>, String)> {
        let of_program = self.programs.find_map(|loaded| {
            let (op, receiving) = loaded.awaited_of(rank)?;
            let what = if receiving { "waits for data from it" } else { "has data for it" };
            let location = loaded.location(Some(op));
            let Location { program, launch, .. } = location;
            let what = format!("`{}` op {op} (program {program}, launch {launch}) {what}", loaded.label);
            Some((Some(location), what))
        });
        of_program
            .or_else(|| lock(&self.messages).needs(rank).then(|| (None, "a message waits for it".into())))
    }
}
